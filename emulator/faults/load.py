"""Reads a file of faults."""

from __future__ import annotations

import pathlib

from .fault import Faults

NO_FAULTS = "none"


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
