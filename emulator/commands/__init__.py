"""The command line: its frame, a module for each command, and what commands of other rooms are made of."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
