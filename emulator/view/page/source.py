"""The runs of a page: the results of each, and its plan, rebuilt from the texts in its results
file; and groups of runs that differ only in their seeds, each of which a page shows as one line, by
the means over its seeds.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...cluster import Cluster, load_cluster
from ...common import InputError, Mean, plural, read_description
from ...config import Config, settings_config
from ...faults import described_faults
from ...network import load_network
from ...plan import ChainPlan, Layout, make_plan
from ...run import Cause, Results, SteadyState, Usage, cause_of, steady_state

_EARLIER = {"memory": "fpdeep", "rows_at_once": 1}
"""What keys meant before files had them."""

_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run's results under a short name, and its plan; where there is none, `why_no_plan` is the
    reason.
    """

    name: str
    results: Results
    plan: ChainPlan | None
    why_no_plan: str = ""

    @classmethod
    def of(cls, name: str, results: Results) -> Run:
        """Return a run with the plan that its results file describes, if it can be worked out
        again.
        """
        try:
            plan = rebuild(results)
        except InputError as error:
            return cls(name, results, None, str(error))
        return cls(name, results, plan)

    @property
    def network(self) -> str:
        """Name of the network."""
        return (
            self.plan.network.name
            if self.plan
            else pathlib.Path(self.results.config["network"]).stem
        )

    @property
    def noun(self) -> str:
        """What a sample is called: "image", or "sample" of a text."""
        return self.results.sample_noun

    @property
    def samples(self) -> int:
        """Number of samples of all finished epochs."""
        return int(self.results.config["samples"]) * self.results.epochs

    @property
    def images_per_s(self) -> float | None:
        """Rate of the whole run on the cluster, including filling and draining; None before the
        first epoch.
        """
        return (
            self.samples / (self.results.virtual_time_ps * 1e-12)
            if self.results.virtual_time_ps
            else None
        )

    @functools.cached_property
    def usage(self) -> Usage | None:
        """Usage of devices and links; None before the first epoch."""
        return self.results.usage

    @functools.cached_property
    def steady(self) -> SteadyState | None:
        """The steady state, if there is a plan."""
        return steady_state(self.plan) if self.plan else None

    @functools.cached_property
    def cause(self) -> Cause | None:
        """What holds the chain back, if there is a plan."""
        return cause_of(self.plan, self.steady) if self.plan and self.steady else None

    @functools.cached_property
    def layout(self) -> Layout | None:
        """The layout, if there is a plan."""
        return self.plan.layout() if self.plan else None


def rebuild(results: Results) -> ChainPlan:
    """Return the plan of a finished run, for which none of the files that it was made from are
    needed.

    Where the size of compressed gradients depends on their values, the plan has the ratio that the
    run reached.

    Raises:
        InputError: the file lacks something, or what it describes is not what has run.
    """
    network = load_network(_described(results, "network.toml"))
    cluster = load_cluster(_described(results, "cluster.toml"))
    if "faults.json" in results.descriptions:
        faults = described_faults(results.descriptions["faults.json"], "faults.json in the file")
        cluster = dataclasses.replace(cluster, faults=faults)
    plan = make_plan(_config(results), network=network, cluster=cluster)
    if not plan.times_rows:
        raise InputError("its boards take actions as a whole, but these views show rows")
    if plan.chunks > 1:
        raise InputError("its devices have several stages, but these views show one on each")
    if plan.faults.in_time:
        raise InputError("its boards or links had faults, which these views do not show")
    if not _is_plan_of(plan, results):
        raise InputError(
            "the plan that follows from the file's descriptions is not the one that has run: the"
            " cluster was changed in Python, or another version of emuchain made the file"
        )
    return plan


def _described(results: Results, name: str) -> dict[str, Any]:
    text = results.descriptions.get(name, "")
    try:
        return read_description(text)
    except ValueError as error:
        raise InputError(f"{name} in the file cannot be read: {error}") from None


