"""Slices of convolutions, and of layers that compute like one (fully connected ones, embeddings).

A slice has its weights (LPRAM), their gradients (LGB) and its input activations (Act-RAM). It sums
in fp32, bf16 or fp16 as they are, or in whole numbers, which operands are scaled to and sums from
(`SliceSums`).

With `accumulate = "int32"` all formats are fixed point, with f fraction bits: a value is a whole
number times 2^-f. FP multiplies activations by weights, EB errors by weights, PG activations by
errors. So the activations in Act-RAM are scaled by the fraction bits of activations and weights:
FP's products are then whole. PG reads them, too, so the errors that it reads have the bits that
errors have more than weights. Partial sums travel as the bits of int32. Of operands with a scale,
whole numbers are those over it, so a sum has the product of two scales: each slice knows the points
of a micro-batch, since maps bring their scales along, and sums get theirs once they are whole.

A classifier whose loss is vocabulary-parallel is such a slice, too: each has logits, biases and
errors of its own channels. To the right go the loss's numbers of each row so far, `STATE` of them,
of which the first `SUMS` take virtual time; the others are for the report. To the left come those
sums, of all channels. (Megatron-LM, Shoeybi et al., 2019, section 3; the running maximum of Milakov
and Gimelshein, 2018.) In a run's formats, it rounds the errors of its own logits, which
are whole blocks; logits, and the loss's numbers, stay in fp32.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....kernels import Arena
from ....kernels.conv import Convolving, LookUp, Sums, convolution
from ....kernels.layers import vocabulary_loss
from ....kernels.number import FloatGrid
from ...mapping import Cut, Slice, inputs_before
from ...network import Start, Training
from ...number import SINGLE, Precision
from ...schedule import SampleSpan
from ..ends import Labels
from ..formats import MapFormats
from ..memories import ActRam, Arrays, Parameter, Versions, initial_weights
from ..rules import Rule
from ..scales import name_of_scale
from ..weight_formats import SliceFormats, WeightFormats
from .numerics import Data, Lengths, SliceNumerics


@dataclasses.dataclass(frozen=True)
class SliceSums:
    """The sums of a slice in a run's formats."""

    precision: Precision = SINGLE

    @property
    def kind(self) -> Sums:
        """What kernels sum in."""
        return Sums.FP32 if self.precision.dot else Sums[self.precision.accumulate.upper()]

    def _bits(self, kind: str) -> int:
        grid = self.precision.format(kind).grid
        assert isinstance(grid, FloatGrid)
        return grid.fraction_bits - grid.least_exponent

    def activations(self, x: Data, scales: int = 0) -> Data:
        """Return activations as FP and PG multiply them; `scales` is the exponent of the product of
        those of both operands, here as below.
        """
        return self._scaled(x, scales, "activations", "weights")

    def errors(self, dy: Data, scales: int = 0) -> Data:
        """Return errors of outputs as EB multiplies them."""
        return self._scaled(dy, scales, "errors", "weights")

    def gradient_errors(self, dy: Data, over: NDArray[np.int64] | None = None) -> Data:
        """Return errors of outputs as PG multiplies them; `over` are the exponents, by sample, of
        the scale of errors over that of the weights of FP.
        """
        if self.kind is not Sums.INT32:
            return dy
        bits = self._bits("errors") - self._bits("weights")
        if over is None:
            return dy * np.float32(2.0**bits) if bits else dy
        factors = np.ldexp(np.float32(1), bits - over)
        return dy * factors.reshape(-1, 1, 1, 1)

    def _scaled(self, maps: Data, scales: int, *kinds: str) -> Data:
        if self.kind is not Sums.INT32:
            return maps
        return maps * np.float32(2.0 ** (sum(map(self._bits, kinds)) - scales))

    def make_whole(self, sums: Data, scales: int, *kinds: str) -> None:
        """Make fp32 numbers of sums of products of two kinds, in place, once they are complete."""
        if self.kind is Sums.INT32:
            bits = sum(map(self._bits, kinds)) - scales
            sums[...] = sums.view(np.int32) * np.float32(2.0**-bits)


