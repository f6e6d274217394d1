"""Formats of numbers in a plan: which a run's boards and layers take."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...kernels.number import NumberFormat
from ..cluster import Board, Cluster, Fpga
from ..common import InputError
from ..network import Network
from ..number import Precision

if TYPE_CHECKING:
    from ..config import Config


def board_number(config: Config) -> NumberFormat:
    """Return the format of all values on boards that take actions as a whole.

    Raises:
        InputError: activations, weights and errors have several.
    """
    one = config.precision.one
    if one is None:
        raise InputError(
            f"`precision` = {config.precision}: boards that take actions as a whole have one format for activations,"
            " weights and errors; give them the same, or `engines` = 'split'"
        )
    return one


def in_precision(cluster: Cluster, precision: Precision) -> Cluster:
    """Return a cluster whose FPGAs multiply in the classes that a run's formats need.

    Raises:
        InputError: multipliers of a board are too narrow.
    """
    classes = precision.multipliers

    def built(board: Board) -> Board:
        return board.in_classes(classes, cluster.alpha) if isinstance(board, Fpga) else board

    try:
        by_kind = {id(board): built(board) for board in {id(board): board for board in cluster.boards}.values()}
    except InputError as error:
        raise InputError(f"`precision` = {precision}: {error}") from None
    return dataclasses.replace(cluster, boards=tuple(by_kind[id(board)] for board in cluster.boards))


def check_precision(config: Config, network: Network, *, has_numbers: bool) -> None:
    """Check that all layers take the formats of a run; boards that take actions as a whole are timed in any.

    Raises:
        InputError: a layer does not.
    """
    if config.precision.is_single or not has_numbers:
        return
    for layer in network.layers:
        if layer.operation.recurs:
            raise InputError(
                f"`precision` = {str(config.precision)!r}: {layer.name} is a recurrent layer, which computes in single"
                " precision; should be 'fp32'"
            )
