"""OCP's microscaling formats (Microscaling Formats 1.0, table 1): blocks of 32 elements with a
scale of 8 bits.
"""

from .fp8 import E4M3, E5M2
from .number import BlockGrid, FloatGrid, NumberFormat

E3M2, E2M3, E2M1 = FloatGrid(2, -2, 28.0), FloatGrid(3, 0, 7.5), FloatGrid(1, 0, 6.0)
INT8 = FloatGrid(6, 0, 127 / 64)
"""MXINT8's element: sixty-fourths, symmetrical (section 5.3.4)."""

MXFP8 = NumberFormat("mxfp8", bits=8, grid=BlockGrid(E4M3), multiplier="fp8")
MXFP8_E4M3 = NumberFormat("mxfp8-e4m3", bits=8, grid=BlockGrid(E4M3), multiplier="fp8")
MXFP8_E5M2 = NumberFormat("mxfp8-e5m2", bits=8, grid=BlockGrid(E5M2), multiplier="fp8")
MXFP6 = NumberFormat("mxfp6", bits=6, grid=BlockGrid(E2M3), multiplier="fp8")
MXFP6_E2M3 = NumberFormat("mxfp6-e2m3", bits=6, grid=BlockGrid(E2M3), multiplier="fp8")
MXFP6_E3M2 = NumberFormat("mxfp6-e3m2", bits=6, grid=BlockGrid(E3M2), multiplier="fp8")
MXFP4 = NumberFormat("mxfp4", bits=4, grid=BlockGrid(E2M1), multiplier="int4")
MXINT8 = NumberFormat("mxint8", bits=8, grid=BlockGrid(INT8), multiplier="int8")
