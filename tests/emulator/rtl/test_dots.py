"""Engines whose products are added in blocks, against the kernels: every bit of each row, in its
cycle, with numbers at both ends of their formats; and devices of them, against training.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Slice, slice_works
from emuchain.emulator.network import Window
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.rtl import (
    MODULES,
    DotEngine,
    Rtl,
    dot_engine,
    dot_sums,
    engine_module,
    find_tools,
    lint,
    planned_engines,
    write_engines,
)
from emuchain.emulator.rtl.engines import DotSums
from emuchain.emulator.rtl.formats import literal
from emuchain.kernels.conv import DotConvolution
from emuchain.kernels.number import Rounding, number_format

from .chains import (
    RELU,
    TWO_LAYERS,
    Mutation,
    cluster,
    conv,
    fc,
    modules_beside,
    network,
    plan,
    simulated,
)
from .conftest import SOURCES, BuildStream, BuildStreamOf, Records
from .test_drawn import drawn_chain
from .test_quantise import canonical, stream
from .test_slang import slang

FILES = [SOURCES / f"{name}.sv" for name in MODULES]

Codes = NDArray[np.int64]
Bits = NDArray[np.uint8]
Phase = Literal["FP", "EB"]
NAN = 255


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Whole numbers (channels first), with a scale (E8M0) for blocks of channels, or 127 for all;
    `shared` channels have one, 0: all do.
    """

    codes: Codes
    scales: Codes
    shared: int
    step: int

    @property
    def values(self) -> NDArray[np.float32]:
        """The numbers of a network; a NaN for each of a block without a scale."""
        exponents = self.scales - 127
        if self.shared:
            exponents = np.repeat(exponents, self.shared, 0)[: len(self.codes)]
        values = np.ldexp(self.codes.astype(np.float64), exponents + self.step)
        return np.where(exponents == NAN - 127, np.nan, values).astype(np.float32)


