"""The fused multiply-add: a * b + c with one rounding, guaranteed by LLVM's `llvm.fma`.

The compiler may or may not fuse an ordinary `a * b + c`; `llvm.fma` always has exactly one rounding, on every processor
(in hardware where available, else in software), so that the same program gives the same bits everywhere.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def emit_fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Emit one fused multiply-add of three floats, or of three vectors of floats, lane by lane."""
    kind = a.type
    name = "llvm.fma.f32" if isinstance(kind, ir.FloatType) else f"llvm.fma.v{kind.count}f32"
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(function, [a, b, c])


@intrinsic
def fma(context: Any, a: types.Type, b: types.Type, c: types.Type) -> Any:
    """Return a * b + c of three float32 numbers with one rounding, for use in compiled code."""
    signature = types.float32(types.float32, types.float32, types.float32)

    def generate(_context: Any, builder: ir.IRBuilder, _signature: Any, arguments: list[ir.Value]) -> ir.Value:
        return emit_fma(builder, *arguments)

    return signature, generate
