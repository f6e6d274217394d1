"""The traffic between neighbours: the six data paths (FPDeep, section 5.1, Fig. 12).

Between two devices that share a layer, paths 1 and 2 run to the right and 3 and 4 to the left;
where a layer ends on one device and the next begins on the other, its activations take path 1 and
its errors path 4. Tensors that bypass a layer take path 1 too, "as extra channels" (section 3.2),
and their errors path 4. So a path has a stream for each tensor. Paths 5 and 6 carry balanced
parameters and their gradients, with a stream for each block of them (balancing.py).

    a layer on both      [ l, part ] == 1, 2 ==> [ l, rest ]      a layer on each      [ l ] == 1 ==> [ l + 1 ]
                                     <== 3, 4 ==                                             <== 4 ==
    balanced             [ stores ] --- 5 ---> . --- 5 ---> [ uses ]
                                    <-- 6 ---  . <-- 6 ---

Slices send a layer's outputs as their engines make them, or after the SFU's first steps. Where each
data path has a fixed part of the link (`share = "paths"`), a slice cut by output channels, whose
outputs are complete, carries out the SFU's first steps on its own channels before it sends, so that
a pool makes its maps smaller. FPDeep's text does not say where the SFU stands under OCP (sections
4.1 and 5.1). The steps are those that work on each channel alone, up to the first result that
something else needs, too. So the numbers are the same either way.

Some of it crosses the chain once for each mini-batch, before the update: gradients of tied weights,
and the norm of all. It runs to the right as data path 5 and to the left as path 6, row by row, from
device to device.

- *Tied weights*: an embedding and a head, the layer that makes logits, have the same (Press and
  Wolf, 2017). Both ends keep them. The embedding's gradients run to the right, the head's to the
  left, symbol by symbol, and each device adds the part of its slices. So both ends have the same
  sum, the embedding's gradient first, and make the same update.
- The *norm* of all gradients, by which they are clipped (Pascanu et al., 2013): partial sums of
  squares run to the right, each device adding its own, and the total to the left, as one row of a
  number in double precision.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...kernels.layers.vocabulary_loss import STATE, SUMS
from ...kernels.number import FP32, Count, Lines, NumberFormat
from ..cluster import Link, LinkShare
from ..network import Layer, SfuStep, Shape, Tensor
from ..number import SINGLE, Precision
from .slices import Cut, Mapping, Slice, cut_of, inputs_before


def steps_before_sending(layer: Layer, share: LinkShare) -> tuple[SfuStep, ...]:
    """Return the first steps of a layer's SFU, which each of its slices carries out before it
    sends.
    """
    if share is LinkShare.BYTES or cut_of(layer) is not Cut.OCP or layer.operation.recurs:
        return ()
    reads = [tensor.number for step in layer.sfu for tensor in step.reads]
    needed = reads + [tensor.number for tensor in layer.hands_on]
    steps: list[SfuStep] = []
    at = layer.makes.number
    for step in layer.sfu:
        alone = [tensor.number for tensor in step.reads] == [at] and needed.count(at) == 1
        if not (alone and step.operation.by_channel):
            break
        steps.append(step)
        at = step.makes.number
    return tuple(steps)


def sent_shape(layer: Layer, share: LinkShare) -> Shape:
    """Return (channels, rows, columns) of a layer's outputs as its slices send them."""
    steps = steps_before_sending(layer, share)
    return steps[-1].output if steps else layer.output


Bytes = TypeVar("Bytes", int, NDArray[np.int64])


class DataPath(enum.IntEnum):
    """The six data paths, numbered as in FPDeep's section 5.1, and two of recurrent layers that are
    cut by units.

    There each step needs the states of all units: those of earlier units come with partial
    activations from the left, those of later units by path 7 from the right. Errors of states are
    summed to the left, on path 4, as errors of the layer's own outputs, and path 8 brings the sums
    back to the right.
    """

    ACTIVATIONS = 1
    PARTIAL_ACTIVATIONS = 2
    OUTPUT_ERRORS = 3
    INPUT_ERRORS = 4
    PARAMETERS = 5
    PARAMETER_GRADIENTS = 6
    STATES = 7
    STATE_ERRORS = 8

    @property
    def is_forward(self) -> bool:
        """Whether it runs to the right; 1, 2, 5 and 7 serve FP, and 3, 4, 6 and 8 the backward
        pass.
        """
        return self in _TO_THE_RIGHT

    @property
    def is_of_states(self) -> bool:
        """Whether it gathers the states of a recurrent layer, or their errors, step by step."""
        return self in (DataPath.STATES, DataPath.STATE_ERRORS)

    @property
    def is_balanced(self) -> bool:
        """Whether it carries balanced parameters, or their gradients."""
        return self in (DataPath.PARAMETERS, DataPath.PARAMETER_GRADIENTS)


