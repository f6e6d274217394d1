"""Yosys: how it reads the modules, what it prints, and what it makes of them."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.rtl import SOURCES, Rtl, find_yosys, sources
from emuchain.emulator.rtl.formats import factors, literal
from emuchain.emulator.rtl.resources import (
    all_cells,
    for_yosys,
    module_name,
    modules_of,
    planned_resources,
    resources_of,
    synthesise,
)
from emuchain.kernels.number import Rounding, number_format

from .chains import TWO_LAYERS, cluster, modules_beside, plan
from .conftest import BuildStream

STAT = r"""
{
   "creator": "Yosys 0.23 (git sha1 7ce5011c24b)",
   "invocation": "stat -json -top row_join ",
   "modules": {
      "$paramod$dd1b8ad6a90f3d71a35b897bb6d8da7ebc3eb3dd\\row_fifo": {
         "num_wires":         11,
         "num_cells":         35,
         "num_cells_by_type": {
            "FDRE": 33,
            "LUT3": 2
         }
      },
      "\\row_join": {
         "num_wires":         15,
         "num_cells":         4,
         "num_cells_by_type": {
            "$paramod$dd1b8ad6a90f3d71a35b897bb6d8da7ebc3eb3dd\\row_fifo": 2,
            "LUT2": 2
         }
      },
      "\\wires": {
         "num_cells":         0,
         "num_cells_by_type": {

         }
      }
   },
       $paramod$0ad36a47795797195082484610bc06968ad432c0\registers      1
       $paramod\fp32_fma\LATENCY=s32'00000000000000000000000000000001      2
      "design": {
         "num_cells":         72,
         "num_cells_by_type": {
            "FDRE": 66,
            "LUT2": 2,
            "LUT3": 4
         }
      }
}
"""
"""What Yosys 0.23 prints, which is no JSON: names of modules stand among it."""

FIFO = "$paramod$dd1b8ad6a90f3d71a35b897bb6d8da7ebc3eb3dd\\row_fifo"


def test_cells_are_read() -> None:
    modules = modules_of(STAT)
    with pytest.raises(json.JSONDecodeError):
        json.loads(STAT)
    assert modules == {
        FIFO: {"FDRE": 33, "LUT3": 2},
        "\\row_join": {FIFO: 2, "LUT2": 2},
        "\\wires": {},
    }
    assert all_cells(modules, "\\row_join") == {
        "FDRE": 66,
        "LUT2": 2,
        "LUT3": 4,
    }  # what Yosys adds up itself


def test_modules_have_their_names_in_the_source() -> None:
    names = [FIFO, "$paramod\\fp32_fma\\LATENCY=s32'01", "\\device0", "device0"]
    assert [module_name(name) for name in names] == ["row_fifo", "fp32_fma", "device0", "device0"]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("    int a, b;", "    logic signed [31:0] a, b;"),
        ("x = int'(a);", "x = $signed(32'(a));"),
        ("x = int'(f(int'(a) + 1)) * 2;", "x = $signed(32'(f($signed(32'(a)) + 1))) * 2;"),
        ("  automatic logic [P-1:0] a = 1 + b;", "  logic [P-1:0] a; a = 1 + b;"),
        ("  automatic int a = b;", "  logic signed [31:0] a; a = b;"),
        ("for (int i = 0; i < 3; i++)", "for (int i = 0; i < 3; i++)"),
        ("parameter int A = 1, localparam int B", "parameter int A = 1, localparam int B"),
        ("function automatic logic is(", "function automatic logic is("),
    ],
)
def test_what_yosys_does_not_read_is_written_otherwise(text: str, read: str) -> None:
    assert for_yosys(text) == read


def test_it_reads_every_module(yosys: str, tmp_path: Path) -> None:
    modules = sources()
    for module in modules:
        (tmp_path / module.name).write_text(
            for_yosys(module.read_text(encoding="utf-8")), encoding="utf-8"
        )
    read = "read_verilog -sv " + " ".join(module.name for module in modules)
    done = subprocess.run(
        [yosys, "-q", "-p", read], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "precision",
    ["fp32", "int8 accumulate=dot:8", pytest.param("mxint8", marks=pytest.mark.exhaustive)],
)
def test_it_reads_a_device(yosys: str, tmp_path: Path, precision: str) -> None:
    """All of it: ports that fit, no wire with two drivers or none, no loop of gates."""
    top = Rtl.of(plan(TWO_LAYERS, cluster(40), 2, precision=precision)).write(tmp_path)[0]
    files = [*modules_beside(top), top]
    for file in files:
        file.write_text(for_yosys(file.read_text(encoding="utf-8")), encoding="utf-8")
    read = (
        f"read_verilog -sv {' '.join(file.name for file in files)}; hierarchy -check -top"
        f" {top.stem}"
    )
    commands = [yosys, "-q", "-p", f"{read}; proc; check -assert"]
    done = subprocess.run(commands, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cast_keeps_its_value(yosys: str, tmp_path: Path) -> None:
    """By Yosys itself: numbers without a sign stay so, and below zero there is a sign."""
    text = "module casts (input logic [3:0] a, output logic y, z);\n"
    text += "    assign y = int'(a) - 12 < 0;\n    assign z = int'(a) > 12;\nendmodule\n"
    (tmp_path / "casts.sv").write_text(for_yosys(text), encoding="utf-8")
    for a in (0, 11, 12, 13, 15):
        commands = (
            f"read_verilog -sv casts.sv; proc; sat -verify -set a {a} -prove y {int(a < 12)} -prove"
            f" z {int(a > 12)}"
        )
        subprocess.run([yosys, "-q", "-p", commands], cwd=tmp_path, capture_output=True, check=True)


def test_two_buffers_take_a_register_for_each_bit(yosys: str, tmp_path: Path) -> None:
    """A buffer of one row of 32 bits has these, and whether it is there."""
    files = [SOURCES / f"{name}.sv" for name in ("row_fifo", "row_join")]
    for flat in (False, True):
        cells = all_cells(
            synthesise(yosys, "row_join", files, {"DEPTH": 1}, tmp_path, flat=flat), "\\row_join"
        )
        found = resources_of(cells)
        assert (found.ff, found.dsp, found.bram_banks) == (2 * (32 + 1), 0, 0)
        assert 0 < found.lut < found.ff


def test_weights_share_scales_in_memory(yosys: str, tmp_path: Path) -> None:
    """Weights take their codes, and each block one scale. Two output channels more, of eight
    weights in two blocks each, take no other registers but bits of places' numbers.
    """
    names = "fp32 formats registers block_scale quantise quantise_blocks pack weight_blocks".split()
    for name in names:
        text = for_yosys((SOURCES / f"{name}.sv").read_text(encoding="utf-8"))
        (tmp_path / f"{name}.sv").write_text(text, encoding="utf-8")
    form = literal(number_format("int8@4"), Rounding.EVEN)
    commands = (
        f"read_verilog -sv {' '.join(f'{name}.sv' for name in names)} held.sv;"
        " hierarchy -top held; proc; flatten; opt; stat -width"
    )
    registers = []
    for outputs in (2, 4):
        given = f".FORMAT({form}), .WORDS({8 * outputs}), .OUTPUTS({outputs})"
        (tmp_path / "held.sv").write_text(
            "module held (input logic clk, reset, start, input logic [127:0] block, output logic"
            f" done, output logic [{8 * outputs * 16 - 1}:0] words);\n    weight_blocks #({given})"
            " held (.clk, .reset, .start, .block, .words, .done, .block_words(),"
            " .block_reaches());\nendmodule\n",
            encoding="utf-8",
        )
        done = subprocess.run(
            [yosys, "-p", commands], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        # Counts stand behind names, or before them, as Yosys 0.70 prints them.
        kinds = re.findall(r"(?:(\d+) +)?\$s?dffe?_(\d+)(?: +(\d+))?", done.stdout)
        registers.append(sum(int(width) * int(one or other) for one, width, other in kinds))
    assert 0 <= registers[1] - registers[0] - (16 * 8 + 4 * 8) <= 3


@pytest.mark.slow
def test_words_of_weights_have_their_registers(yosys: str, tmp_path: Path) -> None:
    """Yosys 0.70 lost all but the first where a product of their places took a DSP."""
    files = [SOURCES / f"{name}.sv" for name in ("philox", "weight_words")]
    given = {"SIZE": 32, "STRIDE": 144}
    cells = synthesise(yosys, "weight_words", files, given, tmp_path, flat=True)
    taken = resources_of(all_cells(cells, "\\weight_words"))
    assert taken.dsp == 8 and taken.ff > 32 * 32


@pytest.mark.slow
def test_a_multiply_add_takes_two_dsps(yosys: str, tmp_path: Path) -> None:
    """A product of 24 by 24 bits is one of 24 by 17 and one of 24 by 7; each register more takes
    FFs.
    """
    files = [SOURCES / f"{name}.sv" for name in ("fp32", "registers", "fp32_fma")]
    wire, piped = (
        resources_of(
            all_cells(
                synthesise(yosys, "fp32_fma", files, {"LATENCY": latency}, tmp_path), "\\fp32_fma"
            )
        )
        for latency in (0, 4)
    )
    assert (wire.dsp, wire.ff, wire.bram_banks) == (2, 0, 0)
    assert (piped.dsp, piped.bram_banks) == (2, 0)
    assert piped.ff > 100


FACTORS = {
    "fp32": ("fp32_fma", {}, 2),
    "bf16": ("fp32_fma", {"SIGNIFICAND": 8}, 1),
    "E4M3": ("fp32_fma", {"SIGNIFICAND": 4, "SUBNORMAL": 0}, 0),
    "int8": ("int32_fma", {"WIDTH": 8}, 1),
}
"""Multiply-adds by the format of their factors, with their DSPs."""


NUMBERS = """module stream (input logic clk, input logic [159:0] in, output logic [1311:0] out);
    fp32_fma #(.LATENCY(0), .SIGNIFICAND(8)) bf16 (.clk, .a(in[31:0]), .b(in[63:32]), .c(in[95:64]), .y(out[31:0]));
    fp32_fma #(.LATENCY(4), .SIGNIFICAND(4), .SUBNORMAL(0)) e4m3 (
        .clk, .a(in[31:0]), .b(in[63:32]), .c(in[95:64]), .y(out[63:32])
    );
    int32_fma int8 (.clk, .a(in[7:0]), .b(in[39:32]), .c(in[95:64]), .y(out[95:64]));
    quantise #(.ROUNDING(3)) by_chance (.x(in[31:0]), .word(in[63:32]), .exponent(9'd0), .y(out[127:96]));
    quantise #(
        .FRACTION_BITS(7), .LEAST_EXPONENT(-126), .LARGEST(32'h7f7f_0000), .OVERFLOWS(1)
    ) upper_half (
        .x(in[31:0]), .word(32'd0), .exponent(9'd0), .y(out[159:128])
    );
    quantise_blocks #(
        .VALUES(5), .SIZE(4), .FRACTION_BITS(6), .LEAST_EXPONENT(0), .LARGEST(32'h3ffe_0000), .LATENCY(2)
    ) mxint8 (
        .clk, .x(in), .words(in), .y(out[319:160]), .scales(out[335:320])
    );
    logic [1:0] state;
    philox draw (
        .clk, .reset(1'b0), .start(in[0]), .counter(in[127:0]), .key(in[159:96]), .ready(state[0]), .done(state[1]),
        .words(out[479:352])
    );
    assign out[351:336] = 16'(state);
    logic [7:0] code, element;
    pack #(.FORMAT({6'd8, 5'd3, -9'sd6, 32'h43e0_0000, 1'b0, 2'd0, 17'd0, 1'b0})) coded (
        .x(out[127:96]), .exponent(9'd0), .code
    );
    unpack #(.FORMAT({6'd8, 5'd3, -9'sd6, 32'h43e0_0000, 1'b0, 2'd0, 17'd0, 1'b0})) decoded (
        .code, .x(out[511:480])
    );
    pack #(.FORMAT({6'd8, 5'd6, 9'sd0, 32'h3ffe_0000, 1'b0, 2'd0, 17'd4, 1'b0})) scaled (
        .x(out[191:160]), .exponent({1'b0, out[327:320]} - 9'd127), .code(element)
    );
    unpack #(.FORMAT({6'd8, 5'd6, 9'sd0, 32'h3ffe_0000, 1'b0, 2'd0, 17'd4, 1'b0})) with_scale (
        .code({out[327:320], element}), .x(out[543:512])
    );
    logic begins, row_ready, row_taken, side_ready, apart_ready;
    assign begins = in[11:0] == '0;
    row_words #(
        .COLUMNS(2), .CHANNELS(5), .FIRST(3), .APART(9), .ROWS(3), .STREAM(32'd77), .SEED(64'd5), .UNITS(2)
    ) of_row (
        .clk, .reset(begins), .take(row_taken), .ready(row_ready), .words(out[863:544])
    );
    weight_words #(.SIZE(6), .STREAM(32'd7), .SEED(64'd5)) side_by_side (
        .clk, .restart(begins), .element(32'd11), .update(64'd3), .ready(side_ready), .words(out[1055:864])
    );
    weight_words #(.SIZE(7), .STRIDE(9), .STREAM(32'd7), .SEED(64'd5)) apart (
        .clk, .restart(begins), .element(32'd11), .update(64'd3), .ready(apart_ready), .words(out[1279:1056])
    );
    assign row_taken = row_ready && in[32];
    assign out[1311:1280] = 32'({row_ready, row_taken, side_ready, apart_ready});
