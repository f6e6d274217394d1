"""Compiled kernels: Numba compiles a function once; from then on its machine code is loaded without
Numba.

Importing Numba and loading functions from its own cache takes a rank most of a second, and many
ranks on few cores do it one after another. Loading the machine code alone takes some hundredths of
a second. So `store.py` keeps it in separate files; LLVM links it, and ctypes calls it. A kernel
gets its arguments in one block of memory, eight bytes each: numbers directly, tuples member by
member, and arrays as their address and shape. So a call costs a microsecond or two, whatever the
number of arguments.

A kernel is compiled when it is first called, for arguments of the kinds in that call, and for no
others: C-contiguous arrays, integers, float32 or float64 numbers, bools, and tuples of these. It
returns a number or nothing, and runs with the GIL released.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import importlib
import os
import struct
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..current_folder import away_from
from . import store
from .store import ROOM, Code, Kind

# Each fills the eight bytes of its place in the block, with padding where it is shorter.
_FORMATS = {"int64": "q", "float32": "f4x", "float64": "d", "bool": "?7x"}
_RESULTS: dict[str, Any] = {"none": ctypes.c_void_p, "int64": ctypes.c_int64, "bool": ctypes.c_bool}


def kinds_of(arguments: tuple[Any, ...]) -> list[Kind]:
    """Return the kinds of some arguments. Raise TypeError where a kernel cannot take one of
    them.
    """
    return [_kind(argument) for argument in arguments]


def _kind(argument: Any) -> Kind:
    if isinstance(argument, tuple):
        return kinds_of(argument)
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype} {argument.ndim}"
    kinds = (
        ("bool", (bool, np.bool_)),
        ("int64", (int, np.int64)),
        ("float32", np.float32),
        ("float64", float),
    )
    for name, classes in kinds:
        if isinstance(argument, classes):
            return name
    raise TypeError(f"a kernel takes arrays, numbers, and tuples of these, not {type(argument)}")


def entry(name: str, code: Code) -> Callable[..., Any]:
    """Return a Python function that calls a kernel's code. It raises TypeError for an argument of
    another kind.
    """
    formats: list[str] = []
    scope: dict[str, Any] = {"address": _address, "fail": functools.partial(_fail, name)}
    flat = [
        _flatten(kind, f"a{number}", formats, scope) for number, kind in enumerate(code.arguments)
    ]
    native = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
    scope |= {
        "native": native(_link(name, code)),
        "pack": struct.Struct("=" + "".join(formats)).pack,
        "new": _RESULTS[code.result],
        "byref": ctypes.byref,
        "nothing": ctypes.byref(ctypes.c_void_p()),
        "trouble": ctypes.byref(ctypes.c_void_p()),
    }
    names = ", ".join(f"a{number}" for number in range(len(flat)))
    call = f"native(%s, trouble, pack({', '.join(flat)}))"
    if code.result == "none":
        text = f"def call({names}):\n if {call % 'nothing'}: fail()"
    else:
        text = (
            f"def call({names}):\n result = new()\n if {call % 'byref(result)'}: fail()\n return"
            " result.value"
        )
    # A function made for these arguments neither loops over them nor unpacks a tuple at each call.
    exec(compile(text, f"<kernel {name}>", "exec"), scope)  # profiles show this name
    return scope["call"]


def _flatten(kind: Kind, place: str, formats: list[str], scope: dict[str, Any]) -> str:
    """Return the text of an argument's numbers; add their formats to `formats`, and the names in it
    to `scope`.
    """
    if isinstance(kind, list):
        return ", ".join(
            _flatten(member, f"{place}[{number}]", formats, scope)
            for number, member in enumerate(kind)
        )
    if kind in _FORMATS:
        formats.append(_FORMATS[kind])
        return place
    item, dimensions = kind.split()
    scope[item] = np.dtype(item)
    formats += ["q"] * (1 + int(dimensions))
    return f"address({place}, {item}, {dimensions}), *{place}.shape"


_in_buffer, _addressof = ctypes.c_char.from_buffer, ctypes.addressof


def _address(array: Any, item: Any, dimensions: int) -> int:
    if array.dtype != item or array.ndim != dimensions or not array.flags.carray:
        raise TypeError(
            f"a kernel takes {item} in {dimensions} dimensions, C-contiguous, aligned and"
            f" writeable, not {array.dtype} {array.shape} of strides {array.strides}"
        )
    # ctypes has no address of an empty buffer; a kernel reads nothing there.
    return _addressof(_in_buffer(array)) if array.size else 0


def _fail(name: str) -> None:
    raise RuntimeError(f"the kernel {name} failed")


@functools.cache
def _linker() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.create_lljit_compiler()


_linked: dict[str, Any] = {}


def _link(name: str, code: Code) -> int:
    """Link a kernel's code, which stays in memory; return the address of its function."""
    from llvmlite import binding

    library = binding.JITLibraryBuilder().add_object_img(code.image).add_object_img(_memory())
    library.add_current_process().export_symbol(code.symbol)
    _linked[name] = library.link(_linker(), name)
    return int(_linked[name][code.symbol])


