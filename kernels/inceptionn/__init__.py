"""The INCEPTIONN codec (Li et al., MICRO 2018, section V): in vectors, and as the paper's engines in plain Python."""

from .format import BURST, LONGEST
from .inceptionn import WIDTHS, Limits, Rule, compress, decompress, width_counts

__all__ = ["BURST", "LONGEST", "WIDTHS", "Limits", "Rule", "compress", "decompress", "width_counts"]
