"""Stages: what any piece of a network takes on any device, by a roofline of boards or by a profile.

A *row* of places runs through the network; a cut is at a place. Cuts between layers are at
`starts`; the places between are cuts within a layer:

    places   0  1  2  3  4  5  6  7  8  9  10 11 12
             |   conv1   |      conv2      |  fc  |
    starts   0           4                 10    12     a cut at 6 gives two channels of conv2 to the left, four right

On boards, a piece takes the time of its roofline; on devices that a profile describes, the sum of
the times of layers.
"""

from __future__ import annotations

import abc
import bisect
import copy
import functools
import itertools
import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import NamedTuple, Self

from ...kernels.number import NumberFormat
from ..cluster import Board
from ..mapping import (
    SINGLE_STORAGE,
    Slice,
    TiedWeights,
    channels_together,
    cut_channels,
    slice_works,
    tied_between,
)
from ..network import Layer, Network
from ..number import SINGLE, Precision, Storage
from ..schedule import StageCosts
from ..timing import FeatureBytes
from .profile import LayerTimes, Profile
from .roofline import (
    DoesNotFit,
    PartNeeds,
    boundary_bytes,
    cut_bytes,
    kept_features,
    stage_of_needs,
)

PIECES = 64
"""The most pieces of a layer that a cut within it counts."""


class Stages(abc.ABC):
    """Costs of the pieces of a network, for micro-batches of `samples`, on a chain of devices of
    the named kinds.
    """

    name: str
    layers: tuple[str, ...]
    starts: tuple[int, ...]
    kinds: tuple[str, ...]
    samples: int
    heads: tuple[Layer, ...] = ()
    """Layers with the weights of an embedding, where they are known."""

    @property
    def end(self) -> int:
        """The place behind the last layer."""
        return self.starts[-1]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return len(self.kinds)

    @property
    @abc.abstractmethod
    def places(self) -> Sequence[int]:
        """All places of a cut, in ascending order, the beginning and the end included."""

    @abc.abstractmethod
    def costs(
        self,
        begin: int,
        end: int,
        device: int,
        kept: int,
        *,
        weight_copies: int = 1,
        together: bool = False,
    ) -> StageCosts:
        """Return the costs of the layers from place `begin` to `end` on a device, without messages.

        Args:
            begin, end: places of the row.
            device: the device's number in the chain.
            kept: micro-batches whose features are kept at a time.
            weight_copies: versions of the weights.
            together: whether weights are off chip as soon as not all of them fit.

        Raises:
            DoesNotFit: they need more memory than there is.
        """

    @abc.abstractmethod
    def least_ps(self, begin: int, end: int, device: int) -> int:
        """Return a time that F and B of a micro-batch take at least: all on chip. It adds up, but
        for rounding up.
        """

    @abc.abstractmethod
    def message_bytes(self, place: int) -> int:
        """Return the bytes of a micro-batch that cross a cut, in the fuller direction."""

    @abc.abstractmethod
    def standing_bytes(self, begin: int, end: int) -> int:
        """Return the bytes of a piece's weights, gradients and the optimiser's arrays."""

    @abc.abstractmethod
    def features(self, begin: int, end: int) -> FeatureBytes:
        """Return the bytes of a micro-batch's features of a piece."""

    def redoing(self, redone: Sequence[int], *, apart: bool = False) -> Self:
        """Return the same where of each device features of at most `redone` micro-batches are there
        that were computed again: in B, or `apart` from it in R. It is itself where none are.
        """
        return self

    def tied(self, ends: Sequence[int]) -> tuple[TiedWeights, ...]:
        """Return the tied weights whose gradients stages exchange that end at these places."""
        spans = [*itertools.pairwise((0, *ends))]

        def holders(layer: Layer) -> list[int]:
            first, behind = self.starts[layer.index], self.starts[layer.index + 1]
            return [
                stage for stage, (begin, end) in enumerate(spans) if begin < behind and first < end
            ]

        return tuple(tied_between(self.heads, holders, 0))

    def layer_of(self, place: int) -> int:
        """Return the layer that begins at a place, or that the place is in."""
        return bisect.bisect_right(self.starts, place) - 1

    def said(self, begin: int, end: int) -> str:
        """Return the layers of a piece as text: `conv1_1 ... conv2_2`, with `part of` where one is
        cut.
        """
        first, last = self.layer_of(begin), self.layer_of(end - 1)
        names = [self.layers[layer] for layer in dict.fromkeys((first, last))]
        cut = begin != self.starts[first] or end != self.starts[last + 1]
        return " ... ".join(names) + " (cut within)" * cut


