"""Collectives as data: each passes its dry run on any number of ranks, and what loses or doubles a
piece, or is no step, is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Interconnect, Topology, TopologyError, topologies
from emuchain.comm.collective import (
    Collective,
    CollectiveError,
    Phase,
    as_text,
    check,
    collective_of,
    collectives,
    phases_of,
)

ALL = pytest.mark.parametrize("name", [*collectives()])


@dataclasses.dataclass(frozen=True)
class Given(Collective):
    """A collective of given phases."""

    name: ClassVar[str] = "given"
    given: tuple[Phase, ...] = ()

    def phases(self, ranks: int, topology: Topology | None = None) -> list[Phase]:
        return [*self.given]


@ALL
@given(ranks=st.integers(1, 24))
def test_each_ends_with_everything_once(name: str, ranks: int) -> None:
    collective = collectives()[name]()
    if collective.problem(ranks) is None:
        check(collective, ranks)
    else:
        with pytest.raises(CollectiveError, match="ranks"):
            check(collective, ranks)


@ALL
@pytest.mark.parametrize("topology", [*topologies()])
def test_each_does_on_any_topology(name: str, topology: str) -> None:
    collective = collectives()[name]()
    for ranks in (4, 8, 16):
        over = Interconnect(1, 1, topology=topologies()[topology])
        try:
            laid = over.among(collective.nodes(ranks)).topology
        except TopologyError:
            continue
        check(collective, ranks, laid)


def without_a_step(phases: Iterable[Phase]) -> list[Phase]:
    first, *rest = phases
    [steps, *rounds] = first.rounds
    return [first._replace(rounds=[steps[1:], *rounds]), *rest]


def with_a_round_twice(phases: Iterable[Phase]) -> list[Phase]:
    first, *rest = phases
    return [first._replace(rounds=[first.rounds[0], *first.rounds]), *rest]


@ALL
def test_what_loses_a_message_is_refused(name: str) -> None:
    collective = collectives()[name]()
    phases = without_a_step(check(collective, 4))
    Faulty = dataclasses.make_dataclass(
        "Faulty",
        [],
        bases=(type(collective),),
        frozen=True,
        namespace={"phases": lambda *_: phases},
    )
    with pytest.raises(CollectiveError, match="does not have|more than once"):
        check(Faulty(), 4)


@pytest.mark.parametrize(
    "name", ["ring", "rings", "tree", "doubling", "halving-doubling", "linear"]
)
def test_what_adds_twice_is_refused(name: str) -> None:
    phases = with_a_round_twice(check(collectives()[name](), 4))
    with pytest.raises(CollectiveError, match="more than once the part of rank"):
        check(Given(tuple(phases)), 4)


@ALL
def test_text_is_read_back(name: str) -> None:
    phases = check(collectives()[name](), 4)
    [*read] = phases_of(as_text(phases))
    assert as_text(read) == as_text(phases)
    assert [phase.pieces for phase in read] == [phase.pieces for phase in phases]


def test_the_drawing_of_recursive_doubling() -> None:
    assert as_text(check(collective_of("doubling"), 4)) == (
        "pieces 1\n0>1 0 add, 1>0 0 add, 2>3 0 add, 3>2 0 add\n"
        "0>2 0 add, 1>3 0 add, 2>0 0 add, 3>1 0 add"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0>1 0 add", "line 1: '0>1 0 add' should be `pieces` and their number"),
        ("pieces 1\n0-1 0", "line 2: '0-1 0' should be a step such as `0>1 0-3 add`"),
        ("pieces 1\n0>1 0, ", "line 2: '' should be a step"),
        ("pieces 1\n0>2 0", "round 1: 0>2 0: should be between two of 2 nodes"),
        ("pieces 1\n0>0 0", "round 1: 0>0 0: should be between two of 2 nodes"),
        ("pieces 1\n0>1 1", "round 1: 0>1 1: should have some of 1 pieces"),
        ("pieces 2\n0>1 0-1 add\n1>0 0", "rank 0, piece 1 does not have the part of rank 1"),
    ],
)
def test_wrong_steps_are_named(text: str, message: str) -> None:
    with pytest.raises(CollectiveError) as error:
        check(Given(tuple(phases_of(text))), 2)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_groups_are_a_key() -> None:
    assert collective_of("rings:groups=2").phases(8)[0].pieces == 4
    with pytest.raises(CollectiveError, match="rings of 3 groups needs a multiple of as many"):
        check(collective_of("rings:groups=3"), 8)
    with pytest.raises(ValueError, match="should be one of"):
        collective_of("rinx")


def test_a_comment_may_have_semicolons() -> None:
    steps = "pieces 1\n0>1 0 add\n1>0 0"
    commented = f"# up; then down\n{steps}\n  # done; really\n"
    assert phases_of(commented) == phases_of(steps) == phases_of(steps.replace("\n", "; "))
