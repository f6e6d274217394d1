"""Element-wise lines that LSTM and GRU share: sigmoid and tanh by a clamped polynomial, and errors of the outputs.

Each is one sequence of float32 operations, with the same bits in every form. Sigmoid and tanh take an exponential apart
into a power of two and a polynomial, for u <= 0:

    t = fma(u, LOG2_E, MAGIC);  n = t - MAGIC            u / ln 2, rounded to a whole number
    s = 2^n, by its bits:  (bits(t) << 23) + (127 << 23)
    r = fma(n, -LN_2, u)
    q = C4;  q = fma(q, r, C3);  ..  q = fma(q, r, C0)
    p = fma(r * r, q, r)                                 exp(u) = s + s p

    sigmoid(x):  a = |x|, at most CLAMP;  u = -a;  e = fma(s, p, s);      (x >= 0 ? 1 : e) / (1 + e)
    tanh(x):     a = |x|, at most CLAMP;  u = -(a + a);  m = fma(s, p, s - 1);  -m / (2 + m) with the sign of x

A NaN stays a NaN; infinite numbers are clamped. Absolute errors are below 1.5e-7, relative ones below 2.1e-7 within
the clamp. Small |x| keep their relative precision in tanh, as do very negative x in sigmoid.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.extending import intrinsic

from ..jit import FLOAT_BYTES, compiled
from ..llvm import WIDTH, Lanes, Units, clear, for_units, fused, integers, numbers_only

CLAMP = 40.0
LOG2_E, LN_2 = 1.4426950216293335, 0.6931471824645996
MAGIC = 12582912.0  # 1.5 * 2^23: numbers beyond it have no fraction
COEFFICIENTS = (
    0.4999999701976776,
    0.1666654348373413,
    0.04166720062494278,
    0.008366547524929047,
    0.0013882515486329794,
)
_SIGN, _REST = -(1 << 31), (1 << 31) - 1


def _parts(u: Lanes) -> tuple[Lanes, Lanes]:
    """Return (s, p), where exp(u) = s + s p."""
    magic = u.all(MAGIC)
    t = fused(u, u.all(LOG2_E), magic)
    n = t - magic
    shifted = u.builder.shl(t.bits(), integers(23))
    s = u.of_bits(u.builder.add(shifted, integers(127 << 23)))
    r = fused(n, u.all(-LN_2), u)
    q = u.all(COEFFICIENTS[-1])
    for coefficient in COEFFICIENTS[-2::-1]:
        q = fused(q, r, u.all(coefficient))
    return s, fused(r * r, q, r)


def _clamped_size(x: Lanes) -> Lanes:
    size = x.of_bits(x.builder.and_(x.bits(), integers(_REST)))
    limit = x.all(CLAMP)
    return limit.where("<", size, limit, size)


def sigmoid(x: Lanes) -> Lanes:
    """Emit 1 / (1 + exp(-x))."""
    s, p = _parts(-_clamped_size(x))
    e, one = fused(s, p, s), x.all(1.0)
    return x.where(">=", x.all(0.0), one, e) / (one + e)


def tanh(x: Lanes) -> Lanes:
    """Emit the hyperbolic tangent."""
    a = _clamped_size(x)
    s, p = _parts(-(a + a))
    m = fused(s, p, s - x.all(1.0))
    size = -m / (x.all(2.0) + m)
    sign = x.builder.and_(x.bits(), integers(_SIGN))
    rest = x.builder.and_(size.bits(), integers(_REST))
    return x.of_bits(x.builder.or_(rest, sign))


@intrinsic
def _apply(context: Any, is_tanh: Any, count: Any, x: Any, y: Any) -> Any:
    """Set y to sigmoid or tanh of `count` <= WIDTH numbers x."""

    def generate(builder: ir.IRBuilder, is_tanh: ir.Value, count: ir.Value, x: ir.Value, y: ir.Value) -> None:
        def write(units: Units) -> None:
            given = units.load(x)
            wanted = builder.icmp_signed("!=", is_tanh, ir.Constant(is_tanh.type, 0))
            result = builder.select(wanted, tanh(given).value, sigmoid(given).value)
            units.store(Lanes(builder, result), y)

        for_units(builder, count, write)

    return numbers_only(4, generate)


@compiled
def apply(is_tanh: Any, count: Any, x: Any, y: Any) -> None:
    """Set y to sigmoid (0) or tanh (1) of `count` numbers; `x` and `y` are addresses."""
    for first in range(0, count, WIDTH):
        _apply(is_tanh, min(WIDTH, count - first), x + FLOAT_BYTES * first, y + FLOAT_BYTES * first)


@intrinsic
def _total_error(context: Any, count: Any, dy: Any, dh: Any, carry: Any, out: Any) -> Any:
    """Set out = dy + (dh + carry)."""

    def generate(
        builder: ir.IRBuilder, count: ir.Value, dy: ir.Value, dh: ir.Value, carry: ir.Value, out: ir.Value
    ) -> None:
        def write(units: Units) -> None:
            units.store(units.load(dy) + (units.load(dh) + units.load(carry)), out)

        for_units(builder, count, write)

    return numbers_only(5, generate)


@intrinsic
def _kept_error(context: Any, count: Any, dh: Any, carry: Any) -> Any:
    """Set carry = dh + carry."""

    def generate(builder: ir.IRBuilder, count: ir.Value, dh: ir.Value, carry: ir.Value) -> None:
        def write(units: Units) -> None:
            units.store(units.load(dh) + units.load(carry), carry)

        for_units(builder, count, write)

    return numbers_only(3, generate)


@compiled
def total_error(units: Any, dy: Any, dh: Any, carry: Any, out: Any) -> None:
    """Set out = dy + (dh + carry) for all units of a sample, and carry = 0."""
    for first in range(0, units, WIDTH):
        at = FLOAT_BYTES * first
        _total_error(min(WIDTH, units - first), dy + at, dh + at, carry + at, out + at)
    clear(carry, units)


@compiled
def keep_error(units: Any, dh: Any, carry: Any) -> None:
    """Set carry = dh + carry for all units of a sample whose sequence has ended at this step."""
    for first in range(0, units, WIDTH):
        at = FLOAT_BYTES * first
        _kept_error(min(WIDTH, units - first), dh + at, carry + at)
