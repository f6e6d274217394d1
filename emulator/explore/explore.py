"""The exploration: every schedule and micro-batch on the cut that suits it, timed; which is best,
by what, until when.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from ..common import InputError
from ..profile import Stages
from ..schedule import Backward, Machine, PipelineKind, Transport
from .bounds import all_cuts_ps, cuts_between_layers_ps
from .candidates import Candidate, Wires, data_parallel, kind_of_order, pipelined, searched
from .partition import Demand, Pieces
from .search import Search

_FINEST = 100
"""The bandwidth at which the winner changes is found to a part in this many."""
FURTHEST = 1024
"""Bandwidths are tried by powers of two, from the cluster's own over this to as much times it."""


@dataclasses.dataclass(frozen=True)
class Question:
    """What is explored.

    `stages_of` gives the stages for a number of samples in a micro-batch; `micro_batches` are the
    numbers to try, each a divisor of `batch`; `schedules` are kinds with the machine that runs
    them. In data parallelism all weights of a device are on chip or all are not, if
    `weights_together`; else as many as fit, as a run has them. Without `replicas` it is left out.
    Orders are searched as `searches` say, with R where there are stages `again_of` some samples. No
    device takes more than `memory_bytes`.
    """

    stages_of: Callable[[int], Stages]
    wires: Wires
    batch: int
    micro_batches: tuple[int, ...]
    schedules: tuple[tuple[PipelineKind, Machine], ...]
    whole_layers: bool = False
    weights_together: bool = True
    replicas: bool = True
    searches: tuple[tuple[Search, Machine], ...] = ()
    memory_bytes: int | None = None
    again_of: Callable[[int], Stages] | None = None

    @property
    def is_of_one(self) -> bool:
        """Whether there is no other candidate to compare a schedule with."""
        return not self.replicas and len(self.schedules) + len(self.searches) == 1

    def machine_of(self, candidate: Candidate) -> Machine | None:
        """Return how the devices work under a candidate; None under data parallelism."""
        machines = {kind.name: machine for kind, machine in self.schedules}
        machines |= {search.name: machine for search, machine in self.searches}
        return machines.get(candidate.name)

    def bounds_work(self, candidate: Candidate) -> bool:
        """Return whether all work is the only bound known of a candidate: of replicas, and where W
        is apart.
        """
        machine = self.machine_of(candidate)
        return machine is None or machine.backward is Backward.SPLIT


@dataclasses.dataclass(frozen=True)
class Turn:
    """Where another candidate wins: at a value of a parameter, and beyond."""

    parameter: str
    value: float
    winner: str


@dataclasses.dataclass(frozen=True)
class Exploration:
    """All candidates from the best to the worst, and a bound in ps of the winner's mini-batch over
    all cuts.

    `runner_up` is the best of another name than the winner, None if there is none. `turn` is the
    nearest bandwidth of the links with another winner or, where no bandwidth tried has one, the
    mini-batch that is halved until another one wins; None if there is none.
    """

    candidates: tuple[Candidate, ...]
    winner: Candidate
    runner_up: Candidate | None
    bound_ps: int
    turn: Turn | None

    @property
    def best_cut(self) -> Candidate | None:
        """The winner or, if it has no cut, the best candidate with one."""
        return next(
            (candidate for candidate in self.candidates if candidate.partition is not None), None
        )

    @property
    def gap(self) -> float:
        """By how much the winner's time exceeds the bound; 0.01 is 1 %."""
        assert self.winner.time_ps is not None
        return self.winner.time_ps / self.bound_ps - 1

    @property
    def margin(self) -> float | None:
        """By how much the runner-up's time exceeds the winner's."""
        if self.runner_up is None or self.runner_up.time_ps is None or self.winner.time_ps is None:
            return None
        return self.runner_up.time_ps / self.winner.time_ps - 1


def micro_batches_of(batch: int) -> tuple[int, ...]:
    """Return the samples of a micro-batch that are tried: powers of two that divide the
    mini-batch.
    """
    return tuple(1 << power for power in range(batch.bit_length()) if batch % (1 << power) == 0)


def explore(question: Question) -> Exploration:
    """Return the best way to train a mini-batch, and all others.

    Raises:
        InputError: there are more devices than layers, or nothing fits.
    """
    every = (
        candidate
        for samples in question.micro_batches
        for candidate in _candidates(question, samples)
    )
    candidates = sorted(every, key=lambda candidate: candidate.rank)
    fitting = [candidate for candidate in candidates if candidate.time_ps is not None]
    if not fitting:
        raise InputError(candidates[0].why_not)
    winner = fitting[0]
    return Exploration(
        tuple(candidates),
        winner,
        next((candidate for candidate in fitting if candidate.name != winner.name), None),
        _bound_ps(question, winner),
        _turn(question, winner),
    )


