"""Faults as data: which board or link is hurt, how, and over which span; and boards that die.

Samples of a span are those that a chain takes in, counted from 0 at the start of training. A row is
inside a span of time if its start is. Where a board dies, the others notice it, are cut anew,
loaded, and resume from the last checkpoint.
"""

from __future__ import annotations

import dataclasses
import fractions
import itertools
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from ..common import FINITE, Nanoseconds, NotNegative, Positive, format_time_ps

Microseconds = Annotated[float, FINITE, Ge(0), Le(1e12)]
"""A virtual time, or a duration."""


def picoseconds(time_us: float) -> int:
    """Return a time in ps."""
    return round(time_us * 1_000_000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Span:
    """A span of a run: from a sample or a time on, up to another one, which is no longer in it.

    Raises:
        ValueError: it ends before it begins.
    """

    from_sample: NotNegative = 0
    to_sample: NotNegative | None = None
    from_us: Microseconds = 0.0
    to_us: Microseconds | None = None

    def __post_init__(self) -> None:
        if self.to_sample is not None and self.to_sample <= self.from_sample:
            raise ValueError(
                f"`to_sample` = {self.to_sample}: should be after `from_sample` ="
                f" {self.from_sample}"
            )
        if self.to_us is not None and self.to_us <= self.from_us:
            raise ValueError(
                f"`to_us` = {self.to_us:g}: should be after `from_us` = {self.from_us:g}"
            )

    @property
    def bounds_ps(self) -> tuple[int, int | None]:
        """The span of time in ps: its begin, and its end, if it has one."""
        return picoseconds(self.from_us), None if self.to_us is None else picoseconds(self.to_us)

    def has_sample(self, sample: int) -> bool:
        """Return whether a sample is inside."""
        return self.from_sample <= sample and (self.to_sample is None or sample < self.to_sample)

    def has_time(self, time_ps: int) -> bool:
        """Return whether a time in ps is inside."""
        begin_ps, end_ps = self.bounds_ps
        return begin_ps <= time_ps and (end_ps is None or time_ps < end_ps)

    @property
    def when(self) -> str:
        """Its samples and times, as text."""
        words = []
        if self.from_sample or self.to_sample is not None:
            last = "on" if self.to_sample is None else f"to {self.to_sample - 1}"
            words.append(f"samples {self.from_sample} {last}")
        if self.from_us or self.to_us is not None:
            end = "on" if self.to_us is None else f"to {self.to_us:g} us"
            words.append(f"{self.from_us:g} us {end}")
        return ", ".join(words) or "the whole run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoardDeath:
    """A board that dies at a virtual time and stays dead.

    All others stop: what they have computed since the last checkpoint is lost. They notice it
    `detect_us` later, and have their new slices, configured and loaded, `reload_us` after that.
    """

    board: NotNegative
    at_us: Microseconds
    detect_us: Microseconds = 1e6
    reload_us: Microseconds = 1e6

    @property
    def at_ps(self) -> int:
        """When it dies, in ps."""
        return picoseconds(self.at_us)

    @property
    def detect_ps(self) -> int:
        """Time in ps from then until the others notice it."""
        return picoseconds(self.detect_us)

    @property
    def reload_ps(self) -> int:
        """Time in ps in which the others are configured anew and loaded."""
        return picoseconds(self.reload_us)

    def __str__(self) -> str:
        return f"board {self.board} dies at {format_time_ps(self.at_ps)}"


def left_alive(boards: int, dead: Sequence[BoardDeath]) -> list[int]:
    """Return the boards of a chain that are left, in its order."""
    gone = {death.board for death in dead}
    return [board for board in range(boards) if board not in gone]


def joined_links(alive: Sequence[int]) -> list[range]:
    """Return for each link between boards that are left the former links that it consists of."""
    return [range(left, right) for left, right in itertools.pairwise(alive)]


NO_FAULTS = "none"
"""In place of a file of faults."""

Slowdown = Annotated[float, FINITE, Ge(1), Le(1e4)]
"""How many times as long something takes."""

Probability = Annotated[float, FINITE, Ge(0), Le(1)]
LossRate = Annotated[float, FINITE, Ge(0), Le(0.99)]
Bit = Annotated[int, Ge(0), Le(31)]
FlipTarget = Literal["weights", "activations", "messages", "gradients"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoardFault(Span):
    """A board whose engines and memory port take `factor` times as long."""

    board: NotNegative
    factor: Slowdown

    def __str__(self) -> str:
        return f"board {self.board} {self.factor:g} times slower, {self.when}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinkFault(Span):
    """The link between boards `link` and `link + 1`, in both directions.

    Rows take `factor` times as long and arrive `latency_ns` later. Packets of `packet_bytes` are
    lost with the probability `loss`; each lost one is sent again after `timeout_ns`, by default two
    latencies of the link.
    """

    link: NotNegative
    factor: Slowdown = 1.0
    latency_ns: Nanoseconds = 0.0
    loss: LossRate = 0.0
    packet_bytes: Positive = 1500
    timeout_ns: Nanoseconds | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.timeout_ns is not None and not self.loss:
            raise ValueError(
                f"`timeout_ns` = {self.timeout_ns:g}: applies to lost packets; add `loss`, such as"
                " 0.01"
            )

    @property
    def latency_ps(self) -> int:
        """What rows arrive later, in ps."""
        return round(self.latency_ns * 1000)

    def __str__(self) -> str:
        words = [f"{self.factor:g} times slower"] if self.factor > 1 else []
        words += [f"{self.latency_ns:g} ns later"] if self.latency_ns else []
        words += [f"loses {100 * self.loss:g} % of packets"] if self.loss else []
        return f"link {self.link} {', '.join(words) or 'unhurt'}, {self.when}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlipFault:
    """Bits that flip, each with the probability `rate`, from bit `lowest_bit` to `highest_bit` of a
    float32, or those of them that codes and scales of a narrow format have.

    Of weights after each update, of activations as a slice's FP takes them in, of messages between
    the chain's boards, or of the bytes in which replicas exchange gradients. Without `board` or
    `link`, on all.
    """

    of: FlipTarget
    rate: Probability
    board: NotNegative | None = None
    link: NotNegative | None = None
    lowest_bit: Bit = 0
    highest_bit: Bit = 31

    def __post_init__(self) -> None:
        if self.link is not None and self.of != "messages":
            raise ValueError(f"`link` = {self.link}: {self.of} are on a board; should be `board`")
        if self.board is not None and self.of == "messages":
            raise ValueError(f"`board` = {self.board}: messages are on a link; should be `link`")
        if self.of == "gradients" and (self.lowest_bit, self.highest_bit) != (0, 31):
            raise ValueError(
                "`lowest_bit` and `highest_bit` are of float32, and gradients flip as bytes in"
                " transit"
            )
        if self.highest_bit < self.lowest_bit:
            raise ValueError(
                f"`highest_bit` = {self.highest_bit}: is below `lowest_bit` = {self.lowest_bit}"
            )

    def __str__(self) -> str:
        where = f"link {self.link}" if self.link is not None else "all links"
        if self.of != "messages":
            where = f"board {self.board}" if self.board is not None else "all boards"
        return f"bits of {self.of} on {where} flip at {self.rate:g}"


@dataclasses.dataclass(frozen=True)
class Faults:
    """All faults of a run; `seed` is the run's where the file gives none.

    With `compare`, a run that trains with flips is trained once more without, for what they cost in
    accuracy.
    """

    boards: tuple[BoardFault, ...] = ()
    links: tuple[LinkFault, ...] = ()
    flips: tuple[FlipFault, ...] = ()
    seed: int | None = None
    compare: bool = True
    deaths: tuple[BoardDeath, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything is hurt."""
        return bool(self.boards or self.links or self.flips or self.deaths)

    @property
    def slowing(self) -> tuple[BoardFault | LinkFault, ...]:
        """Those that slow boards and links down."""
        return (*self.boards, *self.links)

    @property
    def in_time(self) -> tuple[BoardFault | LinkFault | BoardDeath, ...]:
        """Those that cost time."""
        return (*self.slowing, *self.deaths)

    @property
    def in_order(self) -> tuple[BoardDeath, ...]:
        """The deaths in the order of time."""
        return tuple(sorted(self.deaths, key=lambda death: (death.at_ps, death.board)))

    @property
    def text(self) -> str:
        """Their description, as JSON with the keys of `[faults]`."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def slow(self, board: int) -> tuple[BoardFault, ...]:
        """Return what slows down a board."""
        return tuple(fault for fault in self.boards if fault.board == board)

    def on_link(self, link: int) -> tuple[tuple[int, LinkFault], ...]:
        """Return what hurts a link, each with its place in `links`, on which its losses depend."""
        return tuple((place, fault) for place, fault in enumerate(self.links) if fault.link == link)

    def flipping(self, target: FlipTarget) -> tuple[tuple[int, FlipFault], ...]:
        """Return the flips of a kind, each with its place in `flips`, on which its bits depend;
        none at rate 0.
        """
        return tuple(
            (place, fault)
            for place, fault in enumerate(self.flips)
            if fault.of == target and fault.rate
        )

    @property
    def without_flips(self) -> Faults:
        """These faults but for flips."""
        return dataclasses.replace(self, flips=())

    @property
    def deaths_alone(self) -> Faults:
        """The boards that die, and no other faults."""
        return Faults(deaths=self.deaths, seed=self.seed)

    def alone(self, fault: BoardFault | LinkFault) -> Faults:
        """Return these faults with one that slows something down, alone; what another one draws
        does not change.

        All others in `links` lose nothing, and keep the place of this one.
        """
        links = tuple(link if link is fault else LinkFault(link=link.link) for link in self.links)
        boards = tuple(board for board in self.boards if board is fault)
        links = links if fault in self.links else ()
        return dataclasses.replace(self, boards=boards, links=links, flips=(), deaths=())

    def among(self, alive: Sequence[int]) -> Faults:
        """Return what hurts a chain of the boards `alive`, by their new numbers; none of them dies.

        What hurts a link hurts the one that has taken its place.
        """
        board_of = {board: number for number, board in enumerate(alive)}
        link_of = {
            link: number for number, links in enumerate(joined_links(alive)) for link in links
        }
        boards = tuple(
            _renamed(fault, board=board_of) for fault in self.boards if fault.board in board_of
        )
        links = tuple(
            _renamed(fault, link=link_of) for fault in self.links if fault.link in link_of
        )
        flips = tuple(
            _renamed(fault, board=board_of, link=link_of)
            for fault in self.flips
            if fault.board in {None, *board_of} and fault.link in {None, *link_of}
        )
        return dataclasses.replace(self, boards=boards, links=links, flips=flips, deaths=())


def _renamed(fault: Any, **numbers: dict[int, int]) -> Any:
    """Return a fault with the new numbers of its board and link, where it has them."""
    new = {key: number_of.get(getattr(fault, key)) for key, number_of in numbers.items()}
    return dataclasses.replace(fault, **new)


def exact(factor: float) -> fractions.Fraction:
    """Return a factor as it is written, so that 1.1 times 10 is 11."""
    return fractions.Fraction(repr(factor))
