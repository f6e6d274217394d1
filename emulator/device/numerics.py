"""The numbers of one slice: its weights (LPRAM), their gradients (LGB) and the stored activations (Act-RAM).

Maps are (samples, rows, columns, channels). A message within a process is not copied: what has been sent belongs to the
receiver. So maps are changed in place only where the sender lets go of them: partial sums, and errors of inputs.

`SliceNumerics` computes; `NoNumerics` answers to the same calls and computes nothing, for timing alone.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...kernels.arena import Arena, aligned
from ...kernels.conv.convolution import Convolution
from ..mapping.slices import Cut, Slice
from ..schedule.action import Portion
from .act_ram import ActRam
from .parameter import Parameter, Sgd
from .sfu import Sfu
from .start import initial_weights

Data = NDArray[np.float32]
Maps = Any  # Data, or None where there is timing alone


class Numerics(Protocol):
    """What a device asks of the numbers of a slice.

    Partial sums, and the maps that the SFU is given, are used up; all else is left as it is.
    """

    def forward(self, portion: Portion, x: Maps, partial: Maps) -> Maps:
        """FP with what came from the left; keeps the slice's activations for PG."""

    def infer(self, x: Maps, partial: Maps) -> Maps:
        """FP that keeps nothing."""

    def beyond(self, x: Maps) -> Maps:
        """Of the activations that came in, those for the devices to the right."""

    def activate(self, portion: Portion, held: dict[int, Maps], samples: NDArray[np.int64]) -> None:
        """The SFU: add what it makes to the tensors at hand, by number, among them the complete outputs."""

    def activate_infer(self, held: dict[int, Maps]) -> None:
        """The SFU without dropout, keeping nothing."""

    def deactivate(self, portion: Portion, errors: dict[int, Maps]) -> None:
        """The SFU's way back: from the errors of what it made, those of what it read."""

    def before(self, dy: Maps) -> Maps:
        """Of the output errors, those for the devices to the left."""

    def error(self, portion: Portion, dy: Maps, partial: Maps) -> Maps:
        """EB, on top of the errors of its inputs so far; keeps the output errors for PG."""

    def gradient(self, whole: Portion) -> None:
        """PG of a micro-batch; frees Act-RAM."""

    def update(self, samples: int, rule: Sgd) -> None:
        """New parameters from the gradients' mean over so many samples."""

    def gradients(self, kept: NDArray[np.bool_]) -> list[Maps]:
        """The sums of all gradients, each in a row: of the weights of those channels that are kept, and of the SFU."""

    def take_gradients(self, kept: NDArray[np.bool_], row: Maps) -> Maps:
        """Take in gradients that lie in a row, as `gradients` gives them; what is left of it."""

    def borrowed_gradient(self, begin: int, end: int) -> Maps:
        """The sum of the gradients of weights that are stored elsewhere, (1, 1, 1, values), which counts no more here.

        `begin` and `end` are channels of the layer, along which it is cut.
        """

    def borrow(self, begin: int, end: int, weights: Maps) -> None:
        """Take in new weights that are stored elsewhere."""


