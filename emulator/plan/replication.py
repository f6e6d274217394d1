"""How a configuration's devices are shared out among replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ...comm.exchange.groups import DataParallel
from ...kernels.codec.codec import NoCodec, parse_codec
from ..common.errors import InputError

if TYPE_CHECKING:
    from ..config.config import Config


def share_out(config: Config, ranks: int) -> tuple[DataParallel, int]:
    """The replicas, and the devices of each one's chain.

    Under a data-parallel schedule each device is a replica. Else `replicas` chains of `devices` stand side by side, by
    default on one rank each.

    Raises:
        InputError: the keys contradict one another, or a mini-batch cannot be shared out.
    """
    kinds: dict[str, Literal["ring", "aggregator"]] = {
        "data-parallel-ring": "ring",
        "data-parallel-aggregator": "aggregator",
    }
    kind = kinds.get(config.schedule, config.exchange)
    codec, ratio = parse_codec(config.compress), config.compress_ratio
    if ratio is not None and isinstance(codec, NoCodec):
        raise InputError(f"`compress_ratio` = {ratio:g}: there is no codec; add `compress`, such as inceptionn:-10")
    if config.schedule not in kinds:
        replicas, devices = config.replicas, config.devices or max(1, ranks // config.replicas)
    else:
        replicas, devices = config.devices or ranks, 1
        if config.replicas not in (1, replicas):
            raise InputError(
                f"`replicas` = {config.replicas}: with schedule {config.schedule} every one of {replicas} devices is a"
                " replica; for chains side by side use schedule sync or fpdeep"
            )
        if "exchange" in config.model_fields_set and config.exchange != kind:
            raise InputError(f"`exchange` = {config.exchange!r}: schedule {config.schedule} says {kind!r}")
    _check(config, replicas)
    return DataParallel(replicas, config.groups, kind, codec, ratio), devices


def check_samples(config: Config, replicas: int, samples: int) -> None:
    """Whether the last mini-batch of an epoch has a sample for each replica.

    Raises:
        InputError: it has not.
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
        raise InputError(f"`batch` = {config.batch}: cannot be shared out evenly among {replicas} replicas; try {near}")
    if replicas % config.groups:
        raise InputError(f"`groups` = {config.groups}: {replicas} replicas do not make so many groups of equal size")
    if config.samples is not None:
        check_samples(config, replicas, config.samples)
