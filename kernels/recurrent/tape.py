"""What a slice holds for its update, packed weights, and for each micro-batch, the tape of FP."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

from ..jit import Floats, Kernels, address_of
from .arrays import NOTHING, Lengths, Rows, new, rows_of
from .panels import ROW

packing, products = Kernels("recurrent.packing"), Kernels("recurrent.product")
of_rows, gradients = Kernels("recurrent.rows"), Kernels("recurrent.gradient")


@dataclasses.dataclass(frozen=True)
class Packed:
    """Weights of a slice, packed once for each update; those that are not wanted are empty."""

    w: Floats
    r: Floats
    b_w: Floats
    b_r: Floats
    p: Floats
    w_back: Floats
    r_back: Floats
    p_back: Floats


@dataclasses.dataclass
class Tape:
    """What FP of some samples leaves for EB and PG; rows are samples * steps + t.

    `gates` begins as the sums over the inputs. `inner` is tanh c of the LSTM, R h + b_R for n of the GRU, or, where it
    resets before the product, r * h. `delta` are the errors of the sums: of `b_w` and W; `delta_r`, of `b_r` and R, is
    the same array except in the GRU that is linear before reset. `cells` and `of_outputs` belong to the projection.
    """

    rows: Rows
    ragged: bool
    gates: Floats
    inner: Floats
    c_before: Floats
    h_before: Floats
    cells: Floats
    y: Floats
    delta: Floats = dataclasses.field(default_factory=lambda: NOTHING)
    delta_r: Floats = dataclasses.field(default_factory=lambda: NOTHING)
    of_outputs: Floats = dataclasses.field(default_factory=lambda: NOTHING)

    @classmethod
    def restored(cls, arrays: Mapping[str, Floats], lengths: Lengths, *, reverse: bool) -> Tape:
        """Return a tape from arrays of one by name, those that are needed, of some samples of these `lengths`.

        `h_before` is always needed. Without `delta_r`, it is `delta`.
        """
        samples, steps, _ = arrays["h_before"].shape
        ragged = bool((lengths < steps).any())
        rows = rows_of(samples, steps, lengths, reverse=reverse)
        names = ("gates", "inner", "c_before", "h_before", "cells", "y")
        gates, inner, c_before, h_before, cells, y = (arrays.get(name, new(samples, steps, 0)) for name in names)
        found = cls(rows, ragged, gates, inner, c_before, h_before, cells, y)
        if "delta" in arrays:
            found.delta = arrays["delta"]
            found.delta_r = arrays.get("delta_r", found.delta)
        if "of_outputs" in arrays:
            found.of_outputs = arrays["of_outputs"]
        return found

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self.rows.shape[1]

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.rows.shape[0]


@functools.cache
def packed_size(lanes: int, depth: int) -> int:
    """Return the floats of packed weights of a slice."""
    return int(packing.packed_size(lanes, depth, ROW))


def add_gradient(
    place: int,
    order: tuple[int, int],
    all_gates: int,
    gates: tuple[int, int],
    units: int,
    turned: Floats,
    source: Floats,
    fresh: bool,
) -> None:
    """Add errors times inputs to gradients at an address, as `product.gradient`; where `fresh`, overwrite these."""
    depth = source.shape[-1]
    count = source.size // depth
    gradients.gradient(
        place,
        order,
        all_gates,
        gates,
        units,
        depth,
        address_of(turned),
        turned.shape[1],
        address_of(source),
        count,
        int(fresh),
    )


def transposed(rows: Floats) -> Floats:
    """Return rows [..., lanes] as [lanes, rows], of a pitch that is not a power of two."""
    lanes = rows.shape[-1]
    count = rows.size // lanes
    found = new(lanes, count // 16 * 16 + 16 + 16 * (count // 16 % 2))
    packing.transpose(address_of(rows), count, lanes, address_of(found), found.shape[1])
    return found
