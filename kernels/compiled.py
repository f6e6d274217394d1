"""`compiled`: Numba's compiler as the kernels use it.

Numba keeps compiled code on disk, and compiles anew when a function's own file changes. Ours depends on more: on the
functions and instructions that it takes from other files, and on the micro-kernel's form. So both become part of the
name under which it is kept.
"""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Callable
from typing import Any

from numba import njit

from .form import FORM


def _sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(pathlib.Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_SUFFIX = f"_{FORM.name}_{_sources()}"


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called, without Python and without its lock, and keep the result on disk.

    Divisions by zero give infinities and NaN, as in NumPy: a check at each would keep loops from being vectorised.
    """
    function.__qualname__ += _SUFFIX
    return njit(cache=True, nogil=True, error_model="numpy")(function)
