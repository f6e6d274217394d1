"""A loss scale that follows overflows: half of it after each, twice as much after as many updates
without (Micikevicius et al., ICLR 2018, section 3.2).
"""

from __future__ import annotations

import dataclasses
import re

MOST_LOSS_SCALE = 2**24
"""Beyond, errors of 1 leave half precision's range, and sums single precision's digits."""
_DYNAMIC = re.compile(r"dynamic(?::every=([0-9]{1,9})(?:,first=([0-9]{1,9}))?)?")
_FIRST_SCALE, _GROWS_EVERY = 2**16, 2000


@dataclasses.dataclass(frozen=True)
class LossScale:
    """The factor on errors, and how many updates without overflow it has had."""

    value: int = 1
    good_updates: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.value <= MOST_LOSS_SCALE or self.value & self.value - 1:
            raise ValueError(
                f"loss scale {self.value}: should be a power of two, 1 to {MOST_LOSS_SCALE}"
            )

    def after(self, *, overflows: bool, grows_every: int) -> LossScale:
        """Return the next mini-batch's; with `grows_every` = 0 it stays."""
        if not grows_every:
            return self
        if overflows:
            return LossScale(max(1, self.value // 2))
        if self.good_updates + 1 < grows_every:
            return LossScale(self.value, self.good_updates + 1)
        return LossScale(min(MOST_LOSS_SCALE, 2 * self.value))


def loss_scale_of(value: object) -> tuple[int, int]:
    """Return a loss scale, and after how many updates it grows; 0: it stays.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, str) and (match := _DYNAMIC.fullmatch(value)):
        every, first = int(match[1] or _GROWS_EVERY), int(match[2] or _FIRST_SCALE)
        if every and _is_scale(first):
            return first, every
    elif isinstance(value, int | float) and not isinstance(value, bool) and _is_scale(value):
        return int(value), 0
    raise ValueError(
        f"loss_scale = {value!r}: should be a power of two, 1 to {MOST_LOSS_SCALE}, or 'dynamic',"
        " also as 'dynamic:every=2000,first=65536'"
    )


def _is_scale(value: float) -> bool:
    # A power of two changes exponents alone, where other factors would round digits off; an
    # infinity is none, and no NaN.
    return 1 <= value <= MOST_LOSS_SCALE and int(value) == value and not int(value) & int(value) - 1


def loss_scale_text(first: int, every: int) -> str:
    """Return the text of a loss scale that grows after as many updates."""
    if first != _FIRST_SCALE:
        return f"dynamic:every={every},first={first}"
    return "dynamic" if every == _GROWS_EVERY else f"dynamic:every={every}"
