"""`train --control`: the same run without codec, beside that with one; and how any run is trained beside another."""

from __future__ import annotations

from collections.abc import Callable

from ...launch import Ranks
from ..common import format_time_ps
from ..config import Config
from ..plan import Plan, plan_run
from ..run import CONTROL, EpochResult, Training, control_config, going_on, of_beside
from ..view import Line
from .output import phases


def train_control(training: Training, ranks: Ranks) -> EpochResult:
    """Train a control on all ranks once a run has ended; return its last epoch."""
    plan = training.plan

    def without(config: Config) -> Plan:
        return plan_run(config, ranks.size, network=plan.network, cluster=plan.cluster)

    config = of_beside(plan.config, CONTROL, control_config)
    return train_beside(training, config, without, ranks, "training once more without codec, to compare")


def train_beside(
    training: Training,
    config: Config,
    planned: Callable[[Config], Plan],
    ranks: Ranks,
    phase: str,
) -> EpochResult:
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
    plan = planned(config.model_copy(update={"resume": None}) if resumed is None else resumed.config)
    with phases(phase), Training(plan, ranks, resumed, data=training.data, series=training.series) as again:
        again.lead()
        return again.run()[-1]


def control_lines(training: Training, control: EpochResult) -> list[Line]:
    """Return what the codec of a run that has ended changes, then what its control gives."""
    ended = training.recorder.history[-1]
    return [Line(f"codec changes {_change(ended, control)}: {_codecs(training.plan.config)}"), _told(ended, control)]


def _change(ended: EpochResult, control: EpochResult) -> str:
    if not control.test.samples:
        return f"train loss by {ended.train.mean_loss - control.train.mean_loss:+.4f}"
    points = 100 * (ended.test.accuracy - control.test.accuracy)
    return f"test accuracy by {points:+.2f} points, {100 * control.test.accuracy:.2f} % without"


def _told(ended: EpochResult, control: EpochResult) -> Line:
    tested = f"test accuracy {100 * control.test.accuracy:.2f} %, " if control.test.samples else ""
    times = f"{format_time_ps(control.virtual_time_ps)} on the cluster, {format_time_ps(ended.virtual_time_ps)} with it"
    return Line(f"control without codec: {tested}train loss {control.train.mean_loss:.4f}; {times}")


def _codecs(config: Config) -> str:
    feedback = " with error feedback" if config.error_feedback else ""
    gradients = [f"gradients by {config.compress}{feedback}"] if config.compress.compresses else []
    weights = [f"weights by {config.compress_weights}"] if config.compress_weights.compresses else []
    return ", ".join(gradients + weights)
