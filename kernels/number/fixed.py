"""Fixed point and block floating point of any width, by names that say it: q2.14, int9@16,
e2m5@48.
"""

import re

from .number import BlockGrid, FloatGrid, NumberFamily, NumberFormat, fixed_point

_MOST_EXPONENT_BITS = 5

INT8 = NumberFormat("int8", bits=8, grid=fixed_point(1, 7), multiplier="int8")


def _integer_class(bits: int) -> str:
    return "int4" if bits <= 4 else "int8" if bits <= 8 else "half" if bits <= 16 else "fp32"


def _fixed(name: str, match: re.Match[str]) -> NumberFormat:
    integer, fraction = int(match[1]), int(match[2])
    grid = fixed_point(integer, fraction)
    return NumberFormat(name, integer + fraction, grid, _integer_class(integer + fraction))


def _integers(name: str, match: re.Match[str]) -> NumberFormat:
    bits, size = int(match[1]), int(match[2])
    return NumberFormat(name, bits, BlockGrid(fixed_point(1, bits - 1), size), _integer_class(bits))


def _floats(name: str, match: re.Match[str]) -> NumberFormat:
    exponent_bits, fraction_bits, size = map(int, match.groups())
    if not 1 <= exponent_bits <= _MOST_EXPONENT_BITS:
        raise ValueError(
            f"e{exponent_bits}m{fraction_bits}: should have 1 to {_MOST_EXPONENT_BITS} bits of"
            " exponent"
        )
    bias = 2 ** (exponent_bits - 1) - 1  # as in IEEE 754, but without infinity and NaN
    largest = float((2 - 2.0**-fraction_bits) * 2.0 ** (2**exponent_bits - 1 - bias))
    bits = 1 + exponent_bits + fraction_bits
    kind = "fp8" if fraction_bits <= 3 else "half" if fraction_bits <= 10 else "fp32"
    return NumberFormat(
        name, bits, BlockGrid(FloatGrid(fraction_bits, 1 - bias, largest), size), kind
    )


FIXED = NumberFamily("qM.N", r"q([0-9]{1,2})\.([0-9]{1,2})", _fixed)
"""M bits, the sign among them, before the point and N behind it."""
INTEGERS = NumberFamily("intN@B", r"int([0-9]{1,2})@([0-9]{1,5})", _integers)
"""Block floating point: B integers of N bits with a scale."""
FLOATS = NumberFamily("eXmY@B", r"e([0-9])m([0-9]{1,2})@([0-9]{1,5})", _floats)
"""Block floating point: B floats of X bits of exponent and Y of fraction with a scale."""
