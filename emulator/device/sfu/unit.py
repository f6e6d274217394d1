"""A unit of a special function unit: it carries out one operation of a network's description.

Each subclass of `SfuOperation` has a unit in a file of this folder, which names it. To add a unit, add its file.
Activations (`kernels/layers/activations.py`) share one unit.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena, registry, subclasses
from ....kernels.layers.activations import activations
from ...network import SfuOperation, SfuStep, operation_types
from ...schedule import SampleSpan
from ..memories import Parameter, Versions
from ..rules import Rule

Data = NDArray[np.float32]
State = tuple[NDArray[Any], ...]


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a unit works: its layer's index, whether that is `frozen`, the seed of the run, the arena of its maps."""

    layer: int
    seed: int
    arena: Arena
    frozen: bool = False
    place: int = 0
    """Number of units of its kind before it in the layer's SFU."""


@dataclasses.dataclass(frozen=True)
class Training:
    """Training samples: their mini-batch's number in the epoch, and their own since the start of training, (n,).

    Where their lengths differ, `lengths` are the time steps of each, (n,).
    """

    step: int
    samples: NDArray[np.int64]
    lengths: NDArray[np.int64] | None = None


class Unit(abc.ABC):
    """One operation's unit; units without parameters need only `forward` and `backward`."""

    operation: ClassVar[type[SfuOperation]]
    """The operation that it carries out."""

    overwrites: bool = False
    """Whether `forward` may overwrite or return its input maps."""

    def __init__(self, step: SfuStep, site: Site) -> None:
        self.arena = site.arena

    @abc.abstractmethod
    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """Return the result, and a state of arrays (samples, …) for `backward`; a unit may keep x as its state.

        `version` is that of the weights. `training` is None in evaluation, when nothing is learnt or random.
        """

    def infer(self, xs: Sequence[Data], version: int, lengths: NDArray[np.int64] | None) -> Data:
        """Return the result in evaluation, of samples of these lengths where they differ."""
        return self.forward(xs, version, None)[0]

    @abc.abstractmethod
    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """Return the errors of all inputs from those of the result, `dz`, which may be overwritten."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Learnt parameters by name."""
        return {}

    @property
    def averages(self) -> Mapping[str, Versions]:
        """Other arrays that change in training, by name."""
        return {}

    def keep(self, span: SampleSpan, state: State, dz: Data) -> None:
        """Keep what `gradient` needs."""

    def gradient(self, whole: SampleSpan) -> None:
        """Add the gradients of a micro-batch to the sums."""

    @property
    def held(self) -> Mapping[str, Parameter | Versions]:
        """Parameters and moving averages by name."""
        return {**self.parameters, **self.averages}

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version of all parameters from the mean of the gradients over `samples`."""
        for learnt in self.parameters.values():
            learnt.update(samples, rule, keeps=keeps)

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        for held in self.held.values():
            held.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        for held in self.held.values():
            held.begin_epoch()


class ActivationUnit(Unit):
    """The unit of every operation that has an activation's kernels: those of its name."""

    def __init__(self, step: SfuStep, site: Site) -> None:
        super().__init__(step, site)
        self._of = activations()[step.operation.type]
        self._keys = [float(key) for key in vars(step.operation).values()]  # in the order of its fields
        self.overwrites = self._of.overwrites

    def forward(self, xs: Sequence[Data], version: int, training: Training | None) -> tuple[Data, State]:
        """See `Unit`."""
        [x] = xs
        return self._of.forward(x, self.arena.take, *self._keys)

    def infer(self, xs: Sequence[Data], version: int, lengths: NDArray[np.int64] | None) -> Data:
        """See `Unit`."""
        [x] = xs
        return self._of.infer(x, self.arena.take, *self._keys)

    def backward(self, state: State, dz: Data, version: int) -> Sequence[Data]:
        """See `Unit`."""
        self._of.error(state, dz, *self._keys)
        return (dz,)


@registry
def units() -> Mapping[type[SfuOperation], type[Unit]]:
    """Return all units of this folder by the operations that they carry out."""
    known = subclasses(__package__, Unit)  # type: ignore[type-abstract]  # its subclasses
    shared = {
        kind: ActivationUnit
        for name, kind in operation_types().items()
        if name in activations() and issubclass(kind, SfuOperation)
    }
    return {**shared, **{unit.operation: unit for unit in known if hasattr(unit, "operation")}}
