"""Roofs: the rate that each engine, link, memory port or exchange alone would allow, against the rate reached."""

from __future__ import annotations

from collections.abc import Iterable

from ...common import percent
from ...plan import exchange_loads
from ...run import PHASES
from ...timing import EngineLoad, LinkLoad, Load, loads_of
from ..answer import cut_setting, wider_links
from .numbers import rate, time
from .parts import Chart, Key, Section, Table
from .source import Run

_MOST_ROWS = 10


def roofs(run: Run) -> Section | None:
    """Return the section; None without a plan."""
    if run.plan is None or run.steady is None or run.cause is None:
        return None
    found, replicas = run.steady.bottleneck, run.plan.data_parallel.replicas
    every = [load for load in loads_of(run.plan.timing, exchange_loads(run.plan)) if load.sample_ps]
    points = [
        {
            "name": load.name,
            "kind": kind_of(load),
            "device": place_of(load),
            "backward": isinstance(load, LinkLoad) and load.sender > load.receiver,
            "rate": replicas * 1e12 / load.sample_ps,
        }
        for load in every
    ]
    kinds = in_order(kind_of(load) for load in every)
    data = {
        "devices": run.plan.devices,
        "kinds": kinds,
        "points": points,
        "steady": run.steady.images_per_s,
        "reached": run.images_per_s,
        "unit": f"{run.noun}s/s",
    }
    lines = [Key(f"steady state, {rate(run.steady.images_per_s, run.noun)}", "limit", "line")]
    if run.images_per_s is not None:
        lines.append(Key(f"reached, {rate(run.images_per_s, run.noun)}", "limit", "dashes"))
    chart = Chart(
        "roofs",
        f"Rate that each engine or link alone would allow with this cut, in {run.noun}s/s",
        data,
        (*(Key(kind, f"kind-{kind}") for kind in kinds), *lines),
    )
    ties = f" ({found.ties} {'others are' if found.ties > 1 else 'other is'} equally slow)" if found.ties else ""
    setting = cut_setting(run.steady, run.cause)
    said = f"{found.slowest.name} sets the pace: {time(found.slowest.sample_ps)} for a sample{ties}{setting}."
    said += "".join(f" {line}." for line in wider_links(run.steady, run.cause))
    said += f" The chain's steady state gives {rate(run.steady.images_per_s, run.noun)}"
    if run.images_per_s is not None:
        share = percent(run.images_per_s / run.steady.images_per_s)
        said += f"; the whole run, with filling and draining, reached {rate(run.images_per_s, run.noun)}, {share} of it"
    schedule = run.plan.config.schedule
    if schedule.drains:
        said += f". {schedule.name} drains the pipeline at each update, so its steady state is below the roofs"
    rows = [
        [load.name, time(load.sample_ps), rate(replicas * 1e12 / load.sample_ps, run.noun)]
        for load in sorted(every, key=lambda load: -load.sample_ps)[:_MOST_ROWS]
    ]
    slowest = Table("The slowest", ["engine or link", "time of a sample", "would allow"], rows, ("engine or link",))
    return Section("What limits the rate", f"{said}.", (chart,), (slowest,))


def kind_of(load: Load) -> str:
    """Return the kind of a load: an engine's phase, `link`, `memory`, `exchange`."""
    return load.phase.value if isinstance(load, EngineLoad) else load.kind


def in_order(kinds: Iterable[str]) -> list[str]:
    """Return kinds of loads, each once: the phases of engines, then the others."""
    found = dict.fromkeys(kinds)
    return [*(phase for phase in PHASES if phase in found), *(kind for kind in found if kind not in PHASES)]


def place_of(load: Load) -> float:
    """Return the device of a load; a link is halfway between two."""
    return (load.sender + load.receiver) / 2 if isinstance(load, LinkLoad) else load.device
