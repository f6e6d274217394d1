"""Kernels before a run: whether they can be loaded and kept, and telling people when they are compiled."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ..common.errors import InputError

_FORM = "EMUCHAIN_KERNEL_FORM"


def settle() -> None:
    """Make sure that the kernels can be imported: that compiled code has a place, and that there is such a form.

    Raises:
        InputError: there is no place, or no such form.
    """
    from ...kernels.jit import store

    try:
        place = store.where()
    except OSError as error:
        raise InputError(str(error)) from None
    if store.is_temporary(place):
        print(f"emuchain: compiled code is kept in {place}; {store.SETTING} names a better place", file=sys.stderr)
    if os.environ.get(_FORM):
        try:
            from ...kernels import form  # noqa: F401 - it looks at the variable when it is imported
        except ValueError as error:
            raise InputError(str(error)) from None


def load(say: Callable[[str], None]) -> None:
    """Load all kernels; where they are not compiled yet, compile them, and say so."""
    from ...kernels.jit.compiled import announced
    from ...kernels.warm import compile_all

    with announced(lambda: say("compiling kernels, once for this machine (about 20 s) ...")):
        compile_all()
