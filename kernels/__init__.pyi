from .current_folder import away_from, clean_environment, find_program, python_command, safe_environment, user_cache
from .extensions import instances, modules, subclasses
from .fifo import serve
from .inceptionn.format import CodecError
from .memory import ALIGNMENT, Arena, aligned, in_huge_pages
from .window import MOST_PLACES

__all__ = [
    "ALIGNMENT",
    "MOST_PLACES",
    "Arena",
    "CodecError",
    "aligned",
    "away_from",
    "clean_environment",
    "find_program",
    "in_huge_pages",
    "instances",
    "modules",
    "python_command",
    "safe_environment",
    "serve",
    "subclasses",
    "user_cache",
]
