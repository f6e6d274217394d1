"""bfloat16: the upper half of single precision; what is too large becomes infinite."""

from .number import FloatGrid, NumberFormat

BF16 = NumberFormat(
    "bf16",
    bits=16,
    grid=FloatGrid(7, -126, float(2.0**127 * (2 - 2.0**-7)), overflows=True),
    multiplier="half",
)
