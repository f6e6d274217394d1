"""Trained networks by PyTorch's names, and as its modules; and weights from tensors by these
names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common import InputError, check_torch, did_you_mean, plural
from ..frozen import named_layers
from ..layer import Network
from ..torch_network import Arrays, TorchNetwork, TorchState, frozen_names


def rested_layers(network: Network, freeze: Any) -> set[str]:
    """Return the layers that a run left as they were, from its key `freeze`: names, or text with
    commas.
    """
    said = freeze.split(",") if isinstance(freeze, str) else list(() if freeze is None else freeze)
    names = [str(name) for name in said if name] or list(frozen_names(network))
    return {layer.name for layer in network.layers if layer.frozen} | named_layers(
        network, names, "freeze"
    )


def trained_state(
    network: Network,
    weights: Mapping[str, Mapping[str, NDArray[np.float32]]],
    steps: int,
    frozen: Collection[str],
    blame: str,
) -> dict[str, Any]:
    """Return the state of the model that a network was, with the weights of a training of `steps`
    mini-batches; of one that was no model, that of `torch_module.NetworkModule`.

    Raises:
        InputError: the network's names do not fit, or PyTorch has no module for an operation.
    """
    shapes = {}
    for layer, own in weights.items():
        shapes[layer] = {name: array.shape for name, array in own.items()}
    return _state(network, shapes, blame).with_weights(weights, steps, frozen)


def weights_by_names(
    given: Mapping[str, NDArray[Any]],
    network: Network,
    shapes: Mapping[str, Mapping[str, tuple[int, ...]]],
    blame: str,
) -> dict[str, dict[str, NDArray[np.float32]]]:
    """Return weights by layer and name from tensors by the names of the model of PyTorch that a
    network was, or of its `torch_module.NetworkModule`; arrays of layers have these `shapes`.

    Of tied tensors one may be missing.

    Raises:
        InputError: a tensor is missing, unknown, of another shape or kind, or differs from one that
            it is tied to.
    """
    state = _state(network, shapes, blame)
    for key in given:
        if key not in state.tensors:
            hint = did_you_mean(key, state.tensors)
            raise InputError(f"{blame}: {network.name} has no tensor {key!r}; {hint}".rstrip("; "))
    numbers, firsts = np.zeros(state.size + 1, np.float32), dict[int, str]()
    used = np.zeros(state.size + 1, bool)
    for own in state.places.values():
        for places in own.values():
            used[places.ravel()] = True
    for key, begin in state.begins.items():
        shape = tuple(state.tensors[key].shape)
        if key not in given:
            continue
        tensor = given[key]
        if tensor.shape != shape or tensor.dtype.kind != "f":
            raise InputError(
                f"{blame}: {key!r} is {tensor.dtype} {tensor.shape}; {network.name} has floats"
                f" {shape}"
            )
        here = slice(begin, begin + tensor.size)
        values = tensor.astype(np.float32).ravel()
        if begin in firsts and not np.array_equal(numbers[here], values):
            differ = int((numbers[here] != values).sum())
            raise InputError(
                f"{blame}: {firsts[begin]!r} and {key!r} are one tensor in {network.name}, but differ"
                f" in {differ:,} of {plural(tensor.size, 'number')}; give both the same, or one of them"
            )
        numbers[here], firsts[begin] = values, key
    for key, begin in state.begins.items():
        if begin not in firsts and used[begin : begin + state.tensors[key].numel()].any():
            raise InputError(f"{blame}: lacks the tensor {key!r} of {network.name}")
    return {
        layer: {name: numbers[places] for name, places in own.items()}
        for layer, own in state.places.items()
    }


def _state(
    network: Network, shapes: Mapping[str, Mapping[str, tuple[int, ...]]], blame: str
) -> TorchState:
    if isinstance(network, TorchNetwork):
        return network.state
    check_torch(blame)
    from .names import state_by, torch_names

    names = torch_names(network)
    if names is not None:
        return state_by(names, shapes, blame)
    from .module import module_of, state_of

    return state_of(module_of(network), network)


def network_module(network: Network, weights: Arrays, blame: str) -> Any:
    """Return a module of PyTorch, in evaluation, that computes what a network does with these
    weights.

    Raises:
        InputError: PyTorch is not installed, or has no module for an operation.
    """
    check_torch(blame)
    from .module import module_of, state_of

    module = module_of(network)
    module.load_state_dict(state_of(module, network).with_weights(weights, 0, ()))
    return module.eval()
