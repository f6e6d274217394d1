"""The costs of a stage on a board: a roofline for each layer and phase.

The board has all its multipliers work on one layer after the other, and its memory port moves what
is off chip at the same time. So FP, EB and PG of a layer each take the longer of

    samples * multiply-accumulates * clock period / multipliers        and        bytes off chip / bandwidth

for a micro-batch, and the stage takes their sum. A layer that takes images has no EB. A board whose
engines are arrays takes whole passes and a start in place of the former (`cluster/arrays.py`), and
one that exposes loads adds that share of the shorter time.

Weights, gradients and features of a layer are each on chip or off chip as a whole. Off chip they
cost bytes of every micro-batch: weights are read for FP and for EB, PG reads and writes gradients,
FP writes features that PG reads. A phase of a layer takes as long as its multiply-accumulates or
its bytes, whichever is longer.

Where not everything fits, all begin off chip. Then that comes on chip which saves the most time for
a byte of its room; where nothing saves time, that which saves the most bytes on the memory port. Of
equals, the earlier layer comes first, and weights before gradients before features. What has no
room any more stays off chip.

Where replicas share weights out, a layer's are gathered before its FP and its EB into room for the
largest layer. It is on chip beside the buffers, if they leave it; FP and EB then read no weights
off chip. Else it is off chip, and so are all shares.
"""

from __future__ import annotations

import dataclasses
import enum
import heapq
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from ...kernels.number import FP32, Lines, NumberFormat
from ..cluster import Board
from ..common import InputError
from ..mapping import (
    SINGLE_STORAGE,
    Cut,
    Slice,
    Stream,
    activation_bytes,
    array_bytes,
    formats_of,
    slice_memory,
    slice_works,
    streams_between,
    turned_lines,
)
from ..network import Layer, Network, Phase
from ..number import SINGLE, Precision, Storage
from ..schedule import StageCosts


class PartNeeds(NamedTuple):
    """A slice's needs; bytes of features are those of a sample, `buffer_bytes` feed the engines and
    stay on chip.

    `macs` are those of FP; EB has `eb_macs` and PG `pg_macs`, 0 if there is none. Beside parameters
    there are `kept_bytes`: their gradients, which as a whole are `gradient_bytes`, a master copy,
    and what an optimiser keeps, of which replicas may share some out; nothing of frozen ones. Of
    the weights themselves it has one of `shares`. EB may have `turned_bytes` of weights of its own,
    in place of those of FP.
    """

    part: Slice
    macs: int
    eb_macs: int
    pg_macs: int
    parameter_bytes: int
    feature_bytes: int
    buffer_bytes: int
    gradient_bytes: int = 0
    kept_bytes: Fraction | int = 0
    shares: int = 1
    recomputed: bool = False
    input_bytes: int = 0
    """Of a sample, what is kept where its features are recomputed from what arrives."""
    turned_bytes: int = 0

    @classmethod
    def of(
        cls,
        part: Slice,
        storage: Storage = SINGLE_STORAGE,
        shares: int = 1,
        *,
        recomputed: bool = False,
    ) -> PartNeeds:
        """Return the needs of a slice, with what is stored in these formats."""
        own = formats_of(part, storage)
        turned = turned_lines(part, part.channels, own)
        turned_bytes = 0 if turned is None else turned.bytes_in(own.weights)
        weights, *others = array_bytes(part, storage)
        kept = zip(others, own.shares[1:] or (1,) * len(others), strict=False)
        return cls(
            part,
            part.macs,
            part.eb_macs,
            part.pg_macs,
            weights - turned_bytes,
            activation_bytes(part, storage),
            slice_memory(part, 0, storage=storage).working.bytes,
            others[0] if others else 0,
            sum((Fraction(size, count) for size, count in kept), Fraction(0)),
            1 if part.layer.frozen else shares,
            recomputed,
            arriving_bytes(part, storage),
            turned_bytes,
        )

    @property
    def gathered_bytes(self) -> int:
        """Bytes of weights that are gathered from all replicas before they are used."""
        return self.parameter_bytes if self.shares > 1 else 0


