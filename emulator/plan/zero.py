"""What ZeRO needs of a run: replicas whose exchange has two halves, and updates that they can share
out (Rajbhandari et al., SC 2020).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...comm.exchange import DataParallel
from ..common import InputError
from ..faults import Faults
from ..network import Network
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
    if config.zero > 2:
        raise InputError(
            f"{given}: F and B read all weights of a device's layers at a time, so that no share of"
            " them could be left out of its memory; should be 1 or 2"
        )
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
    for kind in _SHARED_KINDS:
        number = config.precision.format(kind)
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
