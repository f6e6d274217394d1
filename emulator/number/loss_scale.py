"""A loss scale that follows overflows: half of it after each, twice as much after as many updates
without (Micikevicius et al., ICLR 2018, section 3.2).
"""

from __future__ import annotations

import dataclasses

MOST_LOSS_SCALE = 2**24
"""Beyond, errors of 1 leave half precision's range, and sums single precision's digits."""


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
