"""Ranks: how they are started, watched and ended. The only room that imports mpi4py.

Its exports are listed in `__init__.pyi`; each name is imported at its first use, so that the
command line starts fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