_TO_THE_RIGHT = frozenset(
    {DataPath.ACTIVATIONS, DataPath.PARTIAL_ACTIVATIONS, DataPath.PARAMETERS, DataPath.STATE_ERRORS}
)


class StreamKey(NamedTuple):
    """A stream: a data path and the number of a tensor, or of a block of balanced parameters.

    With `values`, it carries values in no virtual time: of balanced parameters, once for each
    update, or of a recurrent layer's states and their errors, once for each step.
    """

    path: DataPath
    number: int
    values: bool = False

    def __str__(self) -> str:
        return f"path {self.path.value} #{self.number}"


@dataclasses.dataclass(frozen=True)
class Stream:
    """One stream on one link: for each sample a map of (channels, rows, columns), sent row by row.

    Its values have a format; `begin` is the first of its channels, of which blocks share a scale
    from channel 0 on. With `sums`, channels of a block that began before `begin` are still in that
    format: the block is rounded where its first channel is. Balanced weights are `lines` of equal
    length, which have their blocks each.
    """

    path: DataPath
    number: int
    channels: int
    rows: int
    columns: int
    number_format: NumberFormat = FP32
    begin: int = 0
    sums: NumberFormat | None = None
    lines: int = 1
    tensors: int = 1
    """Of a row, those with a scale of their own, in formats that have one."""
    beside: int = 0
    """Channels of the emulation's messages that no board sends: they take no virtual time."""

    @property
    def message_channels(self) -> int:
        """Channels of the emulation's messages."""
        return self.channels + self.beside

    @property
    def key(self) -> StreamKey:
        """The stream's data path and number."""
        return StreamKey(self.path, self.number)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one sample, all channels."""
        return self.bytes_from(self.channels, self.begin)

    def bytes_from(self, channels: Count, begin: Count) -> Count:
        """Return the bytes of a row of some channels, those from `begin` on."""
        if self.sums is None:
            return self.number_format.row_bytes(
                channels // self.lines, self.columns * self.lines, begin, self.tensors
            )
        open_channels = self._open(channels, begin)
        whole = self.number_format.row_bytes(
            channels - open_channels, self.columns, begin + open_channels
        )
        return self.sums.row_bytes(open_channels, self.columns) + whole

    @property
    def single_bytes(self) -> int:
        """Bytes of one sample that are in single precision."""
        if self.number_format == FP32:
            return self.sample_bytes
        if self.sums != FP32:
            return 0
        return self.rows * FP32.row_bytes(self._open(self.channels, self.begin), self.columns)

    def _open(self, channels: Count, begin: Count) -> Count:
        """Return how many of the channels from `begin` on are in a block that began before
        `begin`.
        """
        to_edge = first_own(begin, self.number_format) - begin
        return to_edge - (to_edge > channels) * (to_edge - channels)

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.row_bytes * self.rows

    @property
    def message_bytes(self) -> int:
        """Bytes of one sample that travels as a whole, its rows without gaps between them."""
        lines, number = self.lines_of_sample, self.number_format
        if self.sums is None:
            return lines.bytes_in(number)
        first = self._open(self.channels, self.begin)
        whole = Lines(self.channels - first, lines.count, self.begin + first, lines.in_tensor)
        return Lines(first, lines.count).bytes_in(self.sums) + whole.bytes_in(number)

    @property
    def sample_values(self) -> int:
        """Values of one sample."""
        return self.channels * self.rows * self.columns

    @property
    def lines_of_sample(self) -> Lines:
        """The values of one sample, as they lie in blocks."""
        count = self.columns * self.lines
        return Lines(
            self.channels // self.lines, count * self.rows, self.begin, count // self.tensors
        )


def first_own(begin: Count, number: NumberFormat) -> Count:
    """Return the first channel from `begin` on with which a block begins."""
    return begin + -begin % max(1, number.block)


def streams(
    mapping: Mapping, link: int, share: LinkShare = LinkShare.BYTES, precision: Precision = SINGLE
) -> tuple[Stream, ...]:
    """Return the streams on the link between devices `link` and `link + 1`, both directions,
    without paths 5 and 6.
    """
    return streams_between(
        mapping.devices[link][-1].layer, mapping.devices[link + 1][0], share, precision
    )


def streams_between(
    left: Layer, right: Slice, share: LinkShare = LinkShare.BYTES, precision: Precision = SINGLE
) -> tuple[Stream, ...]:
    """Return the streams between a device that ends in layer `left` and one that begins with slice
    `right`.

    Whole maps have the formats of the layer that makes them, and their errors those of the layer
    that reads them; states of a recurrent layer have its own;
    partial activations, and errors of inputs to which slices on the way add, that of sums; errors
    that more than one operation adds to single precision. Where slices compute the loss of their
    own outputs, paths 2 and 3 carry its sums, in fp32: the largest logit of a row, and the sum of
    the powers. Of fixed tensors, word that errors would come has no channels: it says that a sample
    is done.
    """
    layer, own = right.layer, precision.of(right.layer.formats)
    carried = {tensor.number: tensor.shape for tensor in layer.takes}
    begins = dict.fromkeys(carried, 0)
    partial: Shape | None = None
    formats = {tensor.number: precision.of(tensor.formats).activations for tensor in layer.takes}
    if layer.operation.looks_up:
        carried[layer.reads.number] = 1, *layer.input[1:]
        formats[layer.reads.number] = FP32  # the number of a symbol, whatever activations are in
    if left.index == layer.index:
        _, rows, columns = layer.input
        begun = layer.channels if right.cut is Cut.ICP else right.out_channels.start
        if layer.vocabulary_parallel:
            begun = SUMS
        partial = begun, *sent_shape(layer, share)[1:]
        if not layer.reads_again and not layer.operation.looks_up:
            begins[layer.reads.number] = before = inputs_before(layer, right.begin)
            carried[layer.reads.number] = layer.input[0] - before, rows, columns
    crossing = [
        Stream(DataPath.ACTIVATIONS, tensor, *shape, formats[tensor], begins[tensor])
        for tensor, shape in carried.items()
    ]
    if partial is not None:
        beside = (STATE - SUMS) * layer.vocabulary_parallel
        forth, of_outputs = own.sums, own.errors
        if layer.vocabulary_parallel:
            forth = of_outputs = FP32
        elif layer.operation.recurs:
            forth = own.activations
        made = layer.makes.number
        crossing.append(Stream(DataPath.PARTIAL_ACTIVATIONS, made, *partial, forth, beside=beside))
        back = (0, *partial[1:]) if layer.makes.fixed else partial
        crossing.append(Stream(DataPath.OUTPUT_ERRORS, made, *back, of_outputs))

    def formats_of_errors(tensor: Tensor) -> tuple[NumberFormat, int, NumberFormat | None]:
        """Return the format, the first channel, and the format of what is not yet rounded."""
        if tensor.number not in layer.read_once:
            return FP32, 0, None
        is_within = partial is not None and tensor == layer.reads
        errors = precision.of(tensor.error_formats).errors
        # One device has to see the largest number of a row, or of a map.
        is_seen_whole = errors.tensor_bytes or precision.of(tensor.error_formats).history
        if is_within and (right.cut is Cut.OCP or is_seen_whole):
            return own.sums, 0, None
        return (
            (errors, begins[tensor.number], own.sums)
            if is_within and errors.block
            else (errors, 0, None)
        )

    with_errors = (tensor for tensor in layer.takes if not tensor.is_images)
    crossing += [
        (
            Stream(DataPath.INPUT_ERRORS, tensor.number, 0, *carried[tensor.number][1:])
            if tensor.fixed
            else Stream(
                DataPath.INPUT_ERRORS,
                tensor.number,
                *carried[tensor.number],
                *formats_of_errors(tensor),
            )
        )
        for tensor in with_errors
    ]
    if partial is not None and layer.operation.recurs:
        states, (_, rows, columns) = layer.makes.number, layer.output
        later = layer.channels - right.begin, rows, columns
        crossing.append(Stream(DataPath.STATES, states, *later, own.activations))
        if layer.has_eb:
            every = layer.channels, rows, columns
            crossing.append(Stream(DataPath.INPUT_ERRORS, states, *every, own.sums))
            crossing.append(Stream(DataPath.STATE_ERRORS, states, *later, own.sums))
    return tuple(crossing)


def carried_bytes(link: Link, all_streams: Iterable[Stream]) -> dict[DataPath, int]:
    """Return for each path the bytes that a whole link would carry in the time that the path's map
    takes.
    """
    return shared_bytes(link.share, _bytes_by_path(link, all_streams))


def bytes_on_wire(link: Link, all_streams: Iterable[Stream]) -> dict[DataPath, int]:
    """Return `carried_bytes` of one direction of a link, which may carry paths to both sides of the
    chain.

    By bytes all share it; by paths there are as many parts as there would be on the two links of a
    chain together.
    """
    own = _bytes_by_path(link, all_streams)
    if link.share is LinkShare.BYTES:
        return dict.fromkeys(own, sum(own.values()))
    sides = {path.is_forward for path in own}
    parts = sum(_parts(own, forward=forward) for forward in sides)
    return {path: count * parts for path, count in own.items()}


def _bytes_by_path(link: Link, all_streams: Iterable[Stream]) -> dict[DataPath, int]:
    own: dict[DataPath, int] = {}
    for stream in all_streams:
        own[stream.path] = own.get(stream.path, 0) + stream.rows * link.wire_bytes(stream.row_bytes)
    return own


def _parts(paths: Iterable[DataPath], *, forward: bool) -> int:
    """Return in how many parts the paths to one side of the chain divide a direction of a link."""
    sent = [path for path in paths if path.is_forward == forward]
    return paths_of_direction(balanced=any(path.is_balanced or path.is_of_states for path in sent))


def shared_bytes(share: LinkShare, own: dict[DataPath, Bytes]) -> dict[DataPath, Bytes]:
    """Return `carried_bytes`, given the bytes of each path on the wire, those of headers among
    them.

    By bytes, these are all bytes of the path's direction, so that all its maps take the same time.
    By paths, they are the path's own times the paths of the direction: two, or three where it
    carries balanced parameters or states.
    """
    if share is LinkShare.BYTES:
        of_direction: dict[bool, Bytes] = {}
        for path, count in own.items():
            before = of_direction.get(path.is_forward)
            of_direction[path.is_forward] = count if before is None else before + count
        return {path: of_direction[path.is_forward] for path in own}
    return {path: count * _parts(own, forward=path.is_forward) for path, count in own.items()}


def paths_of_direction(*, balanced: bool) -> int:
    """Return the number of data paths of a direction of a link, by whether it carries balanced
    parameters.
    """
    return 2 + balanced


def path_row_ps(link: Link, stream: Stream, others: tuple[Stream, ...]) -> int:
    """Return the time in ps of a row on its stream, which has a fixed share of a link that carries
    `others`.
    """
    return row_ps(link, carried_bytes(link, others)[stream.path], stream.rows)


def sample_ps(link: Link, all_streams: tuple[Stream, ...]) -> int:
    """Return the time in ps of a sample on the slowest stream of a link, in both directions; 0 if
    it has none.
    """
    carried = carried_bytes(link, all_streams)
    rows_ps = (
        stream.rows * row_ps(link, carried[stream.path], stream.rows) for stream in all_streams
    )
    return max(rows_ps, default=0)


def row_ps(link: Link, carried: Bytes, rows: int) -> Bytes:
    """Return the time in ps of one of `rows` rows of a stream whose map takes as long as `carried`
    bytes on the wire.

    Several streams of a path share its part of the bandwidth by their bytes, so their maps take the
    same time.
    """
    return -(-8_000_000 * carried // (link.bandwidth_mbps * rows))


@dataclasses.dataclass(frozen=True)
class Crossing(abc.ABC):
    """It crosses the links between devices `first` and `last`; `number` is that of its streams on
    paths 5 and 6.
    """

    number: int
    first: int
    last: int

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """Rows, one after another."""

    @property
    @abc.abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a row."""

    @property
    def total_bytes(self) -> int:
        """Bytes that cross each link each way, for a mini-batch."""
        return self.rows * self.row_bytes

    def key(self, *, forward: bool) -> StreamKey:
        """Return the key of the stream to the right, or of that to the left."""
        return StreamKey(
            DataPath.PARAMETERS if forward else DataPath.PARAMETER_GRADIENTS, self.number
        )

    def crosses(self, link: int) -> bool:
        """Return whether it crosses the link between devices `link` and `link + 1`."""
        return self.first <= link < self.last

    def stops_at(self, device: int) -> bool:
        """Return whether a device from `first` to `last` adds to it, or takes it, rather than hand
        it on.
        """
        return True


