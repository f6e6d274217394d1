"""A program in each form of the micro-kernel, which a process chooses once, when it begins."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

from emuchain.kernels.form import FORMS, SETTING

_ROOT = pathlib.Path(__file__).parents[2]


def printed_in_every_form(program: str) -> dict[str, str]:
    """Return what a program of Python prints, by the form that it runs in."""

    def printed(form: str) -> str:
        environment = {**os.environ, SETTING: form}
        words = [sys.executable, "-c", program]
        return subprocess.run(
            words, env=environment, cwd=_ROOT, capture_output=True, text=True, check=True
        ).stdout

    return {form: printed(form) for form in FORMS}
