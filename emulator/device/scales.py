"""Scales of whole maps and weights by the largest numbers of mini-batches before (Transformer
Engine's delayed scaling, of FP8 Formats for Deep Learning, Micikevicius et al., 2022).

A map's numbers are divided by its tensor's scale, rounded, and multiplied by it. The scale is the
least power of two under which the largest number of the last mini-batches would not saturate, so
that dividing is exact; before there is any, it is 1. A scale is that of a whole mini-batch, so it
depends on no micro-batches; those of outputs and of inputs of a layer are apart, since other
devices round them.

Whoever else reads a map hears of its scale with the map, in headers of its rows.

Weights are rounded once an update, by the largest ones after updates before. Each slice of a layer
sees its own, and hears from the others before the next update (`sideband.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...kernels.attention import largest_finite
from ..mapping import DataPath, StreamKey

_PREFIX = "scale_"
"""What the names of states begin with."""
OF_WEIGHTS = "weights_"
"""What the names of scales of weights begin with."""
_STEP = -1
"""In the place of an exponent, the last mini-batch that has told one, or of weights the update."""
_MOST = 100
"""Exponents stay within these, which leaves fp32 room for the format's own."""
_IN_FLIGHT = 1024
"""More mini-batches than are on their way in a chain."""


def name_of_scale(kind: str, place: str, tensor: int) -> str:
    """Return the name of the scale of a tensor: of what a layer makes (`outputs`), or reads
    (`inputs`), or of operands within it.
    """
    return f"{kind}_{place}_{tensor}"


_OF_PATH = {
    DataPath.ACTIVATIONS: ("activations", "outputs"),
    DataPath.OUTPUT_ERRORS: ("errors", "outputs"),
    DataPath.INPUT_ERRORS: ("errors", "inputs"),
}
"""The kind and the place of maps on a path; sums have no scale."""


@dataclasses.dataclass(frozen=True)
class SampleScales:
    """The scales of the maps of some samples, which is what `Values` has of `TensorScales`."""

    scales: TensorScales
    samples: NDArray[np.int64] | None

    def of(self, key: StreamKey) -> int:
        """See `Scales`."""
        if key.path not in _OF_PATH:
            return 0
        return self.scales.in_force(name_of_scale(*_OF_PATH[key.path], key.number), self.samples)

    def hear(self, key: StreamKey, exponent: int) -> None:
        """See `Scales`."""
        if key.path in _OF_PATH:
            name = name_of_scale(*_OF_PATH[key.path], key.number)
            self.scales.hear_of_map(name, exponent, self.samples)


@dataclasses.dataclass
class _Tensor:
    """Exponents of the scales that mini-batches would have needed, None where all was 0.

    `known` are those of mini-batches that tell scales, `noted` of those that go on, so far, and
    `told` of those that all slices of a layer have told, by their numbers; `step` is the newest
    that goes on. Weights have one that goes on, 0, and `step` counts updates.
    """

    known: list[int] = dataclasses.field(default_factory=list)
    step: int = -1
    noted: dict[int, int | None] = dataclasses.field(default_factory=dict)
    told: dict[int, int | None] = dataclasses.field(default_factory=dict)

    @property
    def all_known(self) -> list[int]:
        waiting = (*sorted(self.told.items()), *sorted(self.noted.items()))
        return [*self.known, *(exponent for _, exponent in waiting if exponent is not None)]

    @property
    def running(self) -> int:
        return max(self.known, default=0)

    def note(self, step: int, needed: int | None) -> None:
        """Note what numbers of a mini-batch would need."""
        both = (one for one in (self.noted.get(step), needed) if one is not None)
        self.noted[step] = max(both, default=None)

    def end(self, waiting: dict[int, int | None], last: int, history: int) -> None:
        """Let mini-batches up to the `last` of those that wait tell scales."""
        ended = [waiting.pop(step) for step in sorted(waiting) if step <= last]
        self.known.extend(exponent for exponent in ended if exponent is not None)
        self.known = self.known[-history:]


