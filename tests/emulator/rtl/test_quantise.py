"""The RTL's quantisers against the kernels': every format and rounding, one by one and in blocks,
bit by bit.
"""

import dataclasses
import subprocess
from collections.abc import Mapping

import numpy as np
import pytest

from emuchain.emulator.rtl.formats import literal
from emuchain.kernels.number import BlockGrid, FloatGrid, Rounding, number_format, number_formats
from emuchain.kernels.quantise import on_blocks, on_grid

from .conftest import SOURCES, BuildStream, Records

FAMILIES = "q1.3", "q2.14", "q8.8", "int9@16", "e2m5@48", "e3m0@8", "shift4"
"""Formats whose names say their numbers."""

QUIET_NAN = np.uint32(0x7FC00000)


def grids() -> Mapping[str, FloatGrid]:
    """Return the grids of all formats, each by the first name that has it; blocks have that of
    their elements.
    """
    names: dict[FloatGrid, str] = {}
    for name in (*number_formats(), *FAMILIES):
        grid = number_format(name).grid
        if grid is not None:
            names.setdefault(grid.element if isinstance(grid, BlockGrid) else grid, name)
    return {name: grid for grid, name in names.items()}


GRIDS = grids()
CASES = [(name, grid, rounding) for name, grid in GRIDS.items() for rounding in Rounding]


def parameters(grid: FloatGrid, rounding: Rounding) -> dict[str, str]:
    """Return the parameters of `quantise`."""
    return {
        "FRACTION_BITS": str(grid.fraction_bits),
        "LEAST_EXPONENT": str(grid.least_exponent),
        "LARGEST": f"32'h{int(np.float32(grid.largest).view(np.uint32)):x}",
        "OVERFLOWS": str(int(grid.overflows)),
        "ROUNDING": str(rounding.value),
    }


