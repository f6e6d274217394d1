from .cli import main
from .frame.command import Answer, FileCommand, FileGroup, json_option
from .frame.kernels import FORM_SETTING, resume_collector, starting
from .frame.named import FIGURES, NETWORK, RUNS, WORD

__all__ = [
    "FIGURES",
    "FORM_SETTING",
    "NETWORK",
    "RUNS",
    "WORD",
    "Answer",
    "FileCommand",
    "FileGroup",
    "json_option",
    "main",
    "resume_collector",
    "starting",
]