def _candidates(
    question: Question, samples: int, better_than_ps: int | None = None
) -> Iterator[Candidate]:
    """Yield the candidates with micro-batches of some samples, but for those that cannot be as fast
    as is given.
    """
    stages, count = question.stages_of(samples), question.batch // samples
    whole = question.whole_layers
    for kind, machine in question.schedules:
        candidate = pipelined(
            kind,
            machine,
            stages,
            question.wires,
            count,
            whole_layers=whole,
            better_than_ps=better_than_ps,
            memory_bytes=question.memory_bytes,
        )
        if candidate is not None:
            yield candidate
    for search, machine in question.searches:
        yield searched(
            search,
            machine,
            stages,
            question.wires,
            count,
            whole_layers=whole,
            memory_bytes=question.memory_bytes,
            again=None if question.again_of is None else question.again_of(samples),
        )
    if question.replicas:
        yield data_parallel(
            stages,
            question.wires,
            count,
            together=question.weights_together,
            memory_bytes=question.memory_bytes,
        )


def time_again(question: Question, candidate: Candidate) -> int:
    """Return the time in ps of a candidate that fits, on its cut, with the devices and links of a
    question.
    """
    stages, count = question.stages_of(candidate.samples), candidate.micro_batches
    again: Candidate | None
    if candidate.partition is None:
        again = data_parallel(stages, question.wires, count, together=question.weights_together)
    else:
        machine = question.machine_of(candidate)
        assert machine is not None
        named = (kind for kind, _ in question.schedules if kind.name == candidate.name)
        kind = next(named) if candidate.order is None else kind_of_order(candidate.order)
        if kind.recomputes and question.again_of is not None:
            stages = question.again_of(candidate.samples)
        again = pipelined(kind, machine, stages, question.wires, count, cut_as=candidate.partition)
    assert again is not None and again.time_ps is not None
    return again.time_ps


def _best(question: Question) -> Candidate | None:
    """Return the winner alone, without the timelines of those that cannot be it."""
    best: list[Candidate] = []
    for samples in question.micro_batches:
        best += _candidates(question, samples, best[0].time_ps if best else None)
        fitting = (candidate for candidate in best if candidate.time_ps is not None)
        best = sorted(fitting, key=lambda candidate: candidate.rank)[:1]
    return best[0] if best else None


def _bound_ps(question: Question, winner: Candidate) -> int:
    """Return a bound of the winner's mini-batch over all cuts that were allowed, or of all work
    (`bounds_work`).
    """
    stages = question.stages_of(winner.samples)
    machine = question.machine_of(winner)
    stored = machine is not None and machine.transport is Transport.STORED
    pieces = Pieces(stages, question.wires.links, Demand((1,) * stages.devices))
    if question.bounds_work(winner):
        rates = sum(
            1 / max(1, stages.least_ps(0, stages.end, device)) for device in range(stages.devices)
        )
        return int(winner.micro_batches / rates)
    if question.whole_layers:
        return cuts_between_layers_ps(pieces, winner.micro_batches, stored=stored)
    return all_cuts_ps(pieces, winner.micro_batches, stored=stored)


def _turn(question: Question, winner: Candidate) -> Turn | None:
    """Return the nearest bandwidth of all links, or else mini-batch, with another winner; of
    equally near the lower.
    """

    def name(other: Question) -> str:
        return (_best(other) or winner).name

    def of_links(factor: float) -> str:
        return name(dataclasses.replace(question, wires=question.wires.times(factor)))

    if question.is_of_one:
        return None
    for power in range(1, FURTHEST.bit_length()) if question.wires.links else ():
        for sign in (-1, 1):
            other = of_links(2.0 ** (sign * power))
            if other != winner.name:
                factor, other = _between(
                    of_links, winner.name, other, 2.0 ** (sign * (power - 1)), 2.0 ** (sign * power)
                )
                slowest = min(link.bandwidth_mbps for link in question.wires.times(factor).links)
                return Turn("link.bandwidth_gbps", slowest / 1000, other)
    batch = question.batch
    while batch % 2 == 0:
        batch //= 2
        sizes = tuple(size for size in question.micro_batches if batch % size == 0)
        other = name(dataclasses.replace(question, batch=batch, micro_batches=sizes))
        if other != winner.name:
            return Turn("batch", batch, other)
    return None


def _between(
    at: Callable[[float], str], name: str, other: str, near: float, far: float
) -> tuple[float, str]:
    """Return a factor just beyond which the winner has another name than near it, and that name."""
    while max(near, far) > min(near, far) * (1 + 1 / _FINEST):
        middle = (
            near * far
        ) ** 0.5  # of factors, not of differences: bandwidths are tried over powers of two
        answer = at(middle)
        if answer == name:
            near = middle
        else:
            far, other = middle, answer
    return far, other
