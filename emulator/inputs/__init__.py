"""User input: TOML files and flags, which become validated, frozen models here, once."""

from .validation import DESCRIBED, Model, model_of, read_toml, shown, tomllib, validate

__all__ = ["DESCRIBED", "Model", "model_of", "read_toml", "shown", "tomllib", "validate"]
