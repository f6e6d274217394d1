"""The points of a sweep: the figures of each, of its plan and its steady state, and all of them in
parallel; finished ones are kept in a CSV file, from which a sweep resumes.

Each point has an identity there: a digest of all that its figures depend on, so that a sweep goes
on with its own points: the network and the cluster as read from their files, all keys, and
emuchain: its version and its sources.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np

from ....launch import Ranks, SingleProcess, WorkerLost, in_parallel, usable_cores
from ...cluster import Board, Gpu
from ...common import InputError, logger
from ...config import settings_config
from ...network import with_formats
from ...number import precision_of
from ...plan import ChainPlan, PairPlan, in_precision, make_pair_plan, make_plan
from ...run import (
    SteadyState,
    busy_shares,
    is_waiting,
    limiting_kind,
    roofs_of,
    slope_roofs,
    steady_actions,
    steady_state,
)
from ...timing import HIGHEST, LOWEST, Roofs
from ...timing.pair import Resource
from ...view import multiplier_texts
from .journal import INTERNAL, Journal
from .pareto import find_front, objectives_of
from .result import SweepResult, find_target
from .search import Seeking
from .space import Point, Space, points_of
from .trials import Trials

_KINDS = {
    Resource.GPU: "engine",
    Resource.FPGA: "engine",
    Resource.TO_FPGA: "link",
    Resource.TO_GPU: "link",
}
_MIB = 2**20

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_ROOMS = ("kernels", "comm", "emulator")
_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class Measured:
    """The figures of a point; where it fails, `error` is the reason and the others are None.

    `boards` are those of all replicas. `efficiency` is the rate over that of perfect balance, where
    all multipliers of all boards are always busy; of a GPU with an FPGA it is their utilisation, of
    a GPU alone None. `images_per_j` is None where a board's power is unknown, `price`, of all
    boards, where one's is. `memory_mib` is what the fullest board of a chain keeps, `off_chip_mib`
    of a chain are kept off chip; `missing_mib` have no place, which times ignore. `fits_lut` is
    whether boards have the LUTs that engines and buffers need, None where that is not known.
    `second` would limit if the bottleneck were infinitely fast; of a pair it is what is busy second
    longest. `cause` is what holds a chain back whatever its cut (`run.Cause`), or waits. Of a chain
    of rows there are the range of the rate, and the `roofs` that all draws of it follow
    (`timing.Roofs.text`).
    """

    boards: int | None = None
    images_per_s: float | None = None
    efficiency: float | None = None
    images_per_j: float | None = None
    epoch_hours: float | None = None
    fits: bool | None = None
    missing_mib: float | None = None
    off_chip_mib: float | None = None
    memory_mib: float | None = None
    price: float | None = None
    fits_lut: bool | None = None
    bottleneck: str | None = None
    bottleneck_kind: str | None = None
    second: str | None = None
    second_kind: str | None = None
    cause: str | None = None
    error: str | None = None
    range_low: float | None = None
    range_high: float | None = None
    roofs: str | None = None


_OF_RANGES = ("range_low", "range_high", "roofs")


def figures(ranged: bool) -> tuple[str, ...]:
    """Return the names of a point's figures, with those of its range or without."""
    names = (field.name for field in dataclasses.fields(Measured))
    return tuple(name for name in names if ranged or name not in _OF_RANGES)


def measure(task: tuple[Point, int, bool]) -> Measured:
    """Return the figures of a point, with the hours of an epoch, and whether with its range.

    Whatever goes wrong is the point's `error`, in one line.
    """
    point, epoch_images, ranged = task
    if point.cluster is None:
        return Measured(error=point.error)
    try:
        config = settings_config(point.settings)
        if config.schedule.offload is not None:
            pair = make_pair_plan(config, network=point.network, cluster=point.cluster)
            of_point = _of_pair(pair, epoch_images)
            return _with_range(of_point, slope_roofs(pair)) if ranged else of_point
        plan = make_plan(config, 1, network=point.network, cluster=point.cluster, timing_only=True)
        # Of phases, the slowest has the rate that boards keep up in all.
        measured = [(_of_chain(own, epoch_images), own) for own in plan.of_phases]
        of_point, slowest = min(measured, key=lambda pair: pair[0].images_per_s or 0.0)
        of_point = dataclasses.replace(
            of_point,
            fits=plan.fits,
            missing_mib=plan.missing_bytes / _MIB,
            memory_mib=max(plan.memory_bytes) / _MIB,
        )
        if not ranged:
            return of_point
        return _with_range(of_point, (roofs_of if plan.times_rows else slope_roofs)(slowest))
    except InputError as error:
        return Measured(error=_line(str(error)))
    except Exception as error:
        return Measured(error=_line(f"{INTERNAL}: {type(error).__name__}: {error}"))


