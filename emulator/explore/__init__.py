"""Exploration of a pipeline for a network on unequal devices: its cut, its schedule, its
micro-batch (BaPipe).

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
