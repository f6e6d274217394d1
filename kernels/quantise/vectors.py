"""What the quantisers' loops need for vectors: how LLVM makes them, and pieces where it makes none by itself."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..form import FORM
from ..jit import FLOAT_BYTES
from ..llvm import INT, broadcast, numbers_only
from .element import MAGNITUDE

USUAL = 32
"""Elements of a block of OCP's formats: their loops have no checks for other sizes."""
_FLOAT_BITS = 32
_BLOCK = ir.VectorType(INT, USUAL)


@intrinsic
def in_wide_vectors(context: Any) -> Any:
    """Make vectors of FORM.width floats of the loops in the function that calls this, and in those that are inlined.

    LLVM itself takes half of AVX-512's width, as suits programs that seldom compute in vectors.
    """
    return numbers_only(0, lambda builder: _add(builder, f'"prefer-vector-width"="{_FLOAT_BITS * FORM.width}"'))


@intrinsic
def inlined(context: Any) -> Any:
    """Inline the function that calls this wherever it is called: LLVM then sees which of its arrays are the same one.

    It makes vectors where arrays are one, or, when the function runs, share nothing.
    """
    return numbers_only(0, lambda builder: _add(builder, "alwaysinline"))


def _add(builder: ir.IRBuilder, attribute: str) -> None:
    set.add(builder.function.attributes, attribute)  # llvmlite's own `add` takes only attributes without a value


@intrinsic
def largest_of_block(context: Any, values: Any, out: Any) -> Any:
    """Write the largest magnitude of USUAL numbers, whose bits begin at the address `values`, to the address `out`."""

    def generate(builder: ir.IRBuilder, values: ir.Value, out: ir.Value) -> None:
        bits = builder.load(builder.inttoptr(values, _BLOCK.as_pointer()), align=FLOAT_BYTES)
        sizes = builder.and_(bits, ir.Constant(_BLOCK, [MAGNITUDE] * USUAL))
        name = f"llvm.vector.reduce.umax.v{USUAL}i32"
        reduce = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(INT, [_BLOCK]), name)
        builder.store(builder.call(reduce, [sizes]), builder.inttoptr(out, INT.as_pointer()), align=FLOAT_BYTES)

    return numbers_only(2, generate)


@intrinsic
def spread(context: Any, value: Any, out: Any) -> Any:
    """Write the 32 bits at the address `value` to USUAL places from the address `out` on."""

    def generate(builder: ir.IRBuilder, value: ir.Value, out: ir.Value) -> None:
        one = builder.load(builder.inttoptr(value, INT.as_pointer()), align=FLOAT_BYTES)
        builder.store(broadcast(builder, one, USUAL), builder.inttoptr(out, _BLOCK.as_pointer()), align=FLOAT_BYTES)

    return numbers_only(2, generate)
