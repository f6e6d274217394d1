"""NVIDIA's NVFP4: blocks of 16 elements of E2M1 with a scale of E4M3, and a scale of fp32 for a
tensor (Pretraining Large Language Models with NVFP4, 2025, appendix B).

A value is element times scale: six bits of significand, which a multiplier of half precision holds.
"""

from .fp8 import E4M3
from .mx import E2M1
from .number import BlockGrid, NumberFormat

NVFP4 = NumberFormat("nvfp4", bits=4, grid=BlockGrid(E2M1, 16, scale=E4M3), multiplier="half")
