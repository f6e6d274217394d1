"""`--devices` with a range or a list: `simulate` and `plan` then print a sweep over these numbers."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..common import IMAGENET_IMAGES, InputError
from .kernels import starting
from .sweep import run_sweep

if TYPE_CHECKING:
    from .session import Session


def is_range(flags: Mapping[str, Any]) -> bool:
    """Return whether `--devices` has several numbers."""
    return isinstance(flags.get("devices"), tuple)


def sweep_devices(
    session: Session,
    config_file: str | None,
    flags: dict[str, Any],
    *,
    plot: str | None,
    as_json: bool,
    full: bool,
    epoch_images: int = IMAGENET_IMAGES,
    alone: Mapping[str, object] | None = None,
) -> int:
    """Sweep a configuration over the numbers of `--devices`, as `emuchain sweep` does; return the exit status.

    `alone` has the values of options that need one number of devices, by their names.

    Raises:
        InputError: the configuration is invalid, one of these options is given, or all points fail.
    """
    for option, value in (alone or {}).items():
        if value:
            raise InputError(f"`{option}`: cannot be combined with several numbers of `--devices`; give one number")
    with starting():
        from ..config import blaming, load_config
        from ..inputs import read_toml

    devices, others = flags["devices"], {key: value for key, value in flags.items() if key != "devices"}
    with blaming(config_file, others):
        config = load_config(config_file, others)
        in_file = {} if config_file is None else read_toml(pathlib.Path(config_file))
        # As given, not as validated: the points' processes validate them again, and a codec is no plain value.
        settings = {**in_file, **others}
        values = {"network": config.network, "cluster": config.cluster, "devices": devices}
        return run_sweep(
            values,
            {key: value for key, value in settings.items() if key not in values},
            ranks=session.join(),
            plot=None if plot is None else pathlib.Path(plot),
            as_json=as_json,
            full=full,
            epoch_images=epoch_images,
        )
