"""The numerics of one slice, of any kind of layer: what its device computes from what arrives.

Maps are (samples, rows, columns, channels). A message within a process is not copied: once sent, it
belongs to the receiver. So maps are changed in place only where the sender no longer needs them:
partial sums, and errors of inputs.
"""

from __future__ import annotations

import abc
import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ...mapping import Cut, Slice
from ...network import Training
from ...schedule import SampleSpan
from ..ends import Labels
from ..memories import ActRam, Arrays, Parameter, State, Versions
from ..ports import Ports
from ..rules import Rule
from ..sfu import Sfu

Data = NDArray[np.float32]
Lengths = NDArray[np.int64]
"""Time steps of each sample, where they differ."""


class Learnt(Protocol):
    """What holds parameters of a layer: a slice, or a block that is stored for one."""

    @property
    def part(self) -> Slice:
        """The channels."""

    @property
    def averages(self) -> Mapping[str, Versions]:
        """Moving averages by name, which differ between replicas."""

    def state(self) -> State:
        """Return what training keeps, copied; call only when no sample is in flight."""

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""


class SliceNumerics(abc.ABC):
    """What a device computes for one slice of a layer; its maps come from an arena.

    The layer's last slice has the SFU, or each one of its own logits.
    """

    def __init__(self, part: Slice, seed: int, arena: Arena) -> None:
        self.part = part
        self._arena = arena
        self._cut = part.cut
        self.sfu = Sfu(part.layer, seed, arena, part.sfu_channels) if part.sfu_channels else None

    def attach(self, ports: Ports) -> None:  # noqa: B027  # most slices need none
        """Take the ports of the device, for slices that talk to those of neighbours within an
        action.
        """

    def take_labels(self, labels: Labels | None) -> None:  # noqa: B027  # few slices do
        """Take the samples' labels, for slices that compute their part of the loss."""

    @abc.abstractmethod
    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """Run FP on what arrived from the left; keep the slice's activations for PG.

        Return, under ICP, all output channels, added to the partial sums; under OCP, those before,
        then this slice's.
        """

    @property
    def _stores(self) -> list[ActRam]:
        """What FP keeps, by micro-batch."""
        own = [store for store in vars(self).values() if isinstance(store, ActRam)]
        return own if self.sfu is None else [*own, *self.sfu.stores]

    def forget(self, index: int) -> None:
        """Let go what FP of a micro-batch has kept."""
        for store in self._stores:
            store.discard(index)

    def give(self, index: int) -> list[list[Data] | None]:
        """Return what FP of a micro-batch has kept, and let it go."""
        return [store.give(index) for store in self._stores]

    def take_back(self, index: int, kept: Sequence[list[Data] | None]) -> None:
        """Keep again what `give` returned."""
        for store, arrays in zip(self._stores, kept, strict=True):
            store.take_back(index, arrays)

    @abc.abstractmethod
    async def infer(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, lengths: Lengths | None
    ) -> Data:
        """Run FP and keep nothing."""

    @abc.abstractmethod
    def beyond(self, x: Data) -> Data:
        """Return the activations for the devices to the right.

        All channels under OCP, or where they are needed again; otherwise those after this slice's.
        """

    @property
    def makes_rounded(self) -> bool:
        """Whether its outputs are in the format of activations before the SFU takes them."""
        return False

    def before(self, dy: Data) -> Data:
        """Return the output errors for the devices to the left.

        All under ICP; under OCP those of the channels before this slice's.
        """
        return dy[..., : self.part.out_channels.start] if self._cut is Cut.OCP else dy

    async def recur(self, span: SampleSpan, dy: Data, version: int) -> None:  # noqa: B027  # few layers do
        """Run what EB needs before the errors of inputs arrive: a recurrent layer's steps."""

    @abc.abstractmethod
    async def error(
        self, span: SampleSpan, dy: Data, partial: Data | None, version: int
    ) -> Data | None:
        """Run EB, adding to the errors of its inputs so far; keep the errors for PG.

        Return, under ICP, the errors of this slice's input channels, then those from the right;
        under OCP, all, added to the partial sums. Where the inputs are needed again, their errors
        arrive whole, and this slice's are added to them. Return None where the inputs are images,
        whose errors are not needed.
        """

    def gradient(self, whole: SampleSpan) -> None:
        """Run PG of a micro-batch for the weights, if there are any, and the SFU's parameters; free
        Act-RAM.
        """
        if self.sfu is not None:
            self.sfu.gradient(whole)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Make the next version of all parameters from the mean of the gradients over `samples`."""
        if self.sfu is not None:
            self.sfu.update(samples, rule, keeps=keeps)

    def repeat(self, *, keeps: bool) -> None:
        """Make the next version of all parameters without an update, as a frozen layer does."""
        if self.sfu is not None:
            self.sfu.repeat(keeps=keeps)

    @abc.abstractmethod
    def gradients(self, scale: float, number: int | None) -> list[Data]:
        """Return the sums of all gradients times `scale`, each in a row: of the channels kept here,
        and of the SFU.

        Those of weights are in the format of gradients of update `number`; without one, as they
        are.
        """

    @abc.abstractmethod
    def take_gradients(self, row: Data) -> Data:
        """Set gradients from a row laid out as by `gradients`; return the rest of the row."""

    @property
    def parameters(self) -> list[Parameter]:
        """What updates change here, in any order."""
        return [*self._learnt_weights, *self._others]

    @property
    def _learnt_weights(self) -> list[Parameter]:
        return []

    @property
    def scaled(self) -> list[Parameter]:
        """What has a scale by the largest weights of updates before."""
        has_scale = (
            parameter.formats is not None and parameter.formats.has_scale
            for parameter in self._learnt_weights
        )
        return [*itertools.compress(self._learnt_weights, has_scale)]

    @property
    def operand_scales(self) -> list[str]:
        """The names of scales of operands within the layer, or errors of its logits, of which each
        of its slices sees its own.
        """
        return []

    @property
    def scale(self) -> int:
        """The exponent of that of its weights, where they are one array; 0 without."""
        parameters = self.scaled
        return parameters[0].scale if len(parameters) == 1 else 0

    def share_out(self, row: Data) -> Data:
        """Update only what is not 0 in a row laid out as by `gradients`; return the rest of the
        row.
        """
        rest = self.take_gradients(row)
        for parameter in self.parameters:
            parameter.share_out(np.flatnonzero(parameter.gradient))
            parameter.gradient[...] = 0
        return rest

    def values(self) -> list[Data]:
        """Return the newest values of all parameters, in the order of `gradients`."""
        return [self.weights(), *(other.newest for other in self._others)]

    def take_values(self, row: Data) -> Data:
        """Set the newest values from a row laid out as by `values`; return the rest of the row."""
        weights = self.weights()
        self.put_weights(row[: weights.size].reshape(weights.shape))
        row = row[weights.size :]
        for other in self._others:
            other.newest[...] = row[: other.newest.size].reshape(other.newest.shape)
            row = row[other.newest.size :]
        return row

    @abc.abstractmethod
    def balanced_gradient(self, begin: int, end: int) -> Data:
        """Return the sum of the gradients of weights that are stored elsewhere, (1, 1, 1, values),
        and clear it.

        `begin` and `end` are channels of the layer, in the dimension in which it is cut.
        """

    @abc.abstractmethod
    def take_balanced(self, begin: int, end: int, weights: Data) -> None:
        """Write new weights that are stored elsewhere into the newest version."""

    @abc.abstractmethod
    def weights(self) -> Data:
        """Return the newest weights as (its output channels, its input channels, kh, kw)."""

    @abc.abstractmethod
    def put_weights(self, weights: Data) -> None:
        """Overwrite the newest weights with some of the form of `weights`."""

    def arrays(self) -> Mapping[str, Data]:
        """Return the arrays of its SFU by name."""
        return {name: learnt.newest for name, learnt in self._held.items()}

    @property
    def averages(self) -> Mapping[str, Versions]:
        """Moving averages of its SFU by name, which differ between replicas."""
        return {name: learnt for name, learnt in self._held.items() if isinstance(learnt, Versions)}

    @property
    def _held(self) -> Mapping[str, Parameter | Versions]:
        return self.sfu.held if self.sfu is not None else {}

    @property
    def _others(self) -> list[Parameter]:
        return self.sfu.parameters if self.sfu is not None else []

    def _take_others(self, row: Data) -> Data:
        for other in self._others:
            other.gradient[...] = row[: other.gradient.size]
            row = row[other.gradient.size :]
        return row

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        if self.sfu is not None:
            self.sfu.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        if self.sfu is not None:
            self.sfu.begin_epoch()

    def state(self) -> State:
        """Return what training keeps, copied: of the weights, in the layer's layout, and of what
        the SFU learns.

        Call only when no sample is in flight.
        """
        weights = {"weight": self._weights_state()} if self.part.layer.has_weights else {}
        return {**weights, **{name: learnt.state() for name, learnt in self._held.items()}}

    def restore(self, state: State) -> None:
        """Restore what `state` returned, of this slice or of another with the same channels."""
        for name, learnt in self._held.items():
            learnt.restore(state[name])
        if self.part.layer.has_weights:
            self._restore_weights(state["weight"])

    @abc.abstractmethod
    def _weights_state(self) -> Arrays:
        """Return what training keeps of the weights, in arrays as `weights` returns."""

    @abc.abstractmethod
    def _restore_weights(self, state: Arrays) -> None:
        """Restore what `_weights_state` returned."""