class SliceNumerics:
    """What a device computes for one slice of a layer; its maps come from an arena."""

    def __init__(self, part: Slice, start: Literal["he", "xavier"], seed: int, arena: Arena) -> None:
        layer = part.layer
        self.part = part
        self._cut = part.cut
        self._arena = arena
        self._convolution = Convolution(
            len(part.in_channels), len(part.out_channels), layer.input[1:], layer.kernel, layer.stride, layer.pad
        )
        weights = initial_weights(layer, start, seed, part.in_channels, part.out_channels)
        self.weight = Parameter(self._convolution.pack(weights))
        # Where the inputs are needed again, they come whole; else each slice hands on those after its own.
        self._begin = part.begin if self._cut is Cut.ICP and layer.reads_again else 0
        needs_errors = layer.needs_errors
        self._turned = aligned(4 * self._convolution.turned_size).view(np.float32) if needs_errors else None
        self._turn()
        self.sfu = Sfu(layer, seed, arena) if part.is_last else None
        self._act_ram, self._output_errors = ActRam(arena), ActRam(arena)

    def weights(self) -> Data:
        """The weights as (its output channels, its input channels, kh, kw)."""
        return self._convolution.unpack(self.weight.value)

    def forward(self, portion: Portion, x: Data, partial: Data | None) -> Data:
        """Under ICP: all output channels, on top of the partial sums. Under OCP: those before, then this slice's."""
        frame = self._act_ram.room(portion, self._convolution.frame_shape(len(x))[1:])
        self._convolution.frame(self._own(x), frame)
        return self._convolve(len(x), frame, partial)

    def infer(self, x: Data, partial: Data | None) -> Data:
        """As `forward`, keeping nothing."""
        frame = self._arena.take(self._convolution.frame_shape(len(x)))
        self._convolution.frame(self._own(x), frame)
        return self._convolve(len(x), frame, partial)

    def _convolve(self, samples: int, frame: Data, partial: Data | None) -> Data:
        if self._cut is Cut.ICP and partial is not None:
            self._convolution.forward(partial, frame, self.weight.value, fresh=False)
            return partial
        before = 0 if partial is None else partial.shape[-1]
        y = self._arena.take((samples, *self._convolution.output, before + self._convolution.out_channels))
        if partial is not None:
            y[..., :before] = partial
        self._convolution.forward(y[..., before:], frame, self.weight.value, fresh=True)
        return y

    def _own(self, x: Data) -> Data:
        """The channels that this slice convolves."""
        return x[..., self._begin : self._begin + self._convolution.in_channels]

    def beyond(self, x: Data) -> Data:
        """All channels under OCP, or where they are needed again; else those after this slice's."""
        whole = self._cut is Cut.OCP or self.part.layer.reads_again
        return x if whole else x[..., self._convolution.in_channels :]

    def activate(self, portion: Portion, held: dict[int, Data], samples: NDArray[np.int64]) -> None:
        """The SFU, on the layer's last device."""
        assert self.sfu is not None
        self.sfu.forward(portion, held, samples)

    def activate_infer(self, held: dict[int, Data]) -> None:
        """The SFU without dropout."""
        assert self.sfu is not None
        self.sfu.infer(held)

    def deactivate(self, portion: Portion, errors: dict[int, Data]) -> None:
        """The SFU's way back."""
        assert self.sfu is not None
        self.sfu.backward(portion, errors)

    def before(self, dy: Data) -> Data:
        """Under ICP all output errors, under OCP those of the channels before this slice's."""
        return dy[..., : self.part.begin] if self._cut is Cut.OCP else dy

    def error(self, portion: Portion, dy: Data, partial: Data | None) -> Data | None:
        """Under ICP: this slice's input channels, then those from the right. Under OCP: all, on top of partial sums.

        Where the inputs were needed again, their errors come whole, and this slice's are added to them. None where the
        inputs are images, for nobody needs their errors.
        """
        own = dy[..., self.part.begin :] if self._cut is Cut.OCP else dy
        self._output_errors.put(portion, own)
        if self._turned is None:
            return None
        frame = self._arena.take(self._convolution.error_frame_shape(len(dy)))
        self._convolution.error_frame(own, frame)
        if partial is not None and (self._cut is Cut.OCP or self.part.layer.reads_again):
            self._convolution.error(self._own(partial), frame, self._turned, fresh=False)
            return partial
        held = self._convolution.in_channels
        beyond = 0 if partial is None else partial.shape[-1]
        dx = self._arena.take((len(dy), *self._convolution.size, held + beyond))
        if partial is not None:
            dx[..., held:] = partial
        self._convolution.error(dx[..., :held], frame, self._turned, fresh=True)
        return dx

    def gradient(self, whole: Portion) -> None:
        """Weights' gradients, and the bias's on the layer's last device."""
        [frame], [dy] = self._act_ram.read(whole), self._output_errors.read(whole)
        self._convolution.gradient(self.weight.gradient, frame, dy, fresh=self.weight.begins_sum())
        if self.sfu is not None:
            self.sfu.gradient(whole)

    def update(self, samples: int, rule: Sgd) -> None:
        """New weights, and a new bias."""
        self.weight.update(samples, rule)
        self._turn()
        if self.sfu is not None:
            self.sfu.update(samples, rule)

    def gradients(self, kept: NDArray[np.bool_]) -> list[Data]:
        """See `Numerics`."""
        own = self._convolution.unpack(self.weight.gradient)[self._among(kept)]
        return [own.reshape(-1), *(of.gradient for of in self._others())]

    def take_gradients(self, kept: NDArray[np.bool_], row: Data) -> Data:
        """See `Numerics`."""
        layer = self.part.layer
        gradient = np.zeros((len(self.part.out_channels), len(self.part.in_channels), *layer.kernel), np.float32)
        own = gradient[self._among(kept)].shape
        size = math.prod(own)
        gradient[self._among(kept)] = row[:size].reshape(own)
        self.weight.gradient[...] = self._convolution.pack(gradient)
        row = row[size:]
        for of in self._others():
            of.gradient[...] = row[: of.gradient.size]
            row = row[of.gradient.size :]
        return row

    def _others(self) -> list[Parameter]:
        return self.sfu.learnt() if self.sfu is not None else []

    def _among(self, channels: slice | NDArray[np.bool_]) -> tuple[slice | NDArray[np.bool_], ...]:
        """Some of the channels along which the layer is cut, in an array of this slice's weights."""
        if isinstance(channels, np.ndarray) and channels.all():
            channels = slice(None)
        return (channels,) if self._cut is Cut.OCP else (slice(None), channels)

    def borrowed_gradient(self, begin: int, end: int) -> Data:
        """See `Numerics`."""
        gradient = self._convolution.unpack(self.weight.gradient)
        borrowed = gradient[self._channels(begin, end)]
        values = borrowed.reshape(1, 1, 1, -1).copy()
        borrowed[...] = 0
        self.weight.gradient[...] = self._convolution.pack(gradient)
        return values

    def borrow(self, begin: int, end: int, weights: Data) -> None:
        """See `Numerics`."""
        value = self.weights()
        borrowed = value[self._channels(begin, end)]
        borrowed[...] = weights.reshape(borrowed.shape)
        self.weight.value[...] = self._convolution.pack(value)
        self._turn()

    def _channels(self, begin: int, end: int) -> tuple[slice | NDArray[np.bool_], ...]:
        """Channels of the layer in an array of this slice's weights."""
        return self._among(slice(begin - self.part.begin, end - self.part.begin))

    def _turn(self) -> None:
        if self._turned is not None:
            self._convolution.turn(self.weight.value, self._turned)


