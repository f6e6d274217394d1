"""`emuchain train` under the schedules of a GPU, alone or with an FPGA."""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Mapping
from typing import Any

from ...launch import Ranks
from ..common import InputError, WholeFile, an, format_time_ps, number, plural
from ..config import RUN_ONLY_KEYS, Config
from ..data import Dataset
from ..plan import PairPlan, long_work, make_pair_plan, training_data
from ..run import Recorder, Resumed, check_needs, checkpoints_of, follower, open_log, resource_table, train
from ..view import Line, bits_line, command_line, make_progress, next_line, outcome_line, print_answer, resource_rows
from .kernels import load as load_kernels
from .output import tell
from .pair import limit_line, memory_lines
from .shown import Shown, hosts


def train_pair(
    ranks: Ranks, config: Config, start: Resumed | None, flags: dict[str, Any], trace: Mapping[str, str | None]
) -> int:
    """Train as configured on all ranks, show progress, a table and an answer, and write results; for rank 0.

    `start` is the run that goes on. Return the exit status, as `run_training`.

    Raises:
        InputError: the configuration or the data are invalid, or `trace`, which `simulate` writes, is asked for.
    """
    for flag, value in trace.items():
        if value is not None:
            told = "of a pair, `emuchain simulate --trace` writes it, with the same times"
            raise InputError(f"`--{flag.replace('_', '-')}`: {told}")
    network, cluster = (None, None) if start is None else (start.network, start.cluster)
    plan = make_pair_plan(config, network=network, cluster=cluster)
    out = None if config.out is None else WholeFile(config.out)
    data, gather_weights = training_data(plan), out is not None
    check_needs(plan, data, ranks, gathers=gather_weights)
    log = open_log(config.log)
    with out or contextlib.nullcontext(), log, make_progress(config.progress) as progress:
        ranks.in_turn(functools.partial(load_kernels, progress.note))
        shown = Shown(plan, data, Recorder(plan, data, ranks.describe(), out, log), progress)
        checkpoints = checkpoints_of(plan, data, ranks, start, shown.begin)
        shared = follower.SharedData.of(data, 1)
        ranks.start(functools.partial(follower.follow, plan, shared, gather_weights, None, checkpoints.keeping))
        warning = long_work(config, plan.network, data.n_train, numbers=True)
        if warning is not None:
            tell(f"emuchain: warning: {warning}")
        progress.note(_announcement(plan, data, ranks.size))
        progress.start(data.n_train * config.epochs, config.epochs)
        with shown.recorder:
            train(plan, data, ranks, shown.step, shown.epoch, gather_weights=gather_weights, checkpoints=checkpoints)
    if checkpoints.ended_at is not None:
        print_answer(shown.stopped(checkpoints.ended_at))
        return checkpoints.ended_at.status
    last = shown.recorder.history[-1]
    resource_rows(resource_table(last.resources), last.virtual_time_ps)
    print()
    print_answer([*_answer(plan, data, shown.recorder), next_line(_to_try(plan, flags))])
    return 0


def _announcement(plan: PairPlan, data: Dataset, ranks: int) -> str:
    note = f"; {data.note}" if data.note else ""
    return (
        f"{plan.title} in {hosts(ranks, plan.devices)}, {plan.config.schedule.name}, batch {plan.config.batch}, "
        f"{data.name}: {plural(data.n_train, plan.network.sample_noun)}{note}"
    )


def _answer(plan: PairPlan, data: Dataset, recorder: Recorder) -> list[Line]:
    """Return the lines at the end: rate, accuracy, times, limit and memory."""
    history, ngrams = recorder.history, recorder.ngrams
    last, samples, noun = history[-1], data.n_train * len(history), plan.network.sample_noun
    per_sample_ps = round(1e12 * last.host_time_s / samples)
    return [
        Line(f"{plan.title}: {number(samples / (last.virtual_time_ps * 1e-12))} {noun}s/s"),
        outcome_line(len(history), last.train.mean_loss, last.test.accuracy if last.test.samples else None),
        *([] if ngrams is None else [bits_line(last.test.bits_per_step, ngrams)]),
        Line(
            f"time: {format_time_ps(last.virtual_time_ps)} on the devices; {last.host_time_s:.1f} s here,"
            f" {format_time_ps(per_sample_ps)} {an(noun)}"
        ),
        limit_line(plan),
        *memory_lines(plan),
    ]


def _to_try(plan: PairPlan, flags: dict[str, Any]) -> str:
    """Return the command to try next: a look at the results, or the timeline of a mini-batch."""
    if plan.config.out is not None:
        return shlex.join(["emuchain", "show", plan.config.out])
    known = {key: value for key, value in flags.items() if key not in RUN_ONLY_KEYS and key != "network"}
    return command_line("simulate", None, {"network": plan.config.network, **known})