def _of_chain(plan: ChainPlan, epoch_images: int) -> Measured:
    """Return the figures of a phase on a chain."""
    if plan.times_rows:
        return _figures(plan, steady_state(plan), epoch_images)
    return _of_actions(plan, epoch_images)


def _figures(plan: ChainPlan, state: SteadyState, epoch_images: int) -> Measured:
    boards = [plan.cluster.board(device) for device in range(plan.devices)]
    macs = sum(load.macs for device in state.devices for load in device.engines)
    slowest, behind = state.bottleneck.slowest, state.bottleneck.behind
    return Measured(
        boards=plan.nodes,
        images_per_s=state.images_per_s,
        efficiency=macs / (state.period_ps * sum(board.capacity for board in boards)),
        images_per_j=None if state.joules_per_image is None else 1 / state.joules_per_image,
        epoch_hours=state.epoch_hours(epoch_images),
        fits=state.fits,
        missing_mib=state.missing_bytes / _MIB,
        off_chip_mib=sum(plan.off_chip_bytes) / _MIB,
        memory_mib=max(plan.memory_bytes) / _MIB,
        price=_price(boards, plan.replicas),
        fits_lut=plan.fits_lut,
        bottleneck=slowest.name,
        bottleneck_kind=slowest.kind,
        second=behind.name,
        second_kind=behind.kind,
        cause=limiting_kind(plan, state),
    )


def _with_range(measured: Measured, roofs: Roofs) -> Measured:
    """Return the figures of a point with the range of its rate, and what other draws of it
    follow.
    """
    assert measured.images_per_s is not None
    at_rate = roofs.at_rate(measured.images_per_s)
    low = high = measured.images_per_s
    if roofs.constants:
        low, high = (
            float(f"{end:.12g}") for end in np.percentile(at_rate.rates(), [LOWEST, HIGHEST])
        )
    return dataclasses.replace(measured, range_low=low, range_high=high, roofs=at_rate.text)


def _of_actions(plan: ChainPlan, epoch_images: int) -> Measured:
    """Return the figures of boards that take actions as a whole, once mini-batch follows on
    mini-batch.
    """
    rate, usage = steady_actions(plan)
    boards = [plan.cluster.board(device) for device in range(plan.devices)]
    macs = sum(layer.training_macs for layer in plan.network.layers)
    capacity = sum(board.capacity for board in boards)
    power = [board.power_w for board in boards]
    slowest, *others = busy_shares(plan, usage)
    second = others[0] if others else None
    replicas = plan.data_parallel.replicas
    return Measured(
        boards=plan.nodes,
        images_per_s=rate,
        efficiency=rate / replicas * macs / (1e12 * capacity),
        images_per_j=rate / replicas / sum(watts or 0 for watts in power) if all(power) else None,
        epoch_hours=epoch_images / rate / 3600,
        fits=plan.fits,
        missing_mib=0.0,
        off_chip_mib=sum(plan.off_chip_bytes) / _MIB,
        memory_mib=max(plan.memory_bytes) / _MIB,
        price=_price(boards, replicas),
        fits_lut=plan.fits_lut,
        bottleneck=slowest.name,
        bottleneck_kind=slowest.kind,
        second=None if second is None else second.name,
        second_kind=None if second is None else second.kind,
        cause="waiting" if is_waiting(slowest.share) else slowest.kind,
    )


def _of_pair(plan: PairPlan, epoch_images: int) -> Measured:
    """Return the figures of a GPU, alone or with an FPGA, whose mini-batches follow one another."""
    boards = [plan.cluster.board(device) for device in range(plan.devices)]
    power = [board.power_w for board in boards]
    slowest, *others = sorted(plan.times.busy.values(), key=lambda use: -use.busy_ps)
    second = others[0].resource if others else None
    return Measured(
        boards=plan.devices,
        images_per_s=plan.samples_per_s,
        efficiency=plan.times.utilisation,
        images_per_j=(
            plan.samples_per_s / sum(watts or 0 for watts in power) if all(power) else None
        ),
        epoch_hours=epoch_images / plan.samples_per_s / 3600,
        fits=True,
        missing_mib=0.0,
        off_chip_mib=0.0,
        price=_price(boards, 1),
        bottleneck=slowest.resource.value,
        bottleneck_kind=_KINDS[slowest.resource],
        second=None if second is None else second.value,
        second_kind=None if second is None else _KINDS[second],
    )


