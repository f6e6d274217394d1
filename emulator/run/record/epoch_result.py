"""Results of epochs: of a finished one, and what is known of one that is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...device import Tally
from .exchanged import Exchanged
from .sizes import EpochSizes, SentBy
from .steps import StepResult, StepTable, mini_batches
from .usage import ResourceUse, Usage

Weights = dict[str, dict[str, NDArray[np.float32]]]
"""Arrays by name, by layer: weight (oc, ic, kh, kw), bias (oc,), and other arrays of its SFU.

A recurrent layer has PyTorch's names: weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, weight_hr_l0 with a
projection, and the same with _reverse of its second direction.
"""


@dataclasses.dataclass(frozen=True)
class EpochResult:
    """One row of the history, with the usage so far; times are since the start of training.

    `exchanged` and `sizes`, those of compressed messages, are of this epoch, over all devices. `resources` are those of
    a pair, or of a GPU alone.
    """

    epoch: int
    learning_rate: float
    train: Tally
    test: Tally
    virtual_time_ps: int
    host_time_s: float
    usage: Usage
    exchanged: Exchanged = dataclasses.field(default_factory=Exchanged)
    sizes: EpochSizes = dataclasses.field(default_factory=dict, repr=False, compare=False)
    resources: tuple[ResourceUse, ...] = ()
    steps: StepTable = dataclasses.field(default_factory=StepTable, repr=False)

    def row(self) -> EpochResult:
        """Return the epoch without the usage up to its end, which that of the next one replaces."""
        exchanged = self.exchanged if self.exchanged.traffic.value_bytes else NOTHING
        return dataclasses.replace(self, usage=_UNUSED, resources=(), exchanged=exchanged)


NOTHING, _UNUSED = Exchanged(), Usage(0, (), ())


@dataclasses.dataclass
class SoFar:
    """What rank 0 knows of an epoch that is not finished: replicas' mini-batches, and sizes sent."""

    shares: list[StepResult] = dataclasses.field(default_factory=list)
    sizes: dict[SentBy, NDArray[np.int64]] = dataclasses.field(default_factory=dict)

    def add(self, shares: Sequence[StepResult], sizes: EpochSizes) -> None:
        """Add a leg, of some of the replicas."""
        self.shares += shares
        for source, of_leg in sizes.items():
            before = [self.sizes[source]] if source in self.sizes else []
            self.sizes[source] = np.concatenate([*before, of_leg])

    @property
    def steps(self) -> list[StepResult]:
        """Whole mini-batches in order."""
        return mini_batches(self.shares)
