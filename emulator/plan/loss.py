"""The loss in a plan: what goes together with one that slices of the classifier compute in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common import InputError
from ..network import Network

if TYPE_CHECKING:
    from ..config import Config


def check_loss(config: Config, network: Network) -> None:
    """Check that a configuration suits the network's loss.

    Raises:
        InputError: slices compute parts of the loss, and labels are smoothed, or there are no slices.
    """
    if not network.layers[-1].vocabulary_parallel:
        return
    if config.schedule.offload is not None:
        raise InputError(
            f"`schedule` = {config.schedule.name!r}: a GPU has all logits, and {network.name} divides its loss among"
            " devices of a chain; leave `vocabulary_parallel` out of its softmax"
        )
    if config.label_smoothing:
        raise InputError(
            f"`label_smoothing` = {config.label_smoothing:g}: needs the sum of all logits, which devices do not send"
            " where `vocabulary_parallel` = true; should be 0"
        )
