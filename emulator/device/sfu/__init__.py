"""The special function unit (SFU): one unit for each operation on complete outputs, each in its own file."""

from .sfu import Sfu
from .unit import Site, Training, Unit, units

__all__ = ["Sfu", "Site", "Training", "Unit", "units"]
