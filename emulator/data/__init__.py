"""Data sets for training: published ones (fetched and loaded), `shapes` (drawn), the user's own
(read during a run).

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
