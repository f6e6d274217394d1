"""Values as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a value as JSON has it: NumPy's as Python's, arrays and tuples as lists, NaN and infinities as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
