from .kernels import starting
from .named import FIGURES, RUNS, WORD, FileCommand

__all__ = [
    "FIGURES",
    "RUNS",
    "WORD",
    "FileCommand",
    "starting",
]
