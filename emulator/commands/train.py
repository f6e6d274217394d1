"""`emuchain train`: training on all ranks, with progress, tables and an answer; on a chain or on a
pair.

With `--control`, the same run without codec follows; so may other runs beside one that has ended.
With `--seeds N`, the same run with several seeds, and the means of what they reach, with standard
errors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...launch import Ranks
from ..common import InputError, Mean, an, format_time_ps, number, plural
from ..config import RUN_ONLY_KEYS, Config, blaming
from ..number import KINDS
from ..plan import (
    ChainPlan,
    PairPlan,
    Plan,
    configured_network,
    idle_settings,
    long_plan,
    long_work,
    plan_run,
)
from ..run import (
    CONTROL,
    WITHOUT_FLIPS,
    Cause,
    EpochRecord,
    Position,
    RecordedSizes,
    Resumed,
    Runs,
    SteadyState,
    StepResult,
    StoppedRun,
    Training,
    Weights,
    cause_of,
    control_config,
    exchange_table,
    fault_costs,
    going_on,
    history_table,
    of_beside,
    resource_table,
    rounding_table,
    steady_state,
)
from ..view import (
    Line,
    Progress,
    RunProgress,
    TraceRequest,
    accuracy_cost_line,
    bits_line,
    command_line,
    cost_rows,
    death_lines,
    exchange_rows,
    limit_lines,
    make_progress,
    memory_line,
    next_changes,
    next_line,
    order_line,
    other_schedule,
    outcome_line,
    print_answer,
    rate_line,
    resource_rows,
    rounding_rows,
    say,
    stage_lines,
    table,
    time_cost_line,
    usage_rows,
    weights_line,
    wide_lines,
)
from .frame.kernels import load as load_kernels
from .frame.output import phases, tell, tell_notes, tell_warning

_MOST_NAMED = 10


def run_training(
    ranks: Ranks,
    runs: Runs,
    config_file: str | None,
    flags: dict[str, Any],
    full: bool,
    trace: Mapping[str, str | None],
    *,
    control: bool = False,
) -> None:
    """Train as configured on all ranks, show progress, tables and an answer, and write results; for
    rank 0.

    `trace` has the flags of a trace. With `control`, a run without codec follows.

    Raises:
        InputError: the configuration, the data or `trace` are invalid.
        StoppedRun: a signal has ended the run at a checkpoint.
    """
    [(config, start)] = runs.starts()
    traced = _trace_of(config, trace)
    if control:
        runs.check_outputs()
    blame = functools.partial(blaming, config_file, {**flags, **trace})
    with prepared_run(ranks, runs, config, start, traced, blame) as shown:
        shown.training.run(shown.step, shown.epoch, shown.resume)
    shown.tables(full)
    if traced is not None:
        print(traced.written)
    first = shown.costs(ranks)
    if control:
        first = [*control_lines(shown.training, train_control(shown.training, ranks)), *first]
    print()
    print_answer([*first, *shown.answer(), next_line(shown.to_try(config_file, flags))])


@contextlib.contextmanager
def prepared_run(
    ranks: Ranks,
    runs: Runs,
    config: Config,
    start: Resumed | None,
    traced: TraceRequest | None,
    blame: Callable[[], contextlib.AbstractContextManager[None]],
) -> Iterator[Shown]:
    """Get all ranks ready to train as configured, and say so; yield what shows the run, on rank 0.

    Args:
        ranks: all of them.
        runs: those of the command.
        config: the configuration of this one.
        start: the run that goes on, if it does.
        traced: the timeline that is written, if there is one.
        blame: makes what adds the configuration's file to an error about one of its keys.

    Raises:
        InputError: the configuration or the data are invalid, or a file cannot be written.
    """
    with contextlib.ExitStack() as files:
        with blame():
            if runs.first is None:
                network, cluster = configured_network(config), None
                tell_notes([long_plan(config, network)])
            else:
                network, cluster = runs.first.network, runs.first.cluster
            plan = plan_run(config, ranks.size, network=network, cluster=cluster)
            if runs.first is None and isinstance(plan, ChainPlan):
                tell_notes(idle_settings(plan))
            training = files.enter_context(
                Training(plan, ranks, start, trace=traced, series=runs.series)
            )
        with make_progress(config.progress) as progress:
            ranks.in_turn(functools.partial(load_kernels, progress.note))
            shown = (_PairShown if isinstance(plan, PairPlan) else _ChainShown)(training, progress)
            training.lead()
            warning = long_work(config, plan.network, training.data.n_train, numbers=True)
            tell_warning(warning)
            progress.note(shown.announcement(ranks.size))
            shown.start()
            yield shown


def show_stopped(stopped: StoppedRun, runs: Runs, words: Sequence[str]) -> None:
    """Say where a signal has ended a run, and how to go on with the command of these words."""
    again = ["emuchain", *words, "--resume", runs.base.checkpoint or ""]
    print_answer([Line(str(stopped)), next_line(shlex.join(again))])


def _trace_of(config: Config, trace: Mapping[str, str | None]) -> TraceRequest | None:
    """Return what the flags of a trace say.

    Raises:
        InputError: they are invalid, or the run is that of a pair.
    """
    if config.schedule.offload is None:
        return TraceRequest.of(**trace)
    for flag, value in trace.items():
        if value is not None:
            reason = "of a pair, `emuchain simulate --trace` writes it, with the same times"
            raise InputError(f"`--{flag.replace('_', '-')}`: {reason}")
    return None


def hosts(ranks: int, needed: int) -> str:
    """Return the number of ranks that train, in words, with the number of idle ones."""
    idle = f" ({plural(ranks - needed, 'rank')} idle)" if ranks > needed else ""
    return f"{ranks} ranks{idle}" if ranks > 1 else "one process"


class Shown:
    """Shows mini-batches and epochs of a run as progress, and what came of it; on rank 0."""

    place = "cluster"
    """Where virtual time passes."""

    def __init__(self, training: Training, progress: Progress) -> None:
        self.training = training
        samples = training.data.n_train
        self._progress = RunProgress(progress, training.plan.config, samples)
        self._data, self.history = training.data, training.recorder.history

    @property
    def _config(self) -> Config:
        return self.training.plan.config

    def announcement(self, ranks: int) -> str:
        """Return what is about to be trained, and where."""
        plan, config, data = self.training.plan, self._config, self._data
        samples = plural(data.n_train, plan.network.sample_noun)
        note = "".join(f"; {note}" for note in self._notes() if note)
        where = f"{plan.title} in {hosts(ranks, plan.nodes)}"
        return (
            f"{where}, {config.schedule.name}, batch {config.batch}, {data.name}: {samples}{note}"
        )

    def _notes(self) -> list[str]:
        return [self._data.note]

    def start(self) -> None:
        """Show that the run begins."""
        self._progress.start()

    def resume(self, at: Position) -> None:
        """Show from where a run goes on."""
        self._progress.resume(at)
        self._progress.progress.note(
            f"resuming from {self._config.resume}: {self.training.place(at)}"
        )

    def step(self, result: StepResult) -> None:
        """Show a finished mini-batch."""
        self._progress.step(result)

    def epoch(self, result: EpochRecord, _: Weights) -> None:
        """Show a finished epoch, whose results are in their file."""
        self._progress.progress.epoch(result.result)

    def tables(self, full: bool) -> None:
        """Print tables at the end: the most loaded devices and links, or all."""

    def costs(self, ranks: Ranks) -> list[Line]:
        """Print what faults cost, and return lines about it."""
        return []

    def answer(self) -> list[Line]:
        """Return the lines at the end: rate, accuracy, times, limit and memory."""
        history, ngrams, noun = (
            self.history,
            self.training.recorder.ngrams,
            self.training.plan.network.sample_noun,
        )
        last, samples = history[-1], self._data.n_train * len(history)
        per_sample_ps = round(1e12 * last.host_time_s / samples)
        return [
            self.rate_line,
            outcome_line(
                len(history),
                self._config.epochs,
                last.train.mean_loss,
                last.test.known_accuracy,
                last.test.mean_loss,
            ),
            *([] if ngrams is None else [bits_line(last.test.bits_per_step, ngrams)]),
            Line(
                f"time: {format_time_ps(last.virtual_time_ps)} on the {self.place};"
                f" {last.host_time_s:.1f} s here, {format_time_ps(per_sample_ps)} {an(noun)}"
            ),
            *self._limits(),
        ]

    @property
    def rate_line(self) -> Line:
        """The line with the rate of the whole run on the cluster."""
        samples = self._data.n_train * len(self.history)
        return self._rate(samples / (self.history[-1].virtual_time_ps * 1e-12))

    def _rate(self, samples_per_s: float) -> Line:
        raise NotImplementedError

    def _limits(self) -> list[Line]:
        raise NotImplementedError

    def to_try(self, config_file: str | None, flags: dict[str, Any]) -> str:
        """Return the command to try next: a look at the results, or a simulation."""
        if self._config.out is not None:
            return shlex.join(["emuchain", "show", self._config.out])
        return self._simulation(
            config_file, {key: value for key, value in flags.items() if key not in RUN_ONLY_KEYS}
        )

    def _simulation(self, config_file: str | None, flags: dict[str, Any]) -> str:
        raise NotImplementedError


class _ChainShown(Shown):
    """Shows a run on a chain."""

    def __init__(self, training: Training, progress: Progress) -> None:
        super().__init__(training, progress)
        assert isinstance(training.plan, ChainPlan)
        self._chain = training.plan

    def _notes(self) -> list[str]:
        return [self._data.note, self._chain.network.note]

    def tables(self, full: bool) -> None:
        """See `Shown`."""
        usage = self.history[-1].usage
        usage_rows(usage, full)
        exchange = exchange_table(self.history, self._chain.nodes)
        if exchange:
            exchange_rows(exchange, history_table(self.history)["virtual_time_ps"])
        rounding = rounding_table(self.history)
        if rounding:
            rounding_rows(rounding, KINDS)

    def costs(self, ranks: Ranks) -> list[Line]:
        """See `Shown`: in time, and in accuracy where bits flip, for which it trains once more."""
        plan, last, lines = self._chain, self.history[-1], list[Line]()
        without = self._accuracy_without_flips(ranks)
        if plan.faults.in_time:
            sizes = [RecordedSizes(epoch.sizes) for epoch in self.history] if last.sizes else []
            costs = fault_costs(plan, self._data.n_train, last.virtual_time_ps, sizes)
            cost_rows(costs)
            lines += [time_cost_line(costs), *death_lines(costs, plan.faults)]
        if without is not None:
            lines.append(accuracy_cost_line(plan.faults, last.test.accuracy, without))
        return lines

    def _accuracy_without_flips(self, ranks: Ranks) -> float | None:
        """Train on all ranks once more, without flips; return the test accuracy, None with nothing
        to compare.
        """
        faults = self._chain.faults
        if (
            not faults.compare
            or not any(flips.rate for flips in faults.flips)
            or not self._data.n_test
        ):
            return None
        other = self._chain.with_faults(faults.without_flips)
        config, phase = (
            of_beside(self._config, WITHOUT_FLIPS),
            "training once more without flips, to compare",
        )

        def planned(config: Config) -> ChainPlan:
            return dataclasses.replace(other, config=config)

        return train_beside(self.training, config, planned, ranks, phase).test.accuracy

    @functools.cached_property
    def _steady(self) -> SteadyState | None:
        return steady_state(self._chain) if self._chain.times_rows else None

    @functools.cached_property
    def _cause(self) -> Cause | None:
        """What holds the chain back; None where boards take actions as a whole."""
        return None if self._steady is None else cause_of(self._chain, self._steady)

    def _rate(self, samples_per_s: float) -> Line:
        return rate_line(self._chain, samples_per_s, self._chain.missing_bytes)

    def _limits(self) -> list[Line]:
        plan = self._chain
        if self._steady is None or self._cause is None:
            limits = stage_lines(plan, self.history[-1].usage)
        else:
            limits = [*limit_lines(plan, self._steady, self._cause), *wide_lines(plan)]
        return [
            *limits,
            memory_line(plan, plan.missing_bytes),
            weights_line(plan),
            *order_line(plan),
        ]

    def _simulation(self, config_file: str | None, flags: dict[str, Any]) -> str:
        flags["devices"] = self._config.devices or self._chain.nodes
        if self._cause is None:
            return command_line("simulate", config_file, other_schedule(self._chain, flags))
        return command_line(
            "simulate", config_file, {**flags, **next_changes(self._chain, self._cause)}
        )


class _PairShown(Shown):
    """Shows a run on a GPU, alone or with an FPGA."""

    place = "devices"

    def __init__(self, training: Training, progress: Progress) -> None:
        super().__init__(training, progress)
        assert isinstance(training.plan, PairPlan)
        self._pair = training.plan

    def tables(self, full: bool) -> None:
        """See `Shown`."""
        last = self.history[-1]
        resource_rows(resource_table(last.resources), last.virtual_time_ps)

    def _rate(self, samples_per_s: float) -> Line:
        return Line(
            f"{self._pair.title}: {number(samples_per_s)} {self._pair.network.sample_noun}s/s"
        )

    def _limits(self) -> list[Line]:
        memory = [] if self._pair.memory is None else [Line(f"memory: {self._pair.memory}")]
        return [Line(f"limit: {self._pair.limit}"), *memory]

    def _simulation(self, config_file: str | None, flags: dict[str, Any]) -> str:
        others = {key: value for key, value in flags.items() if key != "network"}
        return command_line("simulate", None, {"network": self._config.network, **others})


def train_control(training: Training, ranks: Ranks) -> EpochRecord:
    """Train a control on all ranks once a run has ended; return its last epoch."""
    plan = training.plan

    def without(config: Config) -> Plan:
        return plan_run(config, ranks.size, network=plan.network, cluster=plan.cluster)

    config = of_beside(plan.config, CONTROL, control_config)
    return train_beside(
        training, config, without, ranks, "training once more without codec, to compare"
    )


def train_beside(
    training: Training,
    config: Config,
    planned: Callable[[Config], Plan],
    ranks: Ranks,
    phase: str,
) -> EpochRecord:
    """Train another run on all ranks beside one that has ended; return its last epoch.

    Args:
        training: the run, whose data it takes.
        config: its configuration.
        planned: gives its plan.
        ranks: all of them.
        phase: what is shown meanwhile.

    Raises:
        StoppedRun: a signal has ended it at a checkpoint.
    """
    resumed = going_on(config, training.series)
    plan = planned(
        config.model_copy(update={"resume": None}) if resumed is None else resumed.config
    )
    with (
        phases(phase),
        Training(plan, ranks, resumed, data=training.data, series=training.series) as again,
    ):
        again.lead()
        return again.run()[-1]


def control_lines(training: Training, control: EpochRecord) -> list[Line]:
    """Return what the codec of a run that has ended changes, then what its control gives."""
    ended = training.recorder.history[-1]
    return [
        Line(f"codec changes {_codec_change(ended, control)}: {_codecs(training.plan.config)}"),
        _control_line(ended, control),
    ]


def _codec_change(ended: EpochRecord, control: EpochRecord) -> str:
    if control.test.known_accuracy is None:
        return f"train loss by {ended.train.mean_loss - control.train.mean_loss:+.4f}"
    points = 100 * (ended.test.accuracy - control.test.accuracy)
    return f"test accuracy by {points:+.2f} points, {100 * control.test.accuracy:.2f} % without"


def _control_line(ended: EpochRecord, control: EpochRecord) -> Line:
    accuracy = control.test.known_accuracy
    tested = "" if accuracy is None else f"test accuracy {100 * accuracy:.2f} %, "
    times = (
        f"{format_time_ps(control.virtual_time_ps)} on the cluster,"
        f" {format_time_ps(ended.virtual_time_ps)} with it"
    )
    return Line(f"control without codec: {tested}train loss {control.train.mean_loss:.4f}; {times}")


def _codecs(config: Config) -> str:
    feedback = " with error feedback" if config.error_feedback else ""
    gradients = [f"gradients by {config.compress}{feedback}"] if config.compress.compresses else []
    weights = (
        [f"weights by {config.compress_weights}"] if config.compress_weights.compresses else []
    )
    return ", ".join(gradients + weights)


class _Seed(NamedTuple):
    """A seed's run: its configuration, its last epoch, and that of its control if it has one."""

    config: Config
    epoch: EpochRecord
    control: EpochRecord | None


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
    for place, (config, start) in enumerate(runs.starts(), 1):
        tell(f"seed {config.seed}: {place} of {len(runs.configs)}")
        with prepared_run(
            ranks, runs, config, start, None, functools.partial(blaming, config_file, flags)
        ) as shown:
            shown.training.run(shown.step, shown.epoch, shown.resume)
        without = train_control(shown.training, ranks) if control else None
        ended.append(_Seed(config, shown.history[-1], without))
        rate = shown.rate_line
    print_answer([*_seeds_answer(ended), rate, next_line(_to_try(ended, config_file, flags))])
    _print_seeds(ended)