def _config(results: Results) -> Config:
    """Return the configuration, from the keys that differ from their defaults; HDF5 has "" for
    None.
    """
    settings: dict[str, Any] = {}
    for key, value in {**_EARLIER, **results.config}.items():
        known = Config.model_fields.get(key)
        if isinstance(value, np.ndarray):
            value = tuple(value.tolist())
        if (
            known is not None
            and key != "faults"
            and value not in (None, "")
            and value != known.default
        ):
            settings[key] = value
    order, ratio = results.descriptions.get("schedule.txt"), codec_ratio(results)
    config = settings_config(settings, order)
    if ratio is not None and config.compress.size_depends_on_values:
        return settings_config({**settings, "compress_ratio": ratio}, order)
    return config


def codec_ratio(results: Results) -> float | None:
    """Return the bytes of all exchanged gradients over those that were sent; None where nothing was
    exchanged.
    """
    if not results.exchange:
        return None
    return float(results.exchange["value_bytes"].sum() / results.exchange["compressed_bytes"].sum())


def _is_plan_of(plan: ChainPlan, results: Results) -> bool:
    """Return whether a run of this plan has the mapping, the busy engines and the links of the
    results.
    """
    if str(plan.mapping) != results.descriptions.get("mapping"):
        return False
    usage = results.usage
    if usage is None:
        return True
    hops = {(link.sender, link.receiver) for link in usage.links}
    if (
        len(usage.devices) != len(plan.timing.engines)
        or not hops >= plan.timing.routes.carried.keys()
    ):
        return False
    epoch = plan.data_parallel.samples_of(0, int(results.config["samples"]), plan.config.batch)
    samples = len(epoch) * results.epochs
    for device, engines in zip(usage.devices, plan.timing.engines, strict=True):
        work = sum(held.fp.sample_ps * held.fp.multipliers for held in engines) * samples
        able = sum(held.fp.multipliers for held in engines) * usage.virtual_time_ps
        if not math.isclose(work / able, device.busy["FP"], rel_tol=_TOLERANCE):
            return False
    return all(
        math.isclose(
            sum(link.path_bytes.values()) * 8,
            link.utilisation
            * usage.virtual_time_ps
            * bandwidth_gbps(plan.cluster, link.sender, link.receiver)
            / 1000,
            rel_tol=_TOLERANCE,
        )
        for link in usage.links
    )


def bandwidth_gbps(cluster: Cluster, sender: int, receiver: int) -> float:
    """Return the bandwidth of a direction of a link between neighbours, in Gb/s."""
    return cluster.link_at(min(sender, receiver)).bandwidth_gbps


NOT_COMPARED = ("out", "progress", "throttle")
"""Keys in which runs may differ without a word."""

_OF_A_SEED = (*NOT_COMPARED, "seed", "checkpoint", "resume", "log", "stall_timeout")
_TEXTS = ("network.toml", "cluster.toml", "faults.json", "mapping")
_NAMED = 20  # missing seeds, at most
_SEED = r"[-_. ]*(?:seed|s)?[-_. ]*{}"


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in their seeds, in the order of these, under a common name; often one
    run alone.
    """

    name: str
    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """The run of the first seed, which stands for all in what does not depend on seeds."""
        return self.runs[0]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs."""
        return tuple(map(seed_of, self.runs))

    @property
    def has_seeds(self) -> bool:
        """Whether there are several."""
        return len(self.runs) > 1

    @property
    def epochs(self) -> int:
        """Number of epochs that all runs have finished."""
        return min(run.results.epochs for run in self.runs)

    def mean(self, figure: Callable[[Run], float]) -> Mean:
        """Return the mean over seeds of a figure of a run."""
        return Mean.over([float(figure(run)) for run in self.runs])

    def curve(self, column: str) -> list[Mean]:
        """Return the means of a column of the history, one for each epoch that all runs have
        finished.
        """
        columns = [run.results.history[column] for run in self.runs]
        means = []
        for epoch in range(self.epochs):
            means.append(Mean.over([float(values[epoch]) for values in columns]))
        return means

    def last(self, column: str) -> Mean:
        """Return the mean of a column of the history in the last epoch that all have finished; NaN
        before the first.
        """
        return self.mean(lambda run: self.value(run, column))

    def value(self, run: Run, column: str) -> float:
        """Return a run's value in the last epoch that all have finished; NaN before the first."""
        return float(run.results.history[column][self.epochs - 1]) if self.epochs else math.nan

    def rate(self, run: Run) -> float:
        """Return a run's rate on the cluster up to that epoch, in samples/s; NaN before the
        first.
        """
        time_s = self.value(run, "virtual_time_ps") * 1e-12
        return int(run.results.config["samples"]) * self.epochs / time_s if time_s else math.nan

    def setting(self, key: str) -> str:
        """Return a key of the configuration as text, or all seeds."""
        if key == "seed" and self.has_seeds:
            return ", ".join(map(str, self.seeds))
        return spelt(self.first.results.config.get(key))


