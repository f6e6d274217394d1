from .board import BoardFit
from .build import Build
from .calibrate import (
    BoardCalibration,
    CollectiveCalibration,
    LinkCalibration,
    calibrate_board,
    calibrate_collective,
    calibrate_link,
)
from .check import Coverage, calibrate_check
from .collective import CollectiveModel
from .constants import Constant, Evidence, Fitness, LeftOut
from .engine import EngineFit
from .layers import ProfileFit

__all__ = [
    "BoardCalibration",
    "BoardFit",
    "Build",
    "CollectiveCalibration",
    "CollectiveModel",
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
    "calibrate_collective",
    "calibrate_link",
]
