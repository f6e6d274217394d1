from .board_stages import BoardStages
from .needs import PartNeeds, boundary_bytes, cut_bytes, streams_bytes
from .on_chip import Data, DataBytes, Phases
from .pipedream import load_graph
from .profile import LayerProfile, LayerTimes, Profile
from .profile_stages import ProfileStages
from .roofline import BoardStage, DoesNotFit, LayerCosts, board_stage, stage_of_needs
from .stages import Stages
from .toml_profile import DeviceTable, LayerTable, ProfileDescription, TimesTable, load_profile

__all__ = [
    "BoardStage",
    "BoardStages",
    "Data",
    "DataBytes",
    "DeviceTable",
    "DoesNotFit",
    "LayerCosts",
    "LayerProfile",
    "LayerTable",
    "LayerTimes",
    "PartNeeds",
    "Phases",
    "Profile",
    "ProfileDescription",
    "ProfileStages",
    "Stages",
    "TimesTable",
    "board_stage",
    "boundary_bytes",
    "cut_bytes",
    "load_graph",
    "load_profile",
    "stage_of_needs",
    "streams_bytes",
]
