from .board import BoardFit
from .build import Build
from .calibrate import BoardCalibration, LinkCalibration, calibrate_board, calibrate_link
from .check import Coverage, calibrate_check
from .constants import Constant, Evidence, Fitness, LeftOut
from .engine import EngineFit
from .layers import ProfileFit

__all__ = [
    "BoardCalibration",
    "BoardFit",
    "Build",
    "Constant",
    "Coverage",
    "EngineFit",
    "Evidence",
    "Fitness",
    "LeftOut",
    "LinkCalibration",
    "ProfileFit",
    "calibrate_board",
    "calibrate_check",
    "calibrate_link",
]
