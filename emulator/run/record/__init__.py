"""What a run records: steps, epochs, sizes on the wire, use of resources, and the history of all that.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
