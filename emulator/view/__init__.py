"""What shows things: spans as traces, charts and pictures; answers, tables, JSON, progress; the
page of a report.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
