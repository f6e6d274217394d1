"""Arrays of a file as the weights of a network: each that it needs, of its shape, and no others."""

from __future__ import annotations

import math

import numpy as np

from ...common import InputError, escaped
from ...device import array_shapes
from ...network import Layer, Network
from ..record import Weights


def fitted(found: Weights, network: Network, blame: str) -> Weights:
    """Return all arrays of a network, each as the network has it; `blame` begins messages.

    A weight of fewer dimensions, such as the (outputs, inputs) of PyTorch's `Linear`, is one of the same order.

    Raises:
        InputError: an array is missing, has another shape or type, is not finite, or belongs to no layer.
    """
    if not any(found.values()):
        raise InputError(f"{blame}: holds no weights; results files have those of the last epoch that was finished")
    fits = {layer.name: _of_layer(found.get(layer.name, {}), layer, network, blame) for layer in network.layers}
    for name in found:
        if name not in fits and found[name]:
            layers = ", ".join(fits)
            raise InputError(
                f"{blame}: has weights of layer {_named(name)}, which {network.name} does not have; its layers are"
                f" {layers if len(layers) < 100 else layers[:100] + '…'}"
            )
    return fits


def _of_layer(arrays: dict[str, np.ndarray], layer: Layer, network: Network, blame: str) -> dict[str, np.ndarray]:
    shapes = array_shapes(layer)
    where = f"layer {layer.name} of {network.name}"
    fits = {}
    for name, shape in shapes.items():
        if name not in arrays:
            has = f"only {', '.join(map(_named, arrays))}" if arrays else "none of its arrays"
            raise InputError(f"{blame}: lacks `{name}` {_sizes(shape)} of {where}, and has {has}")
        array = arrays[name]
        flat = name == "weight" and array.shape == (shape[0], math.prod(shape[1:]))
        if array.shape != shape and not flat:
            raise InputError(f"{blame}: `{name}` of {where} is {_sizes(array.shape)}; it should be {_sizes(shape)}")
        if array.dtype != np.float32:
            raise InputError(f"{blame}: `{name}` of {where} is {array.dtype}; it should be float32")
        if not np.isfinite(array).all():
            raise InputError(f"{blame}: `{name}` of {where} has values that are not finite numbers")
        fits[name] = np.ascontiguousarray(array.reshape(shape))
    for name in arrays:
        if name not in shapes:
            raise InputError(f"{blame}: has `{_named(name)}` of {where}, which has only {', '.join(shapes)}")
    return fits


def _named(name: str) -> str:
    return " ".join(escaped(name[:80]).split())


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a number"
