"""The faults of a plan: read where its configuration or its cluster has them, and held against its boards and links."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from ..cluster import Cluster
from ..common import InputError
from ..faults import Faults
from ..mapping import Mapping

if TYPE_CHECKING:
    from ..config import Config
    from .plan import ChainPlan


def faults_of(config: Config, cluster: Cluster) -> Faults:
    """Return the faults of the file that the configuration names; without one, those of the cluster.

    Raises:
        InputError: the file cannot be read, or something in it is wrong.
    """
    if config.faults is None:
        return cluster.faults
    from ..faults import load_faults  # with pydantic, which ranks that follow do without

    return load_faults(config.faults)


def check_faults(faults: Faults, config: Config, mapping: Mapping, replicas: int, boards: int) -> None:
    """Check that all boards and links that faults name are there, and that they can have them.

    Raises:
        InputError: one is not, or boards step together through a recurrent layer.
    """
    if not faults:
        return
    source = config.faults or config.cluster
    nodes = replicas * boards
    for name, board in _boards(faults):
        if board >= nodes:
            known = f"boards 0 to {nodes - 1}" if nodes > 1 else "only board 0"
            raise InputError(f"{source}: `{name}.board` = {board}: there is no such board; this run has {known}")
    for name, link in _links(faults):
        if link >= nodes - 1 or (link + 1) % boards == 0:
            known = "this run's boards have no chain" if boards == 1 else f"link n joins boards n and n + 1 of {nodes}"
            chains = f", and each chain has {boards}" if replicas > 1 and boards > 1 else ""
            raise InputError(f"{source}: `{name}.link` = {link}: there is no such link; {known}{chains}")
    if any(flips.of == "gradients" for flips in faults.flips) and replicas == 1:
        raise InputError(
            f"{source}: `faults.flips` = gradients: a single chain exchanges none; should be `replicas` > 1"
        )
    _check_recurrent(source, mapping)


def check_deaths(faults: Faults, plan: ChainPlan) -> None:
    """Check that a chain can go on without the boards that die.

    Raises:
        InputError: there are several chains, a board dies twice, all die, or times depend on what a codec saves.
    """
    config, exchange = plan.config, plan.data_parallel
    source = config.faults or config.cluster
    boards = [death.board for death in faults.deaths]
    twice = [board for board, count in collections.Counter(boards).items() if count > 1]
    if exchange.replicas > 1:
        raise InputError(
            f"{source}: `faults.deaths`: only a single chain can be cut again over the boards that are left, but there"
            f" are {exchange.replicas} replicas; should be `replicas` = 1, and a schedule such as 'sync' or 'fpdeep'"
        )
    if twice:
        raise InputError(f"{source}: `faults.deaths`: board {twice[0]} dies twice; each may be listed once")
    if len(boards) == plan.devices:
        raise InputError(f"{source}: `faults.deaths`: no board is left; at least one of {plan.devices} should live")
    if exchange.codec.compresses and plan.timing.blocks:
        raise InputError(
            f"{source}: `faults.deaths`: what is lost follows from times that are known beforehand, and `compress` ="
            f" {str(exchange.codec)!r} makes them depend on gradients; leave one of them out"
        )


def _check_recurrent(source: str, mapping: Mapping) -> None:
    for left, (slices, behind) in enumerate(zip(mapping.devices, mapping.devices[1:], strict=False)):
        layer = slices[-1].layer
        if layer.operation.recurs and layer.index == behind[0].layer.index:
            raise InputError(
                f"{source}: `faults`: boards {left} and {left + 1} step together through {layer.name}, so a fault of"
                " only one of them cannot be modelled; should be `stages` = 'layers'"
            )


def _boards(faults: Faults) -> list[tuple[str, int]]:
    slow = [(f"faults.boards[{place}]", fault.board) for place, fault in enumerate(faults.boards)]
    slow += [(f"faults.deaths[{place}]", death.board) for place, death in enumerate(faults.deaths)]
    flips = [
        (f"faults.flips[{place}]", fault.board) for place, fault in enumerate(faults.flips) if fault.board is not None
    ]
    return [*slow, *flips]


def _links(faults: Faults) -> list[tuple[str, int]]:
    links = [(f"faults.links[{place}]", fault.link) for place, fault in enumerate(faults.links)]
    flips = [
        (f"faults.flips[{place}]", fault.link) for place, fault in enumerate(faults.flips) if fault.link is not None
    ]
    return [*links, *flips]
