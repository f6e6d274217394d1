"""Formats of numbers in a plan: which a run's boards and layers take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.number import NumberFormat
from ..common import InputError
from ..network import Network

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
