"""The configuration of a run, from its file and its flags.

Exports are listed in `__init__.pyi`; each name is imported at its first use, because ranks that
read no files need no validation library.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
