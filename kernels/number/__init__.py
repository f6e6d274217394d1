"""Number formats: how many bits values take on links and in memory; each is a file here."""

from .fp16 import FP16
from .fp32 import FP32
from .number import Count, NumberFormat, number_formats

__all__ = ["FP16", "FP32", "Count", "NumberFormat", "number_formats"]
