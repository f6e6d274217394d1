"""Who does what in which order: schedules as data, printed, parsed, and dry-run before anything starts."""