@dataclasses.dataclass(frozen=True)
class TiedWeights(Crossing):
    """An embedding on devices `first` … `embedding_end` - 1, and its head on `head_begin` …
    `last`.
    """

    head: Layer
    embedding_end: int
    head_begin: int

    @property
    def embedding(self) -> Layer:
        """The embedding."""
        assert self.head.tied is not None
        return self.head.tied

    @property
    def rows(self) -> int:
        """See `Crossing`: symbols."""
        return self.head.channels

    @property
    def features(self) -> int:
        """Values of a symbol."""
        return self.head.input[0]

    @property
    def row_bytes(self) -> int:
        """See `Crossing`: those of the gradients of a symbol."""
        return FP32.bytes_of(self.features)

    def has_embedding(self, device: int) -> bool:
        """Return whether a device holds a part of the embedding."""
        return self.first <= device < self.embedding_end

    def has_head(self, device: int) -> bool:
        """Return whether a device holds a part of the head."""
        return self.head_begin <= device <= self.last

    def stops_at(self, device: int) -> bool:
        """See `Crossing`: those with a part of the embedding, or of the head."""
        return self.has_embedding(device) or self.has_head(device)

    @property
    def waits(self) -> Iterator[tuple[int, int]]:
        """Pairs of devices, of which the first's update waits for gradients of the second.

        Sums go forward from the embedding, and back from the head, and each device takes what has
        come to it.
        """
        for device, other in itertools.permutations(range(self.first, self.last + 1), 2):
            comes = self.has_embedding(other) if other < device else self.has_head(other)
            if self.stops_at(device) and comes:
                yield device, other

    def part(self, slices: tuple[Slice, ...], *, of_head: bool) -> int:
        """Return the place of the slice of the head, or of the embedding, among a device's slices
        that hold it.
        """
        index = self.head.index if of_head else self.embedding.index
        return next(place for place, part in enumerate(slices) if part.layer.index == index)


