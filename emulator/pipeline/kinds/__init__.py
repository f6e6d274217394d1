"""Kinds of pipeline schedules, one a file; the registry finds them by itself."""