def arriving_bytes(part: Slice, storage: Storage = SINGLE_STORAGE) -> int:
    """Return the bytes of a sample that a slice's forward pass takes in: all maps that arrive at
    its layer, shortcuts too, and the sums of the slices before it.
    """
    tensors = ((tensor.shape, storage.made_by[tensor.formats]) for tensor in part.layer.takes)
    total = sum(
        Lines(channels, rows * columns, in_tensor=columns).bytes_in(number)
        for (channels, rows, columns), number in tensors
    )
    if part.is_first:
        return total
    _, rows, columns = part.layer.output
    before = part.layer.channels if part.cut is Cut.ICP else part.out_channels.start
    sums = formats_of(part, storage).sums
    return total + Lines(before, rows * columns, in_tensor=columns).bytes_in(sums)


def boundary_bytes(network: Network, after_layer: int, number: NumberFormat = FP32) -> int:
    """Return the bytes of a sample that cross a cut behind a layer: all maps that later layers
    need, shortcuts too.

    `after_layer` is the layer's index; behind the last layer these are the outputs of the network.
    """
    shapes = (tensor.shape for tensor in network.layers[after_layer].hands_on)
    return sum(
        Lines(channels, rows * columns, in_tensor=columns).bytes_in(number)
        for channels, rows, columns in shapes
    )


def cut_bytes(left: Layer, right: Slice, formats: NumberFormat | Precision = FP32) -> int:
    """Return the bytes of a sample in the fuller direction between a stage that ends in `left` and
    one from `right` on, with values of one format, or in those of a run.

    Between slices of one layer partial sums cross, too, and their errors back.
    """
    precision, number = SINGLE, None
    if isinstance(formats, Precision):
        precision = formats
    else:
        number = formats
    crossing = streams_between(left, right, precision=precision)
    forward = [stream for stream in crossing if stream.path.is_forward]
    backward = [stream for stream in crossing if not stream.path.is_forward]
    return max(streams_bytes(forward, number), streams_bytes(backward, number))


def streams_bytes(streams: Iterable[Stream], number: NumberFormat | None = None) -> int:
    """Return the bytes of a sample of some streams, in their formats, or with all values of one."""
    if number is None:
        return sum(stream.message_bytes for stream in streams)
    return sum(stream.lines_of_sample.bytes_in(number) for stream in streams)


class Data(enum.Flag):
    """Data of a layer that may be off chip."""

    NONE = 0
    WEIGHTS = enum.auto()
    GRADIENTS = enum.auto()
    FEATURES = enum.auto()


ALL = (Data.WEIGHTS, Data.GRADIENTS, Data.FEATURES)
_BITS = tuple(kind.value for kind in ALL)
"""A search asks millions of times, and whole numbers answer ten times as fast as flags."""


class Phases(NamedTuple):
    """FP, EB and PG of a layer, in ps or bytes."""

    fp: int
    eb: int
    pg: int


class DataBytes(NamedTuple):
    """Bytes of weights, gradients and features, in the order of `ALL`."""

    weights: int
    gradients: int
    features: int


class LayerData(NamedTuple):
    """A layer's work and data for a micro-batch.

    `work_ps` is the time of the multiply-accumulates; a layer without EB has none there. `rooms`
    are the bytes that weights, gradients and features take, `sizes` the bytes of each that a phase
    goes through. Of the shorter of work and loads, the share `exposed` does not hide behind the
    longer.
    """

    work_ps: Phases
    rooms: DataBytes
    sizes: DataBytes
    exposed: float = 0.0

    def room(self, data: Data) -> int:
        """Return the bytes that some of the data take."""
        bits = data.value
        return sum(room for bit, room in zip(_BITS, self.rooms, strict=True) if bit & bits)

    def moved(self, off_chip: Data) -> Phases:
        """Return the bytes that each phase moves over the memory port."""
        bits = off_chip.value
        weights, gradients, features = (
            size if bit & bits else 0 for bit, size in zip(_BITS, self.sizes, strict=True)
        )
        return Phases(
            weights + features, weights if self.work_ps.eb else 0, 2 * gradients + features
        )

    def times_ps(self, off_chip: Data, mbytes_per_s: int) -> Phases:
        """Return the time of each phase in ps; where anything is off chip, the memory port has a
        bandwidth.
        """
        if not off_chip:
            return self.work_ps
        loads_ps = [port_ps(count, mbytes_per_s) for count in self.moved(off_chip)]
        times = []
        for work_ps, load_ps in zip(self.work_ps, loads_ps, strict=True):
            hidden = min(work_ps, load_ps)
            times.append(max(work_ps, load_ps) + round(self.exposed * hidden))
        return Phases(*times)


