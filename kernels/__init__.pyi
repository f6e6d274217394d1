from .current_folder import (
    away_from,
    clean_environment,
    find_program,
    python_command,
    safe_environment,
    user_cache,
)
from .extensions import (
    ExtensionError,
    by_name,
    defined_in,
    instances,
    modules,
    offered,
    offered_folders,
    offered_subclasses,
    register,
    registry,
    spelled,
    subclasses,
    withdraw,
)
from .fifo import serve
from .inceptionn.format import CodecError
from .memory import ALIGNMENT, Arena, aligned, in_huge_pages
from .window import MOST_PLACES, extent

__all__ = [
    "ALIGNMENT",
    "MOST_PLACES",
    "Arena",
    "CodecError",
    "ExtensionError",
    "aligned",
    "away_from",
    "by_name",
    "clean_environment",
    "defined_in",
    "extent",
    "find_program",
    "in_huge_pages",
    "instances",
    "modules",
    "offered",
    "offered_folders",
    "offered_subclasses",
    "python_command",
    "register",
    "registry",
    "safe_environment",
    "serve",
    "spelled",
    "subclasses",
    "user_cache",
    "withdraw",
]
