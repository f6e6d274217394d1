"""The numerics of one device: what it sends, as a function of what it receives (FPDeep, sections
5.1 to 5.5).

Each action of a schedule is one method here, and one of the same name in `timing.DeviceClock`: this
one handles maps by stream, that one times, and neither depends on the other. `numerics_of` gives
those of a slice by the kind of its layer.

`soft_errors.py` has that of a device with soft errors.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.optimizers import NOT_FINITE, added, clip_factor, squares_sum
from ..mapping import (
    BalancedParameters,
    DeviceStreams,
    Slice,
    TiedWeights,
)
from ..network import Start, Tensor, Training
from ..number import LossScale
from ..schedule import SampleSpan
from .ends import ImageSource, Labels, SoftmaxHead
from .formats import SCALED, SKIPPED, MapFormats
from .memories import Bpram
from .ports import Maps, Ports, Values
from .recompute import Recomputed
from .rules import Rule
from .scales import TensorScales
from .sfu import Sfu
from .slices import ConvSlice, DotSlice, Learnt, Lengths, SliceNumerics

Data = NDArray[np.float32]
"""Maps (samples, rows, columns, channels) by stream; a function that takes them consumes them."""

_SCALE = "loss_scale_"
"""What the names of counts begin with that belong to the loss scale."""

_Convolve = Callable[[SliceNumerics, Data, Data | None], Awaitable[Data]]
_Activation = Callable[[dict[int, Data]], None]
_Finish = Callable[[SampleSpan, Data], None]


class DeviceNumerics:
    """The slices of a device, the blocks that it stores for others (BPRAM), and the ends of the
    chain, if it has them.

    Args:
        streams: the device's streams.
        slices: the numerics of its slices.
        blocks: all blocks of balanced parameters.
        stored: the blocks that it stores, by number.
        formats: the formats of maps; None if all are in single precision.
    """

    def __init__(
        self,
        streams: DeviceStreams,
        slices: Sequence[SliceNumerics],
        blocks: Sequence[BalancedParameters],
        stored: Mapping[int, Bpram],
        formats: MapFormats | None = None,
    ) -> None:
        self.streams, self.slices, self.stored = streams, slices, stored
        self.source: ImageSource | None = None
        self.head: SoftmaxHead | None = None
        self._blocks, self._formats = blocks, formats
        layers = (part.layer for part in streams.slices)
        tensors = (tensor for layer in layers for tensor in (*layer.takes, *layer.hands_on))
        self._scale = LossScale(1 if formats is None else formats.precision.loss_scale)
        self._fixed = frozenset(tensor.number for tensor in tensors if tensor.fixed)
        self._newest = 0
        self._ports: Ports | None = None
        self.lengths: Lengths | None = None
        """Time steps of each sample by its place in the epoch, where they differ."""
        self._recomputed = Recomputed(slices)
        self._at_host = dict[int, list[list[list[Data] | None]]]()
        """By micro-batch what its slices have moved to the host."""

    def recompute(self, layers: Collection[int], *, apart: bool) -> None:
        """Let B compute the features of layers, by index, again; or R, an action of its own."""
        self._recomputed = Recomputed(self.slices, layers, apart=apart)

    def let_go(self, index: int) -> None:
        """Let F of a micro-batch keep no features of recomputed layers, as an R follows."""
        self._recomputed.choose(index)

    async def offload(self, index: int) -> None:
        """Carry out O: move what F of a micro-batch has kept to the host."""
        self._at_host[index] = [numerics.give(index) for numerics in self.slices]

    async def load(self, index: int) -> None:
        """Carry out L: take it back."""
        for numerics, kept in zip(self.slices, self._at_host.pop(index), strict=True):
            numerics.take_back(index, kept)

    def attach(self, ports: Ports) -> None:
        """Take the ports of the device."""
        self._ports = ports
        for numerics in self.slices:
            numerics.attach(ports)

    def take_labels(self, labels: Labels | None) -> None:
        """Take the samples' labels, for slices that compute their part of the loss."""
        for numerics in self.slices:
            numerics.take_labels(labels)

    def _lengths(self, span: SampleSpan) -> Lengths | None:
        return None if self.lengths is None else self.lengths[span.slice]

    def forward(
        self, span: SampleSpan, arrived: Maps, version: int, samples: NDArray[np.int64]
    ) -> Coroutine[Any, Any, Maps]:
        """Return F as a coroutine; `samples` (n,) are numbers since the start of training, on which
        dropout depends.
        """
        convolve, activation = self._training(span, version, samples)
        finish = None if self.head is None else self.head.forward
        return self._through(span, arrived, convolve, activation, finish, samples)

    def _training(
        self, span: SampleSpan, version: int, samples: NDArray[np.int64]
    ) -> tuple[_Convolve, Callable[[Sfu], _Activation]]:
        """Return what F of a slice does in training, and its SFU."""
        training = Training(span.micro_batch.step, samples, self._lengths(span))

        def convolve(numerics: SliceNumerics, x: Data, partial: Data | None) -> Awaitable[Data]:
            x = self.taken(numerics, x, samples)
            return numerics.forward(span, x, partial, version, training)

        def activation(sfu: Sfu) -> _Activation:
            return functools.partial(sfu.forward, span, version=version, training=training)

        return convolve, activation

    def taken(self, numerics: SliceNumerics, x: Data, samples: NDArray[np.int64]) -> Data:
        """Return the activations of some samples that a slice takes into its Act-RAM."""
        return x

    def infer(self, span: SampleSpan, arrived: Maps) -> Coroutine[Any, Any, Maps]:
        """Return F in evaluation as a coroutine, with the newest weights."""
        version = self._newest

        def convolve(numerics: SliceNumerics, x: Data, partial: Data | None) -> Awaitable[Data]:
            return numerics.infer(span, x, partial, version, self._lengths(span))

        def activation(sfu: Sfu) -> _Activation:
            return functools.partial(sfu.infer, version=version, lengths=self._lengths(span))

        finish = None if self.head is None else self.head.infer
        return self._through(span, arrived, convolve, activation, finish, None)

    def _values(self, span: SampleSpan, arrived: Maps, samples: NDArray[np.int64] | None) -> Values:
        scales = None if self._formats is None else self._formats.scales_of(samples)
        return Values(span, arrived, self._ports, scales)

    async def _through(
        self,
        span: SampleSpan,
        arrived: Maps,
        convolve: _Convolve,
        activation: Callable[[Sfu], _Activation],
        finish: _Finish | None,
        samples: NDArray[np.int64] | None,
    ) -> Maps:
        """Run all slices in order, and at the chain's end `finish` with the outputs; return what is
        sent.
        """
        streams, values = self.streams, self._values(span, arrived, samples)
        if self.source is not None:
            first, maps = streams.slices[0].layer, self.source.images(span)
            images = first.reads.number
            if not first.operation.looks_up:  # numbers of symbols are no activations
                maps = self._rounded("activations", maps, first.reads, samples)
            held = {images: maps}
        else:
            held = {key.number: await values.take(key) for key in streams.arriving}
        trained = samples is not None
        for place, (visit, numerics) in enumerate(zip(streams.visits, self.slices, strict=True)):
            layer = visit.part.layer
            x, partial = held[layer.reads.number], None
            for key in visit.passed:
                values.put(
                    key,
                    numerics.beyond(x) if key.number == layer.reads.number else held[key.number],
                )
            # Each slice has the outputs of all units before its own.
            gathered = layer.operation.recurs
            if visit.partial is not None and not gathered:
                partial = await values.take(visit.partial)
            if trained:
                self._recomputed.keep(span.micro_batch.index, place, held, partial)
            held, y = await self._visited(place, held, partial, convolve, activation, samples)
            if visit.unfinished is not None and not gathered:
                values.put(visit.unfinished, y)
            if trained:
                self._recomputed.forget(span.micro_batch.index, place)
        if streams.is_chain_end:
            if finish is not None:
                finish(span, held[streams.slices[-1].layer.hands_on[0].number])
            return values.made
        for key in streams.leaving:
            values.put(key, held[key.number])
        return values.made

    async def _visited(
        self,
        place: int,
        held: dict[int, Data],
        partial: Data | None,
        convolve: _Convolve,
        activation: Callable[[Sfu], _Activation],
        samples: NDArray[np.int64] | None,
    ) -> tuple[dict[int, Data], Data]:
        """Run a slice on the tensors that are `held`; return those behind it, and its outputs."""
        streams, numerics = self.streams, self.slices[place]
        visit = streams.visits[place]
        layer = visit.part.layer
        y = await convolve(numerics, held[layer.reads.number], partial)
        if visit.unfinished is not None:
            return held, y
        held[layer.makes.number] = y
        if not layer.vocabulary_parallel:  # there each slice has added its own biases
            assert numerics.sfu is not None
            activation(numerics.sfu)(held)
        # What no later layer reads is let go, and its memory with it.
        held = {tensor.number: held[tensor.number] for tensor in layer.hands_on}
        # Softmax takes what the SFU made.
        if not streams.is_chain_end or visit is not streams.visits[-1]:
            own = () if numerics.makes_rounded else (layer.makes,)
            made = {*own, *(step.makes for step in layer.sfu)}
            for tensor in (tensor for tensor in layer.hands_on if tensor in made):
                held[tensor.number] = self._rounded(
                    "activations", held[tensor.number], tensor, samples
                )
        return held, y

    async def compute_again(
        self, span: SampleSpan, version: int, samples: NDArray[np.int64]
    ) -> None:
        """Carry out R: compute the features that F let go, the same values from the same weights;
        nothing is sent, and what is rounded again counts once.
        """
        convolve, activation = self._training(span, version, samples)
        counts = {} if self._formats is None else self._formats.tally.counts()
        held: dict[int, Data] = {}
        for place, first, partial in self._recomputed.take(span.micro_batch.index):
            held, _ = await self._visited(
                place, first or held, partial, convolve, activation, samples
            )
        if self._formats is not None:
            self._formats.tally.restore(counts)

    def _rounded(
        self,
        kind: Literal["activations", "errors"],
        maps: Data,
        tensor: Tensor,
        samples: NDArray[np.int64] | None,
    ) -> Data:
        if self._formats is None:
            return maps
        # Errors of outputs are in the formats of the layer that makes these, too.
        return self._formats.of(tensor.formats).rounded(kind, maps, tensor.number, samples)

    @property
    def loss_scale(self) -> int:
        """The factor on errors of the mini-batch, and on the sums of its gradients."""
        return self._scale.value

    def normed(self, rule: Rule, squares: int) -> Rule:
        """Return the rule of an update of gradients whose squares, of all devices, have this sum;
        let the loss scale follow.
        """
        every = 0 if self._formats is None else self._formats.precision.grows_every
        overflows = squares == NOT_FINITE
        if self._counts_updates:
            assert self._formats is not None
            self._formats.tally.end_update(skipped=overflows)
        self._scale = self._scale.after(overflows=overflows, grows_every=every)
        if overflows and every:
            return dataclasses.replace(rule, is_skipped=True)
        if rule.clip_norm is None:
            return rule
        return dataclasses.replace(rule, factor=float(clip_factor(squares, rule.clip_norm)))

    @property
    def _counts_updates(self) -> bool:
        """Whether updates count here, that all devices skip together: at one chain's end."""
        own = self._formats
        return own is not None and own.counts_updates and self.streams.is_chain_end

    def _scaled(self, errors: Data) -> Data:
        # Once, where errors begin: sums of gradients are scaled, too, until an update divides them.
        return errors if self.loss_scale == 1 else errors * np.float32(self.loss_scale)

    async def backward(
        self,
        span: SampleSpan,
        arrived: Maps,
        version: int,
        samples: NDArray[np.int64] | None = None,
    ) -> Maps:
        """Carry out B, the last slice first, of samples with these numbers; return what is sent."""
        if self._recomputed and not self._recomputed.apart:
            assert samples is not None
            await self.compute_again(span, version, samples)
        streams, values = self.streams, self._values(span, arrived, samples)
        errors: dict[int, Any] = {}

        async def take_errors() -> None:
            for key in streams.errors_arriving:
                if key.number not in self._fixed:
                    errors[key.number] = await values.take(key)

        if self.head is not None:
            last, made = streams.slices[-1].layer, self.head.backward(span)
            # Where each slice makes its own errors, these are the loss's sums.
            made = made if last.vocabulary_parallel else self._scaled(made)
            errors[last.hands_on[0].number] = made
        elif streams.slices[-1].is_last:
            await take_errors()
        for visit, numerics in zip(reversed(streams.visits), reversed(self.slices), strict=True):
            part, layer, reads = visit.part, visit.part.layer, visit.part.layer.reads.number
            sfu = numerics.sfu
            if visit.errors is None and sfu is not None and not layer.vocabulary_parallel:
                rounded = functools.partial(
                    self._rounded, "errors", tensor=layer.makes, samples=samples
                )
                sfu.backward(span, errors, version, rounded)
            if layer.makes.fixed:
                if visit.errors is not None:
                    await take_errors()  # of what bypasses the layer
                continue
            if visit.errors is None:
                dy = errors.pop(layer.makes.number)
            else:
                dy = await values.take(visit.errors)
            if visit.returned is not None:
                values.put(visit.returned, numerics.before(dy))
            await numerics.recur(span, dy, version)
            if visit.errors is not None:
                # Devices that share a recurrent layer have them after its steps.
                await take_errors()
            errors[reads] = await numerics.error(span, dy, errors.get(reads), version)
            if self._formats is not None and reads in layer.read_once and layer.needs_errors:
                own = self._formats.of(layer.formats)
                errors[reads] = own.input_errors(part, errors[reads], samples)
        for key in streams.errors_leaving:
            if key.number not in self._fixed:
                values.put(key, errors[key.number])
        return values.made

    def gradient(self, whole: SampleSpan) -> None:
        """Carry out W for a micro-batch."""
        for numerics in self.slices:
            numerics.gradient(whole)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Carry out U: make the next version of the weights from gradients of `samples`."""
        for numerics in self.slices:
            if numerics.part.layer.frozen:
                numerics.repeat(keeps=keeps)
            else:
                numerics.update(samples, rule, keeps=keeps)
        self._newest += 1

    def update_stored(self, number: int, gradient: Data, samples: int, rule: Rule) -> Data:
        """Update a block stored here from the sum of its gradients; return the new weights."""
        return self.stored[number].update(gradient, samples, rule)

    def balanced_gradient(self, number: int) -> Data:
        """Return the sum of the gradients of a block used here, and clear it."""
        block, numerics = self._use(number)
        return numerics.balanced_gradient(block.begin, block.end)

    def take_balanced(self, number: int, weights: Data) -> None:
        """Set the new weights of a block used here."""
        block, numerics = self._use(number)
        numerics.take_balanced(block.begin, block.end, weights)

    def tied_gradient(self, tied: TiedWeights, *, of_head: bool) -> Data:
        """Return a copy of the sum of the gradients of this device's part of an embedding, or of
        its head.
        """
        return self._tied(tied, of_head=of_head).table_gradient()

    def with_part(
        self, tied: TiedWeights, table: Data | None, part: Data, *, of_head: bool
    ) -> Data:
        """Return a table (1, 1, symbols, features), or a new one, with what `tied_gradient`
        returned in its place.
        """
        if table is None:
            table = np.zeros((1, 1, tied.rows, tied.features), np.float32)
        table[0, 0][self._tied(tied, of_head=of_head).table_place] = part
        return table

    def take_tied(self, tied: TiedWeights, of_embedding: Data, of_head: Data) -> None:
        """Set the gradients of this device's parts from those of both ends, (1, 1, symbols,
        features).
        """
        device = self.streams.device
        for held, is_head in ((tied.has_embedding(device), False), (tied.has_head(device), True)):
            if held:
                numerics = self._tied(tied, of_head=is_head)
                place = numerics.table_place
                numerics.take_table_gradient(of_embedding[0, 0][place] + of_head[0, 0][place])

    def _tied(self, tied: TiedWeights, *, of_head: bool) -> ConvSlice:
        numerics = self.slices[tied.part(self.streams.slices, of_head=of_head)]
        assert isinstance(numerics, ConvSlice)
        return numerics

    def _use(self, number: int) -> tuple[BalancedParameters, SliceNumerics]:
        [place] = [place for place, used in enumerate(self.streams.parameters) if number in used]
        return self._blocks[number], self.slices[place]

    def gradient_row(self, stored: Sequence[Data], scale: float, number: int) -> Data:
        """Return all gradient sums times `scale` in one row: those of slices, then those of blocks
        stored here.

        They are in the format of gradients of update `number`. Parameters that other devices store
        for its slices are in those devices' rows.
        """
        scale /= self.loss_scale
        gradients = [row for own in self._trained for row in own.gradients(scale, number)]
        for block, gradient in zip(self.streams.stored, stored, strict=True):
            gradients.append(self.stored[block].mean_gradient(gradient, scale, number).reshape(-1))
        return np.concatenate(gradients) if gradients else np.zeros(0, np.float32)

    @property
    def _trained(self) -> list[SliceNumerics]:
        return [numerics for numerics in self.slices if not numerics.part.layer.frozen]

    def squares(self, stored: Sequence[Data], samples: int) -> int:
        """Return the exact sum of the squares of all gradients, each the mean over `samples`; tied
        ones count once.

        They are those that an update takes, before it rounds them to their format.
        """
        gradients = [*stored]
        for numerics in self._trained:
            own = numerics.gradients(1.0, None)
            gradients += own[numerics.part.layer.tied is not None :]  # its weights' are first
        share = 1 / (samples * self.loss_scale)
        sums = (squares_sum(np.ascontiguousarray(part), share) for part in gradients)
        return functools.reduce(added, sums, 0)

    def take_gradient_row(self, row: Data) -> list[Data]:
        """Set gradients from a row laid out as by `gradient_row`; return those of stored blocks."""
        # What is exchanged is not scaled, but what an update takes is.
        row = row * np.float32(self.loss_scale) if self.loss_scale != 1 else row
        for numerics in self._trained:
            row = numerics.take_gradients(row)
        sizes = [self._blocks[number].values for number in self.streams.stored]
        # `split` wants the places between blocks: the end of each but the last.
        return np.split(row, np.cumsum(sizes)[:-1]) if sizes else []

    def share_out(self, shares: Iterable[slice]) -> None:
        """Update only what has gradients in these places of a row as `gradient_row` lays it out;
        other replicas update the rest.
        """
        row = np.zeros(self.streams.gradient_values, np.float32)
        for share in shares:
            row[share] = 1
        for numerics in self._trained:
            row = numerics.share_out(row)

    def weight_row(self) -> Data:
        """Return the newest parameters, laid out as by `gradient_row`, where no other device stores
        any.
        """
        values = (part for numerics in self._trained for part in numerics.values())
        return np.concatenate([part.reshape(-1) for part in values])

    def take_weight_row(self, row: Data) -> None:
        """Set the newest parameters from what `weight_row` returned."""
        for numerics in self._trained:
            row = numerics.take_values(row)

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions of the weights after their last use."""
        for numerics in self.slices:
            numerics.free(versions)

    @property
    def scales(self) -> TensorScales | None:
        """The scales of what it rounds; None in single precision."""
        return None if self._formats is None else self._formats.scales

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._newest = 0
        for numerics in self.slices:
            numerics.begin_epoch()
        for of_block in self.stored.values():
            of_block.begin_epoch()

    def counts(self) -> dict[str, int]:
        """Return what the device counts besides its clock, as JSON has it: what it has rounded, and
        what its loss scale follows.
        """
        if self._formats is None:
            return {}
        follows = dataclasses.asdict(self._scale) if self._formats.precision.grows_every else {}
        return {
            **(dict.fromkeys((SCALED, SKIPPED), 0) if follows else {}),
            **self._formats.tally.counts(),
            **self._formats.scales.state(),
            **{f"{_SCALE}{key}": n for key, n in follows.items()},
        }

    def restore_counts(self, state: Mapping[str, int]) -> None:
        """Restore what `counts` returned."""
        if self._formats is not None:
            self._formats.tally.restore(state)
        self.take_scales(state)

    def take_scales(self, state: Mapping[str, int]) -> None:
        """Restore scales alone: the loss scale, if it follows overflows, from what `counts`
        returned on any device, and those of maps from what all of the chain returned.
        """
        if self._formats is not None:
            self._formats.scales.restore(state)
        names = (field.name for field in dataclasses.fields(LossScale))
        follows = {name: state[_SCALE + name] for name in names if _SCALE + name in state}
        if follows:
            self._scale = LossScale(**follows)

    def take_rounded(self) -> dict[str, int]:
        """Return what has been rounded since the last call, by name, and the loss scale where it
        follows overflows; nothing in single precision.
        """
        if self._formats is None:
            return {}
        scale = {"loss_scale": self.loss_scale} if self._counts_updates else {}
        return {**self._formats.tally.take(), **scale}

    @property
    def learnt(self) -> list[Learnt]:
        """What holds parameters: slices, then blocks stored here, whose values in the slices are
        copies.
        """
        return [*self.slices, *self.stored.values()]


