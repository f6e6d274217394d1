"""Data sets for training: published ones are fetched and loaded, `shapes` is drawn, one's own are read as they go.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
