"""Compiled kernels: Numba compiles a function once; from then on its machine code is loaded without Numba.

Importing Numba and loading functions from its own cache takes a rank most of a second, and many ranks on few cores do
it one after another. Loading the machine code alone takes some hundredths of a second. So `store.py` keeps it in
separate files, and `native.py` calls it as C functions.

A kernel is compiled when it is first called, for arguments of the kinds in that call, and for no others: C-contiguous
arrays, integers, float32 or float64 numbers, bools, and tuples of these. It returns a number or nothing, and runs with
the GIL released.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import os
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..current_folder import away_from
from . import store
from .native import entry, kinds_of
from .store import Code

ROOM = __name__.rpartition(".jit.")[0]
"""The package of all kernels; a kernel's name is its module below that, and its function: `conv.layout.pack`."""

_loading = threading.RLock()  # LLVM links a kernel once; a child that is forked has the lock free
os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)

_say: contextvars.ContextVar[Callable[[], None]] = contextvars.ContextVar("say", default=lambda: None)


@contextlib.contextmanager
def announced(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` when the first kernel is compiled; if all are loaded, do not call it."""
    told = False

    def say_once() -> None:
        nonlocal told
        if not told:
            told = True
            say()

    before = _say.set(say_once)
    try:
        yield
    finally:
        _say.reset(before)


class Kernel:
    """A function that is compiled, or its code loaded, when it is first called."""

    def __init__(self, module: str, name: str, function: Callable[..., Any] | None = None) -> None:
        self._module, self._name, self._function = module, name, function
        self._entry: Callable[..., Any] | None = None
        self._dispatcher: Any = None

    def __call__(self, *arguments: Any) -> Any:
        """Run the kernel."""
        if self._entry is None:
            with _loading:
                self._entry = self._entry or self._ready(arguments)
        return self._entry(*arguments)

    def _ready(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        name = f"{self._module}.{self._name}"
        code = store.find(name)
        if code is None:
            _say.get()()
            code = self._compile(arguments)
            with contextlib.suppress(OSError):  # it still runs, and is compiled again the next time
                store.keep(name, code)
        return entry(name, code)

    def _compile(self, arguments: tuple[Any, ...]) -> Code:
        with away_from(".numba_config.yaml"):  # what it says would be kept for all folders
            from .block import from_block
            from .emitter import emit

            kinds = kinds_of(arguments)
            return emit(from_block(self.dispatcher(), kinds, arguments), kinds)

    def dispatcher(self) -> Any:
        """Return the function as a Numba dispatcher, which other kernels may call."""
        if self._function is None:
            module = importlib.import_module(f"{ROOM}.{self._module}")
            return getattr(module, self._name).dispatcher()
        if self._dispatcher is None:
            from .emitter import dispatcher

            code, known = self._function.__code__, self._function.__globals__
            called = {name: known[name].dispatcher() for name in code.co_names if isinstance(known.get(name), Kernel)}
            function = types.FunctionType(code, {**known, **called}, self._name)
            self._dispatcher = dispatcher(function)
        return self._dispatcher


def compiled(function: Callable[..., Any]) -> Kernel:
    """Turn a function into a kernel."""
    return Kernel(function.__module__.removeprefix(f"{ROOM}."), function.__name__, function)


class Kernels:
    """The kernels of a module, named relative to `ROOM`; the module is imported only when one has to be compiled."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Kernel:
        kernel = Kernel(self._module, name)
        setattr(self, name, kernel)
        return kernel