def _price(boards: Sequence[Board], replicas: int) -> float | None:
    """Return the price of the boards of all replicas; None where one's is unknown."""
    prices = [board.price for board in boards]
    return replicas * sum(price or 0 for price in prices) if all(prices) else None


def row_of(point: Point, measured: Measured, ranged: bool) -> dict[str, Any]:
    """Return a point's keys and figures as one row, with those of its range or without."""
    return {**point.keys, **{name: getattr(measured, name) for name in figures(ranged)}}


def _line(text: str) -> str:
    return " ".join(text.split())


def identities(points: Sequence[Point], of_all: object) -> list[str]:
    """Return the identity of each point, in their order; `of_all` is what else figures depend
    on, such as the images of an epoch.
    """
    known: dict[int, str] = {}  # of networks and clusters, which many points share

    def digest_of(value: object) -> str:
        if id(value) not in known:
            known[id(value)] = _digest(_canonical(value))
        return known[id(value)]

    return [
        _digest(
            (
                _emuchain(),
                of_all,
                digest_of(point.network),
                digest_of(point.cluster),
                _canonical(point.settings),
            )
        )
        for point in points
    ]


@functools.cache
def _emuchain() -> str:
    """Return a digest of emuchain's sources; the first names its version."""
    # Sorted, as a file system lists names in any order; relative, as installations differ in place.
    digest = hashlib.sha256()
    for path in (
        _ROOT / "__init__.py",
        *sorted(path for room in _ROOMS for path in (_ROOT / room).rglob("*")),
    ):
        if path.suffix in (".py", ".toml"):
            digest.update(f"{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:_DIGITS]


def _canonical(value: Any) -> Any:
    """Return a value as nested tuples, the same for equal values in any process.

    A function has its place in memory here: a schedule that exists in one process alone is never
    taken up again.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (
            (field.name, _canonical(getattr(value, field.name)))
            for field in dataclasses.fields(value)
        )
        return type(value).__qualname__, *fields
    if isinstance(value, Mapping):
        return tuple(sorted((str(key), _canonical(item)) for key, item in value.items()))
    if isinstance(value, (tuple, list)):
        return tuple(map(_canonical, value))
    if isinstance(value, (set, frozenset)):
        # A set has another order in each process, as Python seeds the hashes of texts at random.
        return tuple(sorted(repr(_canonical(item)) for item in value))
    return repr(value)


Announce = Callable[[int, int], AbstractContextManager[Callable[[], None]]]
"""From the number of points, and of those that are there already, to what is called after each
further one.
"""


class Interrupted(KeyboardInterrupt):
    """A sweep was interrupted after `done` of `total` points."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__(done, total)
        self.done, self.total = done, total


def run_space(
    space: Space,
    epoch_images: int,
    *,
    ranks: Ranks | None = None,
    jobs: int | None = None,
    csv: pathlib.Path | None = None,
    restart: bool = False,
    announce: Announce = lambda *_: nullcontext(lambda: None),
    blame: str = "command line",
    ranged: bool = True,
    target: float | None = None,
    pareto: Sequence[str] = (),
    seeks: bool = False,
    trials: int | None = None,
    seed: int = 0,
) -> SweepResult:
    """Compute all points of a sweep; or, where it `seeks` a target, those that can be its point; or
    as many `trials` as a search for the front takes.

    Args:
        space: its keys and their values.
        epoch_images: images of an epoch, for its hours.
        ranks: where there are several, the others compute the points.
        jobs: number of processes otherwise; by default one for each core.
        csv: a file for the rows; points that it holds are not computed again.
        restart: whether to compute all points anew.
        announce: what reports progress.
        blame: beginning of messages about a value.
        ranged: whether to draw the ranges of rates, and how sure choices are.
        target: a rate in samples per second, for which the point with the fewest boards is
            reported.
        pareto: names of objectives, of which the front is reported.
        seeks: whether points that have more boards than one that reaches the target, or cannot
            reach it, are left out.
        trials: the most points that are tried for the front; without it, all.
        seed: that of their search.

    Raises:
        InputError: a value is invalid, the file is that of another sweep or cannot be written, or a
            process died.
        Interrupted: by Ctrl-C; finished points are in the file.
    """
    objectives = objectives_of(pareto) if pareto else ()
    if trials is not None and not objectives:
        raise InputError(f"`trials` = {trials}: are those of a front; give `pareto`, too")
    if trials is None and seed:
        raise InputError(f"`seed` = {seed}: draws points of a front; give `trials`, too")
    search = None
    if trials is not None and trials < space.points:
        search = Trials(space, objectives, trials, seed)
    points = points_of(space, blame)
    # Identities take a digest of all sources, which only a file needs.
    known = identities(points, epoch_images) if csv is not None else [""] * len(points)
    journal = (
        None
        if csv is None
        else Journal(csv, [*space.values, *figures(ranged)], known, Measured, restart=restart)
    )
    measurements: list[Measured | None] = [None] * len(points)
    if journal is not None:
        measurements = [journal.done.get(point) for point in known]
    missing = [place for place, measured in enumerate(measurements) if measured is None]
    workers, jobs = ranks or SingleProcess(), jobs or usable_cores()
    seeking = Seeking(points, target) if seeks and target is not None else None

    def of_rows() -> list[dict[str, Any] | None]:
        of_points = zip(points, measurements, strict=True)
        return [None if own is None else row_of(point, own, ranged) for point, own in of_points]

    def next_places() -> list[int]:
        if search is not None:
            return search.next(of_rows())
        if seeking is None:
            return [place for place, measured in enumerate(measurements) if measured is None]
        return seeking.next(of_rows(), max(jobs, workers.size - 1))

    log = logger("sweep")
    # The most that are computed: a search may end before.
    total = len(points) if search is None or trials is None else trials
    try:
        log.info("%d points, %d of them in the file", total, len(points) - len(missing))
        with announce(total, min(total, len(points) - len(missing))) as advance:
            while places := next_places():
                tasks = [(points[place], epoch_images, ranged) for place in places]
                for number, measured in in_parallel(workers, jobs, measure, tasks):
                    place = places[number]
                    measurements[place] = measured
                    if journal is not None:
                        journal.add(row_of(points[place], measured, ranged), known[place])
                    log.debug("%s", row_of(points[place], measured, ranged))
                    advance()
        computed = [place for place, measured in enumerate(measurements) if measured is not None]
        rows = [row for row in of_rows() if row is not None]
        if journal is not None:
            journal.finish(rows, [known[place] for place in computed])
    except KeyboardInterrupt:
        raise Interrupted(
            sum(measured is not None for measured in measurements),
            len(points) if search is None else total,
        ) from None
    except WorkerLost as error:
        raise InputError(str(error)) from None
    finally:
        if journal is not None:
            journal.close()
    nouns = {point.network.sample_noun for point in points}
    noun = nouns.pop() if len(nouns) == 1 else "sample"
    roofs = [row.pop("roofs", None) for row in rows]
    reached = None
    if target is not None:
        reached = find_target(target, [points[place] for place in computed], rows)
        reached = dataclasses.replace(reached, points=len(points))
    front = None
    if objectives:
        front = find_front(objectives, [points[place] for place in computed], rows)
        front = dataclasses.replace(front, whole=space.points)
    return SweepResult(
        space, rows, noun, roofs if ranged else None, _multiplier_texts(points), reached, front
    )


def _multiplier_texts(points: Sequence[Point]) -> tuple[str, ...]:
    """Return what all boards of chains multiply with, a line for each kind."""
    texts: dict[str, None] = {}
    known = set()
    for point in points:
        given, cluster = point.settings.get("precision", "fp32"), point.cluster
        network = point.network
        if cluster is None or (id(cluster), repr(given), id(network)) in known:
            continue
        known.add((id(cluster), repr(given), id(network)))
        if any(isinstance(board, Gpu) for board in cluster.boards):
            continue
        with suppress(InputError, ValueError):  # points that fail say why
            precision = precision_of(given)
            narrow = in_precision(cluster, precision, with_formats(network, precision))
            texts |= dict.fromkeys(multiplier_texts(narrow.boards))
    return tuple(texts)
