"""What came out. Of a run: what was trained, how well, how fast, and what limits it, and the
settings. Of several: what came of each, or of the means over its seeds, and the keys in which they
differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...common import Mean, decoded, format_bytes, percent, plain, plural
from ...plan import ChainPlan, describe_devices
from ..limits import cut_setting, wider_links
from .parts import Figure, Key, Section, Table, Text, rate, share_text, time_text
from .source import NOT_COMPARED, Group, Run, codec_ratio, seed_of, spelt


def devices_of(run: Run) -> str:
    """Return what a run trained on, in a few words."""
    if run.plan is None:
        config = run.results.config
        return f"{plural(int(config['devices']), 'device')} ({config['cluster']})"
    return describe_devices(run.plan).partition(",")[0].replace(" x ", " × ")


def headline(group: Group) -> str:
    """Return the outcome of a run in a sentence, or the means of all seeds."""
    run = group.first
    results = run.results
    if not group.epochs:
        none = [
            str(seed)
            for seed, of_seed in zip(group.seeds, group.runs, strict=True)
            if not of_seed.results.epochs
        ]
        return (
            f"Seed {', '.join(none)} has finished no epoch."
            if group.has_seeds
            else "No epoch was finished."
        )
    planned = results.config["epochs"]
    finished = f"{group.epochs} of " if group.epochs < planned else ""
    how = (
        f"{finished}{plural(planned, 'epoch')} of"
        f" {plural(int(results.config['samples']), run.noun)}"
    )
    took, data = time_text(group.last("virtual_time_ps")), results.config["data"]
    seeds = f": the mean of {len(group.runs)} seeds, ± standard error" if group.has_seeds else ""
    reached = group.last("test_accuracy")
    if math.isnan(reached.value):
        return f"{how} of {data}, in {took} of virtual time; there were no test {run.noun}s{seeds}."
    return (
        f"{share_text(reached)} test accuracy on {data} after {how}, in {took} of virtual"
        f" time{seeds}."
    )


def figures(group: Group) -> tuple[Figure, ...]:
    """Return the figures that answer the first questions about a run, or about the means of all
    seeds.
    """
    answers = []
    run = group.first
    results, plan, steady = run.results, run.plan, run.steady
    if group.epochs:
        trained, over = share_text(group.last("train_accuracy")), _over_seeds(group)
        answers.append(
            Figure(
                "Test accuracy",
                share_text(group.last("test_accuracy")),
                f"training {trained}{over}",
            )
        )
        host = f"{group.last('host_time_s').value:.1f} s on the host"
        answers.append(Figure("Virtual time", time_text(group.last("virtual_time_ps")), host))
        note = (
            f"steady state {rate(steady.images_per_s, run.noun)}"
            if steady
            else "filling and draining included"
        )
        answers.append(
            Figure("Rate on the cluster", rate(group.mean(group.rate).value, run.noun), note)
        )
    if plan is None or steady is None or run.cause is None:
        return (*answers, Figure("Plan", "unknown", run.why_no_plan, is_warning=True))
    slowest, behind = steady.bottleneck.slowest, steady.bottleneck.behind
    answers.append(fit(plan, run))
    then = f"next in this cut: {behind.name}, {_faster(slowest.sample_ps, behind.sample_ps)}"
    limit = slowest.name + cut_setting(steady, run.cause)
    answers.append(
        Figure(
            "Limited by", limit, ". ".join([*wider_links(steady, run.cause), then]), is_wide=True
        )
    )
    answers.append(staleness(plan))
    if codec_ratio(results) is not None:
        ratio = group.mean(lambda of_seed: codec_ratio(of_seed.results) or math.nan).value
        answers.append(
            Figure(
                "Compression of gradients", f"{ratio:.2f} : 1", spelt(results.config["compress"])
            )
        )
    return tuple(answers)


def _over_seeds(group: Group) -> str:
    """Return over which seeds figures are means."""
    return (
        f"; mean of seeds {', '.join(map(str, group.seeds))}, ± standard error"
        if group.has_seeds
        else ""
    )


def _faster(slowest_ps: int, behind_ps: int) -> str:
    return (
        "equally slow"
        if slowest_ps == behind_ps
        else f"{percent(1 - behind_ps / slowest_ps)} less time"
    )


def fit(plan: ChainPlan, run: Run) -> Figure:
    """Return whether a run's data fit on chip."""
    assert run.layout is not None
    shares = [
        run.layout.utilisation(device)["block_ram_bytes_share"] or 0
        for device in run.layout.devices
    ]
    fullest = f"the fullest device holds {percent(max(shares))} of its on-chip memory"
    if not plan.fits:
        missing = f"no, memory ignored, {format_bytes(plan.missing_bytes)} too much"
        return Figure("Fits", missing, fullest, is_warning=True)
    if run.layout.off_chip_bytes:
        return Figure("Fits", f"yes, {format_bytes(run.layout.off_chip_bytes)} off chip", fullest)
    return Figure("Fits", "yes, all on chip", fullest)


