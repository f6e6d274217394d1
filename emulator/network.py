"""Networks by name: those of the zoo, and those that a TOML file describes."""

from __future__ import annotations

import dataclasses

from . import shelf
from .description import Description
from .graph import resolve
from .layers import Network
from .validation import read_toml, validate


def zoo() -> list[str]:
    """The names of the networks that come with emuchain."""
    return shelf.names("zoo")


def load_network(name: str) -> Network:
    """The network of that name in the zoo, or the one that a TOML file describes.

    Raises:
        InputError: no such name or file, or the description does not hold together.
    """
    path = shelf.find("network", name, "zoo")
    network = resolve(validate(Description, read_toml(path), str(path)), str(path))
    return dataclasses.replace(network, text=path.read_text(encoding="utf-8"))
