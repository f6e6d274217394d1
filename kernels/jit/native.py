"""Machine code as Python functions: linked by LLVM, called through ctypes.

A kernel gets its arguments in one block of memory, eight bytes each: numbers directly, tuples member by member, and
arrays as their address and shape. So a call costs a microsecond or two, whatever the number of arguments.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from . import store
from .store import Code, Kind

_FORMATS = {"int64": "q", "float32": "f4x", "float64": "d", "bool": "?7x"}
_RESULTS: dict[str, Any] = {"none": ctypes.c_void_p, "int64": ctypes.c_int64, "bool": ctypes.c_bool}


def kinds_of(arguments: tuple[Any, ...]) -> list[Kind]:
    """Return the kinds of some arguments. Raise TypeError where a kernel cannot take one of them."""
    return [_kind(argument) for argument in arguments]


def _kind(argument: Any) -> Kind:
    if isinstance(argument, tuple):
        return kinds_of(argument)
    if isinstance(argument, np.ndarray):
        return f"{argument.dtype} {argument.ndim}"
    kinds = (("bool", (bool, np.bool_)), ("int64", (int, np.int64)), ("float32", np.float32), ("float64", float))
    for name, types in kinds:
        if isinstance(argument, types):
            return name
    raise TypeError(f"a kernel takes arrays, numbers, and tuples of these, not {type(argument)}")


def entry(name: str, code: Code) -> Callable[..., Any]:
    """Return a Python function that calls a kernel's code. It raises TypeError for an argument of another kind."""
    formats: list[str] = []
    scope: dict[str, Any] = {"address": _address, "fail": functools.partial(_fail, name)}
    flat = [_flatten(kind, f"a{number}", formats, scope) for number, kind in enumerate(code.arguments)]
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
        text = f"def call({names}):\n result = new()\n if {call % 'byref(result)'}: fail()\n return result.value"
    exec(compile(text, f"<kernel {name}>", "exec"), scope)  # profiles show this name
    return scope["call"]


def _flatten(kind: Kind, place: str, formats: list[str], scope: dict[str, Any]) -> str:
    """Return the text of an argument's numbers; add their formats to `formats`, and the names in it to `scope`."""
    if isinstance(kind, list):
        return ", ".join(_flatten(member, f"{place}[{number}]", formats, scope) for number, member in enumerate(kind))
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
            f"a kernel takes {item} in {dimensions} dimensions, C-contiguous, aligned and writeable, "
            f"not {array.dtype} {array.shape} of strides {array.strides}"
        )
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
    code = store.find("memory")
    if code is None:
        code = Code("", [], "none", _compile_memory())
        with contextlib.suppress(OSError):
            store.keep("memory", code)
    return code.image


def _compile_memory() -> bytes:
    from llvmlite import binding

    _linker()
    machine = binding.Target.from_default_triple().create_target_machine(reloc="pic")
    return bytes(machine.emit_object(binding.parse_assembly(_MEMORY)))


# The functions with which Numba's compiled code allocates and frees arrays. A header of 48 bytes holds the reference
# count and the address of the data, which begins on a cache line.
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
