"""Half precision (IEEE 754 binary16), in which BaPipe's clusters train; what is too large becomes
infinite.
"""

from .number import FloatGrid, NumberFormat

FP16 = NumberFormat(
    "fp16", bits=16, grid=FloatGrid(10, -14, 65504.0, overflows=True), multiplier="half"
)
