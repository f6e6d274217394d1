"""The start of a command: imports, with the garbage collector paused, and kernels that can be
loaded and stored.
"""

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
_PRODUCTS_SETTING = "EMUCHAIN_KERNEL_PRODUCTS"
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

    names = (os.environ.get(name, "") for name in (FORM_SETTING, _PRODUCTS_SETTING))
    _settle(os.environ.get(store.SETTING), "".join(names))
    with importing():
        yield
    resume_collector()


@functools.cache
def _settle(cache: str | None, forms: str) -> None:
    """Check, once for these settings, that compiled code can be stored, and that the configured
    forms exist.
    """
    from ....kernels.jit import store

    in_the_way = store.file_in_the_way()
    if in_the_way is not None:
        raise InputError(
            f"{store.SETTING} = {cache!r}: {in_the_way} is a file; name a folder for compiled code"
        )
    try:
        place = store.where()
    except OSError as error:
        raise InputError(str(error)) from None
    if store.is_temporary(place):
        print(
            f"emuchain: compiled code is kept in {place}; {store.SETTING} names a better place",
            file=sys.stderr,
        )
    if forms:
        try:
            from ....kernels import form  # noqa: F401 - it checks the variable when imported
        except ValueError as error:
            raise InputError(str(error)) from None


def load(say: Callable[[str], None]) -> None:
    """Load all kernels; if they are not compiled yet, compile them and report it through `say`, and
    how far that is.
    """
    from ....kernels.warm import compile_together, usable_cores

    reported_s = begun_s = time.monotonic()
    whole_cpu_s = reported_cpu_s = 0.0

    def tell(left_cpu_s: float) -> None:
        nonlocal reported_s, begun_s, whole_cpu_s, reported_cpu_s
        now_s = time.monotonic()
        if not whole_cpu_s:
            begun_s, whole_cpu_s = now_s, left_cpu_s
            many = f", on {cores} cores" if (cores := usable_cores()) > 1 else ""
            say(
                f"compiling kernels, once for this machine: about {left_cpu_s:.0f} s of processor"
                f" time{many} ..."
            )
        elif left_cpu_s == reported_cpu_s or (left_cpu_s and now_s - reported_s < _EVERY_S):
            return
        else:
            done = 1 - left_cpu_s / whole_cpu_s
            left = (
                f", about {(now_s - begun_s) * (1 / done - 1):.0f} s left" if 0 < done < 1 else ""
            )
            say(f"compiling kernels: {100 * done:.0f} % done{left}")
        reported_s, reported_cpu_s = now_s, left_cpu_s

    compile_together(tell)


def pause_collector() -> None:
    """Let the collector wait."""
    gc.set_threshold(_MORE_THAN_IMPORTS_CREATE)


def resume_collector() -> None:
    """Let it collect as usual, without looking again at what was imported."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
