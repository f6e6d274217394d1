"""`emuchain retime`: the virtual times of a finished run under another cluster, as text or JSON."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from ..cluster import load_cluster
from ..common import InputError, format_time_ps
from ..run import cause_of, read_results
from ..studies import Retiming, label_of, parse_what_if, retime
from ..view import limit_lines, say, steady_state_as_json, table


def retime_run(file: str, cluster: str | None, what_if: Sequence[str], as_json: bool) -> None:
    """Print a finished run's times under another cluster, or under its own with changed keys.

    Raises:
        InputError: the file, the cluster or `what_if` is invalid, or the run cannot be planned on the cluster.
    """
    alternative = parse_what_if(what_if)
    for key, value in alternative.config.items():
        if key == "cluster":
            raise InputError(f"--what-if cluster={value}: `--cluster {value}` names another cluster")
        raise InputError(
            f"--what-if {key}={value}: a finished run keeps its {key}, on which its numbers depend; `emuchain retime`"
            " changes only keys of the cluster, such as link.bandwidth_gbps or board.dsp"
        )
    results = read_results(pathlib.Path(file))
    own = str(results.config.get("cluster", "its own cluster"))
    other = None if cluster is None else load_cluster(cluster, alternative.cluster, blame="--what-if")
    changes = alternative.cluster if cluster is None else None
    label = label_of(cluster or own, alternative.cluster)
    retiming = retime(results, other, changes, label=label, source=file, blame="--what-if")
    if as_json:
        print(json.dumps({"file": file, "own_cluster": own, **_as_json(retiming)}, indent=2))
    else:
        _print(retiming, own)


def _print(retiming: Retiming, own: str) -> None:
    before_ps, after_ps, plan = retiming.own_virtual_time_ps, retiming.virtual_time_ps, retiming.plan
    print(f"under {retiming.label}: virtual time {format_time_ps(before_ps)} -> {format_time_ps(after_ps)}", end="")
    print(f" ({before_ps} -> {after_ps} ps)")
    noun = plan.network.sample_noun
    print(
        f"{noun}s/s: {retiming.own_images_per_s:.1f} -> {retiming.images_per_s:.1f}; speed-up {retiming.speed_up:.3g}"
    )
    for line in limit_lines(plan, retiming.steady, cause_of(plan, retiming.steady)):
        say(line.text)
    print(retiming.about_numbers)
    for note in retiming.notes:
        print(f"note: {note}")
    config = plan.config
    print(
        f"the run: {retiming.own.title} ({own}), {config.schedule.name}, batch"
        f" {config.batch}, {retiming.simulation.samples} {noun}s an epoch"
    )
    epochs = zip(_durations_ps(retiming.own_ends_ps), _durations_ps(retiming.epoch_ends_ps), strict=True)
    rows = [
        [
            str(epoch),
            format_time_ps(was_ps),
            format_time_ps(is_ps),
            f"{_rate(retiming, is_ps):.1f}",
            f"{was_ps / is_ps:.3g}",
        ]
        for epoch, (was_ps, is_ps) in enumerate(epochs, 1)
    ]
    table("Epochs", ["epoch", "took", "takes", f"{noun}s/s", "speed-up"], rows)


def _durations_ps(ends_ps: Sequence[int]) -> list[int]:
    """Return the duration of each epoch."""
    return [end - begin for begin, end in zip((0, *ends_ps), ends_ps, strict=False)]


def _rate(retiming: Retiming, epoch_ps: int) -> float:
    return retiming.simulation.samples / (epoch_ps * 1e-12)


def _as_json(retiming: Retiming) -> dict[str, Any]:
    return {
        "cluster": retiming.label,
        "virtual_time_ps": retiming.virtual_time_ps,
        "own_virtual_time_ps": retiming.own_virtual_time_ps,
        "speed_up": retiming.speed_up,
        "images_per_s": retiming.images_per_s,
        "own_images_per_s": retiming.own_images_per_s,
        "epoch_ends_ps": list(retiming.epoch_ends_ps),
        "own_epoch_ends_ps": list(retiming.own_ends_ps),
        "exchange_ps": retiming.simulation.exchange_ps,
        "same_staleness": retiming.same_staleness,
        "stale_samples": list(retiming.stale_samples),
        "own_stale_samples": list(retiming.own_stale_samples),
        "about_numbers": retiming.about_numbers,
        "notes": list(retiming.notes),
        "steady": steady_state_as_json(
            retiming.steady, retiming.simulation.samples, cause_of(retiming.plan, retiming.steady)
        ),
    }