@dataclasses.dataclass(frozen=True)
class Blocks:
    """An instance of `quantise_blocks`: its format, how many values it takes at once, and after how
    many clocks.
    """

    name: str
    grid: BlockGrid
    values: int
    rounding: Rounding
    latency: int

    @property
    def count(self) -> int:
        """Blocks."""
        return -(-self.values // self.grid.size)

    @property
    def words(self) -> int:
        """Words that come out: the values, and the scales."""
        return self.values + -(-self.count // 4)

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters."""
        element = parameters(self.grid.element, self.rounding)
        del element["OVERFLOWS"]
        sizes = {
            "VALUES": self.values,
            "SIZE": self.grid.size,
            "FLOOR": int(self.grid.floor),
            "LATENCY": self.latency,
        }
        return {**element, **{key: str(value) for key, value in sizes.items()}}


E4M3, MXINT8 = GRIDS["fp8"], GRIDS["mxint8"]
ELEMENTS = {name: grid for name, grid in GRIDS.items() if not grid.overflows}
MOST_VALUES = 40
BLOCKS = [
    Blocks("mxint8", BlockGrid(MXINT8), MOST_VALUES, Rounding.EVEN, 1),
    Blocks("mxfp8 by chance", BlockGrid(E4M3, 8), 9, Rounding.STOCHASTIC, 2),
    Blocks("mxfp8 by OCP's scale", BlockGrid(E4M3, 4, floor=True), 5, Rounding.EVEN, 0),
    *(
        Blocks(name, BlockGrid(grid, 8), 11, Rounding.EVEN, i % 4)
        for i, (name, grid) in enumerate(ELEMENTS.items())
    ),
]
"""The least number of values that has a whole block and a shorter one is built soonest."""


def instance(module: str, name: str, given: Mapping[str, str], ports: str) -> str:
    """Return the text of an instance."""
    return (
        f"    {module} #({', '.join(f'.{key}({value})' for key, value in given.items())}) {name}"
        f" ({ports});\n"
    )


def stream(inputs: int, outputs: int, body: str) -> str:
    """Return the text of a bench with this many words in and out in a clock."""
    ports = (
        f"input logic clk, input logic [{32 * inputs - 1}:0] in, output logic"
        f" [{32 * outputs - 1}:0] out"
    )
    return f"module stream ({ports});\n{body}endmodule\n"


def canonical(values: np.ndarray) -> Records:
    """Return the bits of numbers, with the RTL's only NaN."""
    bits: Records = np.where(np.isnan(values), QUIET_NAN, values.view(np.uint32))
    return bits


def check(name: str, bits: Records, made: Records, expected: Records) -> None:
    """Check that all bits are as expected; say the first that are not."""
    wrong = np.argwhere(made != expected)
    shown = [
        f"{bits[tuple(i)]:08x}: {made[tuple(i)]:08x}, not {expected[tuple(i)]:08x}"
        for i in wrong[:5]
    ]
    assert not shown, (name, len(wrong), shown)


def numbers() -> Records:
    """Return upper halves of fp32 with lower ones about the ties of bf16, ties of all formats, what
    is about and beyond their largest values, and drawn numbers.
    """
    draw = np.random.default_rng(38)
    upper = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    ties = upper[::128] | (np.uint32(1) << np.arange(23, dtype=np.uint32))[:, None]
    halves = [upper[3::7] | np.uint32(low) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    any_bits = draw.integers(0, 1 << 32, 1 << 14, np.uint32)
    exponents = draw.integers(90, 150, 1 << 15, np.uint32) << np.uint32(23)
    near_one = exponents | draw.integers(0, 1 << 32, 1 << 15, np.uint32) & np.uint32(0x807FFFFF)
    largest = np.array([grid.largest for grid in GRIDS.values()], np.float32).view(np.uint32)
    steps = np.uint32(1) << np.arange(23, dtype=np.uint32)
    beyond = np.minimum(largest[:, None] + np.concatenate([steps, steps - 1]), 0x7F800000)
    signed = np.stack([beyond, beyond | np.uint32(1 << 31)]).astype(np.uint32)
    drawn = ties.reshape(-1), ties.reshape(-1) - np.uint32(1), any_bits, near_one
    return np.concatenate([upper, *halves, signed.reshape(-1), *drawn])


@pytest.mark.slow
def test_every_format_and_rounding(build_stream: BuildStream) -> None:
    """Half of the words are multiples of 2^28, as parts cut off often are: at its own fraction a
    number stays.
    """
    ports = ".x(in[31:0]), .word(in[63:32]), .exponent(9'd0)"
    body = "".join(
        instance("quantise", f"q{i}", parameters(grid, rounding), f"{ports}, .y(out[{32 * i}+:32])")
        for i, (_, grid, rounding) in enumerate(CASES)
    )
    bits = numbers()
    words = np.random.default_rng(1).integers(0, 1 << 32, bits.size, np.uint32)
    words[::2] &= np.uint32(0xF0000000)
    made = build_stream(stream(2, len(CASES), body))(np.stack([bits, words], axis=1))
    for i, (name, grid, rounding) in enumerate(CASES):
        expected = canonical(on_grid(bits.view(np.float32), grid, rounding, words))
        check(f"{name} {rounding}", bits, made[:, i], expected)


@pytest.mark.slow
def test_formats_as_they_are_generated(build_stream: BuildStream) -> None:
    """What a device's modules get of each format, from its least value to what is beyond its
    largest: bf16 and fp16 become infinite there, where a run's own numbers hardly come.
    """
    given = [
        (number_format(name), rounding)
        for name in ("bf16", "fp16", "fp8-e4m3", "fp8-e5m2")
        for rounding in (Rounding.EVEN, Rounding.AWAY, Rounding.ZERO)
    ]
    body = "".join(
        f"    on_grid #(.FORMAT({literal(number, rounding)})) g{i} (.x(in), .y(out[{32 * i}+:32]));\n"
        for i, (number, rounding) in enumerate(given)
    )
    bits = numbers()
    made = build_stream(stream(1, len(given), body))(bits[:, None])
    for i, (number, rounding) in enumerate(given):
        assert isinstance(number.grid, FloatGrid)
        expected = canonical(on_grid(bits.view(np.float32), number.grid, rounding))
        check(f"{number.name} {rounding}", bits, made[:, i], expected)


def records(clocks: int) -> Records:
    """Return numbers near one that is drawn in each clock, from fp32's least to its largest; zeros;
    none finite.
    """
    draw = np.random.default_rng(2)
    most = draw.integers(0, 255, (clocks, 1))
    spread = draw.integers(0, 14, (clocks, 1))
    exponents = np.clip(most - draw.integers(0, spread + 1, (clocks, MOST_VALUES)), 0, 254).astype(
        np.uint32
    )
    fractions = draw.integers(0, 1 << 23, (clocks, MOST_VALUES), np.uint32)
    fractions[::3] &= np.uint32(0x7F0000)
    fractions[1::7] |= np.uint32(0x7E0000)
    least = exponents == 0
    fractions[least] >>= draw.integers(0, 24, least.sum(), np.uint32)
    bits: Records = fractions | exponents << np.uint32(23)
    bits |= draw.integers(0, 2, (clocks, MOST_VALUES), np.uint32) << np.uint32(31)
    bits[::50] &= np.uint32(0x80000000)
    for clock, special in ((20, 0x7F800000), (40, 0xFF800000), (60, 0x7FC00000), (80, 0xFFC00001)):
        bits[clock::100, clock // 10 % 3 :: 13] = special
    return bits


@pytest.mark.slow
def test_blocks(build_stream: BuildStream) -> None:
    """A block's results are the kernel's; its scale divides them into elements of the format."""
    body, begins, width = "", [], 0
    for i, case in enumerate(BLOCKS):
        ports = (
            f".clk, .x(in[0+:{32 * case.values}]),"
            f" .words(in[{32 * MOST_VALUES}+:{32 * case.values}])"
        )
        ports += f", .y(out[{32 * width}+:{32 * case.values}])"
        ports += f", .scales(out[{32 * (width + case.values)}+:{8 * case.count}])"
        body += instance("quantise_blocks", f"q{i}", case.parameters, ports)
        begins.append(width)
        width += case.words
    bits = records(20_000)
    words = np.random.default_rng(3).integers(0, 1 << 32, bits.shape, np.uint32)
    sent = np.concatenate([bits, words], axis=1)
    made = build_stream(stream(2 * MOST_VALUES, width, body))(sent)
    for case, begin in zip(BLOCKS, begins, strict=True):
        values = np.ascontiguousarray(bits[: len(bits) - case.latency, : case.values])
        chances = np.ascontiguousarray(words[: len(values), : case.values])
        expected = canonical(
            on_blocks(values.view(np.float32), case.grid, 1, case.rounding, chances)
        )
        came = made[case.latency :, begin : begin + case.words]
        check(case.name, values, came[:, : case.values], expected)
        scales = np.ascontiguousarray(came[:, case.values :]).view(np.uint8)
        for block in range(case.count):
            results = expected[:, block * case.grid.size : (block + 1) * case.grid.size].view(
                np.float32
            )
            scale = scales[:, block].astype(int)
            assert (np.isnan(results).any(axis=1) == (scale == 255)).all()
            elements = np.ldexp(
                results[scale < 255].astype(np.float64), 127 - scale[scale < 255, None]
            )
            assert (on_grid(elements.astype(np.float32), case.grid.element) == elements).all(), (
                case.name
            )


LINTED = [
    *(("quantise", parameters(grid, rounding)) for _, grid, rounding in CASES[::7]),
    *(("quantise_blocks", case.parameters) for case in BLOCKS[:5]),
    ("block_scale", {"SIZE": "1"}),
    ("philox", {}),
    *(
        ("int32_fma", {"WIDTH": width, "LATENCY": latency})
        for width, latency in (("8", "0"), ("8", "3"), ("16", "5"))
    ),
]


@pytest.mark.parametrize(("module", "given"), LINTED)
def test_no_warnings(verilator: str, module: str, given: Mapping[str, str]) -> None:
    arguments = [
        "--lint-only",
        "-Wall",
        "-Wno-UNUSEDPARAM",
        "--quiet",
        "--top-module",
        module,
    ]  # FP32 of the package
    arguments += [f"-G{key}={value}" for key, value in given.items()]
    files = [
        "-y",
        str(SOURCES),
        *(str(SOURCES / f"{name}.sv") for name in ("fp32", "formats", module)),
    ]
    done = subprocess.run(
        [verilator, *arguments, *files], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
