"""Codes of numbers in memories: what each says, and that it comes back; of rows in blocks, wherever
they are cut.
"""

import pathlib

import numpy as np
import pytest
from numpy.typing import NDArray

from emuchain.emulator.rtl import formats
from emuchain.emulator.rtl.formats import literal
from emuchain.kernels.number import BlockGrid, FloatGrid, NumberFormat, Rounding, number_format
from emuchain.kernels.quantise import on_blocks

from .conftest import BuildStream, Records

FORMATS = [
    number_format(name)
    for name in (
        *("bf16", "fp16", "fp8-e4m3", "fp8-e5m2", "int8", "q2.14", "q8.8"),
        *("mxint8", "mxfp8", "int5@3", "e2m5@48"),
    )
]
NAN = 0x7FC00000
MAPS = [
    (number_format(name), first, flat)
    for name in ("mxint8", "int5@3")
    for first, flat in ((0, 0), (7, 1), (30, 0))
]
PIXELS, CHANNELS = 2, 5


def stream(inputs: int, outputs: int, body: str) -> str:
    """Return the text of a bench with this many words in and out in a clock."""
    ports = (
        f"input logic clk, input logic [{32 * inputs - 1}:0] in, output logic"
        f" [{32 * outputs - 1}:0] out"
    )
    return f"module stream ({ports});\n{body}endmodule\n"


def element(number: NumberFormat) -> FloatGrid:
    """Return the grid of a format's numbers, or of a block's elements."""
    assert number.grid is not None
    return number.grid.element if isinstance(number.grid, BlockGrid) else number.grid


def values(number: NumberFormat, places: Records, scales: Records) -> NDArray[np.float64]:
    """Return what the places of a grid's positive values say, under scales of blocks."""
    grid = element(number)
    field, fraction = places >> grid.fraction_bits, places % (1 << grid.fraction_bits)
    digits = fraction + np.where(field > 0, 1 << grid.fraction_bits, 0)
    exponents = grid.least_exponent + np.maximum(field.astype(int), 1) - 1 - grid.fraction_bits
    return np.ldexp(
        digits.astype(np.float64), exponents + (scales.astype(int) - 127 if number.block else 0)
    )


@pytest.mark.slow
def test_every_code_is_its_number_and_comes_back(build_stream: BuildStream) -> None:
    """Under every scale; what no code says, saturates before."""
    body = "    logic [8:0] exponent;\n    assign exponent = {1'b0, in[31:24]} - 9'd127;\n"
    for i, number in enumerate(FORMATS):
        form, code = literal(number, Rounding.EVEN), f"in[{number.bits - 1}:0]"
        x, back = f"out[{64 * i}+:32]", f"out[{64 * i + 32}+:32]"
        body += f"    logic [{number.bits - 1}:0] code{i};\n    assign {back} = 32'(code{i});\n"
        scaled_code = f"{{in[31:24], {code}}}" if number.block else code
        body += f"    unpack #(.FORMAT({form})) u{i} (.code({scaled_code}), .x({x}));\n"
        body += f"    pack #(.FORMAT({form})) p{i} (.x({x}), .exponent, .code(code{i}));\n"
    codes = np.arange(1 << 16, dtype=np.uint32)
    scaled = (codes >> np.uint32(8)) << np.uint32(24) | codes & np.uint32(255)
    sent = np.concatenate([codes, scaled])
    made = build_stream(stream(1, 2 * len(FORMATS), body))(sent[:, None])
    for i, number in enumerate(FORMATS):
        own = slice(len(codes), None) if number.block else slice(0, len(codes))
        scales, given = sent[own] >> np.uint32(24), sent[own] & np.uint32((1 << number.bits) - 1)
        numbers, back = made[own, 2 * i], made[own, 2 * i + 1]
        places = given & np.uint32((1 << number.bits - 1) - 1)
        expected = values(number, places, scales)
        fits = expected <= element(number).largest * (
            np.ldexp(1.0, scales.astype(int) - 127) if number.block else 1.0
        )
        fits &= (expected <= np.finfo(np.float32).max) & (scales < 255)
        signs = (given >> np.uint32(number.bits - 1)) << np.uint32(31)
        assert fits.sum() > 200
        assert np.array_equal(
            numbers[fits], expected[fits].astype(np.float32).view(np.uint32) | signs[fits]
        ), number.name
        assert np.array_equal(back[fits], given[fits]), number.name
        is_nan = scales == 255 if number.block else places == (1 << number.bits - 1) - 1
        if element(number).is_fixed_point and not number.block:
            assert fits.all()
            continue
        assert (numbers[is_nan] & np.uint32(0x7FFFFFFF) > 0x7F800000).all(), number.name


