"""Slices of attention: some heads, whole, over all rows. There are no weights, so no PG; its SFU
may learn.

Act-RAM holds the slice's queries, keys and values, and two numbers for each row and head; EB
computes scores again.

In a run's formats, shares, times what dropout keeps, are rounded as activations, the same in FP and
in EB, and errors of scores as errors: both are operands of products. They are counted for the pairs
of rows of which one sees the other, shares in FP alone. What softmax computes stays in fp32, and so
do sums, if the run has no others: in narrow formats, or of blocks, along which operands are rounded
again as engines read them (`kernels/attention/summed.py`). Where maps have scales by mini-batches
before, shares and errors of scores have one each, of all heads of the layer. Terms of scores are
added in fp32, and their errors, which are not rounded before, summed so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.attention import (
    Attention,
    Operand,
    Scale,
    SummedAttention,
    SumRounding,
    add_by_bucket,
    by_distance,
    drawn,
)
from ....kernels.layers.normalisation import dropout_mask
from ....kernels.number import BlockGrid, Rounding
from ....kernels.quantise import on_grid
from ...mapping import Slice
from ...network import Training
from ...network.operations.attention import Attention as AttentionOperation
from ...schedule import SampleSpan
from ..formats import MapFormats
from ..memories import ActRam, Arrays
from ..scales import name_of_scale
from .conv import SliceSums
from .numerics import Data, Lengths, SliceNumerics

Numbers = NDArray[np.int64]
"""Of samples, since the start of training."""

_PLACE = 0x7FFFFFFF  # of attention's dropout in the key of its masks: behind all units of the layer's SFU

_PAIRS = "pairs"  # what belongs to pairs of rows: shares, and errors of scores


class AttentionSlice(SliceNumerics):
    """What a device computes for some heads of an attention layer."""

    def __init__(
        self,
        part: Slice,
        seed: int,
        arena: Arena,
        formats: MapFormats | None = None,
        inputs: MapFormats | None = None,
    ) -> None:
        super().__init__(part, seed, arena)
        self._formats, self._inputs = formats, formats if inputs is None else inputs
        operation = part.layer.operation
        assert isinstance(operation, AttentionOperation)
        self._sharing = operation.sharing
        heads, size = part.channels * self._sharing, operation.size(part.layer.input)
        rules: dict[str, Any] = {"scale": operation.scale, "keys": operation.keys}
        self._kernel = Attention(heads, size, operation.causal, **rules)
        if formats is not None and formats.precision.accumulate != "fp32":
            sums = SliceSums(formats.precision).kind
            self._kernel = SummedAttention(
                heads, size, operation.causal, **rules, sums=sums, dot=formats.precision.dot
            )
        self._rows, self._keys = operation.rows_of(part.layer.input)
        first = part.begin * self._sharing
        self._slopes = operation.terms(range(first, first + heads), self._rows)
        self._table = operation.table(part.layer.input)
        if self._table:
            self._places = operation.table_places(part.layer.input, part.channels)
            self._numbers = operation.bucket_numbers(self._rows)
        self._dropout = operation.dropout
        self._stream = {"seed": seed, "layer": part.layer.stream | _PLACE << 32}
        self._begin = part.in_channels.start if part.layer.reads_again else 0
        self._is_shared = not (part.is_first and part.is_last)
        self._act_ram = ActRam(arena)

    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """See `SliceNumerics`."""
        lengths, samples = training.lengths, training.samples
        rows, statistics, y = self._attend(x, partial, lengths, samples)
        keys = (
            np.full(len(x), self._keys, np.int64)
            if lengths is None
            else np.asarray(lengths, np.int64)
        )
        if not self.part.layer.makes.fixed:
            self._act_ram.put(span, rows, statistics, keys, samples)
        return y

    async def infer(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, lengths: Lengths | None
    ) -> Data:
        """See `SliceNumerics`."""
        return self._attend(x, partial, lengths, None)[2]

    def _attend(
        self, x: Data, partial: Data | None, lengths: Lengths | None, numbers: Numbers | None
    ) -> tuple[Data, Data, Data]:
        """Return the slice's inputs (samples, rows, channels), their statistics, and the outputs so
        far.
        """
        samples, tokens = x.shape[:2]
        rows = self._arena.take((samples, tokens, len(self.part.in_channels)))
        rows[...] = x[:, :, 0, self._begin : self._begin + rows.shape[2]]
        before = 0 if partial is None else partial.shape[-1]
        queries = self._rows
        y = self._arena.take((samples, queries, 1, before + self._kernel.channels))
        if partial is not None:
            y[..., :before] = partial
        statistics = self._arena.take(self._kernel.statistics_shape(samples, queries))
        heads, terms = self._by_heads(rows[:, self._table :]), self._terms(rows)
        scale = self._scale("activations", numbers)
        for some, masks in self._masks(samples, lengths, numbers):
            masks["terms"] = _of_samples(terms, some)
            shares = self._operand("activations", numbers, some, masks, queries, scale)
            out = y[some, :, 0, before:], statistics[some]
            masks |= self._again(numbers, some, tokens)
            self._kernel.forward(heads[some], *out, shares=shares, **masks)
        self._note("activations", numbers, scale)
        return rows, statistics, y

    def _terms(self, rows: Data) -> Data | None:
        """Return what is added to scores, by distance, of slopes or of the tables of samples."""
        if not self._table:
            return self._slopes
        return by_distance(rows[:, : self._table], self._places, self._numbers)

    def _by_heads(self, rows: Any) -> Any:
        """Return the inputs head by head, or their words: k and v that heads share stand with each
        of them.
        """
        if self._sharing == 1:
            return rows
        shape = *rows.shape[:2], 3 * self._kernel.channels
        is_data = rows.dtype == np.float32
        heads = self._arena.take(shape) if is_data else np.empty(shape, rows.dtype)
        groups = self._grouped(rows)
        apart = heads.reshape(*groups.shape[:3], self._sharing, 3, -1)
        apart[..., 0, :] = groups[..., :-2, :]
        apart[..., 1:, :] = groups[..., None, -2:, :]
        return heads

    def _add_shared(self, errors: Data, dx: Data) -> None:
        """Write the errors of the inputs, which come head by head, to `dx`: those of k and v are
        added, by heads, in the format of sums.
        """
        groups = self._grouped(dx)
        sums = None if self._formats is None else self._formats.precision.sums.grid
        assert not isinstance(sums, BlockGrid)
        apart = errors.reshape(*groups.shape[:3], self._sharing, 3, -1)
        groups[..., :-2, :] = apart[..., 0, :]
        groups[..., -2:, :] = apart[..., 0, 1:, :]
        for head in range(1, self._sharing):
            groups[..., -2:, :] += apart[..., head, 1:, :]
            if sums is not None:
                shared = np.ascontiguousarray(groups[..., -2:, :])
                groups[..., -2:, :] = on_grid(shared, sums, out=shared)

    def _grouped(self, rows: Any) -> Any:
        """Return a view of rows as (samples, rows, groups, q of all heads and k and v, size)."""
        return rows.reshape(*rows.shape[:2], self.part.channels, self._sharing + 2, -1)

    def _masks(
        self, samples: int, lengths: Lengths | None, numbers: Numbers | None
    ) -> Iterator[tuple[slice, dict[str, Any]]]:
        """Yield the samples with their masks: which rows are keys, and in training (`numbers`) what
        dropout keeps.

        A causal row sees none behind it, so needs no lengths. Dropout masks, (heads, queries,
        keys), are made of one sample after another, in EB again. They count the heads of the whole
        layer.
        """
        if self._kernel.causal:
            lengths = None
        if numbers is None or not self._dropout:
            yield slice(None), {"lengths": lengths}
            return
        kept = self._arena.take((1, self._kernel.heads, self._rows, self._keys))
        key: dict[str, Any] = {
            "rate": self._dropout,
            **self._stream,
            "first": self.part.begin * self._sharing * self._rows * self._keys,
        }
        for place in range(samples):
            some = slice(place, place + 1)
            dropout_mask(kept.reshape(1, 1, 1, -1), samples=numbers[some], **key)
            yield some, {"lengths": None if lengths is None else lengths[some], "kept": kept}

    def _operand(
        self,
        kind: Literal["activations", "errors"],
        numbers: Numbers | None,
        some: slice,
        masks: Mapping[str, Any],
        counted_rows: int,
        scale: Scale | None,
    ) -> Operand | None:
        """Return how operands of a kind are rounded under a scale, of some samples whose rows are
        counted, or of which none are (0).
        """
        if self._formats is None:
            return None
        layer, own = self.part.layer, None if numbers is None else numbers[some]
        first = self.part.begin * self._sharing * self._rows * self._keys
        pairs = 0
        if own is not None and self._kernel.causal:
            pairs = len(own) * counted_rows * (counted_rows + 1) // 2
        elif own is not None:
            lengths = masks["lengths"]
            keys = len(own) * self._keys if lengths is None else int(np.sum(lengths))
            pairs = counted_rows * keys
        values = self._kernel.heads * pairs
        return self._formats.operand(kind, layer.makes.number, first, own, values, scale=scale)

    def _scale(
        self, kind: Literal["activations", "errors"], numbers: Numbers | None
    ) -> Scale | None:
        """Return the scale of operands of a kind in the mini-batch; None without one."""
        if self._formats is None:
            return None
        tensor, shared = self.part.layer.makes.number, self._is_shared
        return self._formats.scale(kind, tensor, _PAIRS, numbers, shared=shared)

    def _note(self, kind: str, numbers: Numbers | None, scale: Scale | None) -> None:
        if self._formats is not None:
            self._formats.note(kind, self.part.layer.makes.number, _PAIRS, numbers, scale)

    @property
    def operand_scales(self) -> list[str]:
        """See `SliceNumerics`."""
        tensor = self.part.layer.makes.number
        return [name_of_scale(kind, _PAIRS, tensor) for kind in ("activations", "errors")]

    def _again(
        self, numbers: Numbers | None, some: slice, tokens: int, *, with_errors: bool = False
    ) -> dict[str, SumRounding | None]:
        """Return how inputs, and errors of outputs, are rounded once more where blocks are summed,
        each by the word of its channel in the layer and its row.
        """
        if self._formats is None or not self._formats.precision.dot:
            return {}
        own = None if numbers is None else numbers[some]
        inputs, outputs = self.part.in_channels, self.part.out_channels
        again = {"of_inputs": self._rounding("activations", inputs, own, tokens)}
        if again["of_inputs"] is not None:
            again["of_inputs"] = again["of_inputs"].lying(
                lambda words: self._by_heads(words[:, self._table :])
            )
        if with_errors:
            again["of_errors"] = self._rounding("errors", outputs, own, self._rows)
        return again

    def _rounding(
        self,
        kind: Literal["activations", "errors"],
        channels: range,
        numbers: Numbers | None,
        tokens: int,
    ) -> SumRounding | None:
        """Return how operands of some channels are rounded, with words (samples, rows,
        channels).
        """
        formats = self._inputs if kind == "activations" else self._formats
        assert formats is not None
        precision = formats.precision
        grid, rounding = precision.format(kind).grid, precision.rounding_of(kind)
        if not isinstance(grid, BlockGrid):
            return None
        if rounding is not Rounding.STOCHASTIC:
            return SumRounding(grid, rounding)
        if numbers is None:
            return SumRounding(grid, Rounding.EVEN)
        tensor, first = self.part.layer.makes.number, channels.start * tokens
        words = drawn(formats.again(kind, tensor, first, numbers), len(channels) * tokens)
        lying = words.reshape(len(numbers), len(channels), tokens).swapaxes(1, 2)
        return SumRounding(grid, rounding, lying)

    def beyond(self, x: Data) -> Data:
        """See `SliceNumerics`."""
        return x if self.part.layer.reads_again else x[..., len(self.part.in_channels) :]

    async def error(
        self, span: SampleSpan, dy: Data, partial: Data | None, version: int
    ) -> Data | None:
        """See `SliceNumerics`; the errors of each slice's own channels are whole."""
        rows, statistics, keys, numbers = self._act_ram.read(span)
        own = dy[:, :, 0, self.part.out_channels.start if not self.part.is_first else 0 :]
        held = rows.shape[2]
        if partial is not None and self.part.layer.reads_again:
            dx = self._arena.take(rows.shape)
            self._attend_back(rows, statistics, own, dx, keys, numbers)
            partial[:, :, 0, self._begin : self._begin + held] += dx
            return partial
        beyond = 0 if partial is None else partial.shape[-1]
        whole = self._arena.take((len(dy), rows.shape[1], 1, held + beyond))
        if partial is not None:
            whole[..., held:] = partial
        self._attend_back(rows, statistics, own, whole[:, :, 0, :held], keys, numbers)
        return whole

    def _attend_back(
        self, rows: Data, statistics: Data, dy: Data, dx: Data, lengths: Lengths, numbers: Numbers
    ) -> None:
        """Write the errors of the slice's inputs to `dx`."""
        heads, terms = self._by_heads(rows[:, self._table :]), self._terms(rows)
        own_rows = dx[:, self._table :]
        errors = own_rows if self._sharing == 1 else self._arena.take(heads.shape)
        of_terms = np.zeros(terms.shape, np.float32) if self._table and terms is not None else None
        scales = self._scale("activations", numbers), self._scale("errors", numbers)
        for some, masks in self._masks(len(rows), lengths, numbers):
            shares = self._operand("activations", numbers, some, masks, 0, scales[0])
            of_scores = self._operand("errors", numbers, some, masks, self._rows, scales[1])
            own = heads[some], statistics[some], dy[some], errors[some]
            masks["terms"] = _of_samples(terms, some)
            masks["term_errors"] = _of_samples(of_terms, some)
            masks |= self._again(numbers, some, rows.shape[1], with_errors=True)
            self._kernel.backward(*own, shares=shares, score_errors=of_scores, **masks)
        self._note("errors", numbers, scales[1])
        if self._sharing > 1:
            self._add_shared(errors, own_rows)
        if of_terms is not None:
            add_by_bucket(of_terms, self._places, self._numbers, dx[:, : self._table])

    def gradients(self, scale: float, number: int | None) -> list[Data]:
        """See `SliceNumerics`."""
        return [other.gradient * np.float32(scale) for other in self._others]

    def take_gradients(self, row: Data) -> Data:
        """See `SliceNumerics`."""
        return self._take_others(row)

    def balanced_gradient(self, begin: int, end: int) -> Data:
        """See `SliceNumerics`; there is none."""
        raise NotImplementedError(f"{self.part}: attention has no weights that other devices store")

    def take_balanced(self, begin: int, end: int, weights: Data) -> None:
        """See `balanced_gradient`."""
        raise NotImplementedError(f"{self.part}: attention has no weights that other devices store")

    def weights(self) -> Data:
        """See `SliceNumerics`; an array without numbers."""
        return np.empty((self.part.channels, 0, 1, 1), np.float32)

    def put_weights(self, weights: Data) -> None:
        """See `SliceNumerics`; there are none."""

    def _weights_state(self) -> Arrays:
        return {}

    def _restore_weights(self, state: Arrays) -> None:
        """Restore nothing."""


def _of_samples(terms: Data | None, some: slice) -> Data | None:
    """Return the terms of some samples, or those that all have."""
    return terms if terms is None or len(terms) == 1 else terms[some]
