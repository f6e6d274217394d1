"""Modules of PyTorch that compute what networks do: `Results.to_torch` and `emuchain export
--torch`.

This module alone imports PyTorch; nothing imports it before it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ...common import InputError
from ..layer import Layer, Network
from ..operation import LayerOperation, Operation
from ..torch_network import TorchState


class NetworkModule(nn.Module):
    """A network up to its logits, (samples, classes) or (samples, steps, classes).

    It takes images (samples, channels, rows, columns), sequences (samples, steps, values), or
    symbols (samples, steps); values, or classes, stand before steps where the network has its
    `channels_first`. Its modules are called as layers, and those of a layer's special
    function unit as `conv1_batch_norm`.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self._entry, self._symbols = network.entry, network.takes_symbols
        self._corner = network.corner
        is_sequence = network.takes_sequence and not self._symbols
        self._steps_first = is_sequence and "inputs" not in network.channels_first
        self._results_first = "results" in network.channels_first
        self._by_steps = network.result_steps > 1
        self._makes_maps = network.has_map_results
        self._calls: list[_Call] = []
        for call, module in _calls(network):
            self._calls.append(call)
            if module is not None:
                self.add_module(call.module, module)
        self._last_use = {
            number: place for place, call in enumerate(self._calls) for number in call.reads
        }
        [result] = network.layers[-1].hands_on
        self._result = result.number

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        channels, rows, columns = self._entry
        if self._steps_first and x.ndim < 4:
            x = x.reshape(-1, rows, channels).transpose(1, 2)
        elif x.ndim == 4 and x.shape[1] != channels:  # rows become steps (`sequence`)
            x = x.permute(0, 1, 3, 2).flatten(1, 2)
        elif x.ndim == 4 and x.shape[1:] != self._entry:
            above, left = self._corner
            below, right = rows - above - x.shape[2], columns - left - x.shape[3]
            x = nn.functional.pad(x, (left, right, above, below))
        known = {0: x if self._symbols else x.reshape(-1, channels, rows, columns)}
        for place, call in enumerate(self._calls):
            taken = [known[number] for number in call.reads]
            for number in {*call.reads}:
                if self._last_use[number] == place:
                    del known[number]
            known[call.makes] = self._made(call, taken)
        if self._makes_maps:
            return known[self._result]
        logits = known[self._result].squeeze(3)
        if not self._by_steps:
            return logits.squeeze(2)
        return logits if self._results_first else logits.transpose(1, 2)

    def _made(self, call: _Call, taken: Sequence[Any]) -> Any:
        """Return the maps (samples, channels, rows, columns) that a step makes of those."""
        if call.module is None:
            return _JOINS[call.joins](taken)
        [x], module = taken, self.get_submodule(call.module)
        if call.tied is not None:
            return module(x, self.get_submodule(call.tied).weight)
        if call.form == "last":
            return module(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        made = module(x.squeeze(3).transpose(1, 2) if call.form == "rows" and x.ndim == 4 else x)
        made = made[0] if isinstance(made, tuple) else made  # of recurrent layers, without states
        if made.ndim == 3:  # (samples, rows, channels)
            return made.transpose(1, 2).unsqueeze(3)
        return made[..., None, None] if made.ndim == 2 else made


class _Call(NamedTuple):
    """A step of a network: the module that it calls, if it does, on which tensors, to make
    which.
    """

    module: str | None
    reads: tuple[int, ...]
    makes: int
    form: str = "maps"
    joins: str = ""
    tied: str | None = None


class _Head(nn.Module):
    """A layer of kernel 1 with the weights of an embedding, and maybe biases of its own."""

    def __init__(self, channels: int, *, bias: bool) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None

    def forward(self, x: Any, table: Any) -> Any:
        return nn.functional.conv2d(x, table[..., None, None], self.bias)


_JOINS = {
    "add": lambda taken: sum(taken[1:], taken[0]),
    "concat": lambda taken: torch.cat(taken, 1),
    "rows": lambda taken: torch.cat(taken, 2),
    "multiply": lambda taken: taken[0] * taken[1],
}
"""What steps without modules make of several maps."""


def module_of(network: Network) -> NetworkModule:
    """Return a network's module, with first weights of PyTorch's.

    Raises:
        InputError: PyTorch has no module for an operation.
    """
    return NetworkModule(network)


def state_of(module: NetworkModule, network: Network) -> TorchState:
    """Return the state of a network's module, with the places of the numbers of layers' arrays."""
    tensors = {key: tensor.detach().clone() for key, tensor in module.state_dict().items()}
    begins, places, size = dict[str, int](), dict[str, dict[str, Any]](), 0
    counters = {}
    for layer, name, operation, end, key in _arrays(network, tensors):
        if key not in begins:
            begins[key] = size
            size += tensors[key].numel()
        shape = tuple(tensors[key].shape)
        numbers = np.arange(begins[key], begins[key] + tensors[key].numel(), dtype=np.int32)
        own = numbers.reshape(shape)
        if isinstance(operation, LayerOperation) and layer.tied is None:
            own = operation.from_torch({name: own})[name]
        elif not isinstance(operation, LayerOperation):
            own = own.reshape(-1)
        places.setdefault(layer.name, {})[f"{name}{end}"] = own
        count = f"{key.rpartition('.')[0]}.num_batches_tracked"
        if count in tensors:
            counters[count] = layer.name
    return TorchState(tensors, begins, places, counters)


def _calls(network: Network) -> Iterator[tuple[_Call, Any]]:
    """Yield the steps of a network with their modules.

    Raises:
        InputError: PyTorch has no module for an operation.
    """
    for layer in network.layers:
        reads, makes, form = (layer.reads.number,), layer.makes.number, layer.operation.torch_form
        name = _module_name(layer.name)
        if layer.tied is None:
            yield _Call(name, reads, makes, form), _module(layer, layer.operation, layer.input)
        else:
            head = _Head(layer.channels, bias=layer.bias)
            yield _Call(name, reads, makes, form, tied=_module_name(layer.tied.name)), head
        for place, step in enumerate(layer.sfu):
            taken = tuple(tensor.number for tensor in step.reads)
            if step.operation.joins:
                of_rows = getattr(step.operation, "axis", "") == "rows"
                joins = "rows" if of_rows else step.operation.type
                yield _Call(None, taken, step.makes.number, joins=joins), None
            else:
                called, module = (
                    _step_name(layer, place),
                    _module(layer, step.operation, step.input),
                )
                yield _Call(called, taken, step.makes.number, step.operation.torch_form), module


def _module(layer: Layer, operation: Any, shape: tuple[int, int, int]) -> Any:
    try:
        made = operation.torch(nn, shape)
    except ValueError as error:
        raise InputError(f"to_torch: {operation.type} of layer {layer.name}: {error}") from None
    if not isinstance(operation, LayerOperation):
        if hasattr(made, "inplace"):
            made.inplace = False  # a shortcut may take what it takes
        return made
    return made[0] if len(made) == 1 else _Flat(made[1])


class _Flat(nn.Linear):
    """A fully connected layer over whole maps."""

    def __init__(self, of: Any) -> None:
        super().__init__(of.in_features, of.out_features, bias=of.bias is not None)

    def forward(self, x: Any) -> Any:
        return super().forward(x.flatten(1))


def _module_name(name: str) -> str:
    return f"{name}_" if hasattr(nn.Module, name) or name.startswith("_") else name


def _step_name(layer: Layer, place: int) -> str:
    """Return the name of the module of a step of a layer's special function unit."""
    kinds = [step.operation.type for step in layer.sfu]
    before = kinds[:place].count(kinds[place])
    return f"{layer.name}_{kinds[place].replace('-', '_')}{before + 1 if before else ''}"


def _arrays(
    network: Network, tensors: Mapping[str, Any]
) -> Iterator[tuple[Layer, str, Operation, str, str]]:
    """Yield the arrays of a network: the layer, the name in its operation, this, what ends the
    array's own name, and the key of its tensor.
    """
    for layer in network.layers:
        own = _module_name(layer.name)
        if layer.tied is not None:
            yield layer, "weight", layer.operation, "", f"{_module_name(layer.tied.name)}.weight"
        for key in tensors:
            path, _, name = key.rpartition(".")
            if path == own:
                yield layer, name, layer.operation, "", key
        learners = 0
        for place, step in enumerate(layer.sfu):
            names, learns = step.operation.torch_names, step.operation.parameters(step.output) > 0
            learners += learns
            back = {theirs: ours for ours, theirs in names.items()}
            for key in tensors if learns else ():
                path, _, name = key.rpartition(".")
                if path == _step_name(layer, place) and name != "num_batches_tracked":
                    end = str(learners) * (learners > 1)
                    yield layer, back.get(name, name), step.operation, end, key
