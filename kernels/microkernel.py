"""The one loop under every convolution: a contraction through offset tables.

    c[c_pixel[q] + c_lane[l]] += sum over k of a[a_pixel[q] + a_k[k]] * b[b_lane[l] + b_k[k]]

The three arrays are flat; six tables of offsets say where things are. Forward, error and gradient of
a convolution (`conv.py`) differ in their tables only. Each value of c takes its products in the order
of k, each by one fused multiply-add, starting from what c holds; so any cut of q, of l, or of k into
consecutive parts gives the same bits.

How it is made fast:
- The tile: PIXELS x `vectors` accumulators, each a vector of WIDTH lanes, stay in registers while k
  runs. Each step loads `vectors` vectors of b and PIXELS single numbers of a, each copied to all
  lanes, for PIXELS * `vectors` fused multiply-adds.
- The tile wants lanes side by side. So parts of b are copied ("gathered") to a panel [k][lane] that
  stays in the cache, and parts of c to a scratch [pixel][lane] and later back ("scattered"). Where
  the numbers of one lane stand side by side, that is a transposition, WIDTH x WIDTH in registers.

Tile and transposition are written as LLVM IR, since only so is it sure what stays in registers. LLVM
splits the vectors where the processor has shorter ones; the bits are the same.

Numba's cache on disk notices changes to the file of a compiled function, but not to other files that
it takes code from. So all compiled code of the contraction is in this file, but for the one
instruction that `fma.py` gives.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic
from numpy.typing import NDArray

from .arrays import Floats
from .fma import emit as emit_fma

Offsets = NDArray[np.int64]

WIDTH = 16
LANES = 4 * WIDTH  # in a panel or scratch
PIXELS = 6
PANEL = 256  # steps of k in a panel: 64 KiB
SCRATCH = 256 * PIXELS  # pixels in a scratch: 384 KiB
SHORT = 4  # shorter runs of numbers side by side are not worth a transposition
# The accumulators of a whole tile need 32 registers of WIDTH floats; elsewhere a tile is one vector wide.
WIDE = "+avx512f" in (config.CPU_FEATURES or binding.get_host_cpu_features().flatten())

_INDEX, _INT = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)


def _index(value: int) -> ir.Value:
    return ir.Constant(_INDEX, value)


def _shuffle(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, places: list[int]) -> ir.Value:
    """Emit the vector of the given places of a (0 .. WIDTH - 1) and b (WIDTH .. 2 WIDTH - 1)."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_INT, len(places)), places))


def _broadcast(builder: ir.IRBuilder, value: ir.Value, kind: ir.Type) -> ir.Value:
    """Emit the vector whose every lane is the value."""
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(_INT, 0))
    return _shuffle(builder, one, undefined, [0] * WIDTH)


def _pointer(builder: ir.IRBuilder, base: ir.Value, index: ir.Value) -> ir.Value:
    """Emit the address of the vector that starts at base[index]."""
    return builder.bitcast(builder.gep(base, [index]), _VECTOR.as_pointer())


