"""A unit of a special function unit: the numbers of one operation of a network's description.

`SfuOperation.unit` returns it, from the file that describes the operation. A unit works on arrays
alone: what it learns, and what it needs again, the device keeps for it, in versions and by
micro-batches (`device/sfu.py`).

    forward     xs, weights        ->  y, state              backward   state, dz, weights  ->  errors of xs
    kept        state, dz          ->  arrays                gradient   arrays              ->  adds to sums
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.layers.activations import activations

Data = NDArray[np.float32]
"""Maps (samples, rows, columns, channels)."""

State = tuple[NDArray[Any], ...]
Inputs = Sequence[Data]
Made = tuple[Data, State]
Lengths = NDArray[np.int64]
"""Time steps of each sample, (n,)."""

Weights = Mapping[str, Data]
"""What a unit has learnt, by name."""

NORMAL_DEVIATION = 0.02
"""Of first weights, positions and class tokens of transformers, as GPT-2, BERT and ViT have it."""


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a unit works: its layer's random stream, the seed of the run, the arena of its maps.

    The layer may be `frozen`. `place` is the number of units of its kind before it in the layer's
    SFU.
    """

    layer: int
    seed: int
    arena: Arena
    frozen: bool = False
    place: int = 0

    def drawn(self, count: int) -> Data:
        """Return first values, normal, by a stream that no channel of the layer's weights has."""
        key = [self.seed, self.layer << 32 | 0xFFFFFFFF - self.place]
        stream = np.random.Generator(np.random.Philox(key=key))
        return (stream.standard_normal(count) * NORMAL_DEVIATION).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Training:
    """Training samples: their mini-batch's number in the epoch, and their own since the start of
    training, (n,).

    Where their lengths differ, `lengths` are the time steps of each, (n,).
    """

    step: int
    samples: NDArray[np.int64]
    lengths: Lengths | None = None


class Unit(abc.ABC):
    """One operation's unit; units without parameters need only `forward` and `backward`."""

    overwrites: bool = False
    """Whether `forward` may overwrite or return its input maps."""

    learns: Weights = MappingProxyType({})
    """The first values of its parameters."""

    averages: Weights = MappingProxyType({})
    """The first values of other arrays that change in training; they are among the weights, too."""

    def __init__(self, site: Site) -> None:
        self.arena = site.arena

    @abc.abstractmethod
    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """Return the result, and a state of arrays (samples, …) for `backward`, such as x.

        `training` is None in evaluation, when nothing is learnt or random.
        """

    def infer(self, xs: Inputs, weights: Weights, lengths: Lengths | None) -> Data:
        """Return the result in evaluation, of samples of these lengths where they differ."""
        return self.forward(xs, weights, None)[0]

    @abc.abstractmethod
    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """Return the errors of all inputs from those of the result, `dz`, which may be
        overwritten.
        """

    def kept(self, state: State, dz: Data) -> State:
        """Return the arrays (samples, …) that `gradient` needs, if the unit learns."""
        return ()

    def gradient(self, kept: State, sums: Weights, *, fresh: bool) -> None:
        """Add the gradients of a micro-batch to the sums; where `fresh`, start from +0."""

    def average(self, newest: Weights) -> None:
        """Add a mini-batch to the averages, in place, as an update ends it."""


class ActivationUnit(Unit):
    """The unit of every operation that has an activation's kernels: those of its name, with its
    keys.
    """

    def __init__(self, name: str, keys: Sequence[float], site: Site) -> None:
        super().__init__(site)
        self._of, self._keys = activations()[name], keys
        self.overwrites = self._of.overwrites

    def forward(self, xs: Inputs, weights: Weights, training: Training | None) -> Made:
        """See `Unit`."""
        [x] = xs
        return self._of.forward(x, self.arena.take, *self._keys)

    def infer(self, xs: Inputs, weights: Weights, lengths: Lengths | None) -> Data:
        """See `Unit`."""
        [x] = xs
        return self._of.infer(x, self.arena.take, *self._keys)

    def backward(self, state: State, dz: Data, weights: Weights) -> Inputs:
        """See `Unit`."""
        self._of.error(state, dz, *self._keys)
        return (dz,)
