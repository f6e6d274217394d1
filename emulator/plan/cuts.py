"""The cuts that are tried on boards that stream rows, and the one with the highest rate, with
off-chip memory in time.

A cut is by channels, at layers, or made by hand. Two kinds by channels are tried. One heeds engines
and links alone; what then does not fit is placed by rate (`mapping.place`). The other heeds memory
ports, too: it gives more boards to layers with many parameters. No cut and no placement is faster
than the first cut's slowest engine or link (`Mapping.balance`), which is the bound on what was
found.

The memory port limits the pieces of such a cut: what a board has to shed of a piece takes time
there.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..cluster import CHAIN, Board, Cluster
from ..common import InputError, plural
from ..mapping import (
    Chain,
    HandmadeCut,
    Mapping,
    ShedBounds,
    Slice,
    SliceNeeds,
    channels_together,
    cut_channels,
    partition,
    partition_layers,
    partition_with_memory,
    place,
    shed,
    slice_needs,
    with_balance,
)
from ..network import Network
from ..timing import Timing
from .layout import missing_bytes
from .steady import SteadyPipeline

if TYPE_CHECKING:
    from ..config import Config


class _WholeLayers:
    """What layers that are not cut need, and can shed, in a row, as far as that was asked for."""

    def __init__(self, of_layer: Callable[[int], ShedBounds]) -> None:
        self._of_layer = of_layer
        self._first = 0
        self._bounds: list[ShedBounds] = []
        self._sums: list[ShedBounds] = []

    def between(self, first: int, last: int) -> ShedBounds:
        """Return what layers from `first` on, before `last`, come to."""
        # Running sums, from the first layer that was asked for; one before it begins them anew.
        if not self._bounds or first < self._first:
            self._first, self._bounds, self._sums = first, [], [ShedBounds(0, 0, 0, math.inf)]
        for layer in range(self._first + len(self._bounds), last):
            self._bounds.append(self._of_layer(layer))
            self._sums.append(self._sums[-1].with_others(self._bounds[-1]))
        begin, end = first - self._first, last - self._first
        before, upto = self._sums[begin], self._sums[end]
        # A difference of sums gives counts, but no least value.
        bank_bytes = min(own.bank_bytes for own in self._bounds[begin:end])
        return ShedBounds(
            upto.banks - before.banks,
            upto.most_freed - before.most_freed,
            upto.most_moved - before.most_moved,
            bank_bytes,
            # True also for a layer before `first`: then `frees` decides less, and `shed` is tried.
            upto.is_free,
        )


class PortLimits:
    """The time of memory ports for pieces of the row of all channels (`mapping.PieceMemory`).

    How many samples are in flight where a piece begins is taken from a mapping that has been timed.
    """

    def __init__(
        self, network: Network, cluster: Cluster, timed: Mapping, in_flight: Sequence[int]
    ) -> None:
        self._layers, self._cluster = network.layers, cluster
        self._first = list(itertools.accumulate(map(cut_channels, network.layers), initial=0))
        firsts = (slices[0] for slices in timed.devices)
        self._begins = [self._first[part.layer.index] + part.begin for part in firsts]
        self._known: dict[tuple[int, int, int, int], tuple[SliceNeeds, ShedBounds]] = {}
        self._whole: dict[int, _WholeLayers] = {}
        # Nowhere more than further left, so that a part of a piece never needs more than the piece.
        self._in_flight = list(itertools.accumulate(reversed(in_flight), max))[::-1]

    def is_within(self, begin: int, end: int, board: Board, time_ps: int) -> bool:
        """Return whether the port moves in `time_ps` what a sample needs of all data that can be
        off chip and must be.

        Buffers that always stay on chip may still be too large; that is reported, and no cut can
        help it.
        """
        in_flight = self._in_flight_from(begin)
        bounds = self._bounds(begin, end, in_flight)
        excess = bounds.banks - self._cluster.banks_for_buffers(board)
        if excess <= 0:
            return True
        excess, most_bytes = (
            min(excess, bounds.most_freed),
            board.off_chip_mbytes_per_s * time_ps // 1_000_000,
        )
        frees = bounds.frees(excess, most_bytes)
        if frees is not None:
            return frees
        layers = range(self._layer(begin), self._layer(end - 1) + 1)
        _, freed, _ = shed(
            [self._of(layer, begin, end, in_flight)[0] for layer in layers], excess, most_bytes
        )
        return freed >= excess

    def in_flight_of(self, mapping: Mapping) -> tuple[int, ...]:
        """Return the samples in flight that the devices of a mapping are taken to have."""
        firsts = (slices[0] for slices in mapping.devices)
        return tuple(
            self._in_flight_from(self._first[part.layer.index] + part.begin) for part in firsts
        )

    def _in_flight_from(self, begin: int) -> int:
        return self._in_flight[bisect.bisect_right(self._begins, begin) - 1]

    def _layer(self, channel: int) -> int:
        return bisect.bisect_right(self._first, channel) - 1

    def _bounds(self, begin: int, end: int, in_flight: int) -> ShedBounds:
        """Return what the slices of a piece need, and can shed."""
        low, high = self._layer(begin), self._layer(end - 1)
        _, bounds = self._of(low, begin, end, in_flight)
        if high > low:
            bounds = bounds.with_others(self._of(high, begin, end, in_flight)[1])
        if high > low + 1:
            if in_flight not in self._whole:
                self._whole[in_flight] = _WholeLayers(
                    lambda layer: self._of(layer, 0, self._first[-1], in_flight)[1]
                )
            bounds = bounds.with_others(self._whole[in_flight].between(low + 1, high))
        return bounds

    def _of(
        self, layer: int, begin: int, end: int, in_flight: int
    ) -> tuple[SliceNeeds, ShedBounds]:
        """Return what a layer's part of a piece needs, and can shed."""
        low, high = self._first[layer : layer + 2]
        key = layer, max(begin, low) - low, min(end, high) - low, in_flight
        known = self._known.get(key)
        if known is None:
            needs = slice_needs(
                Slice(self._layers[layer], *key[1:3]), in_flight, self._cluster.storage
            )
            known = self._known[key] = needs, ShedBounds.of(needs)
        return known