def _seeds_answer(ended: Sequence[_Seed]) -> list[Line]:
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
    if controls[0].test.known_accuracy is not None:
        change = Mean.over(
            [100 * (run.test.accuracy - without.test.accuracy) for run, without in pairs]
        )
        change_text = f"test accuracy by {_signed(change, 2)} points"
    else:
        change = Mean.over(
            [run.train.mean_loss - without.train.mean_loss for run, without in pairs]
        )
        change_text = f"train loss by {_signed(change, 4)}"
    return [
        Line(f"codec changes {change_text}, seed by seed"),
        *lines,
        Line(f"without codec: {_reached(controls)}"),
    ]


def _reached(epochs: Sequence[EpochRecord]) -> str:
    """Return the mean test accuracy, where there is one, and the mean loss."""
    loss = f"train loss {Mean.over([epoch.train.mean_loss for epoch in epochs]).shown(4)}"
    if epochs[0].test.known_accuracy is None:
        return loss
    return (
        f"test accuracy {Mean.over([100 * epoch.test.accuracy for epoch in epochs]).shown(2)} %,"
        f" {loss}"
    )


def _signed(change: Mean, digits: int) -> str:
    return ("" if change.value < 0 else "+") + change.shown(digits)


def _to_try(ended: Sequence[_Seed], config_file: str | None, flags: dict[str, Any]) -> str:
    """Return the command to try next: a report of the results, or the same with results."""
    files = [run.config.out for run in ended if run.config.out is not None]
    if files:
        return shlex.join(["emuchain", "report", *files])
    return command_line("train", config_file, {**flags, "seeds": len(ended), "out": "run.h5"})


def _shown(epoch: EpochRecord) -> str:
    accuracy = epoch.test.known_accuracy
    return "-" if accuracy is None else f"{100 * accuracy:.2f} %"


def _print_seeds(ended: Sequence[_Seed]) -> None:
    rows = [
        [
            str(run.config.seed),
            _shown(run.epoch),
            f"{run.epoch.train.mean_loss:.4f}",
            *([] if run.control is None else [_shown(run.control)]),
            format_time_ps(run.epoch.virtual_time_ps),
            run.config.out or "-",
        ]
        for run in ended
    ]
    control = [] if ended[0].control is None else ["without codec"]
    table(
        "Seeds",
        ["seed", "test accuracy", "train loss", *control, "virtual time", "results"],
        rows,
        left=("results",),
    )
    if ended[0].config.out is not None:
        say("each results file is that of a run of its seed alone")
