"""The INCEPTIONN codec (Li et al., MICRO 2018, section V): in vectors, and as the paper's engines
in plain Python.
"""

from .format import BURST, LONGEST, Buffer, is_integer, opened, values_of
from .inceptionn import WIDTHS, Limits, Rule, compress, decompress, width_counts

__all__ = [
    "BURST",
    "LONGEST",
    "WIDTHS",
    "Buffer",
    "Limits",
    "Rule",
    "compress",
    "decompress",
    "is_integer",
    "opened",
    "values_of",
    "width_counts",
]
