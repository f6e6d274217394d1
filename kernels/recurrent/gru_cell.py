"""The element-wise lines of the GRU, a vector of units at a time; gates are in the order r, z, n.

Forward, with a_r, a_z the chains over inputs and hidden units:

    r = sigmoid((a_r + b_W) + b_R);  z alike
    linear before reset:  w = the chain over inputs, m = (the chain over hidden units from +0) + b_R
                          n = tanh(fma(r, m, w + b_W))
    otherwise:            q = r * h_before;  n = tanh((a_n + b_W) + b_R), a_n over inputs, then over q
    h = fma(z, h_before - n, n)

Backward, with e the error of h:

    delta_n = (e * (1 - z)) * fma(-n, n, 1)
    delta_z = (e * (h_before - n)) * (z * (1 - z))
    linear before reset:  delta_r = (delta_n * m) * (r * (1 - r));  R takes delta_n * r for n
                          carry = e * z
    otherwise:            s = the chain over delta_n R_n;  delta_r = (s * h_before) * (r * (1 - r))
                          carry = fma(s, r, e * z)

`carry` is the part of the error of h_before that does not go through R.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.extending import intrinsic

from ..llvm import Lanes, Units, for_units, fused, of_blocks, sigmoid, tanh

GATES = 3


class Forward(NamedTuple):
    """Where some units of a sample lie; `inner` is m, or q, and the result goes to `y` and `h`."""

    sums: Any
    bias_w: Any
    bias_r: Any
    h_before: Any
    gates: Any
    inner: Any
    y: Any
    h: Any


class Backward(NamedTuple):
    """Where some units of a sample lie; `inner` is m, or s, and errors of the sums go to the last three."""

    error: Any
    gates: Any
    inner: Any
    h_before: Any
    carry: Any
    delta: Any
    delta_r: Any
    copied: Any


def _for_units(count: Any, at: Any, write: Callable[[Units, Any], None]) -> Any:
    """Return the intrinsic that does what `write` emits for `count` units."""

    def generate(builder: ir.IRBuilder, count: ir.Value, at: Any) -> None:
        for_units(builder, count, lambda units: write(units, at))

    return of_blocks(generate, count, at)


@intrinsic
def split_sums(context: Any, count: Any, places: Any) -> Any:
    """Copy the sums over the inputs of `count` units from the first place to the second, with +0 for n.

    For n another chain starts.
    """

    def write(units: Units, places: Any) -> None:
        a_r, a_z, a_n = units.load_gates(places[0], GATES)
        units.store_gates([a_r, a_z, a_n.all(0.0)], places[1])

    return _for_units(count, places, write)


def _resets_and_updates(units: Units, at: Forward) -> list[Lanes]:
    return [sigmoid(gate) for gate in units.load_gates(at.sums, GATES, at.bias_w, at.bias_r)[:2]]


def _finish(units: Units, at: Forward, reset: Lanes, update: Lanes, new: Lanes) -> None:
    out = fused(update, units.load(at.h_before) - new, new)
    units.store_gates([reset, update, new], at.gates)
    units.store(out, at.y)
    units.store(out, at.h)


@intrinsic
def forward_linear(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units to h and y, linear before reset; `gates` holds the sums over inputs, then r, z and n."""

    def write(units: Units, at: Forward) -> None:
        reset, update = _resets_and_updates(units, at)
        recurrent = units.load_gates(at.sums, GATES, at.bias_r)[2]
        new = tanh(fused(reset, recurrent, units.load_gates(at.gates, GATES, at.bias_w)[2]))
        units.store(recurrent, at.inner)
        _finish(units, at, reset, update, new)

    return _for_units(count, at, write)


@intrinsic
def forward_reset(context: Any, count: Any, at: Any) -> Any:
    """Set q = r * h_before of `count` units, and keep r and z in `gates`, with the sum over inputs of n."""

    def write(units: Units, at: Forward) -> None:
        reset, update = _resets_and_updates(units, at)
        units.store(reset * units.load(at.h_before), at.inner)
        units.store_gates([reset, update, units.load_gates(at.gates, GATES)[2]], at.gates)

    return _for_units(count, at, write)


@intrinsic
def forward_new(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units to h and y after `forward_reset`; `sums` holds the chains over inputs and q for n."""

    def write(units: Units, at: Forward) -> None:
        reset, update, _ = units.load_gates(at.gates, GATES)
        new = tanh(units.load_gates(at.sums, GATES, at.bias_w, at.bias_r)[2])
        _finish(units, at, reset, update, new)

    return _for_units(count, at, write)


def _new_and_update_errors(units: Units, at: Backward, update: Lanes, new: Lanes) -> tuple[Lanes, Lanes]:
    e = units.load(at.error)
    one = e.all(1.0)
    of_new = (e * (one - update)) * fused(-new, new, one)
    return of_new, (e * (units.load(at.h_before) - new)) * (update * (one - update))


@intrinsic
def backward_linear(context: Any, count: Any, at: Any) -> Any:
    """Take `count` units from the error of h to the errors of the sums: W's, and R's, written twice."""

    def write(units: Units, at: Backward) -> None:
        reset, update, new = units.load_gates(at.gates, GATES)
        of_new, of_update = _new_and_update_errors(units, at, update, new)
        of_reset = (of_new * units.load(at.inner)) * (reset * (reset.all(1.0) - reset))
        kept = units.load(at.error) * update
        units.store_gates([of_reset, of_update, of_new], at.delta)
        for place in (at.delta_r, at.copied):
            units.store_gates([of_reset, of_update, of_new * reset], place)
        units.store(kept, at.carry)

    return _for_units(count, at, write)


@intrinsic
def backward_new(context: Any, count: Any, at: Any) -> Any:
    """Set the errors of z and n of `count` units; of the copy, that of n alone, and +0 for the others."""

    def write(units: Units, at: Backward) -> None:
        _, update, new = units.load_gates(at.gates, GATES)
        of_new, of_update = _new_and_update_errors(units, at, update, new)
        zero = of_new.all(0.0)
        units.store_gates([zero, of_update, of_new], at.delta)
        units.store_gates([zero, zero, of_new], at.copied)

    return _for_units(count, at, write)


@intrinsic
def backward_reset(context: Any, count: Any, at: Any) -> Any:
    """Set the error of r of `count` units after `backward_new`, and carry; of the copy, those of r and z alone."""

    def write(units: Units, at: Backward) -> None:
        reset, update, _ = units.load_gates(at.gates, GATES)
        _, of_update, of_new = units.load_gates(at.delta, GATES)
        of_product, e, before = (units.load(place) for place in (at.inner, at.error, at.h_before))
        of_reset = (of_product * before) * (reset * (e.all(1.0) - reset))
        units.store_gates([of_reset, of_update, of_new], at.delta)
        units.store_gates([of_reset, of_update, e.all(0.0)], at.copied)
        units.store(fused(of_product, reset, e * update), at.carry)

    return _for_units(count, at, write)
