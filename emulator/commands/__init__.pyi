from .cli import main
from .frame.command import FileCommand, FileGroup
from .frame.kernels import FORM_SETTING, resume_collector, starting
from .frame.named import FIGURES, NETWORK, RUNS, WORD

__all__ = [
    "FIGURES",
    "FORM_SETTING",
    "NETWORK",
    "RUNS",
    "WORD",
    "FileCommand",
    "FileGroup",
    "main",
    "resume_collector",
    "starting",
]
