"""The one loop under every convolution: a contraction through offset tables.

    c[c_pixel[q] + c_lane[l]] += sum over k of a[a_pixel[q] + a_k[k]] * b[b_lane[l] + b_k[k]]

The three arrays are flat; six tables of offsets say where things are. Forward, error and gradient of
a convolution (`conv.py`) differ in their tables only. Each value of c takes its products in the order
of k, each by one fused multiply-add, starting from what c holds; so any cut of q, of l, or of k into
consecutive parts gives the same bits.

How it is made fast:
- A register tile: PIXELS x VECTORS accumulators, each a vector of WIDTH floats that stand side by
  side as lanes, stay in registers through the whole loop over k. Each step loads VECTORS vectors of
  b and PIXELS single numbers of a (copied to every lane), for PIXELS * VECTORS fused multiply-adds.
- So that lanes stand side by side, parts of b are copied ("packed") to a small panel [k][lane], and
  parts of c to a scratch [pixel][lane] and back. Both are sized to stay in the cache.

The tile is written as LLVM IR, since only so are the accumulators sure to stay in registers. LLVM
splits its vectors where the processor has shorter ones; the bits are the same.

Numba's cache on disk notices changes to the file of a compiled function, but not to other files that
it takes code from. So all compiled code of the contraction is in this file.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from . import fma

WIDTH = 16
VECTORS = 4
PIXELS = 6
LANES = VECTORS * WIDTH
PANEL = 256  # steps of k packed at a time: a panel of 64 KiB
SCRATCH = 256 * PIXELS  # pixels at a time: a scratch of 384 KiB

_FLOAT = ir.FloatType()
_INDEX = ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, WIDTH)


def _emit_tile(builder: ir.IRBuilder, vectors: int, a: ir.Value, a_pixel: ir.Value, a_k: ir.Value, steps: ir.Value,
               panel: ir.Value, scratch: ir.Value) -> None:
    """Emit the register tile: scratch[p][lane] += sum over k of a[a_pixel[p] + a_k[k]] * panel[k][lane]."""

    def constant(value: int) -> ir.Value:
        return ir.Constant(_INDEX, value)

    def vector_at(base: ir.Value, index: ir.Value) -> ir.Value:
        return builder.bitcast(builder.gep(base, [index]), _VECTOR.as_pointer())

    def broadcast(value: ir.Value) -> ir.Value:
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), None)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)

    places = [constant(p * LANES + v * WIDTH) for p in range(PIXELS) for v in range(vectors)]
    rows = [builder.gep(a, [builder.load(builder.gep(a_pixel, [constant(p)]))]) for p in range(PIXELS)]
    starts = [builder.load(vector_at(scratch, place), align=4) for place in places]

    before = builder.block
    loop = builder.append_basic_block("k.loop")
    done = builder.append_basic_block("k.done")
    builder.branch(loop)  # steps is at least 1

    builder.position_at_end(loop)
    k = builder.phi(_INDEX)
    k.add_incoming(constant(0), before)
    sums = [builder.phi(_VECTOR) for _ in starts]
    for total, start in zip(sums, starts, strict=True):
        total.add_incoming(start, before)
    a_offset = builder.load(builder.gep(a_k, [k]))
    line = builder.mul(k, constant(LANES))
    weights = [builder.load(vector_at(panel, builder.add(line, constant(v * WIDTH))), align=4) for v in range(vectors)]
    products = []
    for p, row in enumerate(rows):
        value = broadcast(builder.load(builder.gep(row, [a_offset]), align=4))
        for v, weight in enumerate(weights):
            products.append(fma.emit(builder, value, weight, sums[p * vectors + v]))
    after = builder.add(k, constant(1))
    k.add_incoming(after, builder.block)
    for total, product in zip(sums, products, strict=True):
        total.add_incoming(product, builder.block)
    builder.cbranch(builder.icmp_signed("<", after, steps), loop, done)

    builder.position_at_end(done)
    for place, product in zip(places, products, strict=True):
        builder.store(product, vector_at(scratch, place), align=4)


def _tile(vectors: int) -> Any:
    """Return the intrinsic tile(a, a_pixel, q, a_k, k, steps, panel, scratch) of PIXELS x `vectors` accumulators.

    q is where the tile starts in a_pixel and in scratch, k where its steps start in a_k.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def tile(context: Any, a: Any, a_pixel: Any, q: Any, a_k: Any, k: Any, steps: Any, panel: Any, scratch: Any) -> Any:
        signature = types.void(a, a_pixel, types.int64, a_k, types.int64, types.int64, panel, scratch)

        def generate(context: Any, builder: ir.IRBuilder, signature: Any, arguments: list[ir.Value]) -> ir.Value:
            def data(number: int) -> ir.Value:
                return context.make_array(signature.args[number])(context, builder, arguments[number]).data

            q, k, steps = arguments[2], arguments[4], arguments[5]
            here = builder.gep(data(7), [builder.mul(q, ir.Constant(_INDEX, LANES))])
            _emit_tile(builder, vectors, data(0), builder.gep(data(1), [q]), builder.gep(data(3), [k]), steps,
                       data(6), here)
            return context.get_dummy_value()

        return signature, generate

    return tile


_tile_1, _tile_2, _tile_3, _tile_4 = (_tile(vectors) for vectors in range(1, VECTORS + 1))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def contract(c, c_pixel, c_lane, a, a_pixel, a_k, b, b_lane, b_k):  # type: ignore[no-untyped-def]
    """Add the products of a and b to c, in place, as the head of this file says.

    c, a, b are flat float32 arrays, C-contiguous; the tables are int64. c overlaps neither a nor b.
    """
    pixels, lanes, depth = c_pixel.size, c_lane.size, a_k.size
    block = min(SCRATCH, (pixels + PIXELS - 1) // PIXELS * PIXELS)
    scratch = np.zeros(block * LANES, np.float32)
    panel = np.zeros(min(PANEL, depth) * LANES, np.float32)
    rows = np.empty(block, np.int64)
    for first_pixel in range(0, pixels, block):
        count = min(block, pixels - first_pixel)
        tiles = (count + PIXELS - 1) // PIXELS
        for q in range(tiles * PIXELS):  # the last tile repeats the last pixel, and its surplus is dropped
            rows[q] = a_pixel[first_pixel + min(q, count - 1)]
        for first_lane in range(0, lanes, LANES):
            width = min(LANES, lanes - first_lane)
            vectors = (width + WIDTH - 1) // WIDTH
            for lane in range(width):
                for q in range(count):
                    scratch[q * LANES + lane] = c[c_pixel[first_pixel + q] + c_lane[first_lane + lane]]
            for first_k in range(0, depth, PANEL):
                steps = min(PANEL, depth - first_k)
                for lane in range(width):
                    for k in range(steps):
                        panel[k * LANES + lane] = b[b_lane[first_lane + lane] + b_k[first_k + k]]
                for t in range(tiles):
                    if vectors == 4:
                        _tile_4(a, rows, t * PIXELS, a_k, first_k, steps, panel, scratch)
                    elif vectors == 3:
                        _tile_3(a, rows, t * PIXELS, a_k, first_k, steps, panel, scratch)
                    elif vectors == 2:
                        _tile_2(a, rows, t * PIXELS, a_k, first_k, steps, panel, scratch)
                    else:
                        _tile_1(a, rows, t * PIXELS, a_k, first_k, steps, panel, scratch)
            for lane in range(width):
                for q in range(count):
                    c[c_pixel[first_pixel + q] + c_lane[first_lane + lane]] = scratch[q * LANES + lane]
