from . import roles
from .config import RUN_ONLY_KEYS, Config
from .groups import GROUPS
from .keys import listed
from .other_names import ELSEWHERE, OTHER_NAMES
from .rates import FORMER, RateSchedule, of_today, parse_rates, rate_schedules
from .roles import log_place
from .run_keys import RunKeys, TrainKeys
from .settings import Settings, check_updates, learning_rate, optimizer_of
from .sources import (
    CHANGES,
    blaming,
    in_place,
    is_of_run,
    load_config,
    name_files,
    parse_changes,
    read_keys,
    role_of,
    settings_config,
)

__all__ = [
    "CHANGES",
    "ELSEWHERE",
    "FORMER",
    "GROUPS",
    "OTHER_NAMES",
    "RUN_ONLY_KEYS",
    "Config",
    "RateSchedule",
    "RunKeys",
    "Settings",
    "TrainKeys",
    "blaming",
    "check_updates",
    "in_place",
    "is_of_run",
    "learning_rate",
    "listed",
    "load_config",
    "log_place",
    "name_files",
    "of_today",
    "optimizer_of",
    "parse_changes",
    "parse_rates",
    "rate_schedules",
    "read_keys",
    "role_of",
    "roles",
    "settings_config",
]
