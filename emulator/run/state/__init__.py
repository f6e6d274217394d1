"""The state of a run: whole layers, gathered and dealt out again; checkpoints, and how a run goes
on; files of weights.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
