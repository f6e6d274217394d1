"""Numba as a compiler of whole kernels: one object file for a kernel and all functions that it calls.

Numba is made for functions that run as soon as they are compiled: it optimises each function that a kernel calls, and
makes machine code of it, before it does both again for what calls it. Here functions are only translated to LLVM's
language; the kernel is optimised and made machine code once, with all of them in it. That takes half the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, CPUTarget, cpu_target

from .store import Code, Kind

_OPTIONS = {"nopython": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class _Library(codegen.JITCodeLibrary):
    """A function's module, and the modules that are linked into it."""

    _whole = False

    def emit(self) -> bytes:
        """Return the object file of the function and of all that it calls."""
        self._whole = True
        self.finalize()
        return bytes(self._codegen._tm.emit_object(self._final_module))

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # as for a name that Numba does not find: nothing is called here

    def _optimize_final_module(self) -> None:
        if self._whole:
            super()._optimize_final_module()

    def _finalize_specific(self) -> None:
        """Make no machine code."""


class _Codegen(codegen.JITCPUCodegen):
    _library_class = _Library

    def _add_module(self, module: Any) -> None:
        """Keep modules from the engine that would run them."""

    def set_env(self, name: str, env: Any) -> None:
        """Leave out globals that only functions with Python objects have."""


class _Target(CPUTarget):
    typing_context = cpu_target.typing_context
    target_context = cpu_target.target_context.subtarget(_internal_codegen=_Codegen(__name__))


class _Dispatcher(CPUDispatcher):
    targetdescr = _Target("cpu")


def dispatcher(function: Callable[..., Any]) -> Any:
    """Return a function that other functions of kernels may call, for Numba."""
    return _Dispatcher(function, targetoptions=_OPTIONS)


def emit(whole: Callable[..., Any], kinds: list[Kind]) -> Code:
    """Compile a function of the address of a block, which holds arguments of these kinds."""
    compiled = dispatcher(whole)
    compiled.compile((types.int64,))
    (made,) = compiled.overloads.values()
    with global_compiler_lock:
        image = made.library.emit()
    return Code(made.fndesc.mangled_name, kinds, str(made.signature.return_type), image)
