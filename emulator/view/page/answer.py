"""The answer: what was trained, how well, how fast, and what limits it; what differs between runs, and the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common import format_bytes, percent, plural
from ...plan import ChainPlan, describe_devices
from ..limits import cut_setting, wider_links
from .parts import Figure, Section, Table, Text, rate, time
from .source import Run, codec_ratio

_NOT_COMPARED = ("out", "progress", "throttle")


def devices_of(run: Run) -> str:
    """Return what a run trained on, in a few words."""
    if run.plan is None:
        config = run.results.config
        return f"{plural(int(config['devices']), 'device')} ({config['cluster']})"
    return describe_devices(run.plan).partition(",")[0].replace(" x ", " × ")


def headline(run: Run) -> str:
    """Return the outcome of a run in a sentence."""
    results = run.results
    if not results.epochs:
        return "No epoch was finished."
    planned = results.config["epochs"]
    finished = f"{results.epochs} of " if results.epochs < planned else ""
    how = f"{finished}{plural(planned, 'epoch')} of {plural(int(results.config['samples']), run.noun)}"
    took, data = time(results.virtual_time_ps), results.config["data"]
    reached = _accuracy(run)
    if reached is None:
        return f"{how} of {data}, in {took} of virtual time; there were no test {run.noun}s."
    return f"{reached} test accuracy on {data} after {how}, in {took} of virtual time."


def figures(run: Run) -> tuple[Figure, ...]:
    """Return the figures that answer the first questions about a run."""
    answers = []
    results, plan, steady = run.results, run.plan, run.steady
    if results.epochs:
        trained = percent(float(results.history["train_accuracy"][-1]))
        answers.append(Figure("Test accuracy", _accuracy(run) or "–", f"training {trained}"))
        host = f"{results.history['host_time_s'][-1]:.1f} s on the host"
        answers.append(Figure("Virtual time", time(results.virtual_time_ps), host))
    if run.images_per_s is not None:
        note = f"steady state {rate(steady.images_per_s, run.noun)}" if steady else "filling and draining included"
        answers.append(Figure("Rate on the cluster", rate(run.images_per_s, run.noun), note))
    if plan is None or steady is None or run.cause is None:
        return (*answers, Figure("Plan", "unknown", run.why_no_plan, is_warning=True))
    slowest, behind = steady.bottleneck.slowest, steady.bottleneck.behind
    answers.append(_fit(plan, run))
    then = f"next in this cut: {behind.name}, {_faster(slowest.sample_ps, behind.sample_ps)}"
    limit = slowest.name + cut_setting(steady, run.cause)
    answers.append(Figure("Limited by", limit, ". ".join([*wider_links(steady, run.cause), then]), is_wide=True))
    answers.append(_staleness(plan))
    ratio = codec_ratio(results)
    if ratio is not None:
        answers.append(Figure("Compression of gradients", f"{ratio:.2f} : 1", spelt(results.config["compress"])))
    return tuple(answers)


def comparison(runs: Sequence[Run]) -> Table:
    """Return what differs between runs, and what came of it."""
    differing, target = differences(runs), _common_accuracy(runs)
    columns = ["run", "test accuracy", "virtual time"]
    columns += [] if target is None else [f"time to {percent(target)}"]
    columns += [f"{_noun_of(runs)}s/s", "limited by", "fits", "old weights", *differing]
    rows = []
    for run in runs:
        row = [run.name, _accuracy(run) or "–"]
        row += [time(run.results.virtual_time_ps) if run.results.epochs else "–"]
        row += [] if target is None else [time(_time_to(run, target))]
        row.append("–" if run.images_per_s is None else f"{run.images_per_s:,.0f}")
        if run.plan is None or run.steady is None or run.cause is None:
            row += ["unknown"] * 3
        else:
            row.append(run.steady.bottleneck.slowest.name + cut_setting(run.steady, run.cause))
            row += [_fit(run.plan, run).value, _staleness(run.plan).value.removesuffix(" samples")]
        rows.append([*row, *(spelt(run.results.config.get(key)) for key in differing)])
    return Table("The runs", columns, rows, ("run", "limited by", "fits", "old weights", *differing))


def comparing_headline(runs: Sequence[Run]) -> str:
    """Return the outcome of several runs in a sentence."""
    best = max((run for run in runs if _accuracy(run)), key=lambda run: run.results.test_accuracy, default=None)
    fastest = max((run for run in runs if run.images_per_s), key=lambda run: run.images_per_s or 0, default=None)
    said = []
    if best is not None:
        equal = [run.name for run in runs if run.results.test_accuracy == best.results.test_accuracy]
        *firsts, last = equal
        names = f"{', '.join(firsts)} and {last} have" if firsts else f"{last} has"
        said.append(f"{names} the highest test accuracy, {_accuracy(best)}")
    if fastest is not None:
        said.append(f"{fastest.name} the highest rate, {rate(fastest.images_per_s or 0, fastest.noun)}")
    return f"{'; '.join(said)}." if said else "None of the runs has finished an epoch."


def _noun_of(runs: Sequence[Run]) -> str:
    """Return what samples of all runs are called."""
    nouns = {run.noun for run in runs}
    return nouns.pop() if len(nouns) == 1 else "sample"


def _accuracy(run: Run) -> str | None:
    accuracy = run.results.test_accuracy
    return None if math.isnan(accuracy) else percent(accuracy)


def _faster(slowest_ps: int, behind_ps: int) -> str:
    return "equally slow" if slowest_ps == behind_ps else f"{percent(1 - behind_ps / slowest_ps)} less time"


def _fit(plan: ChainPlan, run: Run) -> Figure:
    assert run.layout is not None
    shares = [run.layout.utilisation(device)["block_ram_bytes_share"] or 0 for device in run.layout.devices]
    fullest = f"the fullest device holds {percent(max(shares))} of its on-chip memory"
    if not plan.fits:
        missing = f"no, memory ignored, {format_bytes(plan.missing_bytes)} too much"
        return Figure("Fits", missing, fullest, is_warning=True)
    if run.layout.off_chip_bytes:
        return Figure("Fits", f"yes, {format_bytes(run.layout.off_chip_bytes)} off chip", fullest)
    return Figure("Fits", "yes, all on chip", fullest)


def _staleness(plan: ChainPlan) -> Figure:
    """Return how many samples use old weights; none where the pipeline drains."""
    if plan.config.schedule.drains:
        return Figure("Old weights", "none", f"{plan.config.schedule.name} drains the pipeline at each update")
    stale = [staleness.stale_samples for staleness in plan.steady.staleness]
    least, most = min(stale), max(stale)
    value = f"{most} of {plural(plan.batch, 'sample')}"
    where = "on every device" if least == most else f"on the device with the most; {least} on the one with the fewest"
    late = max(max(staleness.forward) for staleness in plan.steady.staleness)
    note = f"of a mini-batch, at most {plural(late, 'update')} old, {where}"
    return Figure("Old weights", value, note if most else "of a mini-batch")


def _common_accuracy(runs: Sequence[Run]) -> float | None:
    """Return the highest test accuracy that all runs have reached, if they have any."""
    best = [
        max((a for a in run.results.history.get("test_accuracy", ()) if not math.isnan(a)), default=None)
        for run in runs
    ]
    return None if None in best else float(min(a for a in best if a is not None))


def _time_to(run: Run, accuracy: float) -> int:
    """Return the virtual time at the end of the first epoch with this test accuracy, in ps."""
    history = run.results.history
    return next(
        int(time_ps)
        for time_ps, reached in zip(history["virtual_time_ps"], history["test_accuracy"], strict=True)
        if reached >= accuracy
    )


def settings(run: Run) -> Section:
    """Return the section about a run's settings."""
    config = [[key, spelt(value)] for key, value in run.results.config.items()]
    versions = [[name, version] for name, version in run.results.versions.items()]
    texts = tuple(Text(name, text.strip()) for name, text in run.results.descriptions.items() if text.strip())
    return Section(
        "Configuration and versions",
        _trained_with(run.results.versions),
        tables=(
            Table("Configuration", ["key", "value"], config, ("key", "value")),
            Table("Versions", ["of", "version"], versions, ("of", "version")),
        ),
        texts=texts,
    )


def _trained_with(versions: Mapping[str, str]) -> str:
    shown = ("emuchain", "python", "numpy", "numba")
    return f"Trained with {', '.join(f'{name} {versions[name]}' for name in shown if name in versions)}."


def differences(runs: Sequence[Run]) -> list[str]:
    """Return the keys of the configuration in which runs differ, in their order."""
    keys = dict.fromkeys(key for run in runs for key in run.results.config)
    return [
        key
        for key in keys
        if key not in _NOT_COMPARED and len({spelt(run.results.config.get(key)) for run in runs}) > 1
    ]


def spelt(value: Any) -> str:
    """Return a setting as text; a dash where it was left open."""
    if isinstance(value, np.ndarray | tuple):
        value = ", ".join(map(str, value))
    return "–" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)
