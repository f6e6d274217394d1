"""All operations, by their names in TOML files."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ...kernels import subclasses
from .operation import Operation


@functools.cache
def operation_types() -> Mapping[str, type[Operation]]:
    """Return the operations of the folder `operations/` by name."""
    found = subclasses(f"{__package__}.operations", Operation)  # type: ignore[type-abstract]  # its subclasses
    return {kind.type: kind for kind in found if hasattr(kind, "type")}