def _emitting(signature: Any, generate: Callable[..., None]) -> Any:
    """What an intrinsic returns: its signature, and generate(builder, *values) with arrays as addresses."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
        plain = []
        for kind, value in zip(signature.args, values, strict=True):
            is_array = isinstance(kind, types.Array)
            plain.append(context.make_array(kind)(context, builder, value).data if is_array else value)
        generate(builder, *plain)
        return context.get_dummy_value()

    return signature, emit


def _make_tile(vectors: int) -> Any:
    """Return the intrinsic of a tile `vectors` wide."""

    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        a, a_pixel, q, a_k, k, steps, panel, scratch, lane = values
        panel, a_k = builder.gep(panel, [lane]), builder.gep(a_k, [k])
        scratch = builder.gep(scratch, [builder.add(builder.mul(q, _index(LANES)), lane)])
        places = [
            _pointer(builder, scratch, _index(p * LANES + v * WIDTH)) for p in range(PIXELS) for v in range(vectors)
        ]
        offsets = [builder.load(builder.gep(a_pixel, [builder.add(q, _index(p))])) for p in range(PIXELS)]
        pixels = [builder.gep(a, [offset]) for offset in offsets]
        starts = [builder.load(place, align=4) for place in places]

        before, loop, done = builder.block, builder.append_basic_block("steps"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(_INDEX)
        sums = [builder.phi(_VECTOR) for _ in starts]
        offset = builder.load(builder.gep(a_k, [step]))
        row = builder.mul(step, _index(LANES))
        weights = [
            builder.load(_pointer(builder, panel, builder.add(row, _index(v * WIDTH))), align=4) for v in range(vectors)
        ]
        products = []
        for p, pixel in enumerate(pixels):
            value = _broadcast(builder, builder.load(builder.gep(pixel, [offset]), align=4), _VECTOR)
            for v, weight in enumerate(weights):
                products.append(emit_fma(builder, value, weight, sums[p * vectors + v]))
        following = builder.add(step, _index(1))
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, done)
        for phi, first, next_value in zip([step, *sums], [_index(0), *starts], [following, *products], strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(next_value, loop)
        builder.position_at_end(done)
        for place, product in zip(places, products, strict=True):
            builder.store(product, place, align=4)

    @intrinsic
    def tile(
        context: Any, a: Any, a_pixel: Any, q: Any, a_k: Any, k: Any, steps: Any, panel: Any, scratch: Any, lane: Any
    ) -> Any:
        """scratch[q + p][lane + l] += sum over steps s of a[a_pixel[q + p] + a_k[k + s]] * panel[s][lane + l].

        p runs over PIXELS, l over WIDTH * `vectors`; there is at least one step.
        """
        index = types.int64
        return _emitting(types.void(a, a_pixel, index, a_k, index, index, panel, scratch, index), generate)

    return tile


_tile_1, _tile_2, _tile_3, _tile_4 = (_make_tile(vectors) for vectors in range(1, 5))


def _transposed(builder: ir.IRBuilder, rows: list[ir.Value]) -> list[ir.Value]:
    """Emit the transposition of WIDTH vectors, in four rounds of shuffles that interleave pairs of vectors.

    The first two rounds transpose blocks of 4 x 4, the last two the 4 x 4 blocks as a whole. All
    shuffles are of kinds that AVX-512 does in one instruction.
    """
    quads = range(0, WIDTH, 4)
    singles = [[4 * (i // 4) + half + i // 2 % 2 + WIDTH * (i % 2) for i in range(WIDTH)] for half in (0, 2)]
    doubles = [[4 * (i // 4) + half + i % 2 + WIDTH * (i // 2 % 2) for i in range(WIDTH)] for half in (0, 2)]
    halves = [[4 * q + i for q in (half, half + 2) for i in range(4)] for half in (0, 1)]
    blocks = [half + [WIDTH + place for place in half] for half in halves]
    columns = []  # columns[n][c]: in block g, column 4 g + c of rows 4 n .. 4 n + 3
    for n in quads:
        pairs = [[_shuffle(builder, rows[m], rows[m + 1], places) for places in singles] for m in (n, n + 2)]
        columns.append([_shuffle(builder, pairs[0][i], pairs[1][i], places) for i in (0, 1) for places in doubles])
    result: list[ir.Value] = [None] * WIDTH
    for c in range(4):
        for g, places in enumerate(blocks):
            low = _shuffle(builder, columns[0][c], columns[1][c], places)
            high = _shuffle(builder, columns[2][c], columns[3][c], places)
            result[4 * g + c] = _shuffle(builder, low, high, blocks[0])
            result[4 * (g + 2) + c] = _shuffle(builder, low, high, blocks[1])
    return result


def _masked(builder: ir.IRBuilder, name: str, result: ir.Type, values: list[ir.Value]) -> ir.Value:
    module = builder.module
    full = f"llvm.masked.{name}.v{WIDTH}f32.p0"
    function = module.globals.get(full)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [value.type for value in values]), full)
    return builder.call(function, values)


def _first(builder: ir.IRBuilder, count: ir.Value) -> ir.Value:
    """Emit the mask of the first `count` lanes."""
    kind = ir.VectorType(_INDEX, WIDTH)
    return builder.icmp_signed("<", ir.Constant(kind, list(range(WIDTH))), _broadcast(builder, count, kind))


def _line(builder: ir.IRBuilder, array: ir.Value, lane_table: ir.Value, lane: ir.Value, offset: ir.Value) -> ir.Value:
    """Emit the address of array[lane_table[lane] + offset]."""
    start = builder.load(builder.gep(lane_table, [lane]))
    return _pointer(builder, array, builder.add(start, offset))


@intrinsic
def _transpose_in(
    context: Any, source: Any, lanes: Any, first: Any, width: Any, offset: Any, run: Any, out: Any, place: Any
) -> Any:
    """out[place + i * LANES + l] = source[lanes[first + l] + offset + i] for l < width, i < run, both <= WIDTH.

    Other numbers of the WIDTH x WIDTH block of out become anything.
    """

    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        source, lanes, first, width, offset, run, out, place = values
        mask, last = _first(builder, run), builder.sub(width, _index(1))
        rows = []
        for number in range(WIDTH):
            known = builder.icmp_signed("<", _index(number), width)
            lane = builder.add(first, builder.select(known, _index(number), last))
            address = _line(builder, source, lanes, lane, offset)
            rows.append(
                _masked(builder, "load", _VECTOR, [address, ir.Constant(_INT, 4), mask, ir.Constant(_VECTOR, None)])
            )
        for number, row in enumerate(_transposed(builder, rows)):
            address = _pointer(builder, out, builder.add(place, _index(number * LANES)))
            builder.store(row, address, align=4)

    index = types.int64
    return _emitting(types.void(source, lanes, index, index, index, index, out, index), generate)


@intrinsic
def _transpose_out(
    context: Any, source: Any, place: Any, out: Any, lanes: Any, first: Any, width: Any, offset: Any, run: Any
) -> Any:
    """out[lanes[first + l] + offset + i] = source[place + i * LANES + l] for l < width, i < run, both <= WIDTH."""

    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        source, place, out, lanes, first, width, offset, run = values
        addresses = [_pointer(builder, source, builder.add(place, _index(n * LANES))) for n in range(WIDTH)]
        rows = _transposed(builder, [builder.load(address, align=4) for address in addresses])
        last = builder.sub(width, _index(1))
        for number, row in enumerate(rows):
            known = builder.icmp_signed("<", _index(number), width)
            mask = _first(builder, builder.select(known, run, _index(0)))
            lane = builder.add(first, builder.select(known, _index(number), last))
            address = _line(builder, out, lanes, lane, offset)
            _masked(builder, "store", ir.VoidType(), [row, address, ir.Constant(_INT, 4), mask])

    index = types.int64
    return _emitting(types.void(source, index, out, lanes, index, index, index, index), generate)


@intrinsic
def _copy(context: Any, source: Any, start: Any, out: Any, place: Any, count: Any) -> Any:
    """out[place : place + count] = source[start : start + count]"""

    def generate(builder: ir.IRBuilder, *values: ir.Value) -> None:
        source, start, out, place, count = values
        cgutils.raw_memcpy(builder, builder.gep(out, [place]), builder.gep(source, [start]), count, 4)

    index = types.int64
    return _emitting(types.void(source, index, out, index, index), generate)


@njit(cache=True, nogil=True)
def _with_runs(table: Any) -> Any:
    """Return (table, runs): for each entry, how many from there on rise by one each, itself included."""
    runs = np.empty_like(table)
    for i in range(table.size - 1, -1, -1):
        goes_on = i + 1 < table.size and table[i + 1] == table[i] + 1
        runs[i] = runs[i + 1] + 1 if goes_on else 1
    return table, runs


@njit(cache=True, nogil=True)
def _stretch(runs: Any, first: Any, count: Any) -> Any:
    """How many of the `count` entries from the first on to treat alike: a run, or a series of short ones."""
    stretch = min(runs[first], count)
    while stretch < count and runs[first] < SHORT and runs[first + stretch] < SHORT:
        stretch += 1
    return stretch


@njit(cache=True, nogil=True)
def _gather(out: Any, source: Any, lanes: Any, lane: Any, width: Any, places: Any, first: Any, count: Any) -> None:
    """out[i][l] = source[lanes[lane + l] + places[first + i]] for l < width <= LANES and i < count.

    lanes and places are tables with their runs; out has WIDTH rows to spare.
    """
    (lane_table, lane_runs), (place_table, place_runs) = lanes, places
    if lane_runs[lane] >= width:
        for i in range(count):
            _copy(source, lane_table[lane] + place_table[first + i], out, i * LANES, width)
        return
    i = 0
    while i < count:
        stretch = _stretch(place_runs, first + i, count - i)
        for v in range(0, width, WIDTH):
            share = min(WIDTH, width - v)
            if place_runs[first + i] >= SHORT:
                for j in range(i, i + stretch, WIDTH):
                    run, place = min(WIDTH, i + stretch - j), place_table[first + j]
                    _transpose_in(source, lane_table, lane + v, share, place, run, out, j * LANES + v)
            else:
                for m in range(v, v + share):
                    for j in range(i, i + stretch):
                        out[j * LANES + m] = source[lane_table[lane + m] + place_table[first + j]]
        i += stretch


@njit(cache=True, nogil=True)
def _scatter(source: Any, out: Any, lanes: Any, lane: Any, width: Any, places: Any, first: Any, count: Any) -> None:
    """out[lanes[lane + l] + places[first + i]] = source[i][l]: the reverse of `_gather`."""
    (lane_table, lane_runs), (place_table, place_runs) = lanes, places
    if lane_runs[lane] >= width:
        for i in range(count):
            _copy(source, i * LANES, out, lane_table[lane] + place_table[first + i], width)
        return
    i = 0
    while i < count:
        stretch = _stretch(place_runs, first + i, count - i)
        for v in range(0, width, WIDTH):
            share = min(WIDTH, width - v)
            if place_runs[first + i] >= SHORT:
                for j in range(i, i + stretch, WIDTH):
                    run, place = min(WIDTH, i + stretch - j), place_table[first + j]
                    _transpose_out(source, j * LANES + v, out, lane_table, lane + v, share, place, run)
            else:
                for m in range(v, v + share):
                    for j in range(i, i + stretch):
                        out[lane_table[lane + m] + place_table[first + j]] = source[j * LANES + m]
        i += stretch


@njit(cache=True, nogil=True)
def _multiply(scratch: Any, panel: Any, width: Any, a: Any, a_pixel: Any, count: Any, a_k: Any, k: Any, n: Any) -> None:
    """Run the tiles of `count` pixels, a multiple of PIXELS, and of `width` lanes, over n steps from k on."""
    for q in range(0, count, PIXELS):
        if not WIDE:
            for lane in range(0, width, WIDTH):
                _tile_1(a, a_pixel, q, a_k, k, n, panel, scratch, lane)
        elif width > 3 * WIDTH:
            _tile_4(a, a_pixel, q, a_k, k, n, panel, scratch, 0)
        elif width > 2 * WIDTH:
            _tile_3(a, a_pixel, q, a_k, k, n, panel, scratch, 0)
        elif width > WIDTH:
            _tile_2(a, a_pixel, q, a_k, k, n, panel, scratch, 0)
        else:
            _tile_1(a, a_pixel, q, a_k, k, n, panel, scratch, 0)


@njit(cache=True, nogil=True)
def contract(
    c: Floats,
    c_pixel: Offsets,
    c_lane: Offsets,
    a: Floats,
    a_pixel: Offsets,
    a_k: Offsets,
    b: Floats,
    b_lane: Offsets,
    b_k: Offsets,
) -> None:
    """Add the products of a and b to c, in place, as the head of this file says.

    c, a, b are flat and as `arrays.dense` makes them; c overlaps neither a nor b. No offset is checked.
    """
    pixels, lanes, depth = c_pixel.size, c_lane.size, a_k.size
    c_places, c_lanes, b_lanes, b_steps = _with_runs(c_pixel), _with_runs(c_lane), _with_runs(b_lane), _with_runs(b_k)
    block = min(SCRATCH, max(1, (pixels + PIXELS - 1) // PIXELS) * PIXELS)
    scratch = np.zeros((block + WIDTH) * LANES, np.float32)
    panel = np.zeros((min(PANEL, depth) + WIDTH) * LANES, np.float32)
    sources = np.empty(block, np.int64)
    for first in range(0, pixels, block):
        count = min(block, pixels - first)
        whole = (count + PIXELS - 1) // PIXELS * PIXELS
        for q in range(whole):  # the last tile repeats the last pixel; its surplus is not scattered
            sources[q] = a_pixel[first + min(q, count - 1)]
        for lane in range(0, lanes, LANES):
            width = min(LANES, lanes - lane)
            _gather(scratch, c, c_lanes, lane, width, c_places, first, count)
            for k in range(0, depth, PANEL):
                steps = min(PANEL, depth - k)
                _gather(panel, b, b_lanes, lane, width, b_steps, k, steps)
                _multiply(scratch, panel, width, a, sources, whole, a_k, k, steps)
            _scatter(scratch, c, c_lanes, lane, width, c_places, first, count)
