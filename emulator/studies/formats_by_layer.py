"""A search for formats by layer: the mapping of layers to formats that takes the least time, of
those whose loss stays within a limit.

A mapping is judged by short runs, one with each of some seeds: it holds where the mean of their
last losses is at most the limit above that of the reference, the first format. Times are those of
the plan, which takes no training. So only mappings that would be cheaper are trained:

    1. the reference; then each format in all layers, the cheapest first, until one holds
    2. from it, those that are cheaper and do not hold, layer by layer: first the layer that saves
       the most time. A layer keeps the format if the mapping still holds, and is no slower

So at most formats + layers x formats mappings are trained. It is a greedy search: of two layers
that hold each alone, but not together, it takes the one that saves more.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..common import InputError, Mean
from ..network import Network
from ..number import Precision
from ..plan import ChainPlan, make_plan
from ..run import going_on, runs_of, steady_state
from ..view import new_figure, save_figure
from .formats import FormatOutcome, logged, trained_in

if TYPE_CHECKING:
    from ...launch import Ranks
    from ..config import Config
    from ..run import Runs

Cost = tuple[float, int]
"""Time of a sample in ps, and bits of activations, weights and errors of all layers together."""


@dataclasses.dataclass(frozen=True)
class JudgedMapping:
    """A mapping of layers to formats, and what its runs gave, one for each seed; after one that
    diverged there are no others.

    `above` is by what share of the reference's its mean loss is larger; infinite if a run diverged.
    """

    precision: Precision
    outcomes: tuple[FormatOutcome, ...]
    above: float
    holds: bool
    on_front: bool = False

    @property
    def loss(self) -> Mean:
        """The mean of the last losses."""
        return Mean.over([outcome.loss for outcome in self.outcomes])

    @property
    def accuracy(self) -> Mean:
        """The mean of the last test accuracies."""
        return Mean.over([outcome.accuracy for outcome in self.outcomes])

    @property
    def failure(self) -> str | None:
        """Why a run ended early, where one did."""
        return self.outcomes[-1].failure

    @property
    def time_ps(self) -> float:
        """Virtual time of a run; infinite where none reached the first epoch's end."""
        times_ps = self.outcomes[0].times_ps
        return float(times_ps[-1]) if times_ps and self.failure is None else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it; what is not finite is None."""
        means = {
            key: mean.value if math.isfinite(mean.value) else None
            for key, mean in (("loss", self.loss), ("accuracy", self.accuracy))
        }
        first = self.outcomes[0]
        return {
            "precision": str(self.precision),
            **means,
            "losses": [outcome.loss for outcome in self.outcomes if outcome.failure is None],
            "above": self.above if math.isfinite(self.above) else None,
            "holds": self.holds,
            "on_front": self.on_front,
            "time_ps": int(self.time_ps) if math.isfinite(self.time_ps) else None,
            "images_per_s": first.images_per_s,
            "link_bytes": first.link_bytes,
            "memory_bytes": first.memory_bytes,
            "failure": self.failure,
        }


@dataclasses.dataclass(frozen=True)
class FormatSearch:
    """What a search has trained, in its order; the first is the reference."""

    mappings: tuple[JudgedMapping, ...]

    @property
    def reference(self) -> JudgedMapping:
        """The first format."""
        return self.mappings[0]

    @property
    def cheapest(self) -> JudgedMapping:
        """Of the mappings that hold, the one that takes the least time; of equal ones, the last,
        which has fewer bits.
        """
        holding = [mapping for mapping in self.mappings if mapping.holds]
        return min(reversed(holding), key=lambda mapping: mapping.time_ps)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "cheapest": str(self.cheapest.precision),
            "reference": str(self.reference.precision),
            "mappings": [mapping.to_dict() for mapping in self.mappings],
        }


def search_formats(
    runs: Runs,
    formats: Sequence[Precision],
    limit: float,
    process: Ranks,
    note: Callable[[str], None] = lambda _: None,
) -> FormatSearch:
    """Search formats by layer; the variants of `runs` are the reference's, one with each seed.

    Each run of a mapping has a checkpoint of its own if `runs` have, and goes on with it if they
    resume. `note` is called with a line after each epoch, and after each mapping.

    Raises:
        InputError: something in a configuration is invalid, or the reference diverges.
        StoppedRun: a signal has ended a run at a checkpoint.
    """
    return _Search(runs, formats, limit, process, logged(note)).search()


class _Search:
    def __init__(
        self,
        runs: Runs,
        formats: Sequence[Precision],
        limit: float,
        process: Ranks,
        note: Callable[[str], None],
    ) -> None:
        self._runs, self._formats, self._limit = runs, formats, limit
        self._process, self._note = process, note
        self._judged: dict[Precision, JudgedMapping] = {}
        self._seeds = [config.seed for config in runs.configs]

    def search(self) -> FormatSearch:
        self._runs.check_outputs()
        reference = self._formats[0]
        first = self._judge(reference)
        if first.failure is not None:
            raise InputError(
                f"`formats`: {reference}, with which others are compared: {first.failure}"
            )
        most = self._costs(reference)
        assert most is not None  # it was trained
        costs = {one: cost for one in self._formats if (cost := self._costs(one)) is not None}
        best, failed = reference, []
        for one in sorted(costs, key=costs.__getitem__):
            if costs[one] < most:
                if self._judge(one).holds:
                    best = one
                    break
                failed.append(one)
        for one in failed:
            best = self._by_layer(best, one)
        return FormatSearch(tuple(_with_front(self._judged.values())))

    def _by_layer(self, best: Precision, narrow: Precision) -> Precision:
        """Return the best mapping once each layer has tried a format, those first that save
        most.
        """
        alone: dict[tuple[str, ...], Cost] = {}
        for names in _groups(self._plan(self._runs.base).network):
            cost = self._costs(in_layers(best, names, narrow))
            if cost is not None:
                alone[names] = cost
        for names in sorted(alone, key=alone.__getitem__):
            mapping = in_layers(best, names, narrow)
            cost, before = self._costs(mapping), self._costs(best)
            if cost is not None and before is not None and cost < before:
                best = mapping if self._judge(mapping).holds else best
        return best

    def _plan(self, config: Config) -> ChainPlan:
        first = self._runs.first
        given = (None, None) if first is None else (first.network, first.cluster)
        return make_plan(config, network=given[0], cluster=given[1])

    @functools.cache  # noqa: B019  # as long as the search
    def _costs(self, precision: Precision) -> Cost | None:
        """Return what a mapping costs; None where it cannot be planned."""
        try:
            plan = self._plan(self._runs.base.model_copy(update={"precision": precision}))
        except InputError as error:
            self._note(f"{precision}: left out: {error}")
            return None
        own = (precision.of(layer.formats) for layer in plan.network.layers)
        bits = sum(one.activations.bits + one.weights.bits + one.errors.bits for one in own)
        return steady_state(plan).period_ps, bits

    def _judge(self, precision: Precision) -> JudgedMapping:
        """Train a mapping with each seed, unless that is done."""
        if precision in self._judged:
            return self._judged[precision]
        outcomes = []
        for config, start in self._runs_of(precision):
            plan = self._plan(config)
            outcomes.append(trained_in(plan, self._process, start, self._runs.series, self._note))
            if outcomes[-1].failure is not None:
                break
        above = self._above(outcomes)
        judged = JudgedMapping(precision, tuple(outcomes), above, above <= self._limit)
        self._note(f"{precision}: {'holds' if judged.holds else 'does not hold'}")
        self._judged[precision] = judged
        return judged

    def _above(self, outcomes: Sequence[FormatOutcome]) -> float:
        if outcomes[-1].failure is not None:
            return math.inf
        if not self._judged:
            return 0.0
        reference = next(iter(self._judged.values())).loss.value
        return Mean.over([outcome.loss for outcome in outcomes]).value / reference - 1

    def _runs_of(self, precision: Precision) -> Iterator[tuple[Config, Any]]:
        if precision == self._formats[0]:
            yield from self._runs.starts()
            return
        settings = {
            variant(precision, seed): {"precision": precision, "seed": seed} for seed in self._seeds
        }
        for config in runs_of(self._runs.base, settings).configs:
            start = going_on(config, self._runs.series)
            yield (config.model_copy(update={"resume": None}) if start is None else config), start


def variant(precision: Precision, seed: int) -> str:
    """Return the name of a run's files: what they are of, in a few letters, and the seed."""
    return f"{zlib.crc32(str(precision).encode()):08x}-seed{seed}"


