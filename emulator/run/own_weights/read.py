"""Weights of a file of any kind: results, a checkpoint, safetensors or ONNX."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from ...common import (
    BROKEN_ZIP,
    CHECKPOINT,
    HDF5_HEAD,
    ONNX,
    SAFETENSORS,
    FileKind,
    InputError,
    kind_of,
    open_file,
    unlike,
)
from ...config import settings_config
from ...device import array_shapes, named_weights
from ...inputs import read_description
from ...network import Network, load_network, onnx_weights
from ..checkpoint import CheckpointReader
from ..record import Weights
from ..results import Results, read_results
from .fitted import fitted
from .safetensors_file import read_safetensors

_RUNS = "a results file (.h5) or a checkpoint (.ckpt)"
_NO_RUN = "neither a results file (.h5) nor a checkpoint (.ckpt)"
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
    kind = _kind(path, blame, _FORMS)
    if kind is None:
        return fitted(read_results(pathlib.Path(path), blame, f"not {_FORMS}").weights, network, blame)
    if kind in (CHECKPOINT, BROKEN_ZIP):
        return fitted(_of_checkpoint(path, blame).weights, network, blame)
    if kind == SAFETENSORS or path.lower().endswith(".safetensors"):
        return fitted(read_safetensors(path, blame), network, blame)
    if kind == ONNX or path.lower().endswith(".onnx"):
        return fitted(_of_onnx(path, blame), network, blame)
    raise unlike(kind, path, blame, f"not {_FORMS}")


def read_found(path: str) -> Found:
    """Return the weights of a results file or a checkpoint with the run that they are of.

    Raises:
        InputError: the file is neither, cannot be read, or holds no weights.
    """
    kind = _kind(path, path, _RUNS)
    if kind is None:
        return found_of(read_results(pathlib.Path(path), denial=_NO_RUN), path)
    if kind not in (CHECKPOINT, BROKEN_ZIP):
        raise unlike(kind, path, path, _NO_RUN)
    found = _of_checkpoint(path, path)
    return dataclasses.replace(found, weights=fitted(found.weights, found.network, path))


def _kind(path: str, blame: str, wanted: str) -> FileKind | None:
    """Return what a file is; None of HDF5, which `read_results` tells apart."""
    try:
        with open_file(path) as file:
            is_hdf5 = file.read(len(HDF5_HEAD)) == HDF5_HEAD
        return None if is_hdf5 else kind_of(path)
    except FileNotFoundError:
        raise InputError(f"{blame}: no such file; it should be {wanted}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{blame}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


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
