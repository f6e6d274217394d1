"""The special function unit (SFU): one unit for each operation on complete outputs."""

from .sfu import Sfu
from .unit import Site, Training, Unit, units

__all__ = ["Sfu", "Site", "Training", "Unit", "units"]