def stand_ins(cluster: Cluster) -> list[Cluster]:
    """Return clusters in whose chain links stand for those of a topology, for cuts that suit it
    better; of a chain, [].

    A board's port on a switch carries what two links of a chain do; elsewhere, maps that bypass
    layers may leave them.
    """
    if cluster.is_chain:
        return []
    mbps = cluster.link.bandwidth_mbps
    wide = max(1, mbps // 2) if cluster.topology.has_ports else 2 * mbps
    return [dataclasses.replace(cluster.with_bandwidth(wide), topology=CHAIN)]


_MOST_TURNS = 8
_CUTS_BY_A_RULE = 3

FindSteady = Callable[[Timing], SteadyPipeline]


@dataclasses.dataclass(frozen=True)
class Settled:
    """A cut whose data all have a place for `in_flight` samples in flight on each device; no more
    are.

    No cut and no placement takes less than `bound_ps` for a sample.
    """

    timing: Timing
    steady: SteadyPipeline
    in_flight: tuple[int, ...]
    bound_ps: int

    @property
    def fits(self) -> bool:
        """Whether all data have a place."""
        return not any(missing_bytes(self.timing, self.steady.in_flight))

    def batch_ps(self, batch: int, waits_ps: int, drains: bool) -> int:
        """Return the time in ps of a mini-batch whose update waits for others.

        Where the chain drains, it also fills, and waits; elsewhere, further samples are computed
        meanwhile.
        """
        computes_ps = batch * self.timing.interval_ps
        return (
            computes_ps + self.steady.fill_ps + waits_ps if drains else max(computes_ps, waits_ps)
        )


def settle(
    mapping: Mapping,
    cluster: Cluster,
    steady_of: FindSteady,
    bound_ps: int,
    in_flight: tuple[int, ...] = (),
    *,
    balancing: bool,
) -> Settled:
    """Find a place for all data of a cut, first for `in_flight` samples, by default as many as
    without memory.

    What is off chip or elsewhere changes times, times change the samples in flight, and these the
    memory that is left; so this iterates, with no fewer samples in flight from turn to turn.
    """
    plain = timing = Timing.of(mapping, cluster)
    steady = None if in_flight else steady_of(plain)
    in_flight = in_flight if steady is None else steady.in_flight
    for _ in range(_MOST_TURNS):
        places = place(
            Chain.of(mapping, cluster, plain.links, in_flight),
            plain.interval_ps,
            balancing=balancing,
        )
        placed = plain
        # The placement of the turn before: its times and its steady pipeline hold.
        if (places.blocks, places.off_chip) == (timing.blocks, timing.off_chip):
            placed = timing
        elif places.blocks or any(map(any, places.off_chip)):
            placed = Timing.of(mapping, cluster, places.blocks, places.off_chip)
        if steady is None or placed is not timing:
            timing, steady = placed, steady_of(placed)
        if all(now <= held for now, held in zip(steady.in_flight, in_flight, strict=True)):
            break
        in_flight = tuple(map(max, in_flight, steady.in_flight))
    assert steady is not None
    return Settled(timing, steady, in_flight, bound_ps)


def place_by_rate(
    network: Network,
    cluster: Cluster,
    devices: int,
    steady_of: FindSteady,
    *,
    balancing: bool,
) -> list[Settled]:
    """Return all cuts with their placements that are worth a try.

    Raises:
        InputError: zero devices, more devices than channels, or too few multipliers.
    """
    fast = partition_with_memory(network, cluster, devices, None)
    assert fast.balance is not None
    bound_ps = fast.balance.server_ps
    fast_cuts = [
        fast,
        *(partition_with_memory(network, like, devices, None) for like in stand_ins(cluster)),
    ]
    settled = [settle(cut, cluster, steady_of, bound_ps, balancing=balancing) for cut in fast_cuts]
    has_ports = all(cluster.board(device).off_chip_mbytes_per_s for device in range(devices))
    if has_ports and devices > 1 and settled[0].timing.interval_ps > bound_ps:
        settled += _cuts_with_memory(settled[0], network, cluster, steady_of, balancing=balancing)
    # Balanced parameters take longer to arrive than a sample's share of the link, so a chain may do
    # better without.
    alone = [
        settle(cut.timing.mapping, cluster, steady_of, bound_ps, cut.in_flight, balancing=False)
        for cut in settled
        if cut.timing.blocks
    ]
    return settled + alone


def _cuts_with_memory(
    last: Settled, network: Network, cluster: Cluster, steady_of: FindSteady, *, balancing: bool
) -> Iterator[Settled]:
    """Yield cuts that heed memory ports, each for as many samples in flight as the one before it
    showed.

    Which cut is found changes with these numbers in jumps, so two rules are followed, and the
    fastest of all is taken.
    """

    def heeding(timed: Mapping, in_flight: Sequence[int]) -> _Heeding | None:
        limits = PortLimits(network, cluster, timed, in_flight)
        try:
            cut = partition_with_memory(network, cluster, len(timed.devices), limits, last.bound_ps)
        except InputError:
            return None  # at no time do ports move what these samples in flight need
        assumed = limits.in_flight_of(cut)
        return _Heeding(
            settle(cut, cluster, steady_of, last.bound_ps, assumed, balancing=balancing), assumed
        )

    first = heeding(last.timing.mapping, last.in_flight)
    if first is None:
        return
    yield first.settled
    tried = set()
    for rule in (_Heeding.at_its_pace, _Heeding.at_its_aim):
        made = first
        for _ in range(_CUTS_BY_A_RULE):
            cut, in_flight = made.settled.timing.mapping, rule(made)
            if (
                made.settled.timing.interval_ps == last.bound_ps
                or (cut.devices, in_flight) in tried
            ):
                break
            tried.add((cut.devices, in_flight))
            further = heeding(cut, in_flight)
            if further is None:
                break
            made = further
            yield made.settled


class _Heeding(NamedTuple):
    """A cut that heeds memory ports, for the samples in flight that it was made for."""

    settled: Settled
    assumed: tuple[int, ...]

    def at_its_pace(self) -> tuple[int, ...]:
        """Return the most samples in flight that it had as it was settled; those of its end, if
        these were assumed.
        """
        settled = self.settled
        return settled.in_flight if settled.in_flight != self.assumed else settled.steady.in_flight

    def at_its_aim(self) -> tuple[int, ...]:
        """Return the samples in flight at the pace that the cut was made for.

        A sample stays as long on a chain whose slowest server takes `interval_ps` as on one where
        it takes the `server_ps` of the aim; there, `interval_ps / server_ps` times as many are in
        flight.
        """
        timing = self.settled.timing
        assert timing.mapping.balance is not None
        server_ps = timing.mapping.balance.server_ps
        return tuple(
            -(-held * timing.interval_ps // server_ps) for held in self.settled.steady.in_flight
        )


@dataclasses.dataclass(frozen=True)
class TriedCuts:
    """The cuts of a network over a chain whose `cluster` has a board for each of `devices` times
    `chunks` stages.
    """

    config: Config
    network: Network
    cluster: Cluster
    devices: int
    chunks: int

    @property
    def stages(self) -> int:
        """Number of stages of the chain."""
        return self.devices * self.chunks

    @property
    def balancing(self) -> bool:
        """Whether parameters may be stored on other devices."""
        return self.config.balancing == "auto" and self.chunks == 1 and not self.network.last_first

    def as_in_fpdeep(self) -> list[Mapping]:
        """Return the cuts that are tried if data off chip is free, as in FPDeep, or the one made by
        hand.

        Fully connected layers that do not fit on a board have boards of their own.
        """
        layers = self._at_layers()
        chains = [self.cluster, *stand_ins(self.cluster)]
        cuts = (
            layers
            if self._is_whole
            else [*(partition(self.network, c, self.stages) for c in chains), *layers]
        )
        by_hand = self.made_by_hand()
        if by_hand is None:
            return cuts
        same = [mapping for mapping in cuts if mapping.devices == by_hand.devices]
        return same or [with_balance(by_hand, self.cluster)]

    def placed(self, steady_of: FindSteady) -> list[Settled]:
        """Return the cuts that are tried with places for all data, or the one made by hand.

        One that is among those tried is placed as that is, and so takes the same time.

        Raises:
            InputError: the network does not fit, or what was made by hand is wrong.
        """
        by_hand, balancing = self.made_by_hand(), self.balancing
        choices = [
            settle(mapping, self.cluster, steady_of, 0, balancing=balancing)
            for mapping in self._at_layers()
        ]
        if not self._is_whole:
            choices += place_by_rate(
                self.network, self.cluster, self.stages, steady_of, balancing=balancing
            )
        if by_hand is None:
            return choices
        same = [settled for settled in choices if settled.timing.mapping.devices == by_hand.devices]
        even = with_balance(by_hand, self.cluster)
        bound_ps = Timing.of(even, self.cluster).interval_ps
        return same or [settle(even, self.cluster, steady_of, bound_ps, balancing=balancing)]

    def made_by_hand(self, *, by_actions: bool = False) -> Mapping | None:
        """Return the mapping of the cut made by hand, if there is one; `by_actions` says whether
        boards take actions as a whole.

        Raises:
            InputError: it is wrong, cuts a layer that must stay whole, or has pieces for more or
                fewer devices.
        """
        cut = self.config.cut
        if cut is None:
            return None
        mapping, noun = cut.mapping(self.network), "board" if self.chunks == 1 else "stage"
        count = len(cut.boards)
        if count != self.stages:
            last = mapping.devices[min(self.stages, count - 1)][0].layer.name
            which = (
                f"none is left for {last}" if count > self.stages else f"{last} is on the last one"
            )
            raise InputError(
                f"{cut.blame}: has {plural(count, noun)}, and the run {self.stages}; {which}"
            )
        split = (
            part
            for slices in mapping.devices
            for part in slices
            if not (part.is_first and part.is_last)
            and (
                self.config.stages == "layers"
                or (part.layer.operation.recurs and (by_actions or self._is_whole))
            )
        )
        part = next(split, None)
        if part is not None:
            by = f"schedule {self.config.schedule.name}"
            if self.config.stages == "layers":
                by = "`stages` = 'layers'"
            elif by_actions:
                by = "boards that take actions as a whole, as states pass between steps of one"
            elif self._tensors is not None:
                by = f"{self._tensors} that have a scale of all units"
            raise InputError(f"{cut.blame}: cuts {part.layer.name}, which stays whole with {by}")
        self._check_blocks(mapping, cut)
        return mapping

    def _check_blocks(self, mapping: Mapping, cut: HandmadeCut) -> None:
        """Check that a cut parts no block of channels that have to stay together."""
        for part in (part for slices in mapping.devices for part in slices):
            together = channels_together(part.layer, self.config.precision)
            if not part.is_last and part.end % together:
                why = "whose products are summed exactly"
                if part.layer.vocabulary_parallel:
                    why = "logits whose errors share a scale"
                elif part.layer.shares_weights:
                    why = "of a tied table"
                elif part.layer.operation.recurs:
                    why = "units whose states and errors are summed, or share a scale"
                near = [part.end // together * together + more for more in (0, together)]
                raise InputError(
                    f"{cut.blame}: {part.layer.name} is cut at channel {part.end}, within a block of"
                    f" {together} {why}; should be at"
                    f" {' or '.join(str(end) for end in near)}"
                )

    def _at_layers(self) -> list[Mapping]:
        """Return the cut at layers, where layers stay whole or one is worth a try."""
        # A cut through a recurrent layer costs time at each step, which a cut at layers does not.
        may = self.network.last_first and self.stages <= len(self.network.layers)
        return (
            [partition_layers(self.network, self.cluster, self.stages)]
            if self._is_whole or may
            else []
        )

    @property
    def _tensors(self) -> str | None:
        """What has a scale of all units of a recurrent layer; None if nothing has."""
        precision = self.config.precision
        layers = (layer for layer in self.network.layers if layer.operation.recurs)
        own = [precision.of(layer.formats) for layer in layers]
        for kind in ("activations", "errors"):
            if any(formats.format(kind).tensor_bytes for formats in own):
                return kind
        return None

    @functools.cached_property
    def _is_whole(self) -> bool:
        """Whether layers may not be cut: so configured, or steps of a recurrent one need all
        devices at once.

        Raises:
            InputError: then there are more devices than layers.
        """
        network, kind = self.network, self.config.schedule
        if self.config.stages == "layers":
            return True
        if not network.recurs or (kind.aligned and self._tensors is None):
            return False
        if self._tensors is not None and self.stages > len(network.layers):
            raise InputError(
                f"`precision` = {str(self.config.precision)!r}: has {self._tensors} with a scale of all"
                " units, which need those of several boards at every step where a recurrent layer is"
                f" cut; {network.name} has {plural(len(network.layers), 'layer')} for"
                f" {plural(self.stages, 'device')}; should be at most"
                f" {plural(len(network.layers), 'device')}, or formats without such scales, such as 'mxfp4'"
            )
        if self.stages > len(network.layers):
            raise InputError(
                f"`schedule` = {kind.name!r}: splits micro-batches where its weights change, but"
                f" devices that share a recurrent layer step through whole ones; {network.name} has"
                f" {plural(len(network.layers), 'layer')} for {plural(self.stages, 'device')};"
                f" should be at most {plural(len(network.layers), 'device')}, or a schedule such as"
                " 'sync'"
            )
        return True
