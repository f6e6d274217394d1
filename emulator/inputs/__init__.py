"""User input: TOML files and flags, which become validated, frozen models here, once."""

from .ranges import Value, parse_counts, parse_values
from .validation import DESCRIBED, Model, model_of, read_description, read_toml, shown, tomllib, validate

__all__ = [
    "DESCRIBED",
    "Model",
    "Value",
    "model_of",
    "parse_counts",
    "parse_values",
    "read_description",
    "read_toml",
    "shown",
    "tomllib",
    "validate",
]
