"""Formats of numbers in a plan: which a run's boards and layers take."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from ...kernels.number import FloatGrid, NumberFormat
from ..cluster import Board, Cluster, Fpga
from ..common import InputError
from ..network import Network
from ..number import Precision

if TYPE_CHECKING:
    from ..config import Config

_MOST_PRODUCT, _MOST_SUM = 2**24, 2**31
"""What kernels multiply exactly, and what a sum of 32 bits has to stay below."""


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
        if layer.operation.recurs or not layer.has_weights or layer.vocabulary_parallel:
            kind = "a recurrent layer" if layer.operation.recurs else layer.operation.type
            if layer.vocabulary_parallel:
                kind = "a classifier with `vocabulary_parallel` = true"
            raise InputError(
                f"`precision` = {str(config.precision)!r}: {layer.name} is {kind}, which computes in single"
                " precision; should be 'fp32'"
            )
    if config.clip_norm is not None:
        raise InputError(
            f"`clip_norm` = {config.clip_norm:g}: gradients are clipped in single precision; leave `precision` out"
        )
    for head in network.heads:
        raise InputError(
            f"`precision` = {str(config.precision)!r}: {head.name} has the weights of {head.operation.tied}, and tied"
            " weights are in single precision; should be 'fp32'"
        )
    if config.precision.accumulate == "int32":
        _check_integers(config, network)


def _check_integers(config: Config, network: Network) -> None:
    """Check that whole numbers of 32 bits hold all sums of products.

    Raises:
        InputError: a format is not fixed point, or a sum may be larger, or errors of a map have several parts.
    """
    precision = config.precision
    largest: dict[str, int] = {}
    for kind in ("activations", "weights", "errors"):
        grid = precision.format(kind).grid
        if not isinstance(grid, FloatGrid) or not grid.is_fixed_point:
            raise InputError(
                f"`precision` = {str(precision)!r}: accumulate = 'int32' sums fixed point, such as 'int8' or 'q2.10';"
                f" {kind} are in {precision.format(kind).name}"
            )
        largest[kind] = round(grid.largest / grid.spacing)
    for layer in network.layers:
        if layer.needs_errors and layer.reads.number not in layer.read_once:
            raise InputError(
                f"`precision` = {str(precision)!r}: other layers read the inputs of {layer.name}, too, whose errors"
                " add up over layers, in fp32; should be without accumulate = 'int32'"
            )
        outs, ins, *taps = layer.weight_shape
        window, groups = math.prod(taps), layer.input[0] // ins
        pixels = math.prod(layer.output[1:])
        depths = {
            "FP": (ins * window, "activations", "weights"),
            "EB": (outs // groups * window if layer.needs_errors else 0, "errors", "weights"),
            "PG": (config.batch * pixels, "activations", "errors"),
        }
        for phase, (depth, one, other) in depths.items():
            product = largest[one] * largest[other]
            if product > _MOST_PRODUCT or depth * product >= _MOST_SUM:
                raise InputError(
                    f"`precision` = {str(precision)!r}: {phase} of {layer.name} sums {depth:,} products of up to"
                    f" {product:,}, which int32 cannot hold; should be at most"
                    f" {(_MOST_SUM - 1) // product if product <= _MOST_PRODUCT else 0:,} products, or narrower formats"
                )
