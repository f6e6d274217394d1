"""The start of a command: imports, with the garbage collector paused, and kernels that can be loaded and stored."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator

from ....launch import importing
from ...common import InputError

FORM_SETTING = "EMUCHAIN_KERNEL_FORM"
_USUAL = gc.get_threshold()
_EVERY_S = 5.0
"""How often it is said how far compiling is."""
_MORE_THAN_IMPORTS_CREATE = 200_000


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Check that the kernels can be imported, then import what a command needs in the body.

    Raises:
        InputError: there is no place for compiled code, or no such form.
    """
    from ....kernels.jit import store

    _settle(os.environ.get(store.SETTING), os.environ.get(FORM_SETTING))
    with importing():
        yield
    resume_collector()


@functools.cache
def _settle(cache: str | None, form_name: str | None) -> None:
    """Check, once for these settings, that compiled code can be stored, and that the configured form exists."""
    from ....kernels.jit import store

    in_the_way = store.file_in_the_way()
    if in_the_way is not None:
        raise InputError(f"{store.SETTING} = {cache!r}: {in_the_way} is a file; name a folder for compiled code")
    try:
        place = store.where()
    except OSError as error:
        raise InputError(str(error)) from None
    if store.is_temporary(place):
        print(f"emuchain: compiled code is kept in {place}; {store.SETTING} names a better place", file=sys.stderr)
    if form_name:
        try:
            from ....kernels import form  # noqa: F401 - it checks the variable when imported
        except ValueError as error:
            raise InputError(str(error)) from None


def load(say: Callable[[str], None]) -> None:
    """Load all kernels; if they are not compiled yet, compile them and report it through `say`, and how far that is."""
    from ....kernels.warm import COMPILING_S, compile_together, usable_cores

    told_s = time.monotonic()

    def tell(part: float) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if part == 0:
            many = f", on {cores} cores" if (cores := usable_cores()) > 1 else ""
            say(f"compiling kernels, once for this machine: about {COMPILING_S} s of processor time{many} ...")
        elif part < 1 and now_s - told_s < _EVERY_S:
            return
        else:
            say(f"compiling kernels: {100 * part:.0f} % done")
        told_s = now_s

    compile_together(tell)


def pause_collector() -> None:
    """Let the collector wait."""
    gc.set_threshold(_MORE_THAN_IMPORTS_CREATE)


def resume_collector() -> None:
    """Let it collect as usual, without looking again at what was imported."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
