"""Timelines: what each engine, link and exchange did when, from a run's observers; as a trace and as text.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
