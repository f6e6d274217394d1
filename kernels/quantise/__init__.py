"""Quantisers: fp32 numbers onto the coarser grids of narrow formats, one by one or in blocks with a
scale.

A narrow number is kept as the fp32 number of its value, so a kernel that multiplies and adds in
fp32 multiplies narrow numbers exactly. Exports are listed in `__init__.pyi`; each name is imported
at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
