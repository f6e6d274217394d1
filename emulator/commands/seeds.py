"""`train --seeds N`: the same run with several seeds, and the means of what they reach, with standard errors."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...launch import Ranks
from ..common import InputError, Mean, format_time_ps, plural
from ..config import Config, blaming
from ..run import EpochResult, Runs
from ..view import Line, next_line, print_answer, say, table
from .frame.output import tell
from .train import train_control, trained

_MOST_NAMED = 10


class _Ended(NamedTuple):
    """A seed's run: its configuration, its last epoch, and that of its control if it has one."""

    config: Config
    epoch: EpochResult
    control: EpochResult | None


def train_seeds(
    ranks: Ranks,
    runs: Runs,
    config_file: str | None,
    flags: dict[str, Any],
    alone: Mapping[str, object],
    *,
    control: bool = False,
) -> None:
    """Train once with each seed, each as a run of its own; for rank 0.

    `alone` has the flags that are for one run. With `control`, a run without codec follows each.

    Raises:
        InputError: the configuration or the data are invalid, or a flag is for one run.
        StoppedRun: a signal has ended one of them at a checkpoint.
    """
    for flag, value in alone.items():
        if value:
            raise InputError(f"`--{flag.replace('_', '-')}`: is for one run; leave `--seeds` out")
    runs.check_outputs()
    ended = []
    for number, (config, start) in enumerate(runs.starts(), 1):
        tell(f"seed {config.seed}: {number} of {len(runs.configs)}")
        shown = trained(ranks, runs, config, start, None, lambda: blaming(config_file, flags))
        without = train_control(shown.training, ranks) if control else None
        ended.append(_Ended(config, shown.history[-1], without))
        rate = shown.rate_line
    print_answer([*_answer(ended), rate, next_line(_to_try(ended, config_file, flags))])
    _print(ended)


def _answer(ended: Sequence[_Ended]) -> list[Line]:
    seeds, epochs = [str(run.config.seed) for run in ended], plural(ended[0].config.epochs, "epoch")
    named = ", ".join(seeds) if len(seeds) <= _MOST_NAMED else f"{seeds[0]} to {seeds[-1]}"
    lines = [
        Line(f"{_reached([run.epoch for run in ended])} after {epochs}"),
        Line(f"mean ± standard error of {plural(len(ended), 'seed')}: {named}"),
    ]
    controls = [run.control for run in ended if run.control is not None]
    if not controls:
        return lines
    pairs = list(zip((run.epoch for run in ended), controls, strict=True))
    if controls[0].test.samples:
        change = Mean.over([100 * (run.test.accuracy - without.test.accuracy) for run, without in pairs])
        told = f"test accuracy by {_signed(change, 2)} points"
    else:
        change = Mean.over([run.train.mean_loss - without.train.mean_loss for run, without in pairs])
        told = f"train loss by {_signed(change, 4)}"
    return [Line(f"codec changes {told}, seed by seed"), *lines, Line(f"without codec: {_reached(controls)}")]


def _reached(epochs: Sequence[EpochResult]) -> str:
    """Return the mean test accuracy, where there was a test, and the mean loss."""
    loss = f"train loss {Mean.over([epoch.train.mean_loss for epoch in epochs]).shown(4)}"
    if not epochs[0].test.samples:
        return loss
    return f"test accuracy {Mean.over([100 * epoch.test.accuracy for epoch in epochs]).shown(2)} %, {loss}"


def _signed(change: Mean, digits: int) -> str:
    return ("" if change.value < 0 else "+") + change.shown(digits)


def _to_try(ended: Sequence[_Ended], config_file: str | None, flags: dict[str, Any]) -> str:
    """Return the command to try next: a report of the results, or the same with results."""
    files = [run.config.out for run in ended if run.config.out is not None]
    if files:
        return shlex.join(["emuchain", "report", *files])
    from ..view import command_line

    return command_line("train", config_file, {**flags, "seeds": len(ended), "out": "run.h5"})


def _print(ended: Sequence[_Ended]) -> None:
    rows = [
        [
            str(run.config.seed),
            f"{100 * run.epoch.test.accuracy:.2f} %" if run.epoch.test.samples else "-",
            f"{run.epoch.train.mean_loss:.4f}",
            *([] if run.control is None else [f"{100 * run.control.test.accuracy:.2f} %"]),
            format_time_ps(run.epoch.virtual_time_ps),
            run.config.out or "-",
        ]
        for run in ended
    ]
    control = [] if ended[0].control is None else ["without codec"]
    table(
        "Seeds", ["seed", "test accuracy", "train loss", *control, "virtual time", "results"], rows, left=("results",)
    )
    if ended[0].config.out is not None:
        say("each results file is that of a run of its seed alone")
