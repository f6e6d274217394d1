"""Weights of a file of any kind: results, a checkpoint, safetensors or ONNX."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from ...common import InputError, open_file
from ...config import settings_config
from ...device import array_shapes, named_weights
from ...inputs import read_description
from ...network import Network, load_network, onnx_weights
from ..checkpoint import CheckpointReader
from ..record import Weights
from ..results import Results, read_results
from .fitted import fitted
from .safetensors_file import read_safetensors

_HDF5, _ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
_FORMS = "a results file (.h5), a checkpoint (.ckpt), .safetensors or .onnx"


@dataclasses.dataclass(frozen=True)
class Found:
    """The weights of a run, with what it trained and how: the keys of its configuration, and its network.

    It had trained `epochs`, and `steps` mini-batches of the next one.
    """

    weights: Weights
    settings: dict[str, Any]
    network: Network
    epochs: int
    steps: int = 0


def read_weights(path: str, network: Network, blame: str) -> Weights:
    """Return the weights of a file for a network; `blame` begins messages.

    Raises:
        InputError: the file cannot be read, or its arrays are not those of the network.
    """
    head = _head(path, blame)
    if head.startswith(_HDF5):
        return fitted(_results(path, blame).weights, network, blame)
    if head.startswith(_ZIP):
        return fitted(_of_checkpoint(path, blame).weights, network, blame)
    if path.lower().endswith(".safetensors"):
        return fitted(read_safetensors(path, blame), network, blame)
    if path.lower().endswith(".onnx"):
        return fitted(_of_onnx(path, blame), network, blame)
    raise InputError(f"{blame}: is not a file with weights; it should be {_FORMS}")


def read_found(path: str) -> Found:
    """Return the weights of a results file or a checkpoint with the run that they are of.

    Raises:
        InputError: the file is neither, cannot be read, or holds no weights.
    """
    head = _head(path, path)
    if head.startswith(_ZIP):
        found = _of_checkpoint(path, path)
    elif head.startswith(_HDF5):
        return found_of(_results(path, path), path)
    else:
        raise InputError(f"{path}: is neither a results file (.h5) nor a checkpoint (.ckpt)")
    return dataclasses.replace(found, weights=fitted(found.weights, found.network, path))


def _head(path: str, blame: str) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(len(_HDF5))
    except FileNotFoundError:
        raise InputError(f"{blame}: no such file; it should be {_FORMS}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{blame}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _results(path: str, blame: str) -> Results:
    try:
        return read_results(pathlib.Path(path))
    except InputError as error:
        raise InputError(f"{blame}: {str(error).removeprefix(f'{path}: ')}") from None


def _of_onnx(path: str, blame: str) -> Weights:
    try:
        return onnx_weights(path)
    except InputError as error:
        raise InputError(f"{blame}: {str(error).removeprefix(f'{path}: ')}") from None


def found_of(results: Results, blame: str = "results") -> Found:
    """Return the weights of results with the run that they are of; `blame` begins messages.

    Raises:
        InputError: they are damaged, or hold no weights.
    """
    try:
        text = results.descriptions["network.toml"]
        keys = {name: _plain(value) for name, value in results.config.items()}
        network = load_network(read_description(text))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{blame}: a results file that is damaged: {' '.join(str(error).split())[:200]}") from None
    return Found(fitted(results.weights, network, blame), keys, network, results.epochs)


def _plain(value: Any) -> Any:
    """Return a key's value as a configuration takes it; results have lists as arrays, and none as an empty text."""
    return tuple(value.tolist()) if hasattr(value, "tolist") else None if value == "" else value


def _of_checkpoint(path: str, blame: str) -> Found:
    with CheckpointReader(path, blame) as reader:
        with reader.reading():
            network = load_network(read_description(reader.text["network"]))
            settings = settings_config(dict(reader.text["config"])).model_dump()
            epochs, steps = map(int, reader.text["position"])
        weights: Weights = {}
        for layer in network.layers:
            own = weights[layer.name] = {}
            shapes = array_shapes(layer)
            others = {name: shape for name, shape in shapes.items() if not _is_cut(name)}
            whole = reader.of_layer(layer, 0, "weight", "value", layer.weight_shape)
            own |= named_weights(layer, whole) if layer.operation.recurs else {"weight": whole}
            own |= {name: reader.of_layer(layer, 0, name, "value", shape) for name, shape in others.items()}
        return Found(weights, settings, network, epochs, steps)


def _is_cut(name: str) -> bool:
    """Return whether an array is a part of what checkpoints have as `weight`."""
    return name == "weight" or name.endswith(("_l0", "_l0_reverse"))
