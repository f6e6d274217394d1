"""Division of a configuration's devices among replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...comm.exchange import DataParallel
from ..common import InputError

if TYPE_CHECKING:
    from ..config import Config


def replicate(config: Config, ranks: int) -> tuple[DataParallel, int]:
    """Return the replicas, and the number of devices in each replica's chain.

    Under a data-parallel schedule each device is a replica. Otherwise there are `replicas` parallel chains of `devices`
    devices, by default one device on each rank.

    Raises:
        InputError: the keys contradict one another, or a mini-batch cannot be divided.
    """
    schedule, codec, ratio = config.schedule, config.compress, config.compress_ratio
    exchange = schedule.replicates or config.exchange
    if ratio is not None and not codec.compresses:
        raise InputError(
            f"`compress_ratio` = {ratio:g}: has no effect without a codec; add `compress`, such as inceptionn:-10"
        )
    if schedule.replicates is None:
        replicas, devices = config.replicas, config.devices or max(1, ranks // config.replicas)
    else:
        replicas, devices = config.devices or ranks, 1
        if config.replicas not in (1, replicas):
            raise InputError(
                f"`replicas` = {config.replicas}: with schedule {schedule.name} every one of {replicas} devices is a"
                " replica; for chains side by side use schedule sync or fpdeep"
            )
        if "exchange" in config.model_fields_set and config.exchange != exchange:
            raise InputError(f"`exchange` = {config.exchange!r}: schedule {schedule.name} uses {exchange!r}")
    _check(config, replicas)
    return DataParallel(replicas, config.groups, exchange, codec, ratio), devices


def check_samples(config: Config, replicas: int, samples: int) -> None:
    """Check that the last mini-batch of an epoch has a sample for each replica.

    Raises:
        InputError: it has fewer samples than there are replicas.
    """
    tail = samples % config.batch
    if 0 < tail < replicas:
        whole = samples - tail
        near = f"{whole} or {whole + replicas}" if whole else f"{replicas}"
        raise InputError(
            f"`samples` = {samples}: leaves {tail} for the last mini-batch, fewer than {replicas} replicas; try {near}"
        )


def _check(config: Config, replicas: int) -> None:
    if config.batch % replicas:
        below = config.batch // replicas * replicas
        near = f"{below} or {below + replicas}" if below else f"{replicas}"
        raise InputError(f"`batch` = {config.batch}: cannot be divided evenly among {replicas} replicas; try {near}")
    if replicas % config.groups:
        raise InputError(f"`groups` = {config.groups}: {replicas} replicas cannot be divided into as many equal groups")
    if config.samples is not None:
        check_samples(config, replicas, config.samples)
