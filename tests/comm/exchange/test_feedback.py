"""Error feedback: what a codec drops of a sender's gradients comes with the next ones, as plain
NumPy has it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.comm import COMPRESSIBLE_TOS
from emuchain.comm.exchange import DataParallel, Gradient, Nic
from emuchain.kernels.codec import Codec, NoCodec, parse_codec

from .replicas import SWITCH, Kind, Replicas, gradients_of

Values = np.ndarray
Lossy = Callable[[Values], Values]


class Sender:
    """A row of what was lost, by the places of a message in it (Seide et al., 2014)."""

    def __init__(self, count: int, lossy: Lossy) -> None:
        self.lost, self._lossy = np.zeros(count, np.float32), lossy

    def __call__(self, places: slice, values: Values) -> Values:
        wanted = values + self.lost[places]
        came = self._lossy(wanted)
        self.lost[places] = wanted - came
        return came


def largest(share: float) -> Lossy:
    """Keep that share of the values, the largest ones, and of equal ones the first."""

    def lossy(values: Values) -> Values:
        places = np.argsort(-np.abs(values), kind="stable")[: int(np.ceil(share * len(values)))]
        kept = np.zeros_like(values)
        kept[places] = values[places]
        return kept

    return lossy


def halves(values: Values) -> Values:
    """Drop the lower half of each number's bits."""
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


CODECS: dict[str, Lossy] = {
    "topk:0.1": largest(0.1),
    "topk:0.5": largest(0.5),
    "truncate:16": halves,
}


def blocks_of(count: int, workers: int) -> list[slice]:
    """The places of a ring's blocks."""
    bounds = np.cumsum(
        [0, *(count // workers + (block < count % workers) for block in range(workers))]
    )
    return [slice(*bounds[block : block + 2]) for block in range(workers)]


def ring(senders: list[Sender], gradients: list[Values]) -> Values:
    """The sum that begins, for each block, at the worker of its number; its last worker sends it to
    all.
    """
    total, workers = np.empty_like(gradients[0]), len(senders)
    if workers == 1:
        return gradients[0]
    for block, places in enumerate(blocks_of(len(total), workers)):
        part = gradients[block][places]
        for step in range(workers - 1):
            sent = senders[(block + step) % workers](places, part)
            part = sent + gradients[(block + step + 1) % workers][places]
        total[places] = senders[block - 1](places, part)
    return total


class Exchange:
    """All senders of an exchange, by phase."""

    def __init__(self, of: DataParallel, count: int, lossy: Lossy) -> None:
        self.of = of
        self.members, self.leaders, self.roots = (
            [Sender(count, lossy) for _ in range(of.replicas)] for _ in range(3)
        )

    def total(self, gradients: Values) -> Values:
        """The sum of the replicas' gradients."""
        of, whole = self.of, slice(None)
        rows, tops = list(gradients), self.members
        if of.groups > 1:
            firsts = range(0, of.replicas, of.members)
            groups = [range(first, first + of.members) for first in firsts]
            rows = [
                ring([self.members[i] for i in group], [gradients[i] for i in group])
                for group in groups
            ]
            tops = [self.leaders[first] for first in firsts]
        if of.exchange == "aggregator":
            total = tops[0](whole, rows[0])
            for sender, row in zip(tops[1:], rows[1:], strict=True):
                total = sender(whole, row) + total
            return total
        total = ring(tops, rows)
        return self.roots[0](whole, total) if of.groups > 1 and of.members > 1 else total


@settings(max_examples=60, deadline=None)
@given(
    groups=st.integers(1, 3),
    members=st.integers(1, 4),
    exchange=st.sampled_from(["ring", "aggregator"]),
    codec=st.sampled_from([*CODECS]),
    count=st.integers(12, 60),
    seed=st.integers(0, 99),
)
def test_sums_are_those_of_plain_numpy(
    groups: int, members: int, exchange: Kind, codec: str, count: int, seed: int
) -> None:
    of = DataParallel(groups * members, groups, exchange, parse_codec(codec), feedback=True)
    replicas, plain = (
        Replicas(of, SWITCH, count, with_data=True),
        Exchange(of, count, CODECS[codec]),
    )
    for turn in range(4):
        gradients = gradients_of(of.replicas, count, seed + turn)
        outcome = replicas.run(gradients, [[0] * of.replicas])
        expected = plain.total(gradients)
        for values in outcome.values:
            assert np.array_equal(values, expected)


@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
def test_nothing_is_lost_for_good(exchange: Kind) -> None:
    """The sum of all totals and of what is still kept is that of all gradients."""
    of = DataParallel(3, 1, exchange, parse_codec("topk:0.1"), feedback=True)
    replicas, sums, given_sums = (
        Replicas(of, SWITCH, 50, with_data=True),
        np.zeros(50),
        np.zeros(50),
    )
    for turn in range(20):
        gradients = gradients_of(3, 50, turn)
        sums += replicas.run(gradients, [[0] * 3]).values[0]
        given_sums += gradients.sum(axis=0, dtype=float)
    kept = sum(row.values.astype(float) for nic in replicas.nics for row in nic.residuals)  # type: ignore[union-attr]
    np.testing.assert_allclose(sums + kept, given_sums, atol=1e-5)
    assert np.abs(kept).max() > 0.1


@pytest.mark.parametrize("codec", [NoCodec(), parse_codec("topk:1")])
def test_without_losses_nothing_is_kept(codec: Codec) -> None:
    gradients = gradients_of(4, 30)
    of = DataParallel(4, codec=codec)
    plain = Replicas(of, SWITCH, 30, with_data=True).run(gradients, [[0] * 4, [0] * 4])
    fed = Replicas(DataParallel(4, codec=codec, feedback=True), SWITCH, 30, with_data=True)
    outcome = fed.run(gradients, [[0] * 4, [0] * 4])
    assert outcome.values[0].tobytes() == plain.values[0].tobytes() and outcome.turns == plain.turns
    assert not any(np.any(row.values) for nic in fed.nics for row in nic.residuals)  # type: ignore[arg-type]


def test_what_is_not_finite_leaves_nothing_behind() -> None:
    nic = Nic(SWITCH, parse_codec("topk:0.5"))
    residual = nic.residual(4)
    with np.errstate(invalid="ignore"):
        nic.pack(
            Gradient(4, np.float32([np.nan, np.inf, 1, 2])), COMPRESSIBLE_TOS, residual=residual
        )
    assert residual.values is not None and residual.values.tolist() == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("groups", "exchange", "rows"),
    [(1, "ring", 1), (1, "aggregator", 1), (2, "ring", 3), (2, "aggregator", 2)],
)
def test_rows_that_are_planned_are_those_that_are_kept(
    groups: int, exchange: Kind, rows: int
) -> None:
    of = DataParallel(4, groups, exchange, parse_codec("topk:0.1"), feedback=True)
    nics = Replicas(of, SWITCH, 8, with_data=True).nics
    assert of.residuals == rows == len(nics[0].residuals) == max(len(nic.residuals) for nic in nics)
    assert not any(nic.residuals for nic in Replicas(of, SWITCH, 8, with_data=False).nics)
