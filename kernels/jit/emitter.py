"""Numba as a compiler of whole kernels: one object file for a kernel and all functions that it
calls.

Numba is made for functions that run as soon as they are compiled: it optimises each function that a
kernel calls, and makes machine code of it, before it does both again for what calls it. Here
functions are only translated to LLVM's language; the kernel is optimised and made machine code
once, with all of them in it. That takes half the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import codegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher, CPUTarget, cpu_target
from numba.extending import intrinsic

from .store import Code, Kind

# The error model of NumPy: a division by zero gives infinity or NaN, and loops have no check that
# would keep them from becoming vector code.
_OPTIONS = {
    "nopython": True,
    "error_model": "numpy",
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


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


_ITEM_BYTES = 8


def from_block(kernel: Any, kinds: list[Kind], arguments: tuple[Any, ...]) -> Any:
    """Return a function of a block's address that calls `kernel` with the arguments in the block,
    of such classes.
    """
    scope: dict[str, Any] = {"kernel": kernel, "carray": numba.carray}
    place = 0

    def read(kind: Kind, like: Any) -> str:
        nonlocal place
        if isinstance(kind, list):
            name = type(like).__name__
            scope[name] = type(like)
            members = "".join(
                f"{read(member, one)}, " for member, one in zip(kind, like, strict=True)
            )
            return f"({members})" if type(like) is tuple else f"{name}({members})"
        item, *dimensions = kind.split()
        if not dimensions:
            scope[item] = _reader(getattr(types, _NAMES.get(item, item)))
            place += 1
            return f"{item}(at, {_ITEM_BYTES * (place - 1)})"
        scope[f"{item}_pointer"] = _reader(types.CPointer(getattr(types, _NAMES.get(item, item))))
        begin = f"{item}_pointer(at, {_ITEM_BYTES * place})"
        place += 1
        shape = [read("int64", None) for _ in range(int(dimensions[0]))]
        return f"carray({begin}, ({', '.join(shape)},))"

    exec(f"def run(at):\n return kernel({', '.join(map(read, kinds, arguments))})", scope)
    return scope["run"]


_NAMES = {"bool": "boolean"}


def _reader(kind: types.Type) -> Any:
    """Return a function that reads a number, or a pointer, at a byte offset from an address."""

    @intrinsic
    def read(context: Any, at: Any, offset: Any) -> Any:
        def emit(
            context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]
        ) -> ir.Value:
            data = context.get_data_type(kind)
            place = builder.inttoptr(builder.add(*values), data.as_pointer())
            return context.unpack_value(builder, kind, place)

        return kind(types.int64, types.int64), emit

    return read
