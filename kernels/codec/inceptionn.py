"""The INCEPTIONN codec behind the interface of `Codec` (`kernels/inceptionn` has its kernels and
its format).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .. import inceptionn
from ..inceptionn.format import Buffer
from ..number import FP32, Count
from .codec import Codec, parsed_number

_BY_RANGE = "inceptionn-range"


@dataclasses.dataclass(frozen=True)
class Inceptionn(Codec):
    """Float32 in 0, 8, 16 or 32 bits, within an error bound of 2**error_bound_exponent, or by the
    paper's ranges.

    Raises:
        CodecError: the bound or the rule is not valid.
    """

    error_bound_exponent: int
    rule: inceptionn.Rule = "bound"

    kinds = ("inceptionn", _BY_RANGE)
    spelling = "inceptionn:E and inceptionn-range:E for an error bound 2^E (E from -127 to 0)"
    size_depends_on_values = True

    def __post_init__(self) -> None:
        inceptionn.Limits.of(self.error_bound_exponent, self.rule)

    @classmethod
    def parse(cls, kind: str, argument: str) -> Codec:
        """See `Codec`."""
        return cls(parsed_number(argument), "range" if kind == _BY_RANGE else "bound")

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """See `Codec`."""
        return inceptionn.compress(values, self.error_bound_exponent, self.rule)

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """See `Codec`."""
        return inceptionn.decompress(buffer, count)

    def largest_bytes(self, count: int) -> int:
        """See `Codec`: every value in 32 bits, with its tag."""
        return -(-count // inceptionn.BURST) * inceptionn.LONGEST

    def expected_bytes(self, count: Count) -> Count:
        """See `Codec`: without the values, no compression is assumed."""
        return FP32.bytes_of(count)

    def statistics(self, buffer: Buffer, count: int) -> Mapping[str, int]:
        """Return the numbers of values that took 0, 8, 16 and 32 bits (Table III)."""
        widths = inceptionn.width_counts(buffer, count)
        return {
            f"width_{bits}": number for bits, number in zip(inceptionn.WIDTHS, widths, strict=True)
        }

    def __str__(self) -> str:
        return f"{self.kinds[self.rule != 'bound']}:{self.error_bound_exponent}"