class TensorScales:
    """The scales of what a device rounds; the last `history` mini-batches tell them.

    Mini-batches have `batch` of the `samples` of an epoch. What slices of a layer tell each other
    is of mini-batches that ended `late` ones before.
    """

    def __init__(self, samples: int = 1, batch: int = 1, late: int = 1) -> None:
        self._samples, self._batch, self.late = samples, batch, late
        self._tensors: dict[str, _Tensor] = {}
        self._in_force: dict[str, dict[int, int]] = {}

    def exponent(
        self, name: str, history: int, samples: NDArray[np.int64] | None, *, shared: bool = False
    ) -> int:
        """Return the exponent of a tensor's scale, for samples of a mini-batch; in evaluation,
        without `samples`, the newest. Of what slices on several devices have `shared`, `tell` says
        what all need.
        """
        tensor, step = self._tensors.setdefault(name, _Tensor()), self._step(samples)
        if samples is None:
            self.hear_of_map(name, max(tensor.all_known[-history:], default=0), None)
        elif step >= tensor.step:  # else it is made again, behind F of later mini-batches
            if step > tensor.step:
                waiting, before = (tensor.told, self.late) if shared else (tensor.noted, 1)
                tensor.end(waiting, step - before, history)
                tensor.step = step
            self.hear_of_map(name, tensor.running, samples)
        return self.in_force(name, samples)

    def note(
        self, name: str, most: float, largest: float, samples: NDArray[np.int64] | None
    ) -> None:
        """Note the largest number of some samples of a mini-batch, for which `exponent` has been
        asked, in a format that ends at `largest`; in evaluation, or where they are made again,
        nothing.
        """
        tensor, step = self._tensors[name], self._step(samples)
        if samples is not None and step == tensor.step:
            tensor.note(step, needed_exponent(most, largest))

    def hear_of_map(self, name: str, exponent: int, samples: NDArray[np.int64] | None) -> None:
        """Note the exponent of the scale of a tensor's samples."""
        steps = self._in_force.setdefault(name, {})
        steps[self._step(samples)] = exponent
        if len(steps) > _IN_FLIGHT:
            del steps[next(iter(steps))]

    def in_force(self, name: str, samples: NDArray[np.int64] | None) -> int:
        """Return the exponent of the scale of a tensor's samples; 0 without one."""
        return self._in_force.get(name, {}).get(self._step(samples), 0)

    def ended(self, name: str) -> tuple[int, int | None] | None:
        """Return the number of the first mini-batch that goes on, which ends with this, and what it
        would need; None if there is none.
        """
        tensor = self._tensors.get(name)
        if tensor is None or not tensor.noted:
            return None
        step = min(tensor.noted)
        return step, tensor.noted.pop(step)

    def tell(self, name: str, step: int, exponent: int | None) -> None:
        """Note what a mini-batch that has ended would need of all slices of a layer."""
        self._tensors[name].told[step] = exponent

    def begin_epoch(self) -> None:
        """Let all mini-batches that slices have told of tell scales, as none is on the way."""
        for tensor in self._tensors.values():
            if tensor.told:
                tensor.end(tensor.told, max(tensor.told), len(tensor.known) + len(tensor.told))

    def begin(self, name: str, weights: NDArray[np.float32], largest: float) -> None:
        """Note the weights of before the first update, unless updates before are known."""
        if name not in self._tensors:
            needed = needed_exponent(float(largest_finite(weights)), largest)
            self._tensors[name] = _Tensor(noted={0: needed})

    def of_update(
        self, name: str, weights: NDArray[np.float32], largest: float, history: int
    ) -> int:
        """Return the exponent of the scale of what an update has made of weights, and note what
        these would need.
        """
        tensor = self._tensors[name]
        tensor.end(tensor.noted, 0, history)
        tensor.step += 1
        tensor.note(0, needed_exponent(float(largest_finite(weights)), largest))
        return tensor.running

    def running(self, name: str) -> int:
        """Return the exponent of the scale of weights."""
        tensor = self._tensors.get(name)
        return 0 if tensor is None else tensor.running

    def newest(self, name: str) -> int | None:
        """Return what the newest weights would need."""
        return self._tensors[name].noted.get(0)

    def hear(self, name: str, exponent: int | None) -> None:
        """Note what the newest weights would need of all slices of a layer."""
        self._tensors[name].note(0, exponent)

    def _step(self, samples: NDArray[np.int64] | None) -> int:
        """Return the mini-batch of some samples; -1 in evaluation, which has none."""
        if samples is None:
            return -1
        epoch, place = divmod(int(samples[0]), self._samples)
        return epoch * -(-self._samples // self._batch) + place // self._batch

    def state(self) -> dict[str, int]:
        """Return all exponents by name, once a mini-batch has ended."""
        return {
            f"{_PREFIX}{name}_{place}": exponent
            for name, tensor in self._tensors.items()
            for place, exponent in enumerate([tensor.step, *tensor.all_known], _STEP)
        }

    def restore(self, state: Mapping[str, int]) -> None:
        """Restore what `state` of all devices of a chain together returned."""
        self._tensors = {
            name: _Tensor([places[place] for place in sorted(places) if place != _STEP], step)
            for name, places in _by_tensor(state).items()
            for step in (places.get(_STEP, -1),)
        }


def is_of_scales(name: str) -> bool:
    """Return whether a count is a state of scales."""
    return name.startswith(_PREFIX)


def _by_tensor(state: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """Return the exponents of each tensor by their places."""
    tensors: dict[str, dict[int, int]] = {}
    for key, exponent in state.items():
        if is_of_scales(key):
            name, _, place = key.removeprefix(_PREFIX).rpartition("_")
            tensors.setdefault(name, {})[int(place)] = exponent
    return tensors


def merged_scales(
    counts: Iterable[Mapping[str, int]], of_others: Iterable[Mapping[str, int]] = ()
) -> dict[str, int]:
    """Return the states of the scales of several devices together, of weights also those `of_others`
    in other replicas.

    Slices of a layer, and shares of replicas, have not yet heard of each other's newest weights;
    what a device has of maps that others round is older than theirs.
    """
    merged: dict[str, dict[int, int]] = {}
    all_counts = *((one, True) for one in counts), *((one, False) for one in of_others)
    for one, is_own in all_counts:
        for name, places in _by_tensor(one).items():
            if not is_own and not name.startswith(OF_WEIGHTS):
                continue
            step = places.get(_STEP, -1)
            held = merged.setdefault(name, {_STEP: step})
            if step > held[_STEP]:
                held.clear()
            if step >= held.get(_STEP, step):
                for place, exponent in places.items():
                    held[place] = max(exponent, held.get(place, exponent))
    return {
        f"{_PREFIX}{name}_{place}": exponent
        for name, places in merged.items()
        for place, exponent in places.items()
    }


def needed_exponent(most: float, largest: float) -> int | None:
    """Return the exponent of the least power of two s for which `most` is at most `largest` times
    s; None of 0.
    """
    if most == 0:
        return None
    fraction, exponent = np.frexp(most)
    of_largest, exponent_of_largest = np.frexp(largest)
    needed = int(exponent) - int(exponent_of_largest) + int(fraction > of_largest)
    return max(-_MOST, min(_MOST, needed))
