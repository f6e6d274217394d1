"""Weights as a safetensors file: arrays named LAYER.NAME, in PyTorch's layouts."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ...common import InputError, open_file
from ...network import Layer, Network
from ..record import Weights


def read_safetensors(path: str | os.PathLike[str], blame: str) -> Weights:
    """Return the arrays of a file by layer and name, which the last dot of each key parts; `blame` begins messages.

    Raises:
        InputError: the file cannot be read, or is not a safetensors file.
    """
    of_numpy, failure = _library(blame)
    try:
        open_file(path).close()  # a regular file
        arrays = of_numpy.load_file(path)
    except (OSError, ValueError, KeyError, TypeError, failure) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{blame}: not a readable safetensors file: {reason[:200]}") from None
    found: Weights = {}
    for key, array in arrays.items():
        layer, _, name = key.rpartition(".")
        found.setdefault(layer, {})[name] = array
    return found


def safetensors_image(weights: Weights, network: Network, blame: str) -> bytes:
    """Return the content of a file with a network's weights.

    Raises:
        InputError: the package safetensors is not installed.
    """
    of_numpy, _ = _library(blame)
    arrays = {
        f"{layer.name}.{name}": _as_torch(layer, name, array)
        for layer in network.layers
        for name, array in weights[layer.name].items()
    }
    image: bytes = of_numpy.save(arrays, {"network": network.name})
    return image


def _as_torch(layer: Layer, name: str, array: np.ndarray) -> np.ndarray:
    """Return an array in PyTorch's layout: that of `Linear` is (outputs, inputs), channel after channel."""
    flat = name == "weight" and layer.operation.type == "fc"
    return np.ascontiguousarray(array.reshape(len(array), -1) if flat else array)


def _library(blame: str) -> tuple[Any, type[Exception]]:
    try:
        import safetensors.numpy
    except ImportError:
        raise InputError(
            f"{blame}: safetensors files need the package safetensors: pip install 'emuchain[safetensors]'"
        ) from None
    return safetensors.numpy, safetensors.SafetensorError
