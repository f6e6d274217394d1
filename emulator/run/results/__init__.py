"""What a run leaves: counts and sizes, mini-batches and epochs, their history, tables of them, and
the file of it all.

    usage -> steps -> history -> schema -> results -> results_file -> recorder

Exports are listed in `__init__.pyi`; each name is imported at its first use, because ranks other
than 0 write no files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
