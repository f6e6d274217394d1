"""What `emuchain bench` prints: lines of progress, the answer, sheets, and JSON; and the form that it measures."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..common import InputError

if TYPE_CHECKING:
    from ..bench.figures import Pace, Sheet

FORM_SETTING = "EMUCHAIN_KERNEL_FORM"


def choose_form(name: str) -> None:
    """Set the micro-kernel's form, before any kernel is loaded.

    Raises:
        InputError: there is no such form, or another one is configured or in use already.
    """
    before = os.environ.get(FORM_SETTING)
    if before and before != name:
        raise InputError(f"--form {name}: but {FORM_SETTING} is {before}; unset it, or leave out the flag")
    os.environ[FORM_SETTING] = name
    try:
        from ...kernels.form import FORM, FORMS
    except ValueError as error:
        raise InputError(f"--form: {error}") from None
    if name not in FORMS:
        raise InputError(f"--form {name}: unknown form; choose from {', '.join(FORMS)}")
    if FORM.name != name:
        raise InputError(f"--form {name}: the kernels are loaded as {FORM.name} already; start a new process")


def print_rows(host: dict[str, Any], pace: Pace, rows: Sequence[Any], summary: Sequence[Any]) -> None:
    """Print measured layers, and their means, as JSON."""
    report: dict[str, Any] = {"host": host, "threads": 1, "runs": pace.rounds}
    report["rows"] = [dataclasses.asdict(row) for row in rows]
    report["summary"] = [dataclasses.asdict(row) for row in summary]
    print(json.dumps(report))


def fields_of(row: Any, *properties: str) -> dict[str, Any]:
    """Return the fields of a row, and some of its properties, by name."""
    return dataclasses.asdict(row) | {name: getattr(row, name) for name in properties}


def check_output(as_json: bool, as_markdown: bool) -> None:
    """Raise InputError if both kinds of output are asked for."""
    if as_json and as_markdown:
        raise InputError("--json and --markdown: give one of them")


def tell(text: str) -> None:
    """Print a line of progress where a terminal shows it; nothing moves, for that would disturb what is measured."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def answer(lines: list[str]) -> None:
    """Print the answer, which comes first."""
    from ..view import print_answer

    print_answer(lines)


def note(text: str) -> None:
    """Print what the figures mean, below the sheets."""
    from ..view import say

    print()
    say(text)


def show(sheet: Sheet, as_markdown: bool) -> None:
    """Print a sheet."""
    if as_markdown:
        print(f"\n{sheet.markdown()}")
    else:
        sheet.draw()
