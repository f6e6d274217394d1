from .board import BoardFit
from .calibrate import BoardCalibration, LinkCalibration, calibrate_board, calibrate_link
from .constants import Constant, Evidence, Fitness, LeftOut
from .layers import ProfileFit

__all__ = [
    "BoardCalibration",
    "BoardFit",
    "Constant",
    "Evidence",
    "Fitness",
    "LeftOut",
    "LinkCalibration",
    "ProfileFit",
    "calibrate_board",
    "calibrate_link",
]