@pytest.mark.slow
def test_rows_in_blocks_come_back(build_stream: BuildStream) -> None:
    """Channels of two pixels from `first` on, of a map that is rounded in blocks from channel 0
    on.
    """
    words, body = PIXELS * CHANNELS, ""
    for i, (number, first, flat) in enumerate(MAPS):
        blocks = -(-(first % number.block + CHANNELS) // number.block)
        width, code = PIXELS * (CHANNELS * number.bits + blocks * 8), number.bits + 8
        given = (
            f".FORMAT({literal(number, Rounding.EVEN)}), .PIXELS({PIXELS}), .CHANNELS({CHANNELS})"
        )
        given += f", .FIRST({first}), .FLAT({flat})"
        body += f"    logic [{width - 1}:0] row{i};\n    logic [{words * code - 1}:0] codes{i};\n"
        body += (
            f"    pack_row #({given}) p{i} (.row(in[{32 * words * i}+:{32 * words}]),"
            f" .packed_row(row{i}));\n"
        )
        body += f"    with_scales #({given}) s{i} (.packed_row(row{i}), .codes(codes{i}));\n"
        body += f"    for (genvar v = 0; v < {words}; v++) begin : g{i}\n"
        body += (
            f"        unpack #(.FORMAT({literal(number, Rounding.EVEN)})) u"
            f" (.code(codes{i}[v*{code}+:{code}]),"
        )
        body += f" .x(out[{32 * words * i}+v*32+:32]));\n    end\n"
    draw = np.random.default_rng(4)
    rows = []
    for number, first, flat in MAPS:
        assert isinstance(number.grid, BlockGrid)
        maps = draw.standard_normal((4000, PIXELS, first + CHANNELS + 3)) * np.exp2(
            draw.integers(-120, 120, (4000, 1, 1))
        )
        rounded = on_blocks(maps.astype(np.float32), number.grid, -1, Rounding.EVEN)[
            ..., first : first + CHANNELS
        ]
        rows.append((rounded.swapaxes(1, 2) if flat else rounded).reshape(len(rounded), -1))
    sent = np.ascontiguousarray(np.concatenate(rows, axis=1)).view(np.uint32)
    assert np.array_equal(build_stream(stream(sent.shape[1], sent.shape[1], body))(sent), sent)


ROW_OF_MEMORY = """
    parameter int               BEFORE   = FIRST % SIZE,  // channels of the first block that are not here
    parameter int               BLOCKS   = FORMAT.block != 17'd0 ? (BEFORE + CHANNELS + SIZE - 1) / SIZE : 0,
    parameter int               WIDTH    = PIXELS * (CHANNELS * BITS + BLOCKS * 8)
"""


@pytest.mark.parametrize("name", ["mxfp8", "mxfp4", "mxint8", "e2m5@8", "int8@48", "bf16"])
@pytest.mark.parametrize(
    ("first", "channels", "pixels"), [(0, 32, 3), (30, 6, 32), (31, 1, 5), (7, 90, 1)]
)
def test_a_row_in_memory_has_the_bits_of_the_plan(
    name: str, first: int, channels: int, pixels: int
) -> None:
    """Codes and scales of a row in Act-RAM (`pack_row`), and the bytes that plans count there and
    on links.
    """
    number = number_format(name)
    assert (
        ROW_OF_MEMORY
        in pathlib.Path(formats.__file__).with_name("sv").joinpath("pack_row.sv").read_text()
    )
    size = number.block or 1
    blocks = (first % size + channels + size - 1) // size if number.block else 0
    assert -(-pixels * (channels * number.bits + blocks * 8) // 8) == number.row_bytes(
        channels, pixels, first
    )
