"""Virtual faults: slow boards, bad links and bit flips, as pure functions of a seed.

What is hurt, and when, is data (`fault.py`). Rows take longer (`paced.py`), bits flip (`flips.py`),
and all that is drawn depends on the seed, the fault, the place and the sample or mini-batch alone.
So ranks, micro-batches and the order of messages on the host change nothing. Clocks and devices get
objects of this room; without faults they get none.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
