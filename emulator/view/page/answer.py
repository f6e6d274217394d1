"""The answer: what was trained, how well, how fast, and what limits it; and the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...common import decoded, format_bytes, percent, plural
from ...plan import ChainPlan, describe_devices
from ..limits import cut_setting, wider_links
from .group import Group, spelt
from .parts import Figure, Section, Table, Text, rate, share_text, time_text
from .source import Run, codec_ratio


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
        none = [str(seed) for seed, of_seed in zip(group.seeds, group.runs, strict=True) if not of_seed.results.epochs]
        return f"Seed {', '.join(none)} has finished no epoch." if group.has_seeds else "No epoch was finished."
    planned = results.config["epochs"]
    finished = f"{group.epochs} of " if group.epochs < planned else ""
    how = f"{finished}{plural(planned, 'epoch')} of {plural(int(results.config['samples']), run.noun)}"
    took, data = time_text(group.last("virtual_time_ps")), results.config["data"]
    seeds = f": the mean of {len(group.runs)} seeds, ± standard error" if group.has_seeds else ""
    reached = group.last("test_accuracy")
    if math.isnan(reached.value):
        return f"{how} of {data}, in {took} of virtual time; there were no test {run.noun}s{seeds}."
    return f"{share_text(reached)} test accuracy on {data} after {how}, in {took} of virtual time{seeds}."


def figures(group: Group) -> tuple[Figure, ...]:
    """Return the figures that answer the first questions about a run, or about the means of all seeds."""
    answers = []
    run = group.first
    results, plan, steady = run.results, run.plan, run.steady
    if group.epochs:
        trained, over = share_text(group.last("train_accuracy")), _over_seeds(group)
        answers.append(Figure("Test accuracy", share_text(group.last("test_accuracy")), f"training {trained}{over}"))
        host = f"{group.last('host_time_s').value:.1f} s on the host"
        answers.append(Figure("Virtual time", time_text(group.last("virtual_time_ps")), host))
        note = f"steady state {rate(steady.images_per_s, run.noun)}" if steady else "filling and draining included"
        answers.append(Figure("Rate on the cluster", rate(group.mean(group.rate).value, run.noun), note))
    if plan is None or steady is None or run.cause is None:
        return (*answers, Figure("Plan", "unknown", run.why_no_plan, is_warning=True))
    slowest, behind = steady.bottleneck.slowest, steady.bottleneck.behind
    answers.append(fit(plan, run))
    then = f"next in this cut: {behind.name}, {_faster(slowest.sample_ps, behind.sample_ps)}"
    limit = slowest.name + cut_setting(steady, run.cause)
    answers.append(Figure("Limited by", limit, ". ".join([*wider_links(steady, run.cause), then]), is_wide=True))
    answers.append(staleness(plan))
    if codec_ratio(results) is not None:
        ratio = group.mean(lambda of_seed: codec_ratio(of_seed.results) or math.nan).value
        answers.append(Figure("Compression of gradients", f"{ratio:.2f} : 1", spelt(results.config["compress"])))
    return tuple(answers)


def _over_seeds(group: Group) -> str:
    """Return over which seeds figures are means."""
    return f"; mean of seeds {', '.join(map(str, group.seeds))}, ± standard error" if group.has_seeds else ""


def _faster(slowest_ps: int, behind_ps: int) -> str:
    return "equally slow" if slowest_ps == behind_ps else f"{percent(1 - behind_ps / slowest_ps)} less time"


def fit(plan: ChainPlan, run: Run) -> Figure:
    """Return whether a run's data fit on chip."""
    assert run.layout is not None
    shares = [run.layout.utilisation(device)["block_ram_bytes_share"] or 0 for device in run.layout.devices]
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
        return Figure("Old weights", "none", f"{plan.config.schedule.name} drains the pipeline at each update")
    stale = [of_device.stale_samples for of_device in plan.steady.staleness]
    least, most = min(stale), max(stale)
    value = f"{most} of {plural(plan.batch, 'sample')}"
    where = "on every device" if least == most else f"on the device with the most; {least} on the one with the fewest"
    late = max(max(of_device.forward) for of_device in plan.steady.staleness)
    note = f"of a mini-batch, at most {plural(late, 'update')} old, {where}"
    return Figure("Old weights", value, note if most else "of a mini-batch")


def settings(run: Run) -> Section:
    """Return the section about a run's settings."""
    config = [[key, spelt(value)] for key, value in run.results.config.items()]
    versions = [[name, version] for name, version in run.results.versions.items()]
    described = {name: decoded(text.encode()).strip() for name, text in run.results.descriptions.items()}
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
    return f"Trained with {', '.join(f'{name} {versions[name]}' for name in shown if name in versions)}."
