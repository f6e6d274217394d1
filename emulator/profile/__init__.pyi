from .on_chip import Data, DataBytes, PartNeeds, Phases, boundary_bytes, cut_bytes, streams_bytes
from .profile import LayerProfile, LayerTimes, Profile
from .profile_files import DeviceTable, LayerTable, ProfileDescription, TimesTable, load_graph, load_profile, profile_of
from .roofline import BoardStage, DoesNotFit, board_stage
from .stages import BoardStages, MeasuredBoardStages, ProfileStages, Stages, check_profile, measured_stage

__all__ = [
    "BoardStage",
    "BoardStages",
    "Data",
    "DataBytes",
    "DeviceTable",
    "DoesNotFit",
    "LayerProfile",
    "LayerTable",
    "LayerTimes",
    "MeasuredBoardStages",
    "PartNeeds",
    "Phases",
    "Profile",
    "ProfileDescription",
    "ProfileStages",
    "Stages",
    "TimesTable",
    "board_stage",
    "boundary_bytes",
    "check_profile",
    "cut_bytes",
    "load_graph",
    "load_profile",
    "measured_stage",
    "profile_of",
    "streams_bytes",
]
