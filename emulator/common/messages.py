"""What is reported to the user: errors that the user can fix, notes, and text of others, so written
that it does no harm.

An error is one line that names the file, the key, the value, and what would be valid. It may be
raised anywhere below the command line and is caught in one place, `emulator.commands.cli.main`,
which prints the line on rank 0 and ends every rank with exit status 2. Text of others may be
written to a terminal, into such lines, cells of spreadsheets, HTML tables, and JSON.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

INPUT_STATUS, BUG_STATUS = 2, 1
"""Exit statuses of an error that the user can fix, and of a bug."""


class InputError(Exception):
    """Invalid user input; `str(error)` is one line that says what is wrong, where, and what would
    be valid.

    What it quotes of files and names is printable: a name may hold lines, and what a terminal
    obeys. Of very long numbers and words it quotes the ends.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_said(message))


class Note(UserWarning):
    """What a user should know of an input that is taken; commands print it as one line, once for
    each `subject`.
    """

    def __init__(self, message: object = "", subject: str = "") -> None:
        super().__init__(_said(message))
        self.subject = subject or str(self)


def _said(message: object) -> str:
    return shortened(one_line(" ".join(str(message).split("\n"))))


_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What begins a formula in a spreadsheet, in some of them as a wide character."""
_AS_TEXT = "'"

_LONG = re.compile(r"\d{41,}|[^\s/'\"`]{261,}")

NAMES = "surrogateescape"
"""How Python keeps bytes of a file's name that are no UTF-8, as `errors` of what decodes or
encodes.
"""


def escaped(text: str) -> str:
    """Return text in which characters that a terminal obeys are spelled out; lines and tabs
    stay.
    """
    if text.isprintable():
        return text
    return "\n".join(
        line if line.isprintable() else "".join(map(_spelt, line)) for line in text.split("\n")
    )


def one_line(text: str) -> str:
    """Return text in which all that is no printable character is spelled out."""
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


def shortened(text: str) -> str:
    """Return text in which no number has more than 40 digits, and no word is longer than a file's
    name in quotes.
    """
    return _LONG.sub(_cut, text)


def _cut(match: re.Match[str]) -> str:
    long = match[0]
    what = "digits" if long.isdigit() else "characters"
    return f"{long[:20]}…{long[-8:]} ({len(long):,} {what})"


def as_cell(value: object) -> object:
    """Return a value for a cell of CSV: text is one line, with a `'` before what a spreadsheet
    would compute.
    """
    if not isinstance(value, str):
        return value
    text = one_line(value)
    # "-1.5" begins like a formula, but a spreadsheet takes it for the number that it is.
    return _AS_TEXT + text if text.startswith(_FORMULAS) and not _is_number(text) else text


def of_cell(text: str) -> str:
    """Return the text of which `as_cell` made a cell."""
    return text[1:] if text.startswith(tuple(_AS_TEXT + first for first in _FORMULAS)) else text


def _spelt(character: str) -> str:
    plain = character.isprintable() or character == "\t"
    return character if plain else character.encode("unicode_escape").decode()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def encoded(text: str) -> bytes:
    """Return text as UTF-8, in which names of files have the bytes that they have on the disk."""
    return text.encode("utf-8", NAMES)


def html_table(title: str, rows: Sequence[Sequence[str]], columns: Sequence[str] = ()) -> str:
    """Return a table under its title; the first cell of each row is its name."""
    from html import escape

    left, right = ' style="text-align: left"', ' style="text-align: right"'

    def line(cells: Sequence[str], tag: str) -> str:
        first, *others = cells
        named = f"<th{left}>{escape(first)}</th>"
        return (
            f"<tr>{named}{''.join(f'<{tag}{right}>{escape(cell)}</{tag}>' for cell in others)}</tr>"
        )

    head = line(columns, "th") if columns else ""
    body = "".join(line(row, "td") for row in rows)
    return f'<table><caption style="text-align: left">{escape(title)}</caption>{head}{body}</table>'


class Figures:
    """What a function of `import emuchain` returns: its figures as JSON has them, and a `dir` of
    what is meant for others.
    """

    _figures: ClassVar[str] = ""
    """The names of attributes that `to_dict` has."""

    def to_dict(self) -> dict[str, Any]:
        """Return figures as JSON's values, under the names of the attributes; NaN is None."""
        said: dict[str, Any] = plain({name: getattr(self, name) for name in self._figures.split()})
        return said

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if not name.startswith("_")]


def plain(value: Any) -> Any:
    """Return a value as JSON has it: NumPy's as Python's, arrays and tuples as lists, objects and
    rows with names as mappings, NaN and infinities as None.
    """
    # Known by their method, since --help loads this file, and is not to load NumPy.
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, Figures):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        value = {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
