"""Chains and replicas of devices, run for timing only (`simulate`) or with numerics (`train`), and
the results.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