class _Points(NamedTuple):
    """The exponents of the scales of a micro-batch's activations and errors, and the numbers of its
    samples.
    """

    samples: NDArray[np.int64] | None = None
    activations: int = 0
    errors: int = 0


class ConvSlice(SliceNumerics):
    """What a device computes for one slice of a convolution."""

    _place_of_errors: ClassVar[str] = "outputs"
    """Of its errors of outputs, in the names of their scales."""

    def __init__(
        self,
        part: Slice,
        start: Start,
        seed: int,
        arena: Arena,
        formats: MapFormats | None = None,
        kept: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(part, seed, arena)
        layer, self._kept = part.layer, slice(None) if kept is None or kept.all() else kept
        inputs = part.in_channels
        precision = (
            SINGLE if formats is None or layer.operation.looks_up else formats.precision
        )  # no sums in a row
        self._sums = SliceSums(precision)
        is_scaled = self._sums.kind is Sums.INT32 and formats is not None
        self._scales = formats.scales if formats is not None and is_scaled else None
        self._points, self._weight_scales = dict[int, _Points](), ActRam(arena)
        self._gradient_scales = 0
        self._convolution = self._convolving()
        weights = initial_weights(layer, start, seed, part.weight_inputs, part.out_channels)
        own = (
            None
            if formats is None
            else SliceFormats(WeightFormats(formats, part, kept), self._convolution)
        )
        self._weight = Parameter(self._convolution.pack(weights), arena, own)
        # Inputs that are needed again arrive whole; otherwise each slice passes on what those after
        # it need.
        self._begin = inputs.start if layer.reads_again else 0
        self._passed = inputs_before(layer, part.end) - inputs.start
        self._turned: Versions | None = None  # weights in the order in which EB reads them
        if layer.needs_errors:
            self._turned = Versions(arena.take((self._convolution.turned_size,)), arena)
        self._turn()
        self._gradient_is_whole = True
        self._act_ram, self._output_errors = ActRam(arena), ActRam(arena)

    def _convolving(self) -> Convolving:
        return _convolution_of(self.part, self._sums)

    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """See `SliceNumerics`; EB needs no activations."""
        layer, shape = self.part.layer, self._convolution.frame_shape(len(x))
        frame = self._act_ram.room(span, shape[1:]) if layer.has_pg else self._arena.take(shape)
        points = self._points_of(training.samples)
        if self._scales is not None and not layer.makes.fixed:
            self._points[span.micro_batch.index] = points
        if self._scales is not None and layer.has_pg:
            # Spans of a micro-batch may see several versions of the weights.
            self._weight_scales.put(span, np.full(len(x), self._weight.scale_of(version)))
        return self._convolve(x, frame, partial, version, points)

    async def infer(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, lengths: Lengths | None
    ) -> Data:
        """See `SliceNumerics`."""
        frame = self._arena.take(self._convolution.frame_shape(len(x)))
        return self._convolve(x, frame, partial, version, self._points_of(None))

    def _points_of(self, samples: NDArray[np.int64] | None) -> _Points:
        """Return the points of samples in FP; all are 0 where sums are no whole numbers."""
        if self._scales is None:
            return _Points()
        name = name_of_scale("activations", "outputs", self.part.layer.reads.number)
        return _Points(samples, self._scales.in_force(name, samples))

    def _convolve(
        self, x: Data, frame: Data, partial: Data | None, version: int, points: _Points
    ) -> Data:
        weight, scales = self._weight[version], points.activations
        if self._scales is not None:
            scales += self._weight.scale_of(version)
        self._convolution.frame(self._sums.activations(self._own(x), scales), frame)
        if self._cut is Cut.ICP and partial is not None:
            self._convolution.forward(partial, frame, weight, fresh=False)
            return self._summed(partial, scales)
        before = 0 if partial is None else partial.shape[-1]
        y = self._arena.take(
            (len(x), *self._convolution.output, before + self._convolution.out_channels)
        )
        if partial is not None:
            y[..., :before] = partial
        self._convolution.forward(y[..., before:], frame, weight, fresh=True)
        self._summed(y[..., before:], scales)
        return y

    def _summed(self, y: Data, scales: int) -> Data:
        """Return outputs after FP; they are whole under OCP, and after a layer's last slice."""
        if self._cut is Cut.OCP or self.part.is_last:
            self._sums.make_whole(y, scales, "activations", "weights")
        return y

    def _own(self, x: Data) -> Data:
        """Return the channels that this slice convolves."""
        return x[..., self._begin : self._begin + self._convolution.in_channels]

    def beyond(self, x: Data) -> Data:
        """See `SliceNumerics`."""
        return x if self.part.layer.reads_again else x[..., self._passed :]

    async def error(
        self, span: SampleSpan, dy: Data, partial: Data | None, version: int
    ) -> Data | None:
        """See `SliceNumerics`."""
        own, points = self._own_errors(span, dy, version), self._points_of_errors(span)
        if self.part.layer.has_pg:
            over = None
            if self._scales is not None:
                [of_weights] = self._weight_scales.read(span)
                over = points.errors - of_weights
            self._output_errors.put(span, self._sums.gradient_errors(own, over))
        if self._turned is None:
            return None
        turned, scales = self._turned[version], points.errors
        if self._scales is not None:
            scales += self._weight.scale_of(version)
        frame = self._arena.take(self._convolution.error_frame_shape(len(dy)))
        self._convolution.error_frame(self._sums.errors(own, scales), frame)
        passed, held = self._passed, self._convolution.in_channels
        if partial is not None and (passed == 0 or self.part.layer.reads_again):
            self._convolution.error(self._own(partial), frame, turned, fresh=False)
            if self.part.is_first:
                self._sums.make_whole(self._own(partial), scales, "errors", "weights")
            return partial
        beyond = 0 if partial is None else passed + partial.shape[-1] - held
        dx = self._arena.take((len(dy), *self._convolution.size, held + beyond))
        shares = partial is not None and passed < held  # a group that goes on to the right
        if partial is not None:
            dx[..., passed:] = partial
        if shares:
            dx[..., :passed] = 0
        self._convolution.error(dx[..., :held], frame, turned, fresh=not shares)
        if self._cut is Cut.ICP:
            self._sums.make_whole(dx[..., :held], scales, "errors", "weights")
        elif self.part.is_first:
            self._sums.make_whole(dx, scales, "errors", "weights")
        return dx

    def _points_of_errors(self, span: SampleSpan) -> _Points:
        """Return the points of a micro-batch in EB and PG."""
        index = span.micro_batch.index
        points = self._points.get(index, _Points())
        if self._scales is not None:
            name = name_of_scale("errors", self._place_of_errors, self.part.layer.makes.number)
            points = points._replace(errors=self._scales.in_force(name, points.samples))
            self._points[index] = points
        return points

    def _own_errors(self, span: SampleSpan, dy: Data, version: int) -> Data:
        """Return the errors of this slice's outputs, from those that have arrived."""
        return dy[..., self.part.begin :] if self._cut is Cut.OCP else dy

    def gradient(self, whole: SampleSpan) -> None:
        """See `SliceNumerics`."""
        points = self._points.pop(whole.micro_batch.index, _Points())
        if not self.part.layer.has_pg:
            return
        [frame], [dy] = self._act_ram.read(whole), self._output_errors.read(whole)
        self._gradient_scales = points.activations + points.errors  # those of all its mini-batch
        self._add_gradient(whole, frame, dy, fresh=self._weight.begins_sum())
        self._gradient_is_whole = False
        super().gradient(whole)

    def _add_gradient(self, whole: SampleSpan, frame: Data, dy: Data, *, fresh: bool) -> None:
        """Add the gradients of a micro-batch to their sum."""
        self._convolution.gradient(self._weight.gradient, frame, dy, fresh=fresh)

    def _finish_gradient(self) -> None:
        """Make the sum of gradients whole, once PG has added all of a mini-batch."""
        if not self._gradient_is_whole:
            self._sums.make_whole(
                self._weight.gradient, self._gradient_scales, "activations", "errors"
            )
            self._gradient_is_whole = True

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """See `SliceNumerics`."""
        self._finish_gradient()
        self._weight.update(samples, rule, keeps=keeps)
        if self._turned is not None:
            self._turned.advance(keeps=keeps)
        self._turn()
        super().update(samples, rule, keeps=keeps)

    def repeat(self, *, keeps: bool) -> None:
        """See `SliceNumerics`."""
        super().repeat(keeps=keeps)
        self._weight.repeat(keeps=keeps)
        if self._turned is not None:
            self._turned.repeat(keeps=keeps)

    def gradients(self, scale: float, number: int | None) -> list[Data]:
        """See `SliceNumerics`."""
        self._finish_gradient()
        mean, formats = self._weight.gradient * np.float32(scale), self._weight.formats
        if formats is not None and number is not None:
            formats.round("gradients", mean, number)
        own = self._convolution.unpack(mean)[self._among(self._kept)]
        return [own.reshape(-1), *(other.gradient * np.float32(scale) for other in self._others)]

    def take_gradients(self, row: Data) -> Data:
        """See `SliceNumerics`."""
        gradient = np.zeros(self._shape, np.float32)
        own = gradient[self._among(self._kept)].shape
        size = math.prod(own)
        gradient[self._among(self._kept)] = row[:size].reshape(own)
        self._weight.gradient[...] = self._convolution.pack(gradient)
        return self._take_others(row[size:])

    @property
    def _learnt_weights(self) -> list[Parameter]:
        return [self._weight]

    def balanced_gradient(self, begin: int, end: int) -> Data:
        """See `SliceNumerics`."""
        self._finish_gradient()
        gradient = self._convolution.unpack(self._weight.gradient)
        balanced = gradient[self._channels(begin, end)]
        values = balanced.reshape(1, 1, 1, -1).copy()
        balanced[...] = 0
        self._weight.gradient[...] = self._convolution.pack(gradient)
        return values

    def take_balanced(self, begin: int, end: int, weights: Data) -> None:
        """See `SliceNumerics`."""
        value = self._convolution.unpack(self._weight.newest)
        balanced = value[self._channels(begin, end)]
        balanced[...] = weights.reshape(balanced.shape)
        self._weight.newest[...] = self._convolution.pack(value)
        self._turn()

    @property
    def table_place(self) -> tuple[slice, slice]:
        """The (symbols, features) of tied weights that this slice has, as an index of the table."""
        channels = self.part.weight_inputs, self.part.out_channels
        ins, outs = (slice(held.start, held.stop) for held in channels)
        return (ins, outs) if self.part.layer.tied is None else (outs, ins)

    def table_gradient(self) -> Data:
        """Return the sum of the gradients of tied weights, (symbols, features)."""
        self._finish_gradient()
        return self._table(self._convolution.unpack(self._weight.gradient))

    def take_table_gradient(self, gradient: Data) -> None:
        """Set the sum of the gradients of tied weights, (symbols, features)."""
        whole = np.empty(self._shape, np.float32)
        self._table(whole)[...] = gradient
        self._convolution.pack(whole, self._weight.gradient)

    def _table(self, weights: Data) -> Data:
        """Return weights of this slice's layout as (symbols, features), a view."""
        return weights[:, :, 0, 0].T if self.part.layer.tied is None else weights[:, :, 0, 0]

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return len(self.part.out_channels), len(self.part.weight_inputs), *self.part.layer.kernel

    def _channels(self, begin: int, end: int) -> tuple[slice | NDArray[np.bool_], ...]:
        """Return the index of some of the layer's channels in an array of this slice's weights."""
        return self._among(slice(begin - self.part.begin, end - self.part.begin))

    def _among(self, channels: slice | NDArray[np.bool_]) -> tuple[slice | NDArray[np.bool_], ...]:
        """Return the index of channels, along which the layer is cut, in an array of this slice's
        weights.
        """
        return (channels,) if self._cut is Cut.OCP else (slice(None), channels)

    def _turn(self) -> None:
        if self._turned is not None:
            self._convolution.turn(self._weight.newest, self._turned.newest)

    def weights(self) -> Data:
        """See `SliceNumerics`."""
        return self._convolution.unpack(self._weight.newest)

    def put_weights(self, weights: Data) -> None:
        """See `SliceNumerics`."""
        self._weight.newest[...] = self._convolution.pack(weights)
        self._turn()

    def free(self, versions: Sequence[int]) -> None:
        """See `SliceNumerics`."""
        super().free(versions)
        self._weight.free(versions)
        if self._turned is not None:
            self._turned.free(versions)

    def begin_epoch(self) -> None:
        """See `SliceNumerics`."""
        super().begin_epoch()
        self._weight.begin_epoch()
        if self._turned is not None:
            self._turned.begin_epoch()

    def _weights_state(self) -> Arrays:
        return {
            name: self._convolution.unpack(packed) for name, packed in self._weight.state().items()
        }

    def _restore_weights(self, state: Arrays) -> None:
        self._weight.restore(
            {name: self._convolution.pack(weights) for name, weights in state.items()}
        )
        self._turn()


def _convolution_of(part: Slice, sums: SliceSums) -> Convolving:
    """Return what a slice computes."""
    layer = part.layer
    if layer.operation.looks_up:
        return LookUp(layer.input[0], len(part.out_channels), layer.input[1])
    return convolution(
        len(part.in_channels), part.outputs_by_group, layer.input[1:], *layer.window, sums.kind
    )


class VocabularySlice(ConvSlice):
    """What a device computes for some channels of such a classifier."""

    _place_of_errors = "logits"

    def __init__(
        self,
        part: Slice,
        start: Start,
        seed: int,
        arena: Arena,
        formats: MapFormats | None = None,
        kept: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(part, start, seed, arena, formats, kept)
        self._error_formats = formats
        self._labels: Labels | None = None
        self._logits = ActRam(arena)

    def take_labels(self, labels: Labels | None) -> None:
        """See `SliceNumerics`."""
        self._labels = labels

    async def forward(
        self, span: SampleSpan, x: Data, partial: Data | None, version: int, training: Training
    ) -> Data:
        """See `SliceNumerics`; return the state of each row, (samples, rows, 1, STATE)."""
        logits = self._with_bias(await super().forward(span, x, None, version, training), version)
        self._logits.put(span, logits, training.samples)
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
        vocabulary_loss.fold(
            flat, self._targets(span).reshape(-1), self.part.out_channels.start, states
        )
        return state

    def _targets(self, span: SampleSpan) -> NDArray[np.int64]:
        assert self._labels is not None
        return self._labels.targets(span)

    @property
    def operand_scales(self) -> list[str]:
        """See `SliceNumerics`: that of the errors of its logits."""
        return [name_of_scale("errors", self._place_of_errors, self.part.layer.makes.number)]

    def before(self, dy: Data) -> Data:
        """See `SliceNumerics`: the sums, which all slices need."""
        return dy

    def _own_errors(self, span: SampleSpan, dy: Data, version: int) -> Data:
        """See `ConvSlice`; `dy` are the sums of each row, (samples, rows, 1, SUMS)."""
        logits, samples = self._logits.read(span)
        targets = self._targets(span)
        own = self._arena.take(logits.shape)
        flat, sums, errors = (rows.reshape(-1, rows.shape[-1]) for rows in (logits, dy, own))
        assert self._labels is not None
        divisors = self._labels.divisors(span).reshape(-1)
        vocabulary_loss.errors(
            flat, targets.reshape(-1), self.part.out_channels.start, sums, divisors, errors
        )
        assert self.sfu is not None
        if self._error_formats is not None:
            own *= np.float32(self._error_formats.precision.loss_scale)
            self._error_formats.output_errors(self.part, own, samples)
        self.sfu.backward(span, {self.part.layer.makes.number: own}, version)
        return own