@functools.cache
def _memory() -> bytes:
    """Return the object file with the allocator that kernels need for their own arrays."""
    code = store.find(_ALLOCATOR)
    if code is None:
        code = Code("", [], "none", _compile_memory())
        with contextlib.suppress(OSError):
            store.keep(_ALLOCATOR, code)
    return code.image


def _compile_memory() -> bytes:
    from llvmlite import binding

    _linker()
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic")
    return bytes(machine.emit_object(binding.parse_assembly(_MEMORY)))


_ALLOCATOR = f"{__name__}.memory"
# The functions with which Numba's compiled code allocates and frees arrays. A header of 48 bytes
# holds the reference count and the address of the data, which begins on a cache line.
# Hence 112 bytes more than the array: 48, and 64 up to the next line.
_MEMORY = """
declare ptr @malloc(i64)
declare void @free(ptr)

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %alignment) {
  %whole = add i64 %size, 112
  %header = call ptr @malloc(i64 %whole)
  %begin = ptrtoint ptr %header to i64
  %beyond = add i64 %begin, 111
  %line = and i64 %beyond, -64
  %data = inttoptr i64 %line to ptr
  store [6 x i64] [i64 1, i64 0, i64 0, i64 0, i64 0, i64 0], ptr %header
  %place = getelementptr i64, ptr %header, i64 3
  store ptr %data, ptr %place
  ret ptr %header
}

define void @NRT_MemInfo_call_dtor(ptr %header) {
  call void @free(ptr %header)
  ret void
}
"""


_loading = threading.RLock()  # LLVM links a kernel once; a child that is forked has the lock free
os.register_at_fork(
    before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release
)

_say: contextvars.ContextVar[Callable[[], None]] = contextvars.ContextVar(
    "say", default=lambda: None
)


@contextlib.contextmanager
def announced(say: Callable[[], None]) -> Iterator[None]:
    """Call `say` when the first kernel is compiled; if all are loaded, do not call it."""
    warned = False

    def say_once() -> None:
        nonlocal warned
        if not warned:
            warned = True
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
                # Another thread may have made it ready while this one waited for the lock.
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
            from .emitter import emit, from_block

            kinds = kinds_of(arguments)
            return emit(from_block(self.dispatcher(), kinds, arguments), kinds)

    def dispatcher(self) -> Any:
        """Return the function as a Numba dispatcher, which other kernels may call."""
        if self._function is None:
            return getattr(importlib.import_module(self._module), self._name).dispatcher()
        if self._dispatcher is None:
            from .emitter import dispatcher

            code, known = self._function.__code__, self._function.__globals__
            called = {
                name: known[name].dispatcher()
                for name in code.co_names
                if isinstance(known.get(name), Kernel)
            }
            function = types.FunctionType(code, {**known, **called}, self._name)
            self._dispatcher = dispatcher(function)
        return self._dispatcher


def compiled(function: Callable[..., Any]) -> Kernel:
    """Turn a function into a kernel."""
    return Kernel(function.__module__, function.__name__, function)


class Kernels:
    """The kernels of a module, named relative to `ROOM`; the module is imported only when one has
    to be compiled.
    """

    def __init__(self, module: str) -> None:
        self._module = f"{ROOM}.{module}"

    def __getattr__(self, name: str) -> Kernel:
        kernel = Kernel(self._module, name)
        setattr(self, name, kernel)
        return kernel
