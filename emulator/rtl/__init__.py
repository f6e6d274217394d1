"""RTL: SystemVerilog of each device of a plan, and its simulation against the emulator (FPDeep,
sections 5 and 6.2).

The modules in `sv/` are written by hand and have parameters; for each device a top module that
wires them is generated.

Exports are listed in `__init__.pyi`; each name is imported at its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
