"""`train --control`: the same run without codec, beside that with one."""

from __future__ import annotations

from ...kernels.codec import NoCodec
from ...launch import Ranks
from ..common import InputError, format_time_ps
from ..config import Config
from ..plan import plan_run
from ..run import EpochResult, Training
from ..view import Line
from .output import phases

_ELSEWHERE = dict.fromkeys(("checkpoint", "resume", "out", "log"))
"""Keys of files that the control neither reads nor writes."""


def control_config(config: Config) -> Config:
    """Return the configuration of the control.

    Raises:
        InputError: there is no codec that it could do without.
    """
    if not (config.compress.compresses or config.compress_weights.compresses):
        raise InputError("`--control`: trains once more without codec, but there is none; add `compress`")
    without = {"compress": NoCodec(), "compress_weights": NoCodec(), "compress_ratio": None, "error_feedback": False}
    return config.model_copy(update={**without, **_ELSEWHERE})


def train_control(training: Training, config: Config, ranks: Ranks) -> EpochResult:
    """Train a control on all ranks once a run has ended; return its last epoch."""
    plan = training.plan
    other = plan_run(config, ranks.size, network=plan.network, cluster=plan.cluster)
    with phases("training once more without codec, to compare"), Training(other, ranks, data=training.data) as again:
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
