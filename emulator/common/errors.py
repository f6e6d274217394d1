"""Errors that are the user's to mend: each is one line that names the file, key and value and what would be right.

They are raised anywhere below the command line and caught in one place, `emulator.cli.main`, which prints the line on
rank 0 and ends every rank with exit status 2.
"""


class InputError(Exception):
    """What the user gave cannot be used; `str(error)` is one line that says what, where, and what would be right."""
