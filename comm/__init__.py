"""Virtual clocks and links, messages, the hosts that run devices, and what they send and receive by
MPI.

Its exports are listed in `__init__.pyi`; each name is imported at its first use, so that the
command line starts fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
