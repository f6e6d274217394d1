from .checkpoints import Ended, Keeping, Leader, RunCheckpoints
from .layer_states import (
    LayerState,
    deal_state,
    deal_weights,
    gathered_state,
    gathered_weights,
    make_whole,
)
from .resume import Resumed, checkpoints_of, resumed, series_of
from .weights_files import (
    RunWeights,
    WeightsFile,
    read_run_weights,
    read_weights,
    run_weights_of,
    safetensors_image,
)

__all__ = [
    "Ended",
    "Keeping",
    "LayerState",
    "Leader",
    "Resumed",
    "RunCheckpoints",
    "RunWeights",
    "WeightsFile",
    "checkpoints_of",
    "deal_state",
    "deal_weights",
    "gathered_state",
    "gathered_weights",
    "make_whole",
    "read_run_weights",
    "read_weights",
    "resumed",
    "run_weights_of",
    "safetensors_image",
    "series_of",
]
