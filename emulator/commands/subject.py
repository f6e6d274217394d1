"""The first argument of a command: a network, or a configuration file."""

from __future__ import annotations

import os
import pathlib
from typing import NamedTuple

from ..common import InputError, did_you_mean

_OF_NETWORKS = {"layers", "input"}
"""Keys that a network's description has, and that no configuration has."""


class Subject(NamedTuple):
    """A network, or the file of a configuration; the other one is None, and so are both without a word."""

    network: str | None = None
    config_file: str | None = None


def subject_of(word: str | None) -> Subject:
    """Return what `word` names: a network that comes with emuchain, an ONNX file, or a TOML file, by its keys.

    Raises:
        InputError: it names none of these, or is a file that cannot be read.
    """
    from ..inputs import read_toml
    from ..network import zoo

    if word is None:
        return Subject()
    if word in zoo() or word.lower().endswith(".onnx"):
        return Subject(network=word)
    path = pathlib.Path(word)
    if not (word.lower().endswith(".toml") or os.path.isfile(word)):
        known = ", ".join(zoo())
        raise InputError(
            f"{word!r}: neither a `network` that comes with emuchain nor a TOML or ONNX file; "
            f"{did_you_mean(word, zoo())}known networks: {known}"
        )
    if _OF_NETWORKS & read_toml(path).keys():
        return Subject(network=word)
    return Subject(config_file=word)
