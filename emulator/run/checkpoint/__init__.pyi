from .checkpoint import Ended, Keeping, Leader, RunCheckpoints
from .checkpoint_file import CheckpointReader
from .resume import Resumed, checkpoints_of, resumed

__all__ = [
    "CheckpointReader",
    "Ended",
    "Keeping",
    "Leader",
    "Resumed",
    "RunCheckpoints",
    "checkpoints_of",
    "resumed",
]