def numerics_of(
    part: Slice,
    start: Start,
    seed: int,
    arena: Arena,
    formats: MapFormats | None = None,
    kept: NDArray[np.bool_] | None = None,
) -> SliceNumerics:
    """Return the numerics of a slice; `start` is the rule for the first weights of all but
    recurrent layers.

    Without `formats`, all numbers are in fp32. `kept` are the channels whose weights are stored
    with the slice; None: all.
    """
    inputs = None if formats is None else formats.of(part.layer.reads.formats)
    formats = None if formats is None else formats.of(part.layer.formats)
    if part.layer.operation.recurs:
        from .slices import RecurrentSlice  # its kernels are loaded by runs that need them

        return RecurrentSlice(part, seed, arena, formats, inputs)
    if not part.layer.has_weights:
        from .slices import AttentionSlice

        return AttentionSlice(part, seed, arena, formats, inputs)
    if formats is not None and inputs is not None:
        formats = formats.reading(inputs)
    sums_blocks = formats is not None and formats.precision.dot > 0
    if part.layer.vocabulary_parallel:
        from .slices import DotVocabularySlice, VocabularySlice

        own = DotVocabularySlice if sums_blocks else VocabularySlice
        return own(part, start, seed, arena, formats, kept)
    if formats is not None and sums_blocks and not part.layer.operation.looks_up:
        return DotSlice(part, start, seed, arena, formats, kept)
    return ConvSlice(part, start, seed, arena, formats, kept)