def drawn(
    rng: np.random.Generator, shape: tuple[int, ...], shared: int, step: int, at: tuple[int, ...]
) -> Numbers:
    """Return numbers of which half are at an end of their format; scales are about those of `at`,
    one of them for each block.
    """
    codes = rng.integers(-127, 128, shape)
    ends = rng.choice([-127, 127, 0, 1], shape)
    codes = np.where(rng.random(shape) < 0.5, ends, codes)
    codes[:, rng.random(shape[1:]) < 0.2] = 127 * rng.choice([-1, 1])
    if not shared:
        return Numbers(codes, np.full(shape, 127), 0, step)
    blocks = -(-shape[0] // shared), *shape[1:]
    scales = rng.choice(at, blocks) + rng.integers(-2, 3, blocks)
    return Numbers(codes, np.clip(scales, 1, 255), shared, step)


def bits_of(values: Codes, width: int) -> Bits:
    """Return the lowest bits of whole numbers, one after the other, the lowest first."""
    flat = np.ascontiguousarray(values.reshape(-1), np.int64)
    bits = (flat[:, None] >> np.arange(width)) & 1
    return bits.reshape(-1).astype(np.uint8)


def record(*fields: Bits) -> Records:
    """Return words of all bits in a row."""
    bits = np.concatenate(fields)
    padded = np.concatenate([bits, np.zeros(-len(bits) % 32, np.uint8)])
    return np.packbits(padded, bitorder="little").view(np.uint32)


class Bench:
    """An engine in simulation, built once; its rows one after the other, as fast as it takes
    them.
    """

    def __init__(self, engine: DotEngine, build_stream: BuildStream) -> None:
        self.engine, values = engine, engine.parameters
        self.scales = -(-engine.read // engine.shared) if engine.shared else 1
        self.pixels = values["KERNEL_ROWS"] * values["COLUMNS_READ"]
        sizes = {
            "reset": 1,
            "ready": 1,
            "host_write": 1,
            "host_address": 32,
            "host_data": engine.dot * 8 + 8,
            "rows": self.pixels * engine.read * 8,
            "scales": self.pixels * self.scales * 8,
            "rows_reach": values["KERNEL_ROWS"],
            "partial": values["COLUMNS"] * engine.made * 32,
        }
        self.sizes, first, wires = sizes, 0, []
        for name, size in sizes.items():
            wires.append(f".{name}(in[{first}+:{size}])")
            first += size
        words, made = -(-first // 32), values["COLUMNS"] * engine.made
        body = (
            f"    one of (.clk, {', '.join(wires)}, .start(out[0]), .out_valid(out[1]),"
            " .out_row(out[32+:" + f"{made * 32}]));\n    assign out[31:2] = '0;\n"
        )
        text = engine_module(engine, "one") + stream(words, made + 1, body)
        self.send, self.made = build_stream(text), made

    def clock(self, **given: Bits) -> Records:
        """Return the record of a clock; what is not given is 0."""
        fields = (given.get(name, np.zeros(size, np.uint8)) for name, size in self.sizes.items())
        return record(*fields)

    def run(
        self, x: Numbers, w: Numbers, partial: NDArray[np.float32]
    ) -> tuple[list[int], list[int], Records]:
        """Return the clocks in which rows start, those in which they are done, and their bits, of a
        map (channels, rows, columns), weights (read, made, kh, kw) and sums (rows, columns, made).
        """
        writes = [
            self.clock(
                host_write=np.ones(1, np.uint8), host_address=bits_of(at, 32), host_data=word
            )
            for at, word in self._words(w)
        ]
        rows = []
        for row, sums in enumerate(partial):
            taken, scales, reach = self._taken(x, row)
            fields = {"rows": bits_of(taken, 8), "scales": bits_of(scales, 8)}
            fields |= {"rows_reach": reach, "ready": np.ones(1, np.uint8)}
            fields["partial"] = bits_of(sums.view(np.uint32).astype(np.int64), 32)
            rows += [self.clock(**fields)] * self.engine.design.row_cycles
        idle = [self.clock()] * (self.engine.design.tail + self.engine.every + 4)
        came = self.send(np.stack([self.clock(reset=np.ones(1, np.uint8)), *writes, *rows, *idle]))
        first = 1 + len(writes)
        started, done = (np.flatnonzero(came[:, 0] & bit) - first for bit in (1, 2))
        return started.tolist(), done.tolist(), came[done + first, 1:]

    def _words(self, w: Numbers) -> list[tuple[Codes, Bits]]:
        """Return each word of weights with its address: (channel, block, place)."""
        engine, taps = self.engine, w.codes.shape[2:]
        words = []
        for channel in range(engine.made):
            for first in range(0, engine.read, engine.dot):
                for tap in np.ndindex(*taps):
                    own = w.codes[(slice(first, first + engine.dot), channel, *tap)]
                    codes = np.zeros(engine.dot, np.int64)
                    codes[: len(own)] = own
                    scale = np.array(127)
                    if w.shared:
                        scale = w.scales[(first // w.shared, channel, *tap)]
                    words.append(np.concatenate([bits_of(codes, 8), bits_of(scale, 8)]))
        return [(np.array(at), word) for at, word in enumerate(words)]

    def _taken(self, x: Numbers, row: int) -> tuple[Codes, Codes, Bits]:
        """Return the rows that a row of results takes, channels last, their scales, and which meet
        it; zeros outside of the map.
        """
        (kernel, _), (stride, _), (pad, _) = self.engine.window[:3]
        codes, scales, reach = [], [], np.ones(kernel, np.uint8)
        for tap in range(kernel):
            at = row * stride + tap - pad
            if self.engine.phase == "EB":
                at, behind = divmod(row + pad - tap, stride)
                reach[tap] = behind == 0
            if 0 <= at < x.codes.shape[1] and reach[tap]:
                own, of_own = x.codes[:, at].T, x.scales[: self.scales, at].T
            else:
                columns = x.codes.shape[2]
                own = np.zeros((columns, len(x.codes)), np.int64)
                of_own = np.zeros((columns, self.scales), np.int64)  # as a `row_ram` reads them
            codes.append(own)
            scales.append(of_own)
        return np.stack(codes), np.stack(scales), reach


def expected(
    engine: DotEngine, x: Numbers, w: Numbers, partial: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return what the kernels make of the same numbers, (rows, columns, channels)."""
    layer, is_fp = engine.part.layer, engine.phase == "FP"
    weights = np.ascontiguousarray(w.values.swapaxes(0, 1)) if is_fp else w.values
    channels = layer.input[0], layer.output[0]
    dots = DotConvolution(*channels, layer.input[1:], *layer.window[:3], engine.dot, (False,) * 3)
    maps = np.ascontiguousarray(x.values.transpose(1, 2, 0))[None]
    made = partial[None].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        if is_fp:
            frame = np.empty(dots.frame_shape(1), np.float32)
            dots.frame(maps, frame)
            dots.forward(made, frame, dots.pack(weights), fresh=False)
        else:
            frame = np.empty(dots.error_frame_shape(1), np.float32)
            dots.error_frame(maps, frame)
            turned = np.empty(dots.turned_size, np.float32)
            dots.turn_weights(weights, turned)
            dots.error(made, frame, turned, fresh=False)
    return made[0]


def flat(maps: NDArray[Any]) -> NDArray[Any]:
    """Return (rows, columns, channels) as one row of one column, channels outermost."""
    return maps.transpose(2, 0, 1).reshape(1, 1, -1)


def plan_of(
    size: tuple[int, int, int], layer: dict[str, Any], precision: str, dsp: int = 400
) -> ChainPlan:
    """A plan whose first layer hands on `size` to a second one, `layer`."""
    channels, rows, columns = size
    return plan(
        network([2, rows, columns], conv(channels, 1), RELU, layer, RELU, fc(2)),
        cluster(dsp),
        1,
        precision=precision,
    )


def part_of(made: ChainPlan) -> Slice:
    return made.mapping.devices[0][1]


CASES = {
    "int8, two units": ("int8 accumulate=dot:8", (16, 4, 5), conv(5, 3, pad=1), 32, 0, 0),
    "mxint8, a whole block": ("mxint8 accumulate=dot:32", (32, 3, 3), conv(4, 1), 64, 0, 0),
    "mxint8, parts of blocks": ("mxint8 accumulate=dot:16", (40, 4, 4), conv(6, 2), 96, 1, 4),
    "mxint8, strides": (
        "mxint8 accumulate=dot:8",
        (12, 5, 5),
        conv(9, 3, stride=2, pad=1),
        64,
        2,
        2,
    ),
    "mxint8, a whole map": ("mxint8 accumulate=dot:8", (20, 2, 3), fc(5), 32, 0, 0),
    "mxint8, squares": ("mxint8 accumulate=dot:8 block=8x8", (20, 2, 3), conv(4, 1), 32, 0, 0),
}

SIDE = 8
"""Of squares."""

SCALES = (127,), (60, 127, 190), (2, 252), (60, 70), (127, NAN)
"""About which blocks' scales are: products within fp32, beyond it at either end, and no numbers."""


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("phase", ["FP", "EB"])
@pytest.mark.parametrize("name", CASES)
def test_rows_are_the_kernels_in_their_cycles(
    name: str, phase: Phase, build_stream: BuildStream
) -> None:
    """Ordinary numbers, sums that cancel, and products beyond fp32 at either end."""
    engine = engine_of(name, phase)
    wrong = wrong_rows(engine, build_stream, SIDE if "squares" in name else None)
    assert not wrong


def engine_of(name: str, phase: Phase) -> DotEngine:
    precision, size, layer, multipliers, depth, latency = CASES[name]
    made = plan_of(size, layer, precision)
    return dot_engine(part_of(made), phase, multipliers, made.config.precision, depth, latency)


def wrong_rows(
    engine: DotEngine, build_stream: BuildStream, of_weights: int | None = None
) -> list[str]:
    """Return what is wrong with rows of drawn numbers: where scales are, and what; weights may
    share scales in other blocks.
    """
    bench, rng, layer = Bench(engine, build_stream), np.random.default_rng(7), engine.part.layer
    of_weights = engine.shared if of_weights is None else of_weights
    read, back = (
        (layer.input, layer.output) if engine.phase == "FP" else (layer.output, layer.input)
    )
    rows, wrong = range(1 if engine.is_flat else back[1]), []
    for at in SCALES:
        x = drawn(rng, read, engine.shared, engine.steps // 2, at)
        w = drawn(rng, (read[0], back[0], *layer.kernel), of_weights, engine.steps // 2, at)
        sums = rng.choice([0.0, -0.0, 1.0, -1e-30, 3e38], (*back[1:], back[0]))
        partial = sums.astype(np.float32)
        right = canonical(expected(engine, x, w, partial))
        if engine.is_flat:  # each channel and place is one of the results
            shape = read[0], engine.made, 1, 1
            w = dataclasses.replace(w, codes=w.codes.reshape(shape))
            w = dataclasses.replace(w, scales=w.scales.reshape(-1, *shape[1:]))
            partial, right = flat(partial), flat(right)
        started, done, bits = bench.run(x, w, partial)
        if started != [row * engine.design.row_cycles for row in rows]:
            wrong.append(f"{at}: rows start in {started}")
        if done != [(row + 1) * engine.design.row_cycles + engine.design.tail for row in rows]:
            wrong.append(f"{at}: rows are done in {done}")
            continue
        right = right.reshape(len(rows), -1)
        if not np.array_equal(bits, right):
            wrong.append(f"{at}: bits of {np.argwhere(bits != right)[:3].tolist()}")
    return wrong


MUTATIONS = {
    "the lower sum keeps what it borrowed": (
        "dot_product",
        "which != 0 && chains_held",
        "which == 2 && chains_held",
    ),
    "chains are twice as long as fields hold": (
        "dot_product",
        "CHAIN        = 1 <<",
        "CHAIN        = 2 <<",
    ),
    "an exponent wraps": ("dot_engine", "11'(x_scale) + 11'(w_scale)", "8'(x_scale + w_scale)"),
    "blocks ascend in EB": ("dot_engine", "BLOCKS - 1 - int'(outer) / TAPS", "int'(outer) / TAPS"),
    "a place that does not reach is added": ("dot_engine", "!reaches_late", "1'b0"),
    "NaN blocks are numbers": ("dot_engine", "x_scale == 8'd255 ||", ""),
    "a sum takes the block before its own": (
        "dot_engine",
        ".STAGES(DEPTH)) beside",
        ".STAGES(DEPTH + 1)) beside",
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_are_seen(name: str, tmp_path: Path, build_stream_of: BuildStreamOf) -> None:
    build_stream = build_stream_of(mutated(tmp_path, *MUTATIONS[name]))
    engine = engine_of("mxint8, strides", "EB")
    if "chains" in name:  # 32 products of the largest numbers
        engine = engine_of("mxint8, a whole block", "FP")
    assert wrong_rows(engine, build_stream)


def mutated(folder: Path, module: str, old: str, new: str) -> Path:
    """Return a copy of the modules in which one has another text."""
    shutil.copytree(SOURCES, folder / "sv")
    path = folder / "sv" / f"{module}.sv"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    return folder / "sv"


def test_slang_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("pyslang")
    for name in CASES:
        for phase in ("FP", "EB"):
            top = tmp_path / "one.sv"
            top.write_text(engine_module(engine_of(name, phase), "one"), encoding="utf-8")
            assert slang("one", [*FILES, top]) == ""


@pytest.mark.usefixtures("verilator")
def test_verilator_warns_of_nothing(tmp_path: Path) -> None:
    for name in CASES:
        top = tmp_path / "one.sv"
        top.write_text(engine_module(engine_of(name, "EB"), "one"), encoding="utf-8")
        assert lint(find_tools(), top, FILES) == ""


@pytest.mark.usefixtures("verilator")
def test_engines_of_a_plan(tmp_path: Path) -> None:
    """FP of all slices, EB of all but those on images, with what they are made of beside them."""
    made = plan(TWO_LAYERS, cluster(80), 2, precision="int8 accumulate=dot:8")
    engines = planned_engines(made)
    assert [planned.module for planned in engines] == [
        *("device0_conv1_fp", "device0_conv2_fp", "device0_conv2_eb"),
        *("device1_conv2_fp", "device1_conv2_eb", "device1_fc1_fp", "device1_fc1_eb"),
    ]
    write_engines(engines, tmp_path)
    assert {path.stem for path in tmp_path.glob("*.sv")} == {
        *MODULES,
        *(planned.module for planned in engines),
    }
    files = [tmp_path / f"{name}.sv" for name in MODULES]
    for planned in engines:
        assert lint(find_tools(), tmp_path / f"{planned.module}.sv", files) == ""
        assert 2 * planned.engine.dot * planned.engine.units <= max(16, planned.multipliers)


@pytest.mark.parametrize("phase", ["FP", "EB"])
@pytest.mark.parametrize(("dot", "kernel"), [(8, 1), (8, 3), (16, 2), (32, 3)])
def test_rows_take_the_plans_cycles(dot: int, kernel: int, phase: Phase) -> None:
    """Where blocks are whole, and multipliers are those of whole units; a unit more or less takes
    what it takes.
    """
    size = (2 * dot, 6, 6)
    made = plan_of(size, conv(2 * dot, kernel), f"int8 accumulate=dot:{dot}")
    part, board = part_of(made), made.cluster.board(0)
    work = slice_works(part)[0 if phase == "FP" else 1]
    for units in (kernel**2, 2 * kernel**2):
        engine = dot_engine(part, phase, 2 * dot * units, made.config.precision)
        assert engine.units == units
        assert engine.design.row_cycles == board.row_cycles(work, 2 * dot * units)


ICP = network([2, 3, 2], conv(16, 1), RELU, conv(2, 2), RELU, fc(2))
OCP = network([2, 3, 2], conv(3, 1), RELU, conv(16, 2), RELU, fc(2))
"""Networks whose second convolution two devices share, by whole blocks of 8."""
LONG = network([1, 3, 11], conv(3, (2, 1)), RELU, conv(2, (1, 2), stride=2), RELU, fc(2))
"""Rows of 11 pixels: blocks of 8 end within them, in two samples at other places."""
SHORT = network([2, 4, 4], conv(5, 3, pad=1), RELU, conv(2, 2, stride=2, pad=1), RELU, fc(2))
"""Rows of 4 and 3 pixels: a block of 8 has two of them, or two and a part."""

DEVICES: dict[str, tuple[dict[str, Any], int, str, int]] = {
    "cut by input channels": (ICP, 2, "int8 accumulate=dot:8", 0),
    "cut by output channels, by chance": (OCP, 2, "int8 rounding=stochastic accumulate=dot:8", 1),
    "rows longer than blocks": (LONG, 1, "int8 accumulate=dot:8", 4),
    "rows shorter than blocks, other points": (
        *(SHORT, 1, "q4.4 weights=q2.6 errors=q1.7 master=q2.6 accumulate=dot:8 loss_scale=16"),
        0,
    ),
}
"""Networks, devices, formats, and latencies of additions."""


def device_plan(name: str) -> tuple[ChainPlan, int]:
    of, devices, precision, latency = DEVICES[name]
    return plan(of, cluster(40 * (3 - devices)), devices, precision=precision), latency


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("name", DEVICES)
def test_devices_have_the_bits_of_training_in_their_cycles(name: str, tmp_path: Path) -> None:
    """FP, EB and PG, of two mini-batches."""
    of, latency = device_plan(name)
    assert simulated(of, tmp_path, latency).is_right


DRAWN = (
    *("int8 accumulate=dot:8", "int8 accumulate=dot:16", "int8 accumulate=dot:32"),
    *("int8 accumulate=dot:8 rounding=stochastic", "int8 master=int8 accumulate=dot:8"),
)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("seed", range(len(DRAWN)))
def test_drawn_chains(seed: int, tmp_path: Path) -> None:
    of, latency = drawn_chain(seed, precision=DRAWN[seed])
    assert simulated(of, tmp_path, latency).is_right


OF_DEVICES = {
    "gradients go on from the mini-batch before": Mutation(
        "pg_engine", "first_block <= sample == limit - batch", "first_block <= sample == '0"
    ),
    "weights of EB lie as those of FP": Mutation(
        "block_engine", "BACKWARD != 0 ?", "BACKWARD > 1 ?"
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("name", OF_DEVICES)
def test_mutations_of_devices_are_seen(name: str, tmp_path: Path) -> None:
    of, latency = device_plan("rows longer than blocks")
    result = simulated(of, tmp_path, latency, OF_DEVICES[name])
    assert any(result.wrong.values())


SAMPLES = 16

GRADIENTS = {
    "rows longer than blocks": ("int8 accumulate=dot:8", (2, 8, 11), conv(3, (2, 1)), 64, 2, 4),
    "rows shorter than blocks": (
        *("int8 accumulate=dot:16", (2, 11, 6), conv(3, 2, stride=(1, 2), pad=(0, 1)), 16, 0, 0),
    ),
    "a sample shorter than a block": ("int8 accumulate=dot:32", (3, 2, 3), conv(2, 1), 24, 1, 3),
}
"""As `CASES`."""


def wrong_gradients(name: str, build_stream: BuildStream) -> int:
    """Return how many gradients are not those of the first mini-batch. Numbers are mostly as large
    as they can be, so that sums are beyond the whole numbers that fp32 has.
    """
    precision, size, layer, multipliers, depth, latency = GRADIENTS[name]
    made = plan_of(size, layer, precision)
    part = part_of(made)
    sums = dot_sums(part, multipliers, made.config.precision, depth, latency)
    (ins, *of_x), (outs, *of_dy) = part.layer.input, part.layer.output
    window, words = part.layer.window, ins * outs * math.prod(part.layer.window.kernel)
    rng = np.random.default_rng(3)
    samples = SAMPLES if math.prod(of_dy) > sums.pixels else 4 * SAMPLES
    x = rng.choice([127, 126, 125, -3], (samples, ins, *of_x))
    dy = rng.choice([127, 126, 125, -3], (samples, outs, *of_dy))

    sizes = {"reset": 1, "read_address": words.bit_length()}
    sizes["rows"], sizes["errors"] = window.kernel[0] * of_x[1] * ins * 8, of_dy[1] * outs * 8
    ends = np.cumsum(list(sizes.values())).tolist()
    wires = ", ".join(
        f".{key}(in[{end - size}+:{size}])"
        for (key, size), end in zip(sizes.items(), ends, strict=True)
    )
    values = {"ROWS_IN": of_x[0], "COLUMNS_IN": of_x[1], "ROWS": of_dy[0], "COLUMNS": of_dy[1]}
    for key, pair in zip(("KERNEL", "STRIDE", "PAD"), window[:3], strict=True):
        values |= {f"{key}_ROWS": pair[0], f"{key}_COLUMNS": pair[1]}
    design, form = sums.design, literal(number_format("int8"), Rounding.EVEN)
    values |= {"INPUTS": ins, "OUTPUTS": outs, "TILES": design.tiles, "EVERY": design.every}
    values |= {"DOT": sums.pixels, "SEGMENTS": sums.segments, "STEPS": sums.steps}
    values |= {"DEPTH": depth, "LATENCY": latency}
    given = "".join(f".{key}({value}), " for key, value in values.items())
    body = (
        f"    pg_engine #({given}.FORMAT({form}), .ERRORS({form})) pg (.clk, {wires},"
        f" .batch(32'd{samples}), .limit(32'd{samples}), .arrived(32'd{samples * of_dy[0]}),"
        " .load(), .address(), .in_map(), .error_address(), .done(), .read(out));\n"
    )

    def clock(**fields: Bits) -> Records:
        return record(*(fields.get(key, np.zeros(size, np.uint8)) for key, size in sizes.items()))

    records = [clock(reset=np.ones(1, np.uint8)), clock()]
    for sample, row in np.ndindex(samples, of_dy[0]):
        taken = row_codes(x[sample], row * window.stride[0] - window.pad[0], window.kernel[0])
        errors = row_codes(dy[sample], row, 1)
        records += [clock(rows=taken, errors=errors)] * design.row_cycles
    records += [clock()] * (design.tail + design.every + 2)
    addresses = (bits_of(np.array(word), sizes["read_address"]) for word in range(words))
    records += [clock(read_address=address) for address in addresses]
    got = build_stream(stream(-(-ends[-1] // 32), 1, body))(np.stack(records))[-words:, 0]
    return int((got != gradients_of(x, dy, window, sums).reshape(-1).view(np.uint32)).sum())


def row_codes(maps: Codes, first: int, rows: int) -> Bits:
    """Return codes of rows of a map (channels, rows, columns), channels last, zeros outside."""
    padded = np.pad(maps, ((0, 0), (rows, rows), (0, 0)))[:, first + rows : first + 2 * rows]
    codes = np.abs(padded) + 128 * (padded < 0)
    return bits_of(codes.transpose(1, 2, 0), 8)


def gradients_of(x: Codes, dy: Codes, window: Window, sums: DotSums) -> NDArray[np.float32]:
    """Return the gradients of weights (oc, ic, kh, kw): whole numbers by blocks of pixels, each
    added once.
    """
    (kernel, stride, pad), (rows, columns) = window[:3], dy.shape[2:]
    framed = np.pad(x, ((0, 0), (0, 0), (pad[0], pad[0]), (pad[1], pad[1])))
    made = np.zeros((dy.shape[1], x.shape[1], *kernel), np.float32)
    for down, across in np.ndindex(*kernel):
        read = framed[:, :, down :: stride[0], across :: stride[1]][:, :, :rows, :columns]
        for sample in range(len(x)):
            one, other = read[sample].reshape(x.shape[1], -1), dy[sample].reshape(dy.shape[1], -1)
            for begin in range(0, rows * columns, sums.pixels):
                block = slice(begin, begin + sums.pixels)
                exact = np.ldexp((other[:, block] @ one[:, block].T).astype(float), sums.steps)
                made[:, :, down, across] = (made[:, :, down, across] + exact).astype(np.float32)
    return made


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_round_once_a_block(name: str, build_stream: BuildStream) -> None:
    assert wrong_gradients(name, build_stream) == 0


OF_GRADIENTS = {
    "a block forgets the row before": ("dot_sums", "fresh = begins >= 0", "fresh = 1'b1"),
    "each row's part is rounded": (
        "dot_sums",
        "whole = begins + DOT <= COLUMNS || last_row",
        "whole = 1'b1",
    ),
    "a block goes on in the next sample": ("dot_sums", "<= COLUMNS || last_row", "<= COLUMNS"),
    "blocks begin in each row": ("pg_engine", "int'(row) * COLUMNS % DOT", "0"),
}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("name", OF_GRADIENTS)
def test_mutations_of_gradients_are_seen(
    name: str, tmp_path: Path, build_stream_of: BuildStreamOf
) -> None:
    build_stream = build_stream_of(mutated(tmp_path, *OF_GRADIENTS[name]))
    assert wrong_gradients("rows shorter than blocks", build_stream)


@pytest.mark.parametrize(
    ("network_of", "layer", "dot", "lanes", "segments"),
    [
        (LONG, 0, 8, 8, 2),  # 8 and 3; 5 and 6
        (LONG, 0, 16, 11, 2),
        (SHORT, 0, 8, 4, 1),
        (SHORT, 1, 8, 3, 2),
        (SHORT, 1, 16, 3, 1),  # a sample has 9 pixels
        (SHORT, 2, 8, 1, 1),
    ],
)
def test_parts_of_blocks_in_rows(
    network_of: dict[str, Any], layer: int, dot: int, lanes: int, segments: int
) -> None:
    made = plan(network_of, cluster(80), 1, precision=f"int8 accumulate=dot:{dot}")
    sums = dot_sums(made.mapping.devices[0][layer], 64, made.config.precision)
    assert (sums.lanes, sums.segments) == (lanes, segments)
    assert sums.units == max(1, min(64 // (2 * lanes), sums.pairs))


@pytest.mark.usefixtures("verilator")
def test_verilator_warns_of_no_device(tmp_path: Path) -> None:
    for name in DEVICES:
        rtl = Rtl.of(*device_plan(name))
        for top in rtl.write(tmp_path):
            assert lint(find_tools(), top, modules_beside(top)) == ""


def test_what_is_refused() -> None:
    for keys in ({"groups": 2}, {"dilation": 2, "kernel": 2}):
        layer = {**conv(16), **keys}
        other = plan_of((16, 4, 4), layer, "mxint8 accumulate=dot:8")
        with pytest.raises(
            InputError, match="conv2: an engine of blocks is that of a convolution with"
        ):
            dot_engine(part_of(other), "FP", 64, other.config.precision)
    for precision, said in (
        (
            "mxfp4 accumulate=dot:32",
            "mxfp4: an engine of blocks multiplies whole numbers of up to 8",
        ),
        ("q4.12 accumulate=dot:8", "q4.12: an engine of blocks multiplies whole numbers"),
        (
            "mxint8 errors=int8 accumulate=dot:32",
            "an engine of blocks reads scales of both operands, or of none",
        ),
    ):
        made = plan_of((8, 4, 4), conv(4, 1), precision)
        with pytest.raises(InputError, match=said):
            dot_engine(part_of(made), "EB", 64, made.config.precision)