def staleness(plan: ChainPlan) -> Figure:
    """Return how many samples use old weights; none where the pipeline drains."""
    if plan.config.schedule.drains:
        return Figure(
            "Old weights", "none", f"{plan.config.schedule.name} drains the pipeline at each update"
        )
    stale = [of_device.stale_samples for of_device in plan.steady.staleness]
    least, most = min(stale), max(stale)
    value = f"{most} of {plural(plan.batch, 'sample')}"
    where = (
        "on every device"
        if least == most
        else f"on the device with the most; {least} on the one with the fewest"
    )
    late = max(max(of_device.forward) for of_device in plan.steady.staleness)
    note = f"of a mini-batch, at most {plural(late, 'update')} old, {where}"
    return Figure("Old weights", value, note if most else "of a mini-batch")


def settings(run: Run) -> Section:
    """Return the section about a run's settings."""
    config = [[key, spelt(value)] for key, value in run.results.config.items()]
    versions = [[name, version] for name, version in run.results.versions.items()]
    described = {
        name: decoded(text.encode()).strip() for name, text in run.results.descriptions.items()
    }
    texts = tuple(Text(name, text) for name, text in described.items() if text)
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
    return (
        "Trained with"
        f" {', '.join(f'{name} {versions[name]}' for name in shown if name in versions)}."
    )


_COLUMNS = (
    "train_loss",
    "train_accuracy",
    "test_loss",
    "test_accuracy",
    "virtual_time_ps",
    "host_time_s",
)


def comparison(groups: Sequence[Group]) -> tuple[Table, ...]:
    """Return the tables of what came of runs, with their seeds below, and of the keys in which they
    differ.
    """
    target = common_accuracy(groups)
    columns = ["run", "test accuracy", "virtual time"]
    columns += [] if target is None else [f"time to {percent(target)}"]
    columns += [f"{_noun_of(groups)}s/s", "limited by", "fits", "old weights"]
    rows: list[list[str]] = []
    marks: dict[int, Key] = {}
    below: set[int] = set()
    for place, group in enumerate(groups):
        marks[len(rows)] = Key.of_curve(group.name, place)
        rows.append([_title(group), *_outcome(group, group.runs, target), *_limits(group.first)])
        for run in group.runs if group.has_seeds else ():
            below.add(len(rows))
            rows.append([f"seed {seed_of(run)}", *_outcome(group, [run], target), "", "", ""])
    left = ("run", "limited by", "fits", "old weights")
    note = (
        "Several seeds are shown as their mean ± standard error, with each of them below."
        if below
        else ""
    )
    tables = [Table("The runs", columns, rows, left, marks, frozenset(below), note)]
    differing = differences(groups)
    if differing:
        settings = [[group.name, *map(group.setting, differing)] for group in groups]
        names = ("run", *differing)
        swatches = {place: Key.of_curve(group.name, place) for place, group in enumerate(groups)}
        tables.append(Table("What differs", names, settings, names, swatches))
    return tuple(tables)


def comparing_headline(groups: Sequence[Group]) -> str:
    """Return the outcome of several runs in a sentence."""
    reached = {group.name: group.last("test_accuracy") for group in groups}
    rates = {group.name: group.mean(group.rate).value for group in groups}
    nouns = {group.name: group.first.noun for group in groups}
    tested = {name: mean for name, mean in reached.items() if not math.isnan(mean.value)}
    timed = {name: value for name, value in rates.items() if not math.isnan(value)}
    said = []
    if tested:
        best = max(tested.values(), key=lambda mean: mean.value)
        *firsts, last = [name for name, mean in tested.items() if mean.value == best.value]
        names = f"{', '.join(firsts)} and {last} have" if firsts else f"{last} has"
        said.append(f"{names} the highest test accuracy, {share_text(tested[last])}")
    if timed:
        fastest = max(timed, key=lambda name: timed[name])
        said.append(f"{fastest} the highest rate, {rate(timed[fastest], nouns[fastest])}")
    return f"{'; '.join(said)}." if said else "None of the runs has finished an epoch."


def comparison_as_json(groups: Sequence[Group], files: Mapping[str, str]) -> dict[str, Any]:
    """Return the numbers of the tables as JSON's values; `files` has the file of each run, by its
    name.
    """
    target, differing = common_accuracy(groups), differences(groups)
    runs = []
    for group in groups:
        numbers = {
            "name": group.name,
            "seeds": list(group.seeds),
            "epochs": group.epochs,
            **_numbers(group, group.runs, target),
            **_limit_numbers(group.first),
        }
        config = group.first.results.config
        numbers["config"] = {key: plain(config.get(key)) for key in differing if key != "seed"}
        numbers["seed_runs"] = [
            {
                "name": run.name,
                "file": files.get(run.name),
                "seed": seed_of(run),
                "epochs": run.results.epochs,
                **_numbers(group, [run], target, errors=False),
            }
            for run in group.runs
        ]
        runs.append(numbers)
    return {"common_accuracy": target, "runs": runs}


