from . import roles
from .config import RUN_ONLY_KEYS, Config, blaming, listed, load_config, name_files, role_of, settings_config
from .optimizers import STATES, states_beside_lgb
from .rates import check_updates, learning_rate
from .settings import Settings, log_place

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
