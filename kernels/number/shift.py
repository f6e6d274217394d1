"""Powers of two, by which a product is a shift: zero, and 2^0 down to the least that N bits have a
code for (Elhoushi et al., DeepShift, CVPR Workshops 2021).

A code is a sign and one of 2^(N-1): zero, the powers, and NaN. In blocks with a scale, powers of
two are eXm0@B.
"""

import re

from .number import FloatGrid, NumberFamily, NumberFormat

_FEWEST_BITS, _MOST_BITS = 3, 6
_CLASSES = {3: "int4", 4: "fp8", 5: "fp8", 6: "half"}
"""Those that hold as many exponents: of 1 and 1/2 int4; up to 14 of FP8's 18, up to 30 of FP16's
40.
"""


def _powers(name: str, match: re.Match[str]) -> NumberFormat:
    bits = int(match[1])
    if not _FEWEST_BITS <= bits <= _MOST_BITS:
        raise ValueError(f"{name}: should have {_FEWEST_BITS} to {_MOST_BITS} bits")
    powers = 2 ** (bits - 1) - 2
    return NumberFormat(name, bits, FloatGrid(0, 1 - powers, 1.0), _CLASSES[bits])


SHIFT = NumberFamily("shiftN", r"shift([0-9]{1,2})", _powers)
"""N bits: a sign and the exponent of a power of two."""