def port_ps(count: int, mbytes_per_s: int) -> int:
    """Return the time in ps of a number of bytes on a memory port."""
    return -(-count * 1_000_000 // mbytes_per_s)


def choose_off_chip(
    layers: Sequence[LayerData], room_bytes: int, mbytes_per_s: int, never_on_chip: Data = Data.NONE
) -> list[Data]:
    """Return what of each layer is off chip, by the rule above, if `room_bytes` do not take all."""
    off_chip = [Data.WEIGHTS | Data.GRADIENTS | Data.FEATURES for _ in layers]
    heap = [
        _Gain.of(place, layer, off_chip[place], data, mbytes_per_s)
        for place, layer in enumerate(layers)
        for data in ALL
        if not data & never_on_chip and layer.room(data)
    ]
    heapq.heapify(heap)
    while heap:
        best = heapq.heappop(heap)
        layer, now = layers[best.place], off_chip[best.place]
        room = layer.room(Data(best.data))
        if room > room_bytes:
            continue
        if best.off_chip != now.value:
            heapq.heappush(heap, _Gain.of(best.place, layer, now, Data(best.data), mbytes_per_s))
            continue
        room_bytes -= room
        off_chip[best.place] = now & ~Data(best.data)
    return off_chip


class _Gain(NamedTuple):
    """What it gains to bring some data on chip; the smallest comes first.

    The gains are below zero, in ps and bytes for a byte of room; `off_chip` is what of the layer
    was off chip then.
    """

    time: float
    moved: float
    place: int
    data: int
    off_chip: int

    @classmethod
    def of(
        cls, place: int, layer: LayerData, off_chip: Data, data: Data, mbytes_per_s: int
    ) -> _Gain:
        after, room = off_chip & ~data, layer.room(data)
        time = sum(layer.times_ps(after, mbytes_per_s)) - sum(
            layer.times_ps(off_chip, mbytes_per_s)
        )
        moved = sum(layer.moved(after)) - sum(layer.moved(off_chip))
        return cls(time / room, moved / room, place, data.value, off_chip.value)


class DoesNotFit(InputError):
    """A stage's data find no place: `needed_bytes` in a memory of `capacity_bytes`."""

    def __init__(
        self, stage: int, needed_bytes: int, capacity_bytes: int, place: str, owner: str
    ) -> None:
        super().__init__(
            f"stage {stage}: needs {needed_bytes:,} bytes {place}; {owner} has {capacity_bytes:,}"
        )
        self.stage, self.needed_bytes, self.capacity_bytes = stage, needed_bytes, capacity_bytes
        self._place, self._owner = place, owner

    def of_stage(self, stage: int) -> DoesNotFit:
        """Return the same error of another stage."""
        return DoesNotFit(stage, self.needed_bytes, self.capacity_bytes, self._place, self._owner)


@dataclasses.dataclass(frozen=True)
class LayerCosts:
    """What a layer of a stage takes for a micro-batch: times in ps, bytes over the memory port,
    what is off chip.

    `stored_bytes` are those of all its data, on chip and off chip.
    """

    part: Slice
    times_ps: Phases
    moved_bytes: Phases
    stored_bytes: DataBytes
    off_chip: Data
    bound_by_memory: tuple[Phase, ...]


@dataclasses.dataclass(frozen=True)
class BoardStage:
    """The costs of a stage on a board, its layers, and the bytes that it has on chip and off chip.

    Of those on chip, `gathered_bytes` are for a layer's weights that other replicas have shares of.
    B, or R, of a micro-batch computes `recomputed_bytes` of features again; one that is not
    recomputed keeps `whole_bytes`.
    """

    costs: StageCosts
    layers: tuple[LayerCosts, ...]
    on_chip_bytes: int
    off_chip_bytes: int
    gathered_bytes: int = 0
    recomputed_bytes: int = 0
    whole_bytes: int = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes of features that it has at a time, on chip and off chip."""
        return sum(layer.stored_bytes.features for layer in self.layers)

    @property
    def data_on_chip(self) -> DataBytes:
        """Bytes of the data that it has on chip; `on_chip_bytes` includes buffers, too."""
        held = [0, 0, 0]
        for layer, (place, data) in itertools.product(self.layers, enumerate(ALL)):
            held[place] += 0 if layer.off_chip & data else layer.stored_bytes[place]
        weights, gradients, features = held
        return DataBytes(weights + self.gathered_bytes, gradients, features)

    @property
    def moved_bytes(self) -> int:
        """Bytes over the memory port for a micro-batch."""
        return sum(sum(layer.moved_bytes) for layer in self.layers)

    @property
    def bound_by_memory(self) -> bool:
        """Whether the memory port makes a phase of a layer take longer."""
        return any(layer.bound_by_memory for layer in self.layers)


def board_stage(
    slices: Sequence[Slice],
    board: Board,
    samples: int,
    kept_samples: int,
    *,
    stage: int = 0,
    weight_copies: int = 1,
    storage: Storage = SINGLE_STORAGE,
    shares: int = 1,
    parameters_together: bool = False,
    recomputed: Collection[int] = (),
    redone: int = 1,
    recompute_apart: bool = False,
) -> BoardStage:
    """Return the costs of slices of consecutive layers as a stage of a pipeline on one board.

    Args:
        slices: the stage's slices, in the order of the layers.
        board: its multipliers, clock and memory.
        samples: samples of a micro-batch.
        kept_samples: samples whose features are kept at a time, from FP until PG.
        stage: the stage's number, for messages.
        weight_copies: versions of the weights that are kept; the gradients come in addition, once.
        storage: the formats of maps, and of a parameter's arrays.
        shares: number of replicas that share weights out.
        parameters_together: whether weights and gradients of all layers are off chip if not all of
            them fit.
        recomputed: the layers, by index, whose features B recomputes from what arrives at them.
        redone: the most micro-batches whose recomputed features are there at a time: several where
            W is apart from B, or R.
        recompute_apart: whether R is an action of its own, and no part of B.

    Raises:
        DoesNotFit: they need more memory than there is, on chip and off chip.
    """
    needs = []
    for part in slices:
        again = part.layer.index in recomputed
        needs.append(PartNeeds.of(part, storage, shares, recomputed=again))
    return stage_of_needs(
        needs,
        board,
        samples,
        kept_samples,
        stage=stage,
        redone=redone,
        weight_copies=weight_copies,
        parameters_together=parameters_together,
        recompute_apart=recompute_apart,
    )


def stage_of_needs(
    needs: Sequence[PartNeeds],
    board: Board,
    samples: int,
    kept_samples: int,
    *,
    stage: int = 0,
    redone: int = 1,
    weight_copies: int = 1,
    parameters_together: bool = False,
    recompute_apart: bool = False,
) -> BoardStage:
    """Return the same as `board_stage`, for slices whose needs are known.

    Raises:
        DoesNotFit: they need more memory than there is, on chip and off chip.
    """
    kept, redone_samples = kept_features(needs), min(redone * samples, kept_samples)
    layers = [
        _layer_data(part, board, samples, kept_samples, redone_samples, weight_copies, own)
        for part, own in zip(needs, kept, strict=True)
    ]
    buffers = max(part.buffer_bytes for part in needs)
    gathered = max(part.gathered_bytes for part in needs)
    on_chip = gathered <= board.on_chip_memory_bytes - buffers
    held, apart = (gathered, 0) if on_chip else (0, gathered)
    if held:
        layers = [_read_once_gathered(*pair) for pair in zip(layers, needs, strict=True)]
    needed = apart + sum(sum(layer.rooms) for layer in layers)
    room, port = board.on_chip_memory_bytes - buffers - held, board.off_chip_mbytes_per_s
    off_chip = [Data.NONE] * len(layers)
    if needed > room:
        if room < 0:
            raise DoesNotFit(
                stage, buffers, board.on_chip_memory_bytes, "of buffers on chip", board.name
            )
        if not port:
            owner = f"{board.name}, without off-chip memory of known bandwidth,"
            total = needed + buffers + held
            raise DoesNotFit(stage, total, board.on_chip_memory_bytes, "on chip", owner)
        never = Data.WEIGHTS | Data.GRADIENTS if parameters_together else Data.NONE
        never |= Data.WEIGHTS if apart else Data.NONE
        off_chip = choose_off_chip(layers, room, port, never)
    stored = apart + sum(layer.room(data) for layer, data in zip(layers, off_chip, strict=True))
    capacity = board.off_chip_memory_bytes
    if stored and capacity is not None and stored > capacity:
        raise DoesNotFit(stage, stored, capacity, "off chip", board.name)
    layer_costs = tuple(
        _layer_costs(part.part, layer, data, port)
        for part, layer, data in zip(needs, layers, off_chip, strict=True)
    )
    forward = eb = pg = recompute = 0
    for part, layer_cost in zip(needs, layer_costs, strict=True):
        fp_ps, eb_ps, pg_ps = layer_cost.times_ps
        forward, eb, pg = forward + fp_ps, eb + eb_ps, pg + pg_ps
        recompute += fp_ps if part.recomputed else 0
    features = samples * sum(kept)
    parameters = sum(part.parameter_bytes for part in needs)
    sizes = {"feature_bytes": features, "parameter_bytes": parameters}
    inside, own = (0, recompute) if recompute_apart else (recompute, 0)
    costs = StageCosts(forward, eb + inside + pg, pg, **sizes, recompute_ps=own)
    again = samples * sum(part.feature_bytes for part in needs if part.recomputed)
    whole = samples * sum(part.feature_bytes for part in needs)
    on_chip_bytes = needed - stored + buffers + held
    return BoardStage(costs, layer_costs, on_chip_bytes, stored, held, again, whole)


def with_offload(stage: BoardStage, board: Board, *, apart: bool) -> BoardStage:
    """Return a stage with the time of O, and of L: the features of a micro-batch over the board's
    link to its host; all of them where R is `apart`, which others have.

    Raises:
        InputError: the link's bandwidth is not known.
    """
    if not board.host_gbytes_per_s:
        raise InputError(
            f"board {board.name}: O and L go over the link to the host; should have"
            " `host_gbytes_per_s`"
        )
    moved = stage.whole_bytes if apart else stage.costs.feature_bytes
    offload_ps = math.ceil(moved * 1000 / Fraction(str(board.host_gbytes_per_s)))
    return dataclasses.replace(stage, costs=dataclasses.replace(stage.costs, offload_ps=offload_ps))


def kept_features(needs: Sequence[PartNeeds]) -> list[int]:
    """Return the bytes of a sample that each of a stage's slices keeps from F to B: all features,
    or, of recomputed layers that follow one another, what arrives at the first.
    """
    kept, before = [], False
    for part in needs:
        arriving = 0 if before else part.input_bytes
        kept.append(arriving if part.recomputed else part.feature_bytes)
        before = part.recomputed
    return kept


def _read_once_gathered(layer: LayerData, needs: PartNeeds) -> LayerData:
    """Return a layer whose weights are read from where they are gathered on chip, if they are."""
    sizes = layer.sizes._replace(weights=0) if needs.gathered_bytes else layer.sizes
    return layer._replace(sizes=sizes)


def _layer_data(
    needs: PartNeeds,
    board: Board,
    samples: int,
    kept_samples: int,
    redone_samples: int,
    weight_copies: int,
    kept: int,
) -> LayerData:
    work_ps, eb_ps, pg_ps = _work_ps(needs, board, samples)
    # While B of a micro-batch lasts, and until W, its recomputed features are there, too.
    again = needs.feature_bytes if needs.recomputed else 0
    layer, parameters, features = needs.part.layer, needs.parameter_bytes, needs.feature_bytes
    # A step of all samples needs the one before: activations stand between the two, and each goes
    # through the weights.
    steps = layer.output[1] if layer.operation.recurs else 0
    steps_ps = steps * board.activation_ps
    return LayerData(
        Phases(work_ps + steps_ps, eb_ps + steps_ps if layer.has_eb else 0, pg_ps),
        DataBytes(
            -(-weight_copies * (parameters + needs.turned_bytes) // needs.shares),
            math.ceil(needs.kept_bytes),
            kept_samples * kept + redone_samples * again,
        ),
        DataBytes(max(1, steps) * parameters, needs.gradient_bytes, samples * features),
        board.load_exposed,
    )


def _work_ps(needs: PartNeeds, board: Board, samples: int) -> tuple[int, int, int]:
    """Return the times of FP, EB and PG in ps, without loads: by all multipliers, or as arrays take
    them.
    """
    macs, times = (needs.macs, needs.eb_macs, needs.pg_macs), [0, 0, 0]
    for work in slice_works(needs.part):
        times[work.phase] = board.alone_ps(work, macs[work.phase], samples)
    return times[0], times[1], times[2]


def _layer_costs(part: Slice, layer: LayerData, off_chip: Data, mbytes_per_s: int) -> LayerCosts:
    times = layer.times_ps(off_chip, mbytes_per_s)
    longer = [
        phase for phase, time, work in zip(Phase, times, layer.work_ps, strict=True) if time > work
    ]
    return LayerCosts(part, times, layer.moved(off_chip), layer.rooms, off_chip, tuple(longer))
