"""What ZeRO needs of a run: replicas whose exchange has two halves, and updates that they can share
out (Rajbhandari et al., SC 2020).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...comm.exchange import DataParallel
from ..common import InputError, plural
from ..faults import Faults
from ..network import Network
from ..schedule import Engines, Machine
from ..timing import Timing

if TYPE_CHECKING:
    from ..config import Config

_SHARED_KINDS = "gradients", "weights", "master", "states"
"""Numbers of which a replica has a part of an array."""


def check_zero(
    config: Config, network: Network, data_parallel: DataParallel, faults: Faults
) -> None:
    """Check that replicas can share out what a run's stage of ZeRO says.

    Raises:
        InputError: they cannot.
    """
    if not config.zero:
        return
    given, replicas = f"`zero` = {config.zero}", data_parallel.replicas
    if replicas == 1:
        raise InputError(
            f"{given}: is of replicas, which share out what updates keep; add `replicas`, such as 2"
        )
    _check_exchange(given, data_parallel)
    if config.compress_weights.compresses:
        raise InputError(
            f"{given}: `compress_weights` = {str(config.compress_weights)!r} is of whole arrays, of"
            " which each replica updates a part; leave one of them out"
        )
    kinds = itertools.product(config.precision.all_of, _SHARED_KINDS)
    for number, kind in ((own.format(kind), kind) for own, kind in kinds):
        if number.block:
            raise InputError(
                f"{given}: blocks of {number.name} lie across the shares of replicas; should be"
                f" another format of {kind}, such as `precision.{kind}` = 'bf16'"
            )
    if network.heads:
        raise InputError(
            f"{given}: {network.heads[0].name} has the weights of {network.heads[0].operation.tied},"
            " whose gradients are added up after the exchange, when no replica has all; leave it"
            " out"
        )
    if faults.flips:
        raise InputError(
            f"{given}: `faults.flips`: where bits flip replicas differ, and each has only its share"
            " of what updates keep; leave one of them out"
        )


def check_gathers(config: Config, machine: Machine | None, *, profiled: bool) -> None:
    """Check that devices work on one layer at a time, whose weights are gathered before.

    Raises:
        InputError: they do not, or times of layers are `profiled`.
    """
    if config.zero < 3:
        return
    given = f"`zero` = {config.zero}"
    if machine is None or machine.engines is not Engines.TURNS:
        raise InputError(
            f"{given}: engines that are {'split' if machine is None else machine.engines.value} work"
            " on several layers of a board at a time, which so has to hold all of their weights;"
            " should be 1 or 2, or `engines` = 'turns', by which layers take turns"
        )
    if not config.schedule.aligned:
        raise InputError(
            f"{given}: `schedule` = {config.schedule.name!r} splits micro-batches where its weights"
            " change, not at the same places in all replicas, which gather weights together; should"
            " be one such as 'sync' or '1f1b-as'"
        )
    if config.error_feedback:
        raise InputError(
            f"{given}: `error_feedback` keeps what a codec drops of whole rows of gradients, and"
            " those of each layer go apart; leave one of them out"
        )
    if profiled:
        raise InputError(
            f"{given}: `--profile` has times of layers on boards that hold their weights; leave one"
            " of them out"
        )


def check_micro_batches(config: Config, replicas: int, samples: int) -> None:
    """Check that replicas which gather weights for each micro-batch have as many in an epoch.

    Raises:
        InputError: some have more in the last mini-batch.
    """
    tail, size = samples % config.batch, config.micro_batch
    least, most = (-(-share // size) for share in (tail // replicas, -(-tail // replicas)))
    if config.zero < 3 or least == most:
        return
    raise InputError(
        f"`zero` = {config.zero}: all replicas gather weights for each micro-batch, and `samples` ="
        f" {samples} leaves {plural(least, 'micro-batch')} for some of {replicas} in the last"
        f" mini-batch and {most} for others; try {samples - tail % replicas}"
    )


def _check_exchange(given: str, data_parallel: DataParallel) -> None:
    # Each worker of a ring owns a block, by construction; its steps take long to read for many.
    if data_parallel.exchange == "ring" and data_parallel.groups == 1:
        return
    problem = data_parallel.collective.problem(data_parallel.replicas)
    if problem is not None:
        groups = f" in {data_parallel.groups} groups" if data_parallel.groups > 1 else ""
        raise InputError(
            f"{given}: exchange by {data_parallel.exchange_name}{groups}: {problem}; should be by"
            " 'ring' or 'halving-doubling', without groups"
        )


def check_shares(config: Config, timing: Timing) -> None:
    """Check that no board stores parameters for another, whose updates would wait for all replicas.

    Raises:
        InputError: one does.
    """
    if config.zero and timing.blocks:
        raise InputError(
            f"`zero` = {config.zero}: the board of {timing.blocks[0].layer.name} has no room for its"
            " parameters, which another one stores, and shares are of what a board has itself; add"
            " `balancing` = 'none'"
        )
