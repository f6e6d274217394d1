"""OCP's formats of 8 bits (OFP8, 2023), saturating: E4M3 for activations and weights, E5M2 for
errors.
"""

from .number import FloatGrid, NumberFormat

E4M3, E5M2 = FloatGrid(3, -6, 448.0), FloatGrid(2, -14, 57344.0)

FP8 = NumberFormat("fp8", bits=8, grid=E4M3, multiplier="fp8")
FP8_E4M3 = NumberFormat("fp8-e4m3", bits=8, grid=E4M3, multiplier="fp8")
FP8_E5M2 = NumberFormat("fp8-e5m2", bits=8, grid=E5M2, multiplier="fp8")