def seed_of(run: Run) -> int:
    """Return a run's seed."""
    return int(run.results.config.get("seed") or 0)


def alone(runs: Sequence[Run]) -> list[Group]:
    """Return a group for each run."""
    return [Group(run.name, (run,)) for run in runs]


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Return runs in groups, in the order of their first runs; a second run of the same seed begins
    another group.
    """
    groups: dict[tuple[object, ...], list[Run]] = {}
    times: Counter[tuple[object, ...]] = Counter()
    for run in runs:
        alike = _settings(run)
        seen = (seed_of(run), *alike)
        groups.setdefault((times[seen], *alike), []).append(run)
        times[seen] += 1
    members = [tuple(sorted(group, key=seed_of)) for group in groups.values()]
    names = [_common_name(group) for group in members]
    counts = Counter(names)
    return [
        Group(name if counts[name] == 1 else group[0].name, group)
        for name, group in zip(names, members, strict=True)
    ]


def check_seeds(groups: Sequence[Group], count: int) -> None:
    """Check that each group has `count` seeds.

    Raises:
        InputError: a group has fewer, of which the missing ones are named, or more.
    """
    for group in groups:
        given = ", ".join(map(str, group.seeds))
        if len(group.seeds) > count:
            raise InputError(
                f"--seeds {count}: {group.name} has {len(group.seeds)} seeds: {given}; leave"
                " some out"
            )
        if len(group.seeds) < count:
            missing = (seed for seed in _expected(groups, group, count) if seed not in group.seeds)
            named = [
                *map(str, itertools.islice(missing, _NAMED)),
                *(["…"] if any(True for _ in missing) else []),
            ]
            raise InputError(
                f"--seeds {count}: {group.name} has {plural(len(group.seeds), 'seed')}: {given};"
                f" missing: {', '.join(named)}"
            )


def _expected(groups: Sequence[Group], group: Group, count: int) -> Sequence[int]:
    """Return the seeds that a group should have: those of other groups, or 1 to `count`, or those
    from its first on.
    """
    every = sorted({seed for other in groups for seed in other.seeds})
    if len(every) == count:
        return every
    first = 1 if all(1 <= seed <= count for seed in group.seeds) else group.seeds[0]
    return range(first, first + count)


def _settings(run: Run) -> tuple[object, ...]:
    """Return what is the same in runs that differ only in their seeds."""
    results = run.results
    config = {key: spelt(value) for key, value in results.config.items() if key not in _OF_A_SEED}
    return (*sorted(config.items()), *(results.descriptions.get(name, "") for name in _TEXTS))


def _common_name(runs: Sequence[Run]) -> str:
    """Return what names of runs have in common, without their seeds: `run` of `run-seed1`,
    `run-seed2`.
    """
    if len(runs) == 1:
        return runs[0].name
    names = [
        str(pathlib.Path(run.name).with_suffix("")) if run.name.endswith(".h5") else run.name
        for run in runs
    ]
    bare = {
        re.sub(_SEED.format(seed_of(run)) + "$", "", name)
        for name, run in zip(names, runs, strict=True)
    }
    common = bare.pop() if len(bare) == 1 else ""
    return common or f"{names[0]} to {names[-1]}"


def spelt(value: Any) -> str:
    """Return a setting as text; a dash where it was left open."""
    if isinstance(value, np.ndarray | tuple):
        value = ", ".join(map(str, value))
    return (
        "–"
        if value is None or value == ""
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
