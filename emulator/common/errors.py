"""Errors that the user can fix: each is one line that names the file, the key, the value, and what would be valid.

They may be raised anywhere below the command line and are caught in one place, `emulator.commands.cli.main`, which
prints the line on rank 0 and ends every rank with exit status 2.
"""

from __future__ import annotations

from .escaped import one_line, shortened

INPUT_STATUS, BUG_STATUS = 2, 1
"""Exit statuses of an error that the user can fix, and of a bug."""


class InputError(Exception):
    """Invalid user input; `str(error)` is one line that says what is wrong, where, and what would be valid.

    What it quotes of files and names is printable: a name may hold lines, and what a terminal obeys. Of very long
    numbers and words it quotes the ends.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_said(message))


class Note(UserWarning):
    """What a user should know of an input that is taken; commands print it as one line, once for each `subject`."""

    def __init__(self, message: object = "", subject: str = "") -> None:
        super().__init__(_said(message))
        self.subject = subject or str(self)


def _said(message: object) -> str:
    return shortened(one_line(" ".join(str(message).split("\n"))))
