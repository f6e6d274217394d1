"""Slices of a classifier whose loss is vocabulary-parallel: each has logits, biases and errors of its own channels.

To the right go the loss's numbers of each row so far, `STATE` of them, of which the first `SUMS` take virtual time; the
others are for the report. To the left come those sums, of all channels. (Megatron-LM, Shoeybi et al., 2019, section 3;
the running maximum of Milakov and Gimelshein, 2018.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.layers import vocabulary_loss
from ...mapping import Slice
from ...network import Start
from ...schedule import SampleSpan
from ..ends import Labels
from ..memories import ActRam
from ..sfu import Training
from .conv import ConvSlice
from .numerics import Data, Lengths


class VocabularySlice(ConvSlice):
    """What a device computes for some channels of such a classifier."""

    def __init__(
        self, part: Slice, start: Start, seed: int, arena: Arena, kept: NDArray[np.bool_] | None = None
    ) -> None:
        super().__init__(part, start, seed, arena, None, kept)
        self._labels: Labels | None = None
        self._logits = ActRam(arena)

    def take_labels(self, labels: Labels | None) -> None:
        """See `SliceNumerics`."""
        self._labels = labels

    async def forward(self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training) -> Data:
        """See `SliceNumerics`; return the state of each row, (samples, rows, 1, STATE)."""
        logits = self._with_bias(await super().forward(span, x, None, version, training), version)
        self._logits.put(span, logits)
        return self._folded(span, logits, partial)

    async def infer(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, lengths: Lengths | None
    ) -> Data:
        """See `forward`; nothing is kept."""
        logits = self._with_bias(await super().infer(span, x, None, version, lengths), version)
        return self._folded(span, logits, partial)

    def _with_bias(self, logits: Data, version: int) -> Data:
        assert self.sfu is not None
        self.sfu.infer({self.part.layer.makes.number: logits}, version)
        return logits

    def _folded(self, span: SampleSpan, logits: Data, partial: Data | None) -> Data:
        state = partial
        if state is None:
            state = self._arena.take((*logits.shape[:3], vocabulary_loss.STATE))
            vocabulary_loss.begin(state)
        flat, states = (rows.reshape(-1, rows.shape[-1]) for rows in (logits, state))
        vocabulary_loss.fold(flat, self._targets(span).reshape(-1), self.part.out_channels.start, states)
        return state

    def _targets(self, span: SampleSpan) -> NDArray[np.int64]:
        assert self._labels is not None
        return self._labels.targets(span)

    def before(self, dy: Data) -> Data:
        """See `SliceNumerics`: the sums, which all slices need."""
        return dy

    def _own_errors(self, span: SampleSpan, dy: Data, version: int) -> Data:
        """See `ConvSlice`; `dy` are the sums of each row, (samples, rows, 1, SUMS)."""
        [logits] = self._logits.read(span)
        targets = self._targets(span)
        steps = np.maximum((targets >= 0).sum(axis=1, keepdims=True), 1).astype(np.float32)
        own = self._arena.take(logits.shape)
        flat, sums, errors = (rows.reshape(-1, rows.shape[-1]) for rows in (logits, dy, own))
        divisors = np.broadcast_to(steps, targets.shape).reshape(-1)
        vocabulary_loss.errors(flat, targets.reshape(-1), self.part.out_channels.start, sums, divisors, errors)
        assert self.sfu is not None
        self.sfu.backward(span, {self.part.layer.makes.number: own}, version)
        return own
