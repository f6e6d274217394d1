"""The exponential, and what follows from it: one sequence of float32 operations, with the same bits in every form.

For u <= 0, it is taken apart into a power of two and a polynomial:

    t = fma(u, LOG2_E, MAGIC);  n = t - MAGIC            u / ln 2, rounded to a whole number
    s = 2^n, by its bits:  (bits(t) << 23) + (127 << 23)
    r = fma(n, -LN_2, u)
    q = C4;  q = fma(q, r, C3);  ..  q = fma(q, r, C0)
    p = fma(r * r, q, r)                                 exp(u) = s + s p

    exponential(u):  fma(s, p, s), but 0 for u < LEAST
    sigmoid(x):  a = |x|, at most CLAMP;  u = -a;  e = fma(s, p, s);      (x >= 0 ? 1 : e) / (1 + e)
    tanh(x):     a = |x|, at most CLAMP;  u = -(a + a);  m = fma(s, p, s - 1);  -m / (2 + m) with the sign of x

A NaN stays a NaN; infinite numbers are clamped. Absolute errors are below 1.5e-7, relative ones below 2.1e-7 within
the clamp. Small |x| keep their relative precision in tanh, as do very negative x in sigmoid.
"""

from __future__ import annotations

from .lanes import Lanes, fused, integers

CLAMP = 40.0
LEAST = -64.0  # below, 1e-28: next to 1 it is nothing, and its products would become subnormal, which is slow
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


def exponential(u: Lanes) -> Lanes:
    """Emit exp(u), for u <= 0."""
    s, p = _parts(u)
    return u.where("<", u.all(LEAST), u.all(0.0), fused(s, p, s))


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
