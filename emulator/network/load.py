"""Networks by name: those of the zoo, and those that a TOML or ONNX file describes."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..common import InputError, find, name_of, names, read_exact_text, typed
from .layer import Network
from .shape import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

ONNX = ".onnx"
_ZOO = "network/zoo"

_OF_ONE_OUTPUT = (
    "it has one output, as of a model that gives yes or no, or a number; training here is by softmax and cross-entropy"
    " over classes, which is 0 for one of them: a network needs an output for each class"
)


def zoo() -> list[str]:
    """Return the names of the networks that come with emuchain."""
    return names(_ZOO)


@typed
def load_network(
    network: str | os.PathLike[str] | Mapping[str, Any],
    *,
    text: str | None = None,
    time_steps: int | None = None,
    symbols: Callable[[], int] | None = None,
    images: Callable[[], Shape] | None = None,
) -> Network:
    """Return a network with all shapes worked out.

    Args:
        network: a name of the `zoo`; the path of a TOML or ONNX file; or a mapping with the keys of such a TOML file.
        text: of a mapping, the file from which its keys are: the network's description.
        time_steps: the steps of its sequences, in place of those that its `input` says.
        images: gives the (channels, rows, columns) that it takes if it takes any, in place of those of its `input`.
        symbols: gives what the word "symbols" stands for in its description, in place of what its key `symbols` says.

    Raises:
        InputError: no such name or file, or an invalid description; `time_steps` for an input that is not a sequence.
    """
    from ..common import read_toml, validate
    from .description import Description, to_toml, with_images, with_steps, with_symbols
    from .graph import resolve

    if time_steps is not None and time_steps < 1:
        raise InputError(f"`time_steps` = {time_steps}: should be at least 1")
    note = ""
    network = os.fspath(network) if isinstance(network, os.PathLike) else network
    if not isinstance(network, str):
        source = repr(network.get("name", "network"))
        description = validate(Description, with_images(with_symbols(network, symbols), images), source)
    else:
        path = find("network", network, _ZOO, (".toml", ONNX))
        source = str(path)
        if network.lower().endswith(ONNX):
            from .onnx_import import describe, read_onnx

            description, note = describe(read_onnx(path), name_of(path))
        else:
            said = read_toml(path)
            keys = with_images(with_symbols(said, symbols), images)
            description = validate(Description, keys, source)
            text = read_exact_text(path) if keys == said and time_steps is None else None
    if time_steps is not None:
        description = with_steps(description, time_steps)
    resolved = resolve(description, source)
    if resolved.classes == 1:
        note = "; ".join([_OF_ONE_OUTPUT, *filter(None, [note])])
    return dataclasses.replace(resolved, text=text or to_toml(description), note=note)


def network_files(network: str) -> Iterator[pathlib.Path]:
    """Yield the files of which `load_network` reads a network.

    Raises:
        InputError: no such name or file, or an ONNX file that cannot be read.
    """
    yield from weights_files(find("network", network, _ZOO, (".toml", ONNX)))


def weights_files(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a file of a network or of weights, and those beside it in which an ONNX file keeps arrays.

    Raises:
        InputError: an ONNX file cannot be read.
    """
    file = pathlib.Path(path)
    yield file
    if file.suffix.lower() == ONNX:
        from .onnx_import import files_beside

        yield from files_beside(file)


def onnx_weights(path: str) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the weights of an ONNX file by layer and name; layers have the names that `load_network` gives them.

    Raises:
        InputError: the file cannot be read, describes no network, or computes its weights.
    """
    from .onnx_import import read_onnx, weights_of

    file = pathlib.Path(path)
    return weights_of(read_onnx(file), name_of(file))


def onnx_image(weights: Mapping[str, Mapping[str, NDArray[Any]]], network: Network, blame: str) -> bytes:
    """Return the content of an ONNX file; see `onnx_export.onnx_image`."""
    from .onnx_export import onnx_image

    return onnx_image(weights, network, blame)
