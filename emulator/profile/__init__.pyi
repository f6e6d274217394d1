from .needs import PartNeeds, boundary_bytes, cut_bytes
from .on_chip import Data, Phases
from .roofline import BoardStage, DoesNotFit, LayerCosts, board_stage, stage_of_needs

__all__ = [
    "BoardStage",
    "Data",
    "DoesNotFit",
    "LayerCosts",
    "PartNeeds",
    "Phases",
    "board_stage",
    "boundary_bytes",
    "cut_bytes",
    "stage_of_needs",
]
