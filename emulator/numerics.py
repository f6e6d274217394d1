"""The numbers of one slice: its weights (LPRAM), their gradients (LGB) and the stored activations (Act-RAM).

`SliceNumerics` computes; `NoNumerics` answers to the same calls and computes nothing, for timing alone.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ..kernels import conv
from .mapping import Cut, Slice
from .parameter import Parameter, Sgd
from .sfu import Sfu
from .start import initial_weights

Data = NDArray[np.float32]
Maps = Any  # Data, or None where there is timing alone


class Numerics(Protocol):
    """What a device asks of the numbers of a slice. Partial sums handed in are used up; all else is left as it is."""

    def forward(self, micro_batch: int, x: Maps, partial: Maps) -> Maps:
        """FP with what came from the left; keeps the slice's activations for PG."""

    def infer(self, x: Maps, partial: Maps) -> Maps:
        """FP that keeps nothing."""

    def beyond(self, x: Maps) -> Maps:
        """Of the activations that came in, those for the devices to the right."""

    def activate(self, micro_batch: int, y: Maps, samples: NDArray[np.int64]) -> Maps:
        """The SFU on complete outputs."""

    def activate_infer(self, y: Maps) -> Maps:
        """The SFU without dropout, keeping nothing."""

    def deactivate(self, micro_batch: int, dz: Maps) -> Maps:
        """The SFU's way back."""

    def before(self, dy: Maps) -> Maps:
        """Of the output errors, those for the devices to the left."""

    def error(self, micro_batch: int, dy: Maps, partial: Maps) -> Maps:
        """EB with what came from the right; keeps the output errors for PG."""

    def gradient(self, micro_batch: int) -> None:
        """PG; frees Act-RAM."""

    def update(self, samples: int, rule: Sgd) -> None:
        """New parameters from the gradients' mean over so many samples."""


class SliceNumerics:
    """What a device computes for one slice of a layer."""

    def __init__(self, part: Slice, start: Literal["he", "xavier"], seed: int) -> None:
        self.part = part
        self.weight = Parameter(initial_weights(part.layer, start, seed, part.in_channels, part.out_channels))
        self.sfu = Sfu(part.layer, seed) if part.is_last else None
        self._act_ram: dict[int, Data] = {}
        self._output_errors: dict[int, Data] = {}

    def forward(self, micro_batch: int, x: Data, partial: Data | None) -> Data:
        """Under ICP: all output channels, on top of the partial sums. Under OCP: those before, then this slice's."""
        self._act_ram[micro_batch] = x[:, : len(self.part.in_channels)]
        return self.infer(x, partial)

    def infer(self, x: Data, partial: Data | None) -> Data:
        """As `forward`, keeping nothing."""
        layer = self.part.layer
        gathers = self.part.cut is Cut.OCP
        if partial is None or gathers:
            y = np.zeros((len(x), len(self.part.out_channels), *layer.output[1:]), np.float32)
        else:
            y = _writable(partial)
        own = x[:, : len(self.part.in_channels)]
        conv.add_forward(y, own, self.weight.value, stride=layer.stride, pad=layer.pad)
        return np.concatenate([partial, y], axis=1) if gathers and partial is not None else y

    def beyond(self, x: Data) -> Data:
        """Under ICP the channels after this slice's, under OCP all."""
        return x if self.part.cut is Cut.OCP else x[:, len(self.part.in_channels) :]

    def activate(self, micro_batch: int, y: Data, samples: NDArray[np.int64]) -> Data:
        """The SFU, on the layer's last device."""
        assert self.sfu is not None
        return self.sfu.forward(micro_batch, y, samples)

    def activate_infer(self, y: Data) -> Data:
        """The SFU without dropout."""
        assert self.sfu is not None
        return self.sfu.infer(y)

    def deactivate(self, micro_batch: int, dz: Data) -> Data:
        """The SFU's way back."""
        assert self.sfu is not None
        return self.sfu.backward(micro_batch, dz)

    def before(self, dy: Data) -> Data:
        """Under ICP all output errors, under OCP those of the channels before this slice's."""
        return dy[:, : self.part.begin] if self.part.cut is Cut.OCP else dy

    def error(self, micro_batch: int, dy: Data, partial: Data | None) -> Data | None:
        """Under ICP: this slice's input channels, then those from the right. Under OCP: all, on top of partial sums.

        None for the first layer, for nobody needs the errors of the images.
        """
        layer = self.part.layer
        own = dy[:, self.part.begin :] if self.part.cut is Cut.OCP else dy
        self._output_errors[micro_batch] = own
        if layer.index == 0:
            return None
        relays = self.part.cut is Cut.ICP
        if partial is None or relays:
            dx = np.zeros((len(dy), len(self.part.in_channels), *layer.input[1:]), np.float32)
        else:
            dx = _writable(partial)
        conv.add_error(dx, own, self.weight.value, stride=layer.stride, pad=layer.pad)
        return np.concatenate([dx, partial], axis=1) if relays and partial is not None else dx

    def gradient(self, micro_batch: int) -> None:
        """Weights' gradients, and the bias's on the layer's last device."""
        layer = self.part.layer
        x, dy = self._act_ram.pop(micro_batch), self._output_errors.pop(micro_batch)
        conv.add_gradient(self.weight.gradient, x, dy, stride=layer.stride, pad=layer.pad)
        if self.sfu is not None:
            self.sfu.gradient(micro_batch)

    def update(self, samples: int, rule: Sgd) -> None:
        """New weights, and a new bias."""
        self.weight.update(samples, rule)
        if self.sfu is not None:
            self.sfu.update(samples, rule)


def _writable(array: Data) -> Data:
    return array if array.flags.c_contiguous and array.flags.writeable else array.copy()


class NoNumerics:
    """Nothing is computed: every map is None."""

    def forward(self, micro_batch: int, x: None, partial: None) -> None:
        """See `Numerics`."""

    def infer(self, x: None, partial: None) -> None:
        """See `Numerics`."""

    def beyond(self, x: None) -> None:
        """See `Numerics`."""

    def activate(self, micro_batch: int, y: None, samples: NDArray[np.int64]) -> None:
        """See `Numerics`."""

    def activate_infer(self, y: None) -> None:
        """See `Numerics`."""

    def deactivate(self, micro_batch: int, dz: None) -> None:
        """See `Numerics`."""

    def before(self, dy: None) -> None:
        """See `Numerics`."""

    def error(self, micro_batch: int, dy: None, partial: None) -> None:
        """See `Numerics`."""

    def gradient(self, micro_batch: int) -> None:
        """See `Numerics`."""

    def update(self, samples: int, rule: Sgd) -> None:
        """See `Numerics`."""
