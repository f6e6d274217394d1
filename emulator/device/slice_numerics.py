"""The numerics of one slice: its weights (LPRAM), their gradients (LGB) and its input activations (Act-RAM).

Maps are (samples, rows, columns, channels). A message within a process is not copied: once sent, it belongs to the
receiver. So maps are changed in place only where the sender no longer needs them: partial sums, and errors of inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena, aligned
from ...kernels.conv import Convolution
from ..mapping import Cut, Slice
from ..schedule import SampleSpan
from .act_ram import ActRam
from .lpram import Parameter, Sgd
from .sfu import Sfu
from .start import initial_weights
from .versions import Versions

Data = NDArray[np.float32]


class SliceNumerics:
    """What a device computes for one slice of a layer; its maps come from an arena.

    The layer's last slice has the SFU.
    """

    def __init__(self, part: Slice, start: Literal["he", "xavier"], seed: int, arena: Arena) -> None:
        layer = part.layer
        self.part = part
        self._cut = part.cut
        self._arena = arena
        self._convolution = Convolution(len(part.in_channels), len(part.out_channels), layer.input[1:], *layer.window)
        weights = initial_weights(layer, start, seed, part.in_channels, part.out_channels)
        self._weight = Parameter(self._convolution.pack(weights))
        # Inputs that are needed again arrive whole; otherwise each slice passes on the channels after its own.
        self._begin = part.begin if self._cut is Cut.ICP and layer.reads_again else 0
        self._turned: Versions | None = None  # weights in the order in which EB reads them
        if layer.needs_errors:
            self._turned = Versions(aligned(4 * self._convolution.turned_size).view(np.float32))
        self._turn()
        self.sfu = Sfu(layer, seed, arena) if part.is_last else None
        self._act_ram, self._output_errors = ActRam(arena), ActRam(arena)

    def forward(self, span: SampleSpan, x: Data, partial: Data | None, version: int) -> Data:
        """Run FP on what arrived from the left; keep the slice's activations for PG.

        Return, under ICP, all output channels, added to the partial sums; under OCP, those before, then this slice's.
        """
        frame = self._act_ram.room(span, self._convolution.frame_shape(len(x))[1:])
        self._convolution.frame(self._own(x), frame)
        return self._convolve(len(x), frame, partial, version)

    def infer(self, x: Data, partial: Data | None, version: int) -> Data:
        """Run FP and keep nothing."""
        frame = self._arena.take(self._convolution.frame_shape(len(x)))
        self._convolution.frame(self._own(x), frame)
        return self._convolve(len(x), frame, partial, version)

    def _convolve(self, samples: int, frame: Data, partial: Data | None, version: int) -> Data:
        weight = self._weight[version]
        if self._cut is Cut.ICP and partial is not None:
            self._convolution.forward(partial, frame, weight, fresh=False)
            return partial
        before = 0 if partial is None else partial.shape[-1]
        y = self._arena.take((samples, *self._convolution.output, before + self._convolution.out_channels))
        if partial is not None:
            y[..., :before] = partial
        self._convolution.forward(y[..., before:], frame, weight, fresh=True)
        return y

    def _own(self, x: Data) -> Data:
        """Return the channels that this slice convolves."""
        return x[..., self._begin : self._begin + self._convolution.in_channels]

    def beyond(self, x: Data) -> Data:
        """Return the activations for the devices to the right.

        All channels under OCP, or where they are needed again; otherwise those after this slice's.
        """
        whole = self._cut is Cut.OCP or self.part.layer.reads_again
        return x if whole else x[..., self._convolution.in_channels :]

    def before(self, dy: Data) -> Data:
        """Return the output errors for the devices to the left.

        All under ICP; under OCP those of the channels before this slice's.
        """
        return dy[..., : self.part.begin] if self._cut is Cut.OCP else dy

    def error(self, span: SampleSpan, dy: Data, partial: Data | None, version: int) -> Data | None:
        """Run EB, adding to the errors of its inputs so far; keep the output errors for PG.

        Return, under ICP, the errors of this slice's input channels, then those from the right; under OCP, all, added
        to the partial sums. Where the inputs are needed again, their errors arrive whole, and this slice's are added to
        them. Return None where the inputs are images, whose errors are not needed.
        """
        own = dy[..., self.part.begin :] if self._cut is Cut.OCP else dy
        self._output_errors.put(span, own)
        if self._turned is None:
            return None
        turned = self._turned[version]
        frame = self._arena.take(self._convolution.error_frame_shape(len(dy)))
        self._convolution.error_frame(own, frame)
        if partial is not None and (self._cut is Cut.OCP or self.part.layer.reads_again):
            self._convolution.error(self._own(partial), frame, turned, fresh=False)
            return partial
        held = self._convolution.in_channels
        beyond = 0 if partial is None else partial.shape[-1]
        dx = self._arena.take((len(dy), *self._convolution.size, held + beyond))
        if partial is not None:
            dx[..., held:] = partial
        self._convolution.error(dx[..., :held], frame, turned, fresh=True)
        return dx

    def gradient(self, whole: SampleSpan) -> None:
        """Run PG of a micro-batch for the weights and the SFU's parameters; free Act-RAM."""
        [frame], [dy] = self._act_ram.read(whole), self._output_errors.read(whole)
        self._convolution.gradient(self._weight.gradient, frame, dy, fresh=self._weight.begins_sum())
        if self.sfu is not None:
            self.sfu.gradient(whole)

    def update(self, samples: int, rule: Sgd, *, keeps: bool) -> None:
        """Make the next version of all parameters from the mean of the gradients over `samples`."""
        self._weight.update(samples, rule, keeps=keeps)
        if self._turned is not None:
            self._turned.advance(keeps=keeps)
        self._turn()
        if self.sfu is not None:
            self.sfu.update(samples, rule, keeps=keeps)

    def gradients(self, kept: NDArray[np.bool_]) -> list[Data]:
        """Return the sums of all gradients, each in a row: of the weights of the channels `kept`, and of the SFU."""
        own = self._convolution.unpack(self._weight.gradient)[self._among(kept)]
        return [own.reshape(-1), *(of.gradient for of in self._others)]

    def take_gradients(self, kept: NDArray[np.bool_], row: Data) -> Data:
        """Set gradients from a row laid out as by `gradients`; return the rest of the row."""
        gradient = np.zeros(self._shape, np.float32)
        own = gradient[self._among(kept)].shape
        size = math.prod(own)
        gradient[self._among(kept)] = row[:size].reshape(own)
        self._weight.gradient[...] = self._convolution.pack(gradient)
        row = row[size:]
        for of in self._others:
            of.gradient[...] = row[: of.gradient.size]
            row = row[of.gradient.size :]
        return row

    def balanced_gradient(self, begin: int, end: int) -> Data:
        """Return the sum of the gradients of weights that are stored elsewhere, (1, 1, 1, values), and clear it.

        `begin` and `end` are channels of the layer, in the dimension in which it is cut.
        """
        gradient = self._convolution.unpack(self._weight.gradient)
        balanced = gradient[self._channels(begin, end)]
        values = balanced.reshape(1, 1, 1, -1).copy()
        balanced[...] = 0
        self._weight.gradient[...] = self._convolution.pack(gradient)
        return values

    def take_balanced(self, begin: int, end: int, weights: Data) -> None:
        """Write new weights that are stored elsewhere into the newest version."""
        value = self._convolution.unpack(self._weight.newest)
        balanced = value[self._channels(begin, end)]
        balanced[...] = weights.reshape(balanced.shape)
        self._weight.newest[...] = self._convolution.pack(value)
        self._turn()

    @property
    def _others(self) -> list[Parameter]:
        return self.sfu.parameters if self.sfu is not None else []

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return len(self.part.out_channels), len(self.part.in_channels), *self.part.layer.kernel

    def _channels(self, begin: int, end: int) -> tuple[slice | NDArray[np.bool_], ...]:
        """Return the index of some of the layer's channels in an array of this slice's weights."""
        return self._among(slice(begin - self.part.begin, end - self.part.begin))

    def _among(self, channels: slice | NDArray[np.bool_]) -> tuple[slice | NDArray[np.bool_], ...]:
        """Return the index of channels, along which the layer is cut, in an array of this slice's weights."""
        if isinstance(channels, np.ndarray) and channels.all():
            channels = slice(None)
        return (channels,) if self._cut is Cut.OCP else (slice(None), channels)

    def _turn(self) -> None:
        if self._turned is not None:
            self._convolution.turn(self._weight.newest, self._turned.newest)

    def weights(self) -> Data:
        """Return the newest weights as (its output channels, its input channels, kh, kw)."""
        return self._convolution.unpack(self._weight.newest)

    def arrays(self) -> Mapping[str, Data]:
        """Return the arrays of its SFU by name."""
        return self.sfu.arrays() if self.sfu is not None else {}

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions after their last use."""
        self._weight.free(versions)
        if self._turned is not None:
            self._turned.free(versions)
        if self.sfu is not None:
            self.sfu.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._weight.begin_epoch()
        if self._turned is not None:
            self._turned.begin_epoch()
        if self.sfu is not None:
            self.sfu.begin_epoch()

    def state(self) -> dict[str, Any]:
        """Return the training state; call between epochs only."""
        return {"weight": self._weight.state(), "sfu": None if self.sfu is None else self.sfu.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._weight.restore(state["weight"])
        self._turn()
        if self.sfu is not None:
            self.sfu.restore(state["sfu"])
