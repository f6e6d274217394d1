"""The command line: a module for each command, those of design in a folder of their own, and
`frame`.

The face is what commands of other rooms are made of.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