@dataclasses.dataclass(frozen=True)
class NormSum(Crossing):
    """The sum of the squares of all gradients, over all devices."""

    @property
    def rows(self) -> int:
        """See `Crossing`: one number."""
        return 1

    @property
    def row_bytes(self) -> int:
        """See `Crossing`: those of double precision."""
        return 8


def tied_weights(mapping: Mapping, first_number: int) -> Iterator[TiedWeights]:
    """Yield all tied weights of a mapping that are trained; their streams have the numbers from
    `first_number` on.
    """

    def holders(layer: Layer) -> list[int]:
        held = enumerate(mapping.devices)
        return [
            device for device, slices in held for part in slices if part.layer.index == layer.index
        ]

    yield from tied_between(mapping.network.heads, holders, first_number)


def tied_between(
    heads: Iterable[Layer], holders: Callable[[Layer], Sequence[int]], first_number: int
) -> Iterator[TiedWeights]:
    """Yield the tied weights of heads that are trained, given the devices that hold parts of a
    layer.
    """
    for number, head in enumerate((head for head in heads if not head.frozen), first_number):
        assert head.tied is not None
        embedding, own = holders(head.tied), holders(head)
        yield TiedWeights(number, embedding[0], own[-1], head, embedding[-1] + 1, own[0])
