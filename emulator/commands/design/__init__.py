"""Commands that answer before anything is trained: layouts and times, sweeps, the best cut,
schedules, studies.

Of most, one file has what is computed and printed; `command_line` has the flags of those that take
a configuration.
"""
