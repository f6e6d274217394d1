"""Faults as data: which board or link is hurt, how, and over which span."""

from __future__ import annotations

import dataclasses
import fractions
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from ..common import FINITE, Nanoseconds, NotNegative, Positive
from .death import BoardDeath, joined_links
from .span import Span

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

    Rows take `factor` times as long and arrive `latency_ns` later. Packets of `packet_bytes` are lost with the
    probability `loss`; each lost one is sent again after `timeout_ns`, by default two latencies of the link.
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
            raise ValueError(f"`timeout_ns` = {self.timeout_ns:g}: applies to lost packets; add `loss`, such as 0.01")

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
    """Bits that flip, each with the probability `rate`, from bit `lowest_bit` to `highest_bit` of a float32.

    Of weights after each update, of activations as a slice's FP takes them in, of messages between the chain's boards,
    or of the bytes in which replicas exchange gradients. Without `board` or `link`, on all.
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
            raise ValueError("`lowest_bit` and `highest_bit` are of float32, and gradients flip as bytes in transit")
        if self.highest_bit < self.lowest_bit:
            raise ValueError(f"`highest_bit` = {self.highest_bit}: is below `lowest_bit` = {self.lowest_bit}")

    def __str__(self) -> str:
        where = f"link {self.link}" if self.link is not None else "all links"
        if self.of != "messages":
            where = f"board {self.board}" if self.board is not None else "all boards"
        return f"bits of {self.of} on {where} flip at {self.rate:g}"


@dataclasses.dataclass(frozen=True)
class Faults:
    """All faults of a run; `seed` is the run's where the file gives none.

    With `compare`, a run that trains with flips is trained once more without, for what they cost in accuracy.
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

    def flipping(self, of: FlipTarget) -> tuple[tuple[int, FlipFault], ...]:
        """Return the flips of a kind, each with its place in `flips`, on which its bits depend; none at rate 0."""
        return tuple((place, fault) for place, fault in enumerate(self.flips) if fault.of == of and fault.rate)

    @property
    def without_flips(self) -> Faults:
        """These faults but for flips."""
        return dataclasses.replace(self, flips=())

    @property
    def deaths_alone(self) -> Faults:
        """The boards that die, and no other faults."""
        return Faults(deaths=self.deaths, seed=self.seed)

    def alone(self, fault: BoardFault | LinkFault) -> Faults:
        """Return these faults with one that slows something down, alone; what another one draws does not change.

        All others in `links` lose nothing, and keep the place of this one.
        """
        links = tuple(each if each is fault else LinkFault(link=each.link) for each in self.links)
        boards = tuple(each for each in self.boards if each is fault)
        links = links if fault in self.links else ()
        return dataclasses.replace(self, boards=boards, links=links, flips=(), deaths=())

    def among(self, alive: Sequence[int]) -> Faults:
        """Return what hurts a chain of the boards `alive`, by their new numbers; none of them dies.

        What hurts a link hurts the one that has taken its place.
        """
        board_of = {board: number for number, board in enumerate(alive)}
        link_of = {link: number for number, links in enumerate(joined_links(alive)) for link in links}
        boards = tuple(_renamed(fault, board=board_of) for fault in self.boards if fault.board in board_of)
        links = tuple(_renamed(fault, link=link_of) for fault in self.links if fault.link in link_of)
        flips = tuple(
            _renamed(fault, board=board_of, link=link_of)
            for fault in self.flips
            if fault.board in {None, *board_of} and fault.link in {None, *link_of}
        )
        return dataclasses.replace(self, boards=boards, links=links, flips=flips, deaths=())


def _renamed(fault: Any, **numbers: dict[int, int]) -> Any:
    """Return a fault with the new numbers of its board and link, where it has them."""
    new = {key: of.get(getattr(fault, key)) for key, of in numbers.items()}
    return dataclasses.replace(fault, **new)


def exact(factor: float) -> fractions.Fraction:
    """Return a factor as it is written, so that 1.1 times 10 is 11."""
    return fractions.Fraction(repr(factor))
