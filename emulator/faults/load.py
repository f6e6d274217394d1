"""Reads a file of faults."""

from __future__ import annotations

import json
import pathlib

from ..common import InputError
from .fault import Faults

NO_FAULTS = "none"


def described_faults(text: str, source: str) -> Faults:
    """Return the faults of a run from their description, as `Faults.text` gives it.

    Raises:
        InputError: it describes none.
    """
    from ..inputs import validate
    from .description import FaultsDescription

    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source}: does not describe its faults: {error}") from None
    return validate(FaultsDescription, found if isinstance(found, dict) else {"faults": found}, source).faults


def load_faults(file: str) -> Faults:
    """Return the faults of a TOML file with a table `[faults]`; of "none", none.

    Raises:
        InputError: the file cannot be read, or a key or value is wrong.
    """
    if file == NO_FAULTS:
        return Faults()
    from ..inputs import read_toml, validate
    from .description import FaultsFile

    return validate(FaultsFile, read_toml(pathlib.Path(file)), file).faults.faults
