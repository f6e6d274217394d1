"""The optimisers of `--optimizer`: what each of them keeps for every parameter, from update to update."""

from __future__ import annotations

from collections.abc import Mapping

STATES: Mapping[str, tuple[str, ...]] = {
    "sgd": ("velocity",),
    "nesterov": ("velocity",),
    "adam": ("first_moment", "second_moment"),
    "adamw": ("first_moment", "second_moment"),
}
"""Names of the arrays, each of the parameter's size."""


def states_beside_lgb(optimizer: str) -> int:
    """Return how many of an optimiser's arrays LGB has to hold beside the sum of gradients.

    For SGD's velocity none: the sum can go on from momentum times the last one. The others need both at the update.
    """
    return 0 if optimizer == "sgd" else len(STATES[optimizer])
