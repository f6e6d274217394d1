"""Stages on devices that a profile describes: sums of the times of layers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from ..schedule import StageCosts
from .profile import LayerTimes, Profile
from .roofline import DoesNotFit
from .stages import PIECES, Stages


class ProfileStages(Stages):
    """Stages on devices that a profile describes; a cut within a layer is at a 64th of it."""

    def __init__(self, profile: Profile, kinds: Sequence[str], samples: int) -> None:
        """Take the profile, the kinds of the chain's devices, and the samples of a micro-batch.

        Raises:
            InputError: the profile has no times on a kind.
        """
        self.name, self.samples, self.kinds = profile.name, samples, tuple(kinds)
        self.layers = tuple(layer.name for layer in profile.layers)
        self.starts = tuple(range(0, PIECES * len(self.layers) + 1, PIECES))
        self._profile = profile
        self._sums = {kind: _TimeSums.of(profile.times(kind, samples)) for kind in dict.fromkeys(kinds)}
        self._outputs = [self._bytes(layer.output_bytes) for layer in profile.layers]
        self._features = _sums([self._bytes(layer.feature_bytes) for layer in profile.layers])
        self._parameters = _sums([layer.parameter_bytes for layer in profile.layers])

    @property
    def places(self) -> Sequence[int]:
        """See `Stages`."""
        return range(self.end + 1)

    def costs(
        self, begin: int, end: int, device: int, kept: int, *, weight_copies: int = 1, together: bool = False
    ) -> StageCosts:
        """See `Stages`; a stage whose layers take no time gets a picosecond."""
        kind = self.kinds[device]
        parameters = _between(self._parameters, begin, end)
        features = _between(self._features, begin, end)
        capacity = self._profile.memory_bytes[kind]
        needed = (weight_copies + self._profile.parameter_copies - 1) * parameters + kept * features
        if capacity is not None and needed > capacity:
            raise DoesNotFit(device, needed, capacity, "of memory", kind)
        sums = self._sums[kind]
        forward, backward = _between(sums.forward, begin, end), _between(sums.backward, begin, end)
        pg = None if sums.pg is None else min(_between(sums.pg, begin, end), backward)
        return StageCosts(
            max(forward, 1 - min(backward, 1)), backward, pg, feature_bytes=features, parameter_bytes=parameters
        )

    def least_ps(self, begin: int, end: int, device: int) -> int:
        """See `Stages`."""
        sums = self._sums[self.kinds[device]]
        return (_in_pieces(sums.forward, begin, end) + _in_pieces(sums.backward, begin, end)) // PIECES

    def message_bytes(self, place: int) -> int:
        """See `Stages`: within a layer its sums of all outputs, and the inputs that are still needed."""
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
    """Sums of the times of layers, from the first one on; None for PG if that of a layer is not known."""

    forward: list[int]
    backward: list[int]
    pg: list[int] | None

    @classmethod
    def of(cls, times: Sequence[LayerTimes]) -> _TimeSums:
        gradients = [each.pg_ps for each in times if each.pg_ps is not None]
        return cls(
            _sums([each.forward_ps for each in times]),
            _sums([each.backward_ps for each in times]),
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
