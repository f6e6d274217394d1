from .frame.kernels import starting
from .frame.named import FIGURES, RUNS, WORD, FileCommand

__all__ = [
    "FIGURES",
    "RUNS",
    "WORD",
    "FileCommand",
    "starting",
]
