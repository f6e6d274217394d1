"""Files of training runs, whose figures claims about learning are measured on."""

from __future__ import annotations

import json
import pathlib
from typing import TypeVar

from ..emulator.common import InputError, Model, read_text, validate

RunsT = TypeVar("RunsT", bound=Model)


def read_run_file(path: pathlib.Path, model: type[RunsT]) -> RunsT:
    """Return a file of runs.

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    try:
        said = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a file of runs: {error}") from None
    if not isinstance(said, dict):
        raise InputError(f"{path}: not a file of runs: must be an object with `runs`")
    return validate(model, said, str(path))
