"""The numerics of one device: what it sends, as a function of what it receives (FPDeep, sections 5.1 to 5.5).

Each action of a schedule is one method here, and one of the same name in `timing.DeviceClock`: this one handles maps by
stream, that one times, and neither depends on the other. `numerics_of` gives those of a slice by the kind of its layer.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.optimizers import added, squares_sum
from ..mapping import BalancedParameters, DataPath, DeviceStreams, Slice, StreamKey, TiedWeights
from ..network import Start
from ..schedule import SampleSpan
from .ends import ImageSource, Labels, SoftmaxHead
from .formats import MapFormats
from .memories import Bpram
from .ports import Maps, Ports, Values
from .rules import Rule
from .sfu import Training
from .slices import ConvSlice, Learnt, Lengths, SliceNumerics

Data = NDArray[np.float32]
"""Maps (samples, rows, columns, channels) by stream; a function that takes them consumes them."""

_Convolve = Callable[[SliceNumerics, Data, Data | None], Awaitable[Data]]
_Activate = Callable[[SliceNumerics, dict[int, Data]], None]


class DeviceNumerics:
    """The slices of a device, the blocks that it stores for others (BPRAM), and the ends of the chain, if it has them.

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
        tensors = (tensor for part in streams.slices for tensor in (*part.layer.takes, *part.layer.hands_on))
        self._fixed = frozenset(tensor.number for tensor in tensors if tensor.fixed)
        self._newest = 0
        self._ports: Ports | None = None
        self.lengths: Lengths | None = None
        """Time steps of each sample by its place in the epoch, where they differ."""

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

    async def forward(self, span: SampleSpan, arrived: Maps, version: int, samples: NDArray[np.int64]) -> Maps:
        """Carry out F; `samples` (n,) are sample numbers since the start of training, on which dropout depends."""
        training = Training(span.micro_batch.step, samples, self._lengths(span))

        def convolve(numerics: SliceNumerics, x: Data, partial: Data | None) -> Awaitable[Data]:
            return numerics.forward(span, self.taken(numerics, x), partial, version, training)

        def activate(numerics: SliceNumerics, held: dict[int, Data]) -> None:
            assert numerics.sfu is not None
            numerics.sfu.forward(span, held, version, training)

        sent, outputs = await self._through(span, arrived, convolve, activate, samples)
        if outputs is not None and self.head is not None:
            self.head.forward(span, outputs)
        return sent

    def taken(self, numerics: SliceNumerics, x: Data) -> Data:
        """Return the activations that a slice takes into its Act-RAM."""
        return x

    async def infer(self, span: SampleSpan, arrived: Maps) -> Maps:
        """Carry out F in evaluation, with the newest weights."""
        version = self._newest

        def convolve(numerics: SliceNumerics, x: Data, partial: Data | None) -> Awaitable[Data]:
            return numerics.infer(span, x, partial, version, self._lengths(span))

        def activate(numerics: SliceNumerics, held: dict[int, Data]) -> None:
            assert numerics.sfu is not None
            numerics.sfu.infer(held, version, self._lengths(span))

        sent, outputs = await self._through(span, arrived, convolve, activate, None)
        if outputs is not None and self.head is not None:
            self.head.infer(span, outputs)
        return sent

    async def _through(
        self,
        span: SampleSpan,
        arrived: Maps,
        convolve: _Convolve,
        activate: _Activate,
        samples: NDArray[np.int64] | None,
    ) -> tuple[Maps, Data | None]:
        """Run all slices in order; return what is sent, and at the chain's end the outputs."""
        streams, values = self.streams, Values(span, arrived, self._ports)
        if self.source is not None:
            images = streams.slices[0].layer.reads.number
            held = {images: self._rounded("activations", self.source.images(span), images, samples)}
        else:
            paths = [key for key in streams.forward if key.path is DataPath.ACTIVATIONS]
            held = {key.number: await values.take(key) for key in paths}
        for part, numerics in zip(streams.slices, self.slices, strict=True):
            layer = part.layer
            x, partial = held[layer.reads.number], None
            if not part.is_last:
                for tensor in layer.takes:
                    maps = numerics.beyond(x) if tensor == layer.reads else held[tensor.number]
                    values.put(StreamKey(DataPath.ACTIVATIONS, tensor.number), maps)
            gathered = layer.operation.recurs  # each slice has the outputs of all units before its own
            if not part.is_first and not gathered:
                partial = await values.take(StreamKey(DataPath.PARTIAL_ACTIVATIONS, layer.makes.number))
            y = await convolve(numerics, x, partial)
            if part.is_last:
                held[layer.makes.number] = y
                if not layer.vocabulary_parallel:  # there each slice has added its own biases
                    activate(numerics, held)
                held = {tensor.number: held[tensor.number] for tensor in layer.hands_on}
                if not streams.is_chain_end or part is not streams.slices[-1]:  # softmax takes what the SFU made
                    for tensor in {layer.makes, *(step.makes for step in layer.sfu)} & {*layer.hands_on}:
                        held[tensor.number] = self._rounded("activations", held[tensor.number], tensor.number, samples)
            elif not gathered:
                values.put(StreamKey(DataPath.PARTIAL_ACTIVATIONS, layer.makes.number), y)
        if streams.is_chain_end:
            return values.made, held[streams.slices[-1].layer.hands_on[0].number]
        if streams.slices[-1].is_last:
            for number, maps in held.items():
                values.put(StreamKey(DataPath.ACTIVATIONS, number), maps)
        return values.made, None

    def _rounded(
        self, kind: Literal["activations", "errors"], maps: Data, tensor: int, samples: NDArray[np.int64] | None
    ) -> Data:
        return maps if self._formats is None else self._formats.rounded(kind, maps, tensor, samples)

    @property
    def _loss_scale(self) -> int:
        return 1 if self._formats is None else self._formats.precision.loss_scale

    def _scaled(self, errors: Data) -> Data:
        return errors if self._loss_scale == 1 else errors * np.float32(self._loss_scale)

    async def backward(
        self, span: SampleSpan, arrived: Maps, version: int, samples: NDArray[np.int64] | None = None
    ) -> Maps:
        """Carry out B, the last slice first, of samples with these numbers; return what is sent."""
        streams, values = self.streams, Values(span, arrived, self._ports)
        errors: dict[int, Any] = {}

        async def take_errors() -> None:
            for key in streams.backward:
                if key.path is DataPath.INPUT_ERRORS and key.number not in self._fixed:
                    errors[key.number] = await values.take(key)

        if self.head is not None:
            errors[streams.slices[-1].layer.hands_on[0].number] = self._scaled(self.head.backward(span))
        elif streams.slices[-1].is_last:
            await take_errors()
        for part, numerics in zip(reversed(streams.slices), reversed(self.slices), strict=True):
            layer, reads = part.layer, part.layer.reads.number
            if part.is_last:
                makes = layer.makes.number
                if numerics.sfu is not None and not layer.vocabulary_parallel:
                    rounded = functools.partial(self._rounded, "errors", tensor=makes, samples=samples)
                    numerics.sfu.backward(span, errors, version, rounded)
            if layer.makes.fixed:
                if not part.is_last:
                    await take_errors()  # of what bypasses the layer
                continue
            if part.is_last:
                dy = errors.pop(layer.makes.number)
            else:
                dy = await values.take(StreamKey(DataPath.OUTPUT_ERRORS, layer.makes.number))
            if not part.is_first:
                values.put(StreamKey(DataPath.OUTPUT_ERRORS, layer.makes.number), numerics.before(dy))
            await numerics.recur(span, dy, version)
            if not part.is_last:
                await take_errors()  # devices that share a recurrent layer have them after its steps
            errors[reads] = await numerics.error(span, dy, errors.get(reads), version)
            if self._formats is not None and reads in layer.read_once and layer.needs_errors:
                errors[reads] = self._formats.input_errors(part, errors[reads], samples)
        if not streams.is_chain_start:
            for tensor in (tensor for tensor in streams.slices[0].layer.takes if tensor.needs_errors):
                values.put(StreamKey(DataPath.INPUT_ERRORS, tensor.number), errors[tensor.number])
        return values.made

    def gradient(self, whole: SampleSpan) -> None:
        """Carry out W for a micro-batch."""
        for numerics in self.slices:
            numerics.gradient(whole)

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """Carry out U: make the next version of the weights from the mean of the gradients over `samples`."""
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
        """Return a copy of the sum of the gradients of this device's part of an embedding, or of its head."""
        return self._tied(tied, of_head=of_head).table_gradient()

    def with_part(self, tied: TiedWeights, table: Data | None, part: Data, *, of_head: bool) -> Data:
        """Return a table (1, 1, symbols, features), or a new one, with what `tied_gradient` returned in its place."""
        if table is None:
            table = np.zeros((1, 1, tied.rows, tied.features), np.float32)
        table[0, 0][self._tied(tied, of_head=of_head).table_place] = part
        return table

    def take_tied(self, tied: TiedWeights, of_embedding: Data, of_head: Data) -> None:
        """Set the gradients of this device's parts from those of both ends, (1, 1, symbols, features)."""
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
        """Return all gradient sums times `scale` in one row: those of slices, then those of blocks stored here.

        They are in the format of gradients of update `number`. Parameters that other devices store for its slices are
        in those devices' rows.
        """
        scale /= self._loss_scale
        gradients = [part for numerics in self._trained for part in numerics.gradients(scale, number)]
        for block, gradient in zip(self.streams.stored, stored, strict=True):
            gradients.append(self.stored[block].mean_gradient(gradient, scale, number).reshape(-1))
        return np.concatenate(gradients)

    @property
    def _trained(self) -> list[SliceNumerics]:
        return [numerics for numerics in self.slices if not numerics.part.layer.frozen]

    def squares(self, stored: Sequence[Data], samples: int) -> int:
        """Return the exact sum of the squares of all gradients, each the mean over `samples`; tied ones count once."""
        gradients = [*stored]
        for numerics in self._trained:
            own = numerics.gradients(1.0, 0)
            gradients += own[numerics.part.layer.tied is not None :]  # its weights' are first
        sums = (squares_sum(np.ascontiguousarray(part), 1 / samples) for part in gradients)
        return functools.reduce(added, sums, 0)

    def take_gradient_row(self, row: Data) -> list[Data]:
        """Set gradients from a row laid out as by `gradient_row`; return those of stored blocks."""
        row = row * np.float32(self._loss_scale) if self._loss_scale != 1 else row
        for numerics in self._trained:
            row = numerics.take_gradients(row)
        sizes = [self._blocks[number].values for number in self.streams.stored]
        return np.split(row, np.cumsum(sizes)[:-1]) if sizes else []

    def free(self, versions: Sequence[int]) -> None:
        """Drop versions of the weights after their last use."""
        for numerics in self.slices:
            numerics.free(versions)

    def begin_epoch(self) -> None:
        """Renumber the versions: the newest becomes 0."""
        self._newest = 0
        for numerics in self.slices:
            numerics.begin_epoch()
        for of_block in self.stored.values():
            of_block.begin_epoch()

    def counts(self) -> dict[str, int]:
        """Return what the device counts besides its clock, as JSON has it: what it has rounded."""
        return {} if self._formats is None else self._formats.tally.counts()

    def restore_counts(self, state: Mapping[str, int]) -> None:
        """Restore what `counts` returned."""
        if self._formats is not None:
            self._formats.tally.restore(state)

    def take_rounded(self) -> dict[str, int]:
        """Return what has been rounded since the last call, by name; nothing in single precision."""
        return {} if self._formats is None else self._formats.tally.take()

    @property
    def learnt(self) -> list[Learnt]:
        """What holds parameters: slices, then blocks stored here, whose values in the slices are copies."""
        return [*self.slices, *self.stored.values()]


def numerics_of(
    part: Slice,
    start: Start,
    seed: int,
    arena: Arena,
    formats: MapFormats | None = None,
    kept: NDArray[np.bool_] | None = None,
) -> SliceNumerics:
    """Return the numerics of a slice; `start` is the rule for the first weights of all but recurrent layers.

    Without `formats`, all numbers are in fp32; those of recurrent layers always are. `kept` are the channels whose
    weights are stored with the slice; None: all.
    """
    if part.layer.operation.recurs:
        from .slices import RecurrentSlice  # its kernels are loaded by runs that need them

        return RecurrentSlice(part, seed, arena)
    if not part.layer.has_weights:
        from .slices import AttentionSlice

        return AttentionSlice(part, seed, arena)
    if part.layer.vocabulary_parallel:
        from .slices import VocabularySlice

        return VocabularySlice(part, start, seed, arena, kept)
    return ConvSlice(part, start, seed, arena, formats, kept)
