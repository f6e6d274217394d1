from .config import RUN_ONLY_KEYS, Config, blaming, load_config, settings_config
from .settings import Settings

__all__ = ["RUN_ONLY_KEYS", "Config", "Settings", "blaming", "load_config", "settings_config"]
