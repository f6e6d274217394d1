from .config import RUN_ONLY_KEYS, Config, blaming, listed, load_config, settings_config
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
    "settings_config",
    "states_beside_lgb",
]
