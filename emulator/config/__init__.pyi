from .config import RUN_ONLY_KEYS, Config, blaming, listed, load_config, settings_config
from .settings import Settings

__all__ = ["RUN_ONLY_KEYS", "Config", "Settings", "blaming", "listed", "load_config", "settings_config"]