class NoNumerics:
    """Nothing is computed: every map is None."""

    def forward(self, portion: Portion, x: None, partial: None) -> None:
        """See `Numerics`."""

    def infer(self, x: None, partial: None) -> None:
        """See `Numerics`."""

    def beyond(self, x: None) -> None:
        """See `Numerics`."""

    def activate(self, portion: Portion, held: dict[int, None], samples: NDArray[np.int64]) -> None:
        """See `Numerics`."""

    def activate_infer(self, held: dict[int, None]) -> None:
        """See `Numerics`."""

    def deactivate(self, portion: Portion, errors: dict[int, None]) -> None:
        """See `Numerics`."""

    def before(self, dy: None) -> None:
        """See `Numerics`."""

    def error(self, portion: Portion, dy: None, partial: None) -> None:
        """See `Numerics`."""

    def gradient(self, whole: Portion) -> None:
        """See `Numerics`."""

    def update(self, samples: int, rule: Sgd) -> None:
        """See `Numerics`."""

    def gradients(self, kept: NDArray[np.bool_]) -> list[None]:
        """See `Numerics`."""
        return []

    def take_gradients(self, kept: NDArray[np.bool_], row: None) -> None:
        """See `Numerics`."""

    def borrowed_gradient(self, begin: int, end: int) -> None:
        """See `Numerics`."""

    def borrow(self, begin: int, end: int, weights: None) -> None:
        """See `Numerics`."""
