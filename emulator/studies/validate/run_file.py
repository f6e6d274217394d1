"""Files of training runs that come with emuchain, because they take too long for a measure: claims/PAPER-runs.json."""

from __future__ import annotations

import json
import pathlib
from typing import TypeVar

from ...common import InputError, read_text
from ...inputs import Model, validate

RunsT = TypeVar("RunsT", bound=Model)

CLAIMS = pathlib.Path(__file__).parent / "claims"


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