class BoardStages(Stages):
    """Stages on boards, by the roofline."""

    def __init__(
        self,
        network: Network,
        boards: Sequence[Board],
        samples: int,
        storage: Storage = SINGLE_STORAGE,
        shares: int = 1,
        recomputed: Collection[int] = (),
        *,
        precision: Precision | None = None,
        redone: Sequence[int] = (),
        alpha: float = 1.0,
    ) -> None:
        """Take a network, a chain's boards, a micro-batch's samples, the formats of what is stored,
        the number of replicas that share weights out, and the layers whose features are recomputed.

        A run's `precision` has the formats of messages, and says where sums need blocks of channels
        together; without one, messages are in the format of activations. By device, `redone` are
        the most micro-batches whose recomputed features are there, otherwise one; `alpha` is the
        share of engines built of DSPs.
        """
        self._recomputed = frozenset(recomputed)
        self._redone, self._apart = tuple(redone) or (1,) * len(boards), False
        self.name, self.samples = network.name, samples
        self.layers = tuple(layer.name for layer in network.layers)
        self.kinds = tuple(board.name for board in boards)
        self._network, self._boards, self._storage = network, tuple(boards), storage
        self._shares, self.heads, self._alpha = shares, network.heads, alpha
        self._precision = precision or SINGLE
        # In one format, what crosses a cut between layers is as large either way.
        alike = self._precision.is_single
        self._sent: NumberFormat | Precision = storage.activations if alike else self._precision
        channels = [cut_channels(layer) for layer in network.layers]
        macs = [layer.training_macs for layer in network.layers]
        self.starts = tuple(itertools.accumulate(channels, initial=0))
        self._macs = tuple(itertools.accumulate(macs, initial=0))
        self._of_part = functools.cache(self._part_needs)
        self._of_stage = functools.cache(self._stage)
        self._bytes_at = functools.cache(self._message_bytes)
        self._most = functools.cache(self._most_multipliers)

    @functools.cached_property
    def places(self) -> Sequence[int]:
        """See `Stages`: every channel, or every few channels where a layer has many; recurrent
        layers stay whole.

        Devices that share one exchange states within an action, and actions are timed as a whole.
        """
        ranges = []
        for layer, (first, behind) in zip(
            self._network.layers, itertools.pairwise(self.starts), strict=True
        ):
            block = channels_together(layer, self._precision)
            few = -(-max(1, (behind - first) // PIECES) // block) * block
            ranges.append(range(first, behind, behind - first if layer.operation.recurs else few))
        return [*itertools.chain.from_iterable(ranges), self.end]

    def costs(
        self,
        begin: int,
        end: int,
        device: int,
        kept: int,
        *,
        weight_copies: int = 1,
        together: bool = False,
    ) -> StageCosts:
        """See `Stages`."""
        counts = kept, self._redone[device], weight_copies
        values = *counts, together, self._apart
        stage = self._of_stage(begin, end, self._boards[device], *values)
        if isinstance(stage, StageCosts):
            return stage
        raise stage.of_stage(device)

    def least_ps(self, begin: int, end: int, device: int) -> int:
        """See `Stages`."""
        board = self._boards[device]
        work = self._work(end) - self._work(begin)
        # Rounded down, since it is a bound.
        return self.samples * work * board.period_ps // self._most(board)

    def _most_multipliers(self, board: Board) -> int:
        """Return the multipliers of the largest set of engines that a piece may have."""
        works = itertools.chain.from_iterable(map(slice_works, self.slices(0, self.end)))
        return max(board.one_set([work], self._alpha).multipliers for work in works)

    def slices(self, begin: int, end: int) -> tuple[Slice, ...]:
        """Return the slices of a piece."""
        return tuple(
            Slice(
                self._network.layers[layer],
                max(begin, self.starts[layer]) - self.starts[layer],
                min(end, self.starts[layer + 1]) - self.starts[layer],
            )
            for layer in range(self.layer_of(begin), self.layer_of(end - 1) + 1)
        )

    def message_bytes(self, place: int) -> int:
        """See `Stages`."""
        return self._bytes_at(place)

    def standing_bytes(self, begin: int, end: int) -> int:
        """See `Stages`."""
        total = Fraction(0)
        for needs in self._needs(begin, end):
            weights = needs.parameter_bytes + needs.turned_bytes
            total += Fraction(weights, needs.shares) + needs.kept_bytes
        return math.ceil(total)

    def features(self, begin: int, end: int) -> FeatureBytes:
        """See `Stages`."""
        needs = self._needs(begin, end)
        kept = self.samples * sum(kept_features(needs))
        again = self.samples * sum(part.feature_bytes for part in needs if part.recomputed)
        whole = self.samples * sum(part.feature_bytes for part in needs)
        return FeatureBytes(kept, again, kept + again, whole)

    def redoing(self, redone: Sequence[int], *, apart: bool = False) -> Self:
        """See `Stages`."""
        other = copy.copy(self)
        other._redone, other._apart = tuple(redone), apart
        return other

    def _work(self, place: int) -> int:
        """Return the multiply-accumulates of FP, EB and PG before a place, for a sample."""
        layer = self.layer_of(place)
        if place == self.starts[layer]:
            return self._macs[layer]
        channels = self.starts[layer + 1] - self.starts[layer]
        inside = (self._macs[layer + 1] - self._macs[layer]) // channels
        return self._macs[layer] + (place - self.starts[layer]) * inside

    def _message_bytes(self, place: int) -> int:
        layer = self.layer_of(place)
        if place in (0, self.end):
            return 0
        begins, sent = place == self.starts[layer], self._sent
        if begins and isinstance(sent, NumberFormat):
            return self.samples * boundary_bytes(self._network, layer - 1, sent)
        [right] = self.slices(place, self.starts[layer + 1])
        left = self._network.layers[layer - begins]
        return self.samples * cut_bytes(left, right, sent)

    def _needs(self, begin: int, end: int) -> list[PartNeeds]:
        parts = self.slices(begin, end)
        return [self._of_part(part.layer.index, part.begin, part.end) for part in parts]

    def _part_needs(self, layer: int, begin: int, end: int) -> PartNeeds:
        part, again = Slice(self._network.layers[layer], begin, end), layer in self._recomputed
        return PartNeeds.of(part, self._storage, self._shares, recomputed=again)

    def _stage(
        self,
        begin: int,
        end: int,
        board: Board,
        kept: int,
        redone: int,
        weight_copies: int,
        together: bool,
        apart: bool,
    ) -> StageCosts | DoesNotFit:
        needs = self._needs(begin, end)
        try:
            return stage_of_needs(
                needs,
                one_set(board, self.slices(begin, end), self._alpha),
                self.samples,
                kept * self.samples,
                redone=redone,
                weight_copies=weight_copies,
                parameters_together=together,
                recompute_apart=apart,
            ).costs
        # Returned, since a cache keeps no exceptions; and of no device yet, since devices with
        # equal boards share the entry. `costs` raises it.
        except DoesNotFit as shortage:
            return shortage


def one_set(board: Board, slices: Sequence[Slice], alpha: float) -> Board:
    """Return a board with one set of engines for all products of some slices (`Board.one_set`)."""
    return board.one_set(itertools.chain.from_iterable(map(slice_works, slices)), alpha)


class ProfileStages(Stages):
    """Stages on devices that a profile describes; a cut within a layer is at a 64th of it."""

    def __init__(
        self, profile: Profile, kinds: Sequence[str], samples: int, network: Network | None = None
    ) -> None:
        """Take the profile, the kinds of the chain's devices, the samples of a micro-batch, and the
        network if known.

        Raises:
            InputError: the profile has no times on a kind.
        """
        self.name, self.samples, self.kinds = profile.name, samples, tuple(kinds)
        self.layers = tuple(layer.name for layer in profile.layers)
        self.starts = tuple(range(0, PIECES * len(self.layers) + 1, PIECES))
        self._profile = profile
        if network is not None and tuple(layer.name for layer in network.layers) == self.layers:
            self.heads = network.heads
        self._sums = {
            kind: _TimeSums.of(profile.times(kind, samples)) for kind in dict.fromkeys(kinds)
        }
        self._outputs = [self._bytes(layer.output_bytes) for layer in profile.layers]
        self._features = _sums([self._bytes(layer.feature_bytes) for layer in profile.layers])
        self._parameters = _sums([layer.parameter_bytes for layer in profile.layers])

    @property
    def places(self) -> Sequence[int]:
        """See `Stages`."""
        # A profile does not say how many channels a layer has: each is cut at every 64th.
        return range(self.end + 1)

    def costs(
        self,
        begin: int,
        end: int,
        device: int,
        kept: int,
        *,
        weight_copies: int = 1,
        together: bool = False,
    ) -> StageCosts:
        """See `Stages`; a stage whose layers take no time gets a picosecond."""
        kind = self.kinds[device]
        parameters = _between(self._parameters, begin, end)
        features = _between(self._features, begin, end)
        capacity = self._profile.memory_bytes[kind]
        # One of the profile's copies is the weights, of which a schedule may keep several versions.
        needed = (weight_copies + self._profile.parameter_copies - 1) * parameters + kept * features
        if capacity is not None and needed > capacity:
            raise DoesNotFit(device, needed, capacity, "of memory", kind)
        sums = self._sums[kind]
        forward, backward = _between(sums.forward, begin, end), _between(sums.backward, begin, end)
        pg = None if sums.pg is None else min(_between(sums.pg, begin, end), backward)
        return StageCosts(
            max(forward, 1 - min(backward, 1)),
            backward,
            pg,
            feature_bytes=features,
            parameter_bytes=parameters,
        )

    def standing_bytes(self, begin: int, end: int) -> int:
        """See `Stages`."""
        return self._profile.parameter_copies * _between(self._parameters, begin, end)

    def features(self, begin: int, end: int) -> FeatureBytes:
        """See `Stages`."""
        size = _between(self._features, begin, end)
        return FeatureBytes(size, 0, size, size)

    def least_ps(self, begin: int, end: int, device: int) -> int:
        """See `Stages`."""
        sums = self._sums[self.kinds[device]]
        return (
            _in_pieces(sums.forward, begin, end) + _in_pieces(sums.backward, begin, end)
        ) // PIECES

    def message_bytes(self, place: int) -> int:
        """See `Stages`: within a layer its sums of all outputs, and the inputs that are still
        needed.
        """
        layer, inside = divmod(place, PIECES)
        if place in (0, self.end):
            return 0
        if not inside:
            return self._outputs[layer - 1]
        left = -(-self._outputs[layer - 1] * (PIECES - inside) // PIECES) if layer else 0
        return left + self._outputs[layer]

    def _bytes(self, count: int) -> int:
        return -(-count * self.samples // self._profile.bytes_of)


class _TimeSums(NamedTuple):
    """Sums of the times of layers, from the first one on; None for PG if that of a layer is not
    known.
    """

    forward: list[int]
    backward: list[int]
    pg: list[int] | None

    @classmethod
    def of(cls, times: Sequence[LayerTimes]) -> _TimeSums:
        gradients = [layer.pg_ps for layer in times if layer.pg_ps is not None]
        forward = [layer.forward_ps for layer in times]
        backward = [layer.backward_ps for layer in times]
        return cls(
            _sums(forward),
            _sums(backward),
            _sums(gradients) if len(gradients) == len(times) else None,
        )


def _sums(values: Sequence[int]) -> list[int]:
    return list(itertools.accumulate(values, initial=0))


def _between(sums: Sequence[int], begin: int, end: int) -> int:
    """Return the sum between two places, rounded up."""
    return -(-_in_pieces(sums, begin, end) // PIECES)


def _in_pieces(sums: Sequence[int], begin: int, end: int) -> int:
    """Return the sum between two places, in parts of which each is a 64th."""
    return _before(sums, end) - _before(sums, begin)


def _before(sums: Sequence[int], place: int) -> int:
    layer, inside = divmod(place, PIECES)
    more = (sums[layer + 1] - sums[layer]) * inside if inside else 0
    return PIECES * sums[layer] + more
