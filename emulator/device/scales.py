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
    (`inputs`).
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
    """Exponents of the scales that mini-batches would have needed, and the one that runs."""

    known: list[int] = dataclasses.field(default_factory=list)
    step: int = -1
    newest: int | None = None

    @property
    def all_known(self) -> list[int]:
        return [*self.known, *([] if self.newest is None else [self.newest])]


class TensorScales:
    """The scales of what a device rounds; the last `history` mini-batches tell them.

    Mini-batches have `batch` of the `samples` of an epoch.
    """

    def __init__(self, samples: int = 1, batch: int = 1) -> None:
        self._samples, self._batch = samples, batch
        self._tensors: dict[str, _Tensor] = {}
        self._in_force: dict[str, dict[int, int]] = {}

    def exponent(
        self,
        name: str,
        maps: NDArray[np.float32],
        largest: float,
        history: int,
        samples: NDArray[np.int64] | None,
    ) -> int:
        """Return the exponent of a tensor's scale, and note what these maps would need; in
        evaluation, without `samples`, nothing is noted.
        """
        tensor = self._tensors.setdefault(name, _Tensor())
        if samples is not None:
            step = self._step(samples)
            if step < tensor.step:  # made again, behind F of later mini-batches
                return self.in_force(name, samples)
            if step != tensor.step:
                tensor.known, tensor.step = tensor.all_known[-history:], step
                tensor.newest = None
            needed = needed_exponent(maps, largest)
            if needed is not None:
                tensor.newest = needed if tensor.newest is None else max(tensor.newest, needed)
        known = tensor.all_known[-history:] if samples is None else tensor.known
        self.hear_of_map(name, max(known, default=0), samples)
        return self.in_force(name, samples)

    def hear_of_map(self, name: str, exponent: int, samples: NDArray[np.int64] | None) -> None:
        """Note the exponent of the scale of a tensor's samples."""
        steps = self._in_force.setdefault(name, {})
        steps[self._step(samples)] = exponent
        if len(steps) > _IN_FLIGHT:
            del steps[next(iter(steps))]

    def in_force(self, name: str, samples: NDArray[np.int64] | None) -> int:
        """Return the exponent of the scale of a tensor's samples; 0 without one."""
        return self._in_force.get(name, {}).get(self._step(samples), 0)

    def begin(self, name: str, weights: NDArray[np.float32], largest: float) -> None:
        """Note the weights of before the first update, unless updates before are known."""
        if name not in self._tensors:
            self._tensors[name] = _Tensor(newest=needed_exponent(weights, largest))

    def of_update(
        self, name: str, weights: NDArray[np.float32], largest: float, history: int
    ) -> int:
        """Return the exponent of the scale of what an update has made of weights, and note what
        these would need.
        """
        tensor = self._tensors[name]
        tensor.known, tensor.step = tensor.all_known[-history:], tensor.step + 1
        tensor.newest = needed_exponent(weights, largest)
        return self.running(name)

    def running(self, name: str) -> int:
        """Return the exponent of the scale of weights."""
        tensor = self._tensors.get(name)
        return 0 if tensor is None else max(tensor.known, default=0)

    def newest(self, name: str) -> int | None:
        """Return what the newest weights would need."""
        return self._tensors[name].newest

    def hear(self, name: str, exponent: int | None) -> None:
        """Note what the newest weights would need of all slices of a layer."""
        tensor = self._tensors[name]
        needed = [own for own in (tensor.newest, exponent) if own is not None]
        tensor.newest = max(needed, default=None)

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


def needed_exponent(maps: NDArray[np.float32], largest: float) -> int | None:
    """Return the exponent of the least power of two s for which all finite numbers of maps are at
    most `largest` times s; None where all are 0.
    """
    most = float(np.abs(np.where(np.isfinite(maps), maps, np.float32(0))).max(initial=0))
    if most == 0:
        return None
    fraction, exponent = np.frexp(most)
    of_largest, exponent_of_largest = np.frexp(largest)
    needed = int(exponent) - int(exponent_of_largest) + int(fraction > of_largest)
    return max(-_MOST, min(_MOST, needed))
