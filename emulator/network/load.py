"""Networks by name: those of the zoo, and those that a TOML or ONNX file describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..common import find, names
from .layer import Network

ONNX = ".onnx"
_ZOO = "network/zoo"


def zoo() -> list[str]:
    """Return the names of the networks that come with emuchain."""
    return names(_ZOO)


def load_network(network: str | Mapping[str, Any]) -> Network:
    """Return a network with all shapes worked out.

    Args:
        network: a name of the `zoo`; the path of a TOML or ONNX file; or a mapping with the keys of such a TOML file.

    Raises:
        InputError: no such name or file, or an invalid description.
    """
    from ..inputs import read_toml, validate
    from .description import Description
    from .graph import resolve
    from .text import to_toml

    if not isinstance(network, str):
        source = repr(network.get("name", "network"))
        description = validate(Description, dict(network), source)
        return dataclasses.replace(resolve(description, source), text=to_toml(description))
    path = find("network", network, _ZOO, (".toml", ONNX))
    if network.endswith(ONNX):
        from .onnx_import import describe, read_onnx

        description = describe(read_onnx(path), path.stem)
        text = to_toml(description)
    else:
        description = validate(Description, read_toml(path), str(path))
        text = path.read_text(encoding="utf-8")
    return dataclasses.replace(resolve(description, str(path)), text=text)
