"""Read a kernel's arguments from a block of memory: the counterpart of `native.py`, for compilation."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .store import Kind

_ITEM_BYTES = 8


def from_block(kernel: Any, kinds: list[Kind], arguments: tuple[Any, ...]) -> Any:
    """Return a function of a block's address that calls `kernel` with the arguments in the block, of such classes."""
    scope: dict[str, Any] = {"kernel": kernel, "carray": numba.carray}
    place = 0

    def read(kind: Kind, like: Any) -> str:
        nonlocal place
        if isinstance(kind, list):
            name = type(like).__name__
            scope[name] = type(like)
            members = "".join(f"{read(member, one)}, " for member, one in zip(kind, like, strict=True))
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
        def emit(context: Any, builder: ir.IRBuilder, _signature: Any, values: list[ir.Value]) -> ir.Value:
            data = context.get_data_type(kind)
            place = builder.inttoptr(builder.add(*values), data.as_pointer())
            return context.unpack_value(builder, kind, place)

        return kind(types.int64, types.int64), emit

    return read