def in_layers(precision: Precision, names: Sequence[str], narrow: Precision) -> Precision:
    """Return a precision in which some layers have the formats of another one, all of them."""
    own = dataclasses.replace(
        narrow, layers=(), loss_scale=precision.loss_scale, grows_every=precision.grows_every
    )
    others = (pair for pair in precision.layers if pair[0] not in names)
    return dataclasses.replace(precision, layers=(*others, *((name, own) for name in names)))


def _groups(network: Network) -> Iterable[tuple[str, ...]]:
    """Return layers that have formats together: those of a tied table, and each other alone."""
    groups = {layer.name: [layer.name] for layer in network.layers if layer.tied is None}
    for layer in network.heads:
        assert layer.tied is not None
        groups[layer.tied.name].append(layer.name)
    return [tuple(names) for names in groups.values()]


def _with_front(mappings: Iterable[JudgedMapping]) -> Iterator[JudgedMapping]:
    """Yield mappings with those marked than which none is both faster and more accurate."""
    every = [*mappings]
    points = [(mapping.time_ps, -mapping.accuracy.value) for mapping in every]
    for mapping, (time_ps, error) in zip(every, points, strict=True):
        is_beaten = any(
            other[0] <= time_ps and other[1] <= error and other != (time_ps, error)
            for other in points
        )
        on_front = math.isfinite(time_ps) and not is_beaten
        yield dataclasses.replace(mapping, on_front=on_front)


def draw_search(search: FormatSearch, title: str, picture: Any) -> None:
    """Draw the test accuracy of each mapping over its virtual time, and the front."""
    figure = new_figure(8, 5, "--plot")
    axes = figure.subplots()
    for mapping in search.mappings:
        if math.isfinite(mapping.time_ps):
            accuracy, marker = mapping.accuracy.times(100), "o" if mapping.holds else "x"
            error = accuracy.error if math.isfinite(accuracy.error) else 0.0
            axes.errorbar(mapping.time_ps / 1e9, accuracy.value, error, fmt=marker, color="C0")
    front = sorted(
        (mapping.time_ps / 1e9, 100 * mapping.accuracy.value)
        for mapping in search.mappings
        if mapping.on_front
    )
    axes.plot(*zip(*front, strict=True), "-", color="C1", label="none is faster and better")
    axes.set_xlabel("virtual time / ms")
    axes.set_ylabel("test accuracy / %")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, picture, "--plot")
