"""Networks by name: those of the zoo, and those that a TOML or ONNX file describes."""

from __future__ import annotations

import dataclasses

from ..common import shipped as shelf
from ..inputs.validation import read_toml, validate
from .description import Description
from .description_text import to_toml
from .graph import resolve
from .layers import Network

ONNX = ".onnx"


def zoo() -> list[str]:
    """The names of the networks that come with emuchain."""
    return shelf.names("network/zoo")


def load_network(name: str) -> Network:
    """The network of that name in the zoo, or the one that a TOML or ONNX file describes.

    Raises:
        InputError: no such name or file, or the description does not hold together.
    """
    path = shelf.find("network", name, "network/zoo", (".toml", ONNX))
    if name.endswith(ONNX):
        from .onnx_import.file import read_onnx
        from .onnx_import.operators import describe

        description = describe(read_onnx(path), path.stem)
        text = to_toml(description)
    else:
        description = validate(Description, read_toml(path), str(path))
        text = path.read_text(encoding="utf-8")
    return dataclasses.replace(resolve(description, str(path)), text=text)
