from . import roles
from .config import RUN_ONLY_KEYS, Config, blaming, listed, load_config, name_files, role_of, settings_config
from .settings import STATES, Settings, check_updates, learning_rate, log_place, states_beside_lgb

__all__ = [
    "RUN_ONLY_KEYS",
    "STATES",
    "Config",
    "Settings",
    "blaming",
    "check_updates",
    "learning_rate",
    "listed",
    "load_config",
    "log_place",
    "name_files",
    "role_of",
    "roles",
    "settings_config",
    "states_beside_lgb",
]
