"""The interface of an optimiser, which keeps arrays of its own for every parameter, from update to
update; and what is measured of an update: the norm of all gradients together, and the numbers that
it left as they were.

The norm is exact until it is rounded once, so that its bits depend on no order or cut. A float32 is
m * 2**(e - 150), with an integer m below 2**24 and its exponent field e, at least 1. Squares are
summed as integers, by exponent: m * m in two halves, of which each bin has room for 2**31.
"""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ..extensions import by_name, registry, spelled, subclasses
from ..jit import Floats, compiled, in_place, same_shape


@dataclasses.dataclass(frozen=True)
class Optimizer(abc.ABC):
    """An optimiser, whose fields are the keys of a run's configuration that it reads.

    `learning_rate` is that of the update and `number` counts updates from 1, since the start of
    training.
    """

    name: ClassVar[str]
    states: ClassVar[tuple[str, ...]]
    """Names of the arrays that it keeps, each of the parameter's size and zero at first."""
    states_beside_lgb: ClassVar[int]
    """How many of them LGB has to hold beside the sum of gradients."""

    learning_rate: float
    weight_decay: float

    @abc.abstractmethod
    def update(
        self,
        value: Floats,
        gradient: Floats,
        states: Mapping[str, Floats],
        *,
        count: int,
        number: int,
    ) -> None:
        """Change a parameter and its `states` in place, from `gradient`, the sum of the gradients
        of `count` samples.

        The arrays are C-contiguous and of one shape; `gradient` is not changed.

        Raises:
            ValueError: they are not, or `count` or `number` is below 1.
        """

    @property
    def problem(self) -> str | None:
        """What is wrong with its keys together, and what would be right; None if nothing is."""
        return None

    @classmethod
    def settings(cls) -> tuple[str, ...]:
        """Return the keys of a run's configuration that it reads."""
        return tuple(field.name for field in dataclasses.fields(cls))


_OF_EVERY_RUN = ("learning_rate", "momentum", "beta1", "beta2", "epsilon", "weight_decay")
"""The keys of a run's configuration; all others of an optimiser stand behind its name."""


@registry
def optimizers() -> Mapping[str, type[Optimizer]]:
    """Return all optimisers by their names."""
    return by_name(subclasses(__package__, Optimizer))  # type: ignore[type-abstract]


@registry
def parse_optimizer(text: str) -> tuple[type[Optimizer], Mapping[str, Any]]:
    """Return the optimiser that a text names, and keys of its own: of `adam` none, of
    `ademamix:beta3=0.9999` one.

    Raises:
        ValueError: there is no such optimiser, or it has no such keys.
    """
    return spelled(text, optimizers(), _OF_EVERY_RUN)


def optimizer_kind(text: str) -> type[Optimizer]:
    """Return the optimiser that a text names. Raise ValueError where there is none."""
    return parse_optimizer(text)[0]


NOT_FINITE = -1
"""A sum of squares of which one is infinite, or not a number."""
_BINS = 254  # exponent fields of finite numbers, of which 0 counts as 1
_HALF = 24  # bits of the low half of a square
_UNIT_BITS = 298  # sums count units of 2**-298, the least square
_LEAST = 1e-6  # as torch.nn.utils.clip_grad_norm_ adds to the norm


def squares_sum(gradient: Floats, share: float) -> int:
    """Return the exact sum of the squares of a C-contiguous array's numbers, in units of 2**-298.

    Each is a mean: a sum over samples, times `share`, rounded to float32. The result is
    `NOT_FINITE` if one is not; of sums, `added` makes the sum.

    Raises:
        ValueError: the array is not such.
    """
    bins = np.zeros((_BINS, 2), np.int64)
    if not _sum(in_place(gradient, "gradient").reshape(-1), np.float32(share), bins):
        return NOT_FINITE
    return sum(
        (low + (high << _HALF)) << 2 * place
        for place, (low, high) in enumerate(bins.tolist())
        if low or high
    )


def added(one: int, other: int) -> int:
    """Return the sum of two sums of squares, in any order the same."""
    return NOT_FINITE if NOT_FINITE in (one, other) else one + other


def norm(squares: int) -> float:
    """Return the root of a sum of squares that was rounded to float64; NaN of one that is not
    finite.
    """
    return math.nan if squares == NOT_FINITE else math.sqrt(math.ldexp(float(squares), -_UNIT_BITS))


def clip_factor(squares: int, most: float) -> np.float32:
    """Return by what to multiply gradients of this sum of squares, so that their norm is `most` or
    less.

    This is min(1, most / (norm + 1e-6)) as `torch.nn.utils.clip_grad_norm_` has it, rounded to
    float32 at the end.
    """
    total = norm(squares)
    return np.float32(total if math.isnan(total) else min(1.0, most / (total + _LEAST)))


@compiled
def _sum(gradient: Any, share: Any, bins: Any) -> Any:
    number = np.empty(1, np.float32)
    bits = number.view(np.uint32)
    for place in range(gradient.size):
        # Through memory, so that the bits are those of the product as rounded to float32.
        number[0] = gradient[place] * share
        exponent = np.int64((bits[0] >> 23) & 255)
        mantissa = np.int64(bits[0] & 0x7FFFFF)
        if exponent == 255:
            return False
        if exponent > 0:
            mantissa |= 0x800000
            exponent -= 1
        # Now m with its hidden bit, and e - 1: subnormal numbers, whose e counts as 1, share bin 0.
        square = mantissa * mantissa
        bins[exponent, 0] += square & 0xFFFFFF
        bins[exponent, 1] += square >> 24
    return True


def count_unmoved(before: Floats, after: Floats) -> int:
    """Return how many numbers of two C-contiguous arrays of one shape are equal.

    Raises:
        ValueError: the arrays are not such.
    """
    same_shape(before, after, "numbers before and after an update")
    return int(_count(in_place(before, "before").reshape(-1), in_place(after, "after").reshape(-1)))


def warm() -> None:
    """Compile both kernels."""
    squares_sum(np.ones(2, np.float32), 1.0)
    count_unmoved(np.ones(2, np.float32), np.ones(2, np.float32))


@compiled
def _count(before: Any, after: Any) -> Any:
    count = 0
    for place in range(before.size):
        count += before[place] == after[place]
    return count
