from . import roles
from .config import RUN_ONLY_KEYS, Config, blaming, load_config, name_files, role_of, settings_config
from .keys import listed
from .roles import log_place
from .settings import Settings, check_updates, learning_rate, optimizer_of

__all__ = [
    "RUN_ONLY_KEYS",
    "Config",
    "Settings",
    "blaming",
    "check_updates",
    "learning_rate",
    "listed",
    "load_config",
    "log_place",
    "name_files",
    "optimizer_of",
    "role_of",
    "roles",
    "settings_config",
]
