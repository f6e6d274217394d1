"""Number formats: their values, and how many bits these take on links and in memory; each is a file
here.
"""

from .bf16 import BF16
from .fp16 import FP16
from .fp32 import FP32
from .number import (
    BIAS,
    FRACTION_BITS,
    MULTIPLIERS,
    NARROW_BITS,
    SCALE_BITS,
    WIDE_BITS,
    BlockGrid,
    Count,
    FloatGrid,
    Grid,
    Lines,
    NumberFormat,
    Rounding,
    fixed_point,
    number_format,
    number_formats,
    number_patterns,
    number_spellings,
)

__all__ = [
    "BF16",
    "BIAS",
    "FP16",
    "FP32",
    "FRACTION_BITS",
    "MULTIPLIERS",
    "NARROW_BITS",
    "SCALE_BITS",
    "WIDE_BITS",
    "BlockGrid",
    "Count",
    "FloatGrid",
    "Grid",
    "Lines",
    "NumberFormat",
    "Rounding",
    "fixed_point",
    "number_format",
    "number_formats",
    "number_patterns",
    "number_spellings",
]