endmodule
"""
"""Modules of number formats side by side."""


@pytest.mark.slow
def test_it_reads_as_verilator_does(yosys: str, build_stream: BuildStream, tmp_path: Path) -> None:
    """What it makes of the modules, before it maps them to cells, gives the same bits; first clocks
    are left out.
    """
    names = (
        "fp32 formats registers fp32_fma int32_fma quantise block_scale quantise_blocks pack unpack"
        " philox row_words weight_words".split()
    )
    for name in names:
        text = for_yosys((SOURCES / f"{name}.sv").read_text(encoding="utf-8"))
        (tmp_path / f"{name}.sv").write_text(text, encoding="utf-8")
    (tmp_path / "stream.sv").write_text(NUMBERS, encoding="utf-8")
    files = " ".join(f"{name}.sv" for name in (*names, "stream"))
    commands = (
        f"read_verilog -sv {files}; hierarchy -top stream; proc; flatten; opt; write_verilog"
        " -noattr read.v"
    )
    subprocess.run([yosys, "-q", "-p", commands], cwd=tmp_path, capture_output=True, check=True)
    draw = np.random.default_rng(5)
    records = draw.integers(0, 1 << 32, (20_000, 5), np.uint32)
    near = draw.integers(0, 1 << 32, (20_000, 5), np.uint32) & np.uint32(0x83FFFFFF)
    records[::2] = (near + (draw.integers(0, 63, (20_000, 1), np.uint32) << np.uint32(25)))[::2]
    records[0, 0] = 0  # words are drawn from here on
    texts = NUMBERS, (tmp_path / "read.v").read_text(encoding="utf-8")
    by_verilator, by_yosys = (build_stream(text)(records)[300:] for text in texts)
    assert (by_verilator == by_yosys).all(axis=0).all()
    assert np.bitwise_or.reduce(by_verilator[:, 40]) == 0b1111  # all words were there, and taken
    assert (
        by_verilator[:, [15, 16]] == by_verilator[:, [3, 5]]
    ).all()  # codes are of their numbers


@pytest.mark.slow
def test_narrow_factors_take_fewer_dsps(yosys: str, tmp_path: Path) -> None:
    """The addend is wide in all of them, so LUTs shrink less; a DSP has the adder of integers in
    it.
    """
    files = [SOURCES / f"{name}.sv" for name in ("fp32", "registers", "fp32_fma", "int32_fma")]
    built = {
        name: resources_of(
            all_cells(synthesise(yosys, top, files, parameters, tmp_path, flat=True), f"\\{top}")
        )
        for name, (top, parameters, _) in FACTORS.items()
    }
    assert {name: taken.dsp for name, taken in built.items()} == {
        name: dsps for name, (_, _, dsps) in FACTORS.items()
    }
    assert built["fp32"].lut > built["bf16"].lut > built["E4M3"].lut > built["int8"].lut == 0
    assert not any(taken.bram_banks for taken in built.values())


MULTIPLIERS = {
    "fp32": ("fp32", {"per_dsp": 0.5, "lut": 1202}),
    "bf16": ("half", {"per_dsp": 1, "lut": 911}),
    "mxint8": ("int8", {"per_dsp": 1, "lut": 911}),
    "fp8-e4m3": ("fp8", {"per_dsp": 1000, "lut": 847}),
}
"""Multipliers of this RTL, as a board says them (docs/rtl.md), by the format of activations,
weights and errors.
"""


@pytest.mark.slow
@pytest.mark.parametrize("precision", MULTIPLIERS)
def test_multipliers_are_the_plans(yosys: str, tmp_path: Path, precision: str) -> None:
    """Of each device's engines within a fifth, or a DSP: of a board that says what this RTL
    takes.
    """
    kind, said = MULTIPLIERS[precision]
    boards = cluster(1 if said["per_dsp"] > 1 else 40)
    boards["boards"][0]["multipliers"] = {kind: said}
    rtl = Rtl.of(plan(TWO_LAYERS, boards, 2, precision=precision))
    number = rtl.plan.config.precision.activations
    significand, subnormal = factors(number, number)
    given = {"LATENCY": 4, "SIGNIFICAND": significand, "SUBNORMAL": subnormal}
    files = [SOURCES / f"{name}.sv" for name in ("fp32", "registers", "fp32_fma")]
    of_one = resources_of(
        all_cells(synthesise(yosys, "fp32_fma", files, given, tmp_path, flat=True), "\\fp32_fma")
    )
    for layout, device in zip(rtl.plan.layout().devices, rtl.devices, strict=True):
        multipliers = sum(
            engine.tiles * part.layer.engine_view.tile
            for part in device.slices
            for engine in (part.fp, part.eb, part.pg)
            if engine is not None
        )
        planned, _ = planned_resources(layout)
        assert abs(of_one.dsp * multipliers - planned.dsp) <= max(1, planned.dsp / 5)
        assert abs(of_one.lut * multipliers - planned.lut) <= planned.lut / 5


def test_what_yosys_does_not_take_is_one_line(yosys: str, tmp_path: Path) -> None:
    source = tmp_path / "from" / "wrong.sv"
    source.parent.mkdir()
    source.write_text("module wrong (input logic a; endmodule\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"^Yosys rejects wrong: .*syntax error[^\n]*$"):
        synthesise(yosys, "wrong", [source], {}, tmp_path)


def test_no_yosys_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="Yosys is needed .* not installed"):
        find_yosys()
