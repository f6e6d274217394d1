from . import roles
from .config import (
    CHANGES,
    RUN_ONLY_KEYS,
    Config,
    blaming,
    in_place,
    is_of_run,
    load_config,
    name_files,
    parse_changes,
    role_of,
    settings_config,
)
from .keys import listed
from .roles import log_place
from .settings import Settings, check_updates, learning_rate, optimizer_of

__all__ = [
    "CHANGES",
    "RUN_ONLY_KEYS",
    "Config",
    "Settings",
    "blaming",
    "check_updates",
    "in_place",
    "is_of_run",
    "learning_rate",
    "listed",
    "load_config",
    "log_place",
    "name_files",
    "optimizer_of",
    "parse_changes",
    "role_of",
    "roles",
    "settings_config",
]
