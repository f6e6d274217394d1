"""How formats are called: `bf16`, `fp8-e5m2`, `mxfp8`, `q2.14`, `int9@16`, `e2m5@48`.

| name | values |
|---|---|
| bf16, fp16 | one by one, with infinities |
| fp8, fp8-e4m3, fp8-e5m2 | one by one, saturating; fp8 is E4M3 |
| mxfp8, mxfp8-e4m3, mxfp8-e5m2 | blocks of 32 with a scale (OCP); mxfp8 is E4M3 |
| mxfp6, mxfp6-e2m3, mxfp6-e3m2 | the same; mxfp6 is E2M3 |
| mxfp4, mxint8 | the same |
| qM.N | fixed point of M bits, the sign among them, before the point and N behind it |
| intN@B, eXmY@B | block floating point: B integers of N bits, or floats, with a scale |
"""

from __future__ import annotations

import re

from .block import BlockGrid
from .grid import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, FP16, INT8, FloatGrid, fixed_point

Grid = FloatGrid | BlockGrid

_ALONE = {"bf16": BF16, "fp16": FP16, "fp8": E4M3, "fp8-e4m3": E4M3, "fp8-e5m2": E5M2}
_IN_BLOCKS = {
    **{"mxfp8": E4M3, "mxfp8-e4m3": E4M3, "mxfp8-e5m2": E5M2},
    **{"mxfp6": E2M3, "mxfp6-e2m3": E2M3, "mxfp6-e3m2": E3M2},
    **{"mxfp4": E2M1, "mxint8": INT8},
}
_FIXED = re.compile(r"q([0-9]{1,2})\.([0-9]{1,2})")
_INTEGERS = re.compile(r"int([0-9]{1,2})@([0-9]{1,5})")
_FLOATS = re.compile(r"e([0-9])m([0-9]{1,2})@([0-9]{1,5})")
_MOST_EXPONENT_BITS = 5
SPELLINGS = (*_ALONE, *_IN_BLOCKS, "qM.N", "intN@B", "eXmY@B")


def grid_of(name: str) -> Grid:
    """Return the grid of a format by its name.

    Raises:
        ValueError: there is no such format; the message says what there is, or what is wrong with its numbers.
    """
    if name in _ALONE:
        return _ALONE[name]
    if name in _IN_BLOCKS:
        return BlockGrid(_IN_BLOCKS[name])
    if match := _FIXED.fullmatch(name):
        return fixed_point(int(match[1]), int(match[2]))
    if match := _INTEGERS.fullmatch(name):
        return BlockGrid(fixed_point(1, int(match[1]) - 1), int(match[2]))
    if match := _FLOATS.fullmatch(name):
        return BlockGrid(_float(int(match[1]), int(match[2])), int(match[3]))
    raise ValueError(f"{name!r}: known: {', '.join(SPELLINGS)}")


def _float(exponent_bits: int, fraction_bits: int) -> FloatGrid:
    """Return the grid of a float without infinity and NaN, such as E2M5; its bias is that of IEEE 754.

    Raises:
        ValueError: it has too few or too many bits.
    """
    if not 1 <= exponent_bits <= _MOST_EXPONENT_BITS:
        raise ValueError(f"e{exponent_bits}m{fraction_bits}: should have 1 to {_MOST_EXPONENT_BITS} bits of exponent")
    bias = 2 ** (exponent_bits - 1) - 1
    most = 2**exponent_bits - 1 - bias
    return FloatGrid(fraction_bits, 1 - bias, float((2 - 2.0**-fraction_bits) * 2.0**most))
