"""One FPGA: the coroutine, its numerics, and its memories under FPDeep's names (Act-RAM, LPRAM,
LGB, BPRAM, BGB).

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
