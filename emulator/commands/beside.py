"""What `train` trains once more to compare a run with: `--control` without codec, and faults without flips.

Such a run keeps a checkpoint of its own beside that of the run, so that it goes on, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...kernels.codec import NoCodec
from ..common import InputError
from ..config import Config

CONTROL, WITHOUT_FLIPS = "control", "without-flips"
"""What the checkpoints of such runs are called by."""


def changes_beside(*, control: bool) -> Mapping[str, Callable[[Config], Config]]:
    """Return what differs in the configurations of runs that may be trained beside one, by their names."""
    return {WITHOUT_FLIPS: lambda config: config, **({CONTROL: control_config} if control else {})}


def control_config(config: Config) -> Config:
    """Return the configuration of the control, but for its files.

    Raises:
        InputError: there is no codec that it could do without.
    """
    if not (config.compress.compresses or config.compress_weights.compresses):
        raise InputError("`--control`: trains once more without codec, but there is none; add `compress`")
    without = {"compress": NoCodec(), "compress_weights": NoCodec(), "compress_ratio": None, "error_feedback": False}
    return config.model_copy(update=without)