def common_accuracy(groups: Sequence[Group]) -> float | None:
    """Return the highest test accuracy that all runs have reached, if they have any."""
    best = []
    for group in groups:
        for run in group.runs:
            accuracies = run.results.history.get("test_accuracy", ())
            best.append(max((a for a in accuracies if not math.isnan(a)), default=None))
    return None if None in best else float(min(a for a in best if a is not None))


def differences(groups: Sequence[Group]) -> list[str]:
    """Return the keys of the configuration in which groups differ, in their order."""
    keys = dict.fromkeys(key for group in groups for key in group.first.results.config)
    return [key for key in keys if key not in NOT_COMPARED and _differs(key, groups)]


def _differs(key: str, groups: Sequence[Group]) -> bool:
    """Return whether groups have several values of a key of the configuration."""
    return len({group.setting(key) for group in groups}) > 1


def _title(group: Group) -> str:
    return f"{group.name}, {len(group.runs)} seeds" if group.has_seeds else group.name


def _outcome(group: Group, runs: Sequence[Run], target: float | None) -> list[str]:
    """Return the cells of some runs of a group: accuracy, virtual time, time to the common
    accuracy, rate.
    """
    speed = _mean(runs, group.rate).value
    return [
        share_text(_mean(runs, lambda run: group.value(run, "test_accuracy"))),
        time_text(_mean(runs, lambda run: group.value(run, "virtual_time_ps"))),
        *([] if target is None else [time_text(_mean(runs, lambda run: _time_to(run, target)))]),
        "–" if math.isnan(speed) else f"{speed:,.0f}",
    ]


def _mean(runs: Sequence[Run], figure: Any) -> Mean:
    return Mean.over([float(figure(run)) for run in runs])


def _limits(run: Run) -> list[str]:
    """Return the cells of what limits a run, whether it fits, and its old weights."""
    if run.plan is None or run.steady is None or run.cause is None:
        return ["unknown"] * 3
    limit = run.steady.bottleneck.slowest.name + cut_setting(run.steady, run.cause)
    return [limit, fit(run.plan, run).value, staleness(run.plan).value.removesuffix(" samples")]


def _numbers(
    group: Group, runs: Sequence[Run], target: float | None, errors: bool = True
) -> dict[str, Any]:
    """Return the numbers of some runs of a group: means, and where there are `errors` standard
    errors over seeds.
    """
    figures: dict[str, Any] = {}
    for column in _COLUMNS:
        figures[column] = [group.value(run, column) for run in runs]
    figures["time_to_common_accuracy_ps"] = [
        math.nan if target is None else _time_to(run, target) for run in runs
    ]
    figures["images_per_s"] = [group.rate(run) for run in runs]
    figures["compression"] = [codec_ratio(run.results) or math.nan for run in runs]
    numbers = {}
    for name, values in figures.items():
        mean = Mean.over(values)
        numbers[name] = plain(
            round(mean.value) if name.endswith("_ps") and math.isfinite(mean.value) else mean.value
        )
        if errors:
            numbers[f"{name}_error"] = plain(mean.error)
    return numbers


def _limit_numbers(run: Run) -> dict[str, Any]:
    if run.plan is None or run.steady is None or run.layout is None:
        names = ("limited_by", "fits", "missing_bytes", "off_chip_bytes", "stale_samples")
        return {**dict.fromkeys(names), "why_no_plan": run.why_no_plan}
    plan = run.plan
    stale = (
        0
        if plan.config.schedule.drains
        else max(device.stale_samples for device in plan.steady.staleness)
    )
    return {
        "limited_by": run.steady.bottleneck.slowest.name,
        "fits": plan.fits,
        "missing_bytes": plan.missing_bytes,
        "off_chip_bytes": run.layout.off_chip_bytes,
        "stale_samples": stale,
    }


def _noun_of(groups: Sequence[Group]) -> str:
    """Return what samples of all runs are called."""
    nouns = {group.first.noun for group in groups}
    return nouns.pop() if len(nouns) == 1 else "sample"


def _time_to(run: Run, accuracy: float) -> int:
    """Return the virtual time at the end of the first epoch with this test accuracy, in ps."""
    history = run.results.history
    return next(
        int(time_ps)
        for time_ps, reached in zip(
            history["virtual_time_ps"], history["test_accuracy"], strict=True
        )
        if reached >= accuracy
    )
