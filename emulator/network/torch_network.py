"""A network that was a model of PyTorch: which numbers of the model's tensors the arrays of layers
are.

Layers hold what the model holds, in another order: transposed, cut into gates, or joined. Each
number that a layer trains has one place in the model's tensors, laid end to end. So first weights
are taken from there, and trained ones put back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layer import Network

Arrays = Mapping[str, Mapping[str, NDArray[Any]]]
"""Arrays by layer and name."""


@dataclasses.dataclass(frozen=True, eq=False)
class TorchState:
    """The state of a model by PyTorch's names, on the CPU.

    `begins` has the place of each tensor's first number, the same for tied ones; tensors that no
    layer can have, such as integers, are not in it. `places` are those of the numbers of each
    layer's arrays, -1 for zeros that the model does not have; `counters` are the counts of batch
    normalisation's mini-batches, with its layer.
    """

    tensors: Mapping[str, Any]
    begins: Mapping[str, int]
    places: Arrays
    counters: Mapping[str, str]

    def first_weights(self) -> dict[str, dict[str, NDArray[np.float32]]]:
        """Return the model's weights by layer and name."""
        numbers = self._numbers()
        return {
            layer: {name: numbers[places] for name, places in arrays.items()}
            for layer, arrays in self.places.items()
        }

    def with_weights(self, weights: Arrays, steps: int, frozen: Collection[str]) -> dict[str, Any]:
        """Return the state with the weights that a training of `steps` mini-batches made; tied
        tensors are one.

        Tensors of which no layer has anything are as they were. Averages of `frozen` layers rested,
        and so did their counts.
        """
        numbers, changed = self._numbers(), np.zeros(self.size + 1, bool)
        for layer, arrays in self.places.items():
            for name, places in arrays.items():
                numbers[places.ravel()] = weights[layer][name].ravel()
                changed[places.ravel()] = True
        made: dict[int, Any] = {}
        state = {}
        for key, tensor in self.tensors.items():
            begin = self.begins.get(key)
            if begin is None or not changed[begin : begin + tensor.numel()].any():
                state[key] = tensor.clone() if hasattr(tensor, "clone") else tensor
            else:
                if begin not in made:
                    own = numbers[begin : begin + tensor.numel()].reshape(tuple(tensor.shape))
                    made[begin] = tensor.new_tensor(own)
                state[key] = made[begin]
        for key, layer in self.counters.items():
            state[key] += steps * (layer not in frozen)
        return state

    @property
    def size(self) -> int:
        """Numbers of all tensors that layers can have."""
        return max((begin + len(own) for begin, own in self._parts()), default=0)

    def _numbers(self) -> NDArray[np.float32]:
        """Return all numbers, and at the end, the place -1, a zero that no tensor has."""
        numbers = np.empty(self.size + 1, np.float32)
        numbers[-1] = 0
        for begin, own in self._parts():
            numbers[begin : begin + len(own)] = own
        return numbers

    def _parts(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        for key, begin in self.begins.items():
            yield begin, self.tensors[key].float().numpy().ravel()


@dataclasses.dataclass(frozen=True, repr=False)
class TorchNetwork(Network):
    """A network that was a model of PyTorch; training begins with the model's weights.

    From `emuchain.from_torch`.
    """

    state: TorchState = dataclasses.field(
        default=TorchState({}, {}, {}, {}), repr=False, compare=False
    )

    @property
    def bare(self) -> Network:
        """The network without weights."""
        fields = (field.name for field in dataclasses.fields(Network))
        return Network(**{name: getattr(self, name) for name in fields})


def frozen_names(network: Network) -> tuple[str, ...]:
    """Return the layers without trained parameters in the model of PyTorch that a network was."""
    from ..common import read_description  # it loads pydantic, which other ranks do without

    said = read_description(network.text).get("torch") if "torch" in network.text else None
    return tuple((said or {}).get("frozen", ()))


def places_of(
    layers: Iterable[tuple[str, dict[str, NDArray[Any]]]], offset: int, size: int
) -> dict[str, dict[str, NDArray[np.int32]]]:
    """Return the places of numbers that arrays of layers hold as `offset` + place; -1 for those
    that hold others than the `size` that there are. Arrays are taken out of their dictionaries, so
    that one alone is held twice.
    """
    made: dict[str, dict[str, NDArray[np.int32]]] = {}
    for layer, own in layers:
        made[layer] = {}
        for name in [*own]:
            places = own.pop(name)
            if places.dtype != np.int32:
                places = places.astype(np.int64)
            places = places - places.dtype.type(offset)
            others = places < 0
            others |= places >= size
            places[others] = -1
            made[layer][name] = places.astype(np.int32, copy=False)
    return made


def used_twice(places: Arrays, size: int) -> int | None:
    """Return a place that several numbers of layers have, if there is one."""
    held = np.zeros(size, bool)
    for arrays in places.values():
        for every in arrays.values():
            own = every if every.min(initial=0) >= 0 else every[every >= 0]
            before = held[own]
            if before.any():
                return int(own[before][0])
            count = np.count_nonzero(held)
            held[own] = True
            if np.count_nonzero(held) < count + own.size:
                return int(np.bincount(own.ravel()).argmax())
    return None
