"""Shared basics: errors, units, types of keys with ranges, and the TOML files that come with
emuchain.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
