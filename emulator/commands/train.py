"""`emuchain train`: training on all ranks, with progress and a results file."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
from collections.abc import Mapping
from typing import Any

from ...launch import Ranks
from ..common import InputError, NamedFiles, WholeFile, an, format_time_ps, plural
from ..config import RUN_ONLY_KEYS, Config, blaming, load_config, name_files
from ..data import Dataset
from ..plan import Plan, describe_devices, idle_settings, long_work, make_plan, training_data
from ..run import (
    Cause,
    FaultCosts,
    RecordedSizes,
    Recorder,
    Resumed,
    SteadyState,
    cause_of,
    check_needs,
    checkpoints_of,
    exchange_table,
    fault_costs,
    follower,
    history_table,
    open_log,
    resumed,
    steady_state,
    train,
)
from ..view import (
    Line,
    Progress,
    TraceRequest,
    accuracy_cost_line,
    bits_line,
    command_line,
    cost_rows,
    death_lines,
    device_rows,
    exchange_rows,
    limit_lines,
    link_rows,
    make_progress,
    memory_line,
    next_changes,
    next_line,
    order_line,
    other_schedule,
    outcome_line,
    print_answer,
    rate_line,
    stage_lines,
    time_cost_line,
    weights_line,
)
from .kernels import load as load_kernels
from .output import tell, tell_notes
from .pair_train import train_pair
from .phases import phases
from .shown import Shown, hosts


def run_training(
    ranks: Ranks,
    config_file: str | None,
    flags: dict[str, Any],
    full: bool,
    trace: Mapping[str, str | None],
    named: NamedFiles,
) -> int:
    """Train as configured on all ranks, show progress, tables and an answer, and write results; for rank 0.

    Return the exit status: 0, or that of a run that a signal has ended at a checkpoint.

    `trace` has the flags of a trace. The files that are `named` are joined by those of a run that goes on.

    Raises:
        InputError: the configuration, the data or `trace` are invalid, or an output is an input, too.
    """
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        start = resumed(config)
        if start is not None:
            config = start.config
            name_files(named, dict(config))
            named.check()
        if config.schedule.offload is not None:
            if config.rtl_device is not None:
                raise InputError(
                    f"`rtl_device` = {config.rtl_device}: a chain's device can be RTL; leave it out on a pair"
                )
            return train_pair(ranks, config, start, flags, trace)
    traced = TraceRequest.of(**trace)
    with contextlib.ExitStack() as files:
        if traced is not None:
            traced.check_file()
            files.callback(traced.close)
        return _train_chain(ranks, config, start, config_file, flags, full, traced, files)


def _train_chain(
    ranks: Ranks,
    config: Config,
    start: Resumed | None,
    config_file: str | None,
    flags: dict[str, Any],
    full: bool,
    traced: TraceRequest | None,
    files: contextlib.ExitStack,
) -> int:
    """Do what `run_training` says on a chain; files that are written are closed by `files`."""
    with blaming(config_file, flags):
        network, cluster = (None, None) if start is None else (start.network, start.cluster)
        plan = make_plan(config, ranks.size, network=network, cluster=cluster)
        if start is None:
            tell_notes(idle_settings(plan))
        out = None if config.out is None else files.enter_context(WholeFile(config.out))
        data = training_data(plan)
        if config.rtl_device is not None:
            from ..rtl import check_device

            check_device(plan)
        check_needs(plan, data, ranks, gathers=out is not None)
        log = files.enter_context(open_log(config.log))
    recorder = None if traced is None else traced.recorder(plan, data.n_train)
    gather_weights = out is not None
    with make_progress(config.progress) as progress:
        ranks.in_turn(functools.partial(load_kernels, progress.note))
        shown = _Shown(plan, data, Recorder(plan, data, ranks.describe(), out, log), progress)
        checkpoints = checkpoints_of(plan, data, ranks, start, shown.begin)
        files.callback(checkpoints.close)
        shared = follower.SharedData.of(data, plan.data_parallel.replicas)
        ranks.start(functools.partial(follower.follow, plan, shared, gather_weights, recorder, checkpoints.keeping))
        warning = long_work(config, plan.network, data.n_train, numbers=True)
        if warning is not None:
            tell(f"emuchain: warning: {warning}")
        progress.note(_announcement(plan, data, ranks.size))
        progress.start(data.n_train * config.epochs, config.epochs)
        with shown.recorder:
            train(
                *(plan, data, ranks, shown.step, shown.epoch),
                gather_weights=gather_weights,
                observer=recorder,
                checkpoints=checkpoints,
            )
    if checkpoints.ended_at is not None:
        print_answer(shown.stopped(checkpoints.ended_at))
        return checkpoints.ended_at.status
    if traced is not None:
        traced.write(plan, data.n_train, ranks.gather(recorder))
    shown.tables(full)
    if traced is not None:
        print(traced.written)
    costs, without = shown.costs(), _accuracy_without_flips(plan, data, shared, ranks)
    if costs is not None:
        cost_rows(costs)
    print()
    lines = [] if costs is None else [time_cost_line(costs), *death_lines(costs, plan.faults)]
    if without is not None:
        lines.append(accuracy_cost_line(plan.faults, shown.accuracy, without))
    print_answer([*lines, *shown.answer(), next_line(_to_try(plan, shown.cause, config_file, flags))])
    return 0


def _accuracy_without_flips(plan: Plan, data: Dataset, shared: follower.SharedData, ranks: Ranks) -> float | None:
    """Train on all ranks once more, without flips; return the test accuracy, None where there is nothing to compare."""
    faults = plan.faults
    if not faults.compare or not any(flips.rate for flips in faults.flips) or not data.n_test:
        return None
    config = plan.config.model_copy(update={"checkpoint": None, "resume": None})
    other = dataclasses.replace(plan.hurt_by(faults.without_flips), config=config)
    with phases("training once more without flips, to compare"):
        checkpoints = checkpoints_of(other, data, ranks, None)
        ranks.start(functools.partial(follower.follow, other, shared, False, None, checkpoints.keeping))
        return train(other, data, ranks, gather_weights=False, checkpoints=checkpoints)[-1].test.accuracy


def _to_try(plan: Plan, cause: Cause | None, config_file: str | None, flags: dict[str, Any]) -> str:
    """Return the command to try next: a look at the results, or a simulation of what lifts the limit."""
    if plan.config.out is not None:
        return shlex.join(["emuchain", "show", plan.config.out])
    known = {key: value for key, value in flags.items() if key not in RUN_ONLY_KEYS}
    known["devices"] = plan.config.devices or plan.nodes
    if cause is None:
        return command_line("simulate", config_file, other_schedule(plan, known))
    return command_line("simulate", config_file, {**known, **next_changes(plan, cause)})


def _announcement(plan: Plan, data: Dataset, ranks: int) -> str:
    note = "".join(f"; {each}" for each in (data.note, plan.network.note) if each)
    samples = plural(data.n_train, plan.network.sample_noun)
    return (
        f"{plan.network.name} on {describe_devices(plan)} in {hosts(ranks, plan.nodes)}, "
        f"{plan.config.schedule.name}, batch {plan.config.batch}, {data.name}: {samples}{note}"
    )


class _Shown(Shown):
    """Shows a run on a chain."""

    def __init__(self, plan: Plan, data: Dataset, recorder: Recorder, progress: Progress) -> None:
        super().__init__(plan, data, recorder, progress)
        self._chain = plan

    def tables(self, full: bool) -> None:
        """Print devices, links and exchanges at the end: the most loaded ones, or all."""
        history = self.recorder.history
        last = history[-1]
        device_rows(last.usage, full)
        if last.usage.links:
            link_rows(last.usage, full)
        exchange = exchange_table(history, self._chain.nodes)
        if exchange:
            exchange_rows(exchange, history_table(history)["virtual_time_ps"])

    @property
    def accuracy(self) -> float:
        """Test accuracy of the last epoch."""
        return self.recorder.history[-1].test.accuracy

    @functools.cached_property
    def _steady(self) -> SteadyState | None:
        return steady_state(self._chain) if self._chain.times_rows else None

    @functools.cached_property
    def cause(self) -> Cause | None:
        """What holds the chain back; None where boards take actions as a whole."""
        return None if self._steady is None else cause_of(self._chain, self._steady)

    def costs(self) -> FaultCosts | None:
        """Return what faults cost in time; None without any that do."""
        if not self._chain.faults.in_time:
            return None
        history = self.recorder.history
        sizes = [RecordedSizes(epoch.sizes) for epoch in history] if history[-1].sizes else []
        return fault_costs(self._chain, self._data.n_train, history[-1].virtual_time_ps, sizes)

    def answer(self) -> list[Line]:
        """Return the lines at the end: rate, accuracy, times, limit, memory and weights."""
        plan, history, ngrams = self._chain, self.recorder.history, self.recorder.ngrams
        last, missing = history[-1], plan.missing_bytes
        samples = self._data.n_train * len(history)
        per_sample_ps = round(1e12 * last.host_time_s / samples)
        if self._steady is None or self.cause is None:
            limits = stage_lines(plan, last.usage)
        else:
            limits = limit_lines(plan, self._steady, self.cause)
        return [
            rate_line(plan, samples / (last.virtual_time_ps * 1e-12), missing),
            outcome_line(len(history), last.train.mean_loss, last.test.accuracy if last.test.samples else None),
            *([] if ngrams is None else [bits_line(last.test.bits_per_step, ngrams)]),
            Line(
                f"time: {format_time_ps(last.virtual_time_ps)} on the cluster; {last.host_time_s:.1f} s here,"
                f" {format_time_ps(per_sample_ps)} {an(plan.network.sample_noun)}"
            ),
            *limits,
            memory_line(plan, missing),
            weights_line(plan),
            *order_line(plan),
        ]
