"""Reports of builds: what each says, what those of one build say together, and files that are none.

The real ones are of three boards on which 512 multiply-accumulates were built (reports/README.md).
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from emuchain.emulator.calibrate import BoardFit, calibrate_board, calibrate_link
from emuchain.emulator.calibrate.board import _multipliers, _of_build, fpga
from emuchain.emulator.calibrate.build import Amounts, Report, Stage, build_of
from emuchain.emulator.calibrate.reports import read_report
from emuchain.emulator.cluster import board_keys, load_cluster
from emuchain.emulator.common import InputError

HERE = Path(__file__).parent / "reports"
REAL = sorted(path for path in HERE.glob("*/*") if path.is_file())
BUILT = 512


def whole_csynth() -> str:
    """csynth.rpt with all 512 rows of products and sums, of which the excerpt has the first."""
    lines = []
    for line in (HERE / "u280/csynth.rpt").read_text().splitlines():
        is_row = re.search(r"_f(?:add|mul)_32ns", line)
        lines += [line] * (BUILT if is_row else 1)
    return "\n".join(lines)


def reports_of(board: str, folder: Path) -> list[Path]:
    """The reports of a board's build, in full."""
    files = [Path(shutil.copy(path, folder)) for path in sorted((HERE / board).iterdir())]
    for path in files:
        if path.name == "csynth.rpt":
            path.write_text(whole_csynth())
    return files


def said(text: str) -> Report:
    report = read_report(text, "report")
    assert report is not None
    return report


def of(name: str) -> Report:
    return said((HERE / name).read_text())


def vivado(command: str, body: str, state: str = "Routed") -> str:
    head = f"| Tool Version : Vivado v.2023.1\n| Command      : {command}\n"
    return f"{head}| Design State : {state}\n{body}"


def timing(clocks: str, slacks: str = "", state: str = "Routed") -> str:
    """A timing summary as Vivado prints it, cut to what is read."""
    rule = "-" * 60
    tables = [("Clock Summary", clocks), ("Intra Clock Table", slacks), ("Inter Clock Table", "")]
    body = "".join(f"\n{rule}\n| {title}\n| ----\n{rule}\n\n{rows}\n" for title, rows in tables)
    return vivado("report_timing_summary -file timing.rpt", body, state)


CSYNTH_XML = """<?xml version="1.0" encoding="UTF-8"?>
<profile>
<UserAssignments><TargetClockPeriod>3.33</TargetClockPeriod></UserAssignments>
<PerformanceEstimates>
<SummaryOfTimingAnalysis><EstimatedClockPeriod>2.920</EstimatedClockPeriod></SummaryOfTimingAnalysis>
</PerformanceEstimates>
<AreaEstimates>
<Resources><BRAM_18K>2</BRAM_18K><DSP>40</DSP><FF>512</FF><LUT>1024</LUT></Resources>
<AvailableResources><DSP>9024</DSP></AvailableResources>
</AreaEstimates>
</profile>
"""

FIT_SUMMARY = """Fitter Status : Successful - Wed Oct  7 15:31:11 2020
Quartus Prime Version : 20.1.0 Build 711 06/05/2020 SJ Lite Edition
Device : 5CSEBA6U23I7
Logic utilization (in ALMs) : 22,549 / 41,910 ( 54 % )
Total registers : 39317
Total DSP Blocks : 64 / 112 ( 57 % )
"""


def test_csynth_says_the_multipliers_and_what_is_estimated() -> None:
    """The clock is the wanted one, 4 ns, as 2.92 ns would do."""
    report = said(whole_csynth())
    assert report.multipliers == BUILT
    assert report.kernel == Amounts(2569, 205_256, 291_461)
    assert (report.clock_mhz, report.device_dsp, report.stage) == (250, 9024, Stage.ESTIMATED)


def test_products_that_have_few_of_the_dsps_are_not_all_multipliers() -> None:
    """In the excerpt, one product and one sum have 5 of 2,569 DSPs: others are within modules."""
    assert of("u280/csynth.rpt").multipliers is None


def test_a_clock_that_is_not_reached_is_the_estimated_one() -> None:
    slow = whole_csynth().replace("2.920 ns", "5.000 ns")
    assert said(slow).clock_mhz == 200


def test_csynth_as_xml() -> None:
    report = said(CSYNTH_XML)
    assert report.kernel == Amounts(40, 1024, 512)
    assert (report.clock_mhz, report.device_dsp) == (300.3, 9024)
    older = CSYNTH_XML.replace("DSP>", "DSP48E>")
    assert said(older) == report


def test_system_estimate_is_the_sum_over_compute_units() -> None:
    text = (HERE / "u280/system_estimate.xtxt").read_text()
    one = said(text)
    assert one.kernel == Amounts(2569, 205_256, 291_461)
    assert one.clock_mhz == 250
    row = "gemm_1        gemm         gemm         291461  205256  2569  504   0\n"
    two = said(text.replace(row, row + row.replace("gemm_1", "gemm_2")))
    assert two.kernel == Amounts(2 * 2569, 2 * 205_256, 2 * 291_461)


def test_a_routed_kernel_and_its_platform() -> None:
    report = of("u280/kernel_util_routed.rpt")
    assert report.kernel == Amounts(2566, 149_486, 230_197)
    assert report.shell == Amounts(10, 179_794, 276_813, 339)
    assert (report.device_dsp, report.stage) == (9024, Stage.ROUTED)


@pytest.mark.parametrize(
    ("slack", "mhz"), [("1.406", 200), ("0.000", 200), ("-1.250", 160), ("", 200)]
)
def test_a_clock_is_the_constraint_or_what_its_paths_allow(slack: str, mhz: float) -> None:
    clock = "clk    {0.000 2.500}        5.000           200.000         \n"
    report = said(timing(clock, f"clk                 {slack}        0.000      0\n"))
    assert (report.clock_mhz, report.stage) == (mhz, Stage.ROUTED)


def test_of_several_clocks_it_is_the_kernels() -> None:
    clocks = (
        "clk_out1_pfm_top_clkwiz_kernel2_0  {0.000 1.000}  2.000  500.000\n"
        "  clk_out1_pfm_top_clkwiz_kernel_0  {0.000 2.000}  4.000  250.000\n"
        "c0_sys_clk_p  {0.000 5.000}  10.000  100.000\n"
    )
    slacks = "clk_out1_pfm_top_clkwiz_kernel2_0  -1.000  0.000\n"
    assert said(timing(clocks, slacks)).clock_mhz == 250
    assert said(timing(clocks, slacks, "Fully Placed")).stage is Stage.PLACED


def test_power() -> None:
    assert of("u280/power_routed.rpt").power_w == 55.607


@pytest.mark.parametrize(
    ("board", "shell"),
    [
        ("520n", Amounts(1047, 455_240, 910_480, 2627)),
        ("d5005", Amounts(0, 220_164, 440_329, 572)),
    ],
)
def test_area_json_says_the_interface_and_the_multipliers(board: str, shell: Amounts) -> None:
    """Of 726 DSPs, 512 are in dot products."""
    report = of(f"{board}/area.json")
    assert report.shell == shell
    assert (report.multipliers, report.kernel.dsp, report.device_dsp) == (BUILT, 726, 5760)
    described = json.loads((HERE / board / "area.json").read_text())
    assert report.kernel.lut == described["total"][0] - (shell.lut or 0)


def test_quartus_says_what_was_built() -> None:
    whole = of("d5005/acl_quartus_report.txt")
    assert (whole.kernel.dsp, whole.clock_mhz) == (726, 296)
    assert (whole.together.lut, whole.together.ff) == (139_639, 351_249)
    kernel = of("520n/quartus.json")
    assert kernel.kernel == Amounts(728, 2 * 42_323, 154_700)
    fitted = said(FIT_SUMMARY)
    assert (fitted.kernel.dsp, fitted.device_dsp) == (64, 112)
    assert (fitted.together.lut, fitted.together.ff) == (2 * 22_549, 39_317)


def test_a_later_stage_goes_before_an_earlier_one() -> None:
    routed, estimated = of("u280/kernel_util_routed.rpt"), said(whole_csynth())
    both = [build_of(reports) for reports in ([routed, estimated], [estimated, routed])]
    assert both[0] == both[1]
    assert (both[0].kernel.dsp, both[0].multipliers) == (2566, BUILT)
    assert both[0].each("lut") == pytest.approx(292, abs=0.1)


def test_luts_of_the_whole_fpga_count_only_where_nothing_else_is_known() -> None:
    alone = build_of([of("520n/acl_quartus_report.txt")], BUILT)
    assert (alone.kernel.lut, alone.lut_stage) == (136_585, None)
    beside = build_of([of("520n/acl_quartus_report.txt"), of("520n/area.json")])
    assert (beside.kernel.lut, beside.lut_stage) == (503_188 - 455_240, Stage.ESTIMATED)


def test_reports_of_two_builds_are_refused() -> None:
    two = [of("520n/acl_quartus_report.txt"), of("d5005/acl_quartus_report.txt")]
    with pytest.raises(InputError, match="give the reports of one build"):
        build_of(two)
    routed = of("u280/kernel_util_routed.rpt")
    small = said(whole_csynth().replace("2569|", "2560|"))
    assert build_of([routed, small]).multipliers == BUILT
    many = Report("routed.rpt", "", Stage.ROUTED, Amounts(32 * 2566, 1, 1))
    with pytest.raises(InputError, match="all its multipliers by `--multipliers`"):
        build_of([many, small])
    assert build_of([many, small], 32 * BUILT).each("dsp") == pytest.approx(2566 / BUILT)


@pytest.mark.parametrize(
    ("board", "lut", "mhz"), [("u280", 292, 250), ("520n", 166, 320.833), ("d5005", 73, 296)]
)
def test_a_board_has_as_many_multipliers_as_were_built(
    tmp_path: Path, board: str, lut: int, mhz: float
) -> None:
    out = tmp_path / "board.toml"
    done = calibrate_board(reports_of(board, tmp_path), board, out=out)
    built, keys = fpga(str(out), {}), board_keys(str(out))
    assert built.multipliers == BUILT
    assert keys["multipliers"]["fp32"]["lut"] == lut
    assert keys["clock_mhz"] == mhz
    for key in ("shell_lut", "shell_bram"):  # as in the boards that come with emuchain
        assert keys[key] == board_keys(board)[key]
    assert {entry["class"] for entry in done.to_dict()["constants"].values()} == {"report"}
    assert done.to_dict()["multipliers"]["fp32"] == BUILT
    assert built.ranges == fpga(str(out), {}).ranges
    exact = {entry.key for entry in built.ranges if entry.is_exact}
    assert {"board.shell_lut", "board.dsp_share"} <= exact


@settings(deadline=None, max_examples=25)
@given(count=st.integers(1, 6448), dsp=st.integers(1, 9014))
def test_any_build_gives_its_multipliers(count: int, dsp: int) -> None:
    """For any number of multipliers that exists for a number of DSPs."""
    assume(0.1 <= count / dsp <= 64)
    keys = dict(board_keys("u280"))
    build = build_of([Report("r", "", Stage.ROUTED, Amounts(dsp, 10), Amounts(10))], count)
    constants = {it.key.removeprefix("board."): it.value for it in _of_build(build, keys, False)}
    assert fpga("u280", {**constants, **_multipliers(build, keys)}).multipliers == count


def test_the_clock_of_a_routed_design_is_exact(tmp_path: Path) -> None:
    def clock(*files: Path, kind: str) -> tuple[float, float]:
        done = calibrate_board(files, kind)
        return next(it for it in done.constants if it.key == "board.clock_mhz").range[:2]

    assert clock(HERE / "520n/acl_quartus_report.txt", kind="520n") == (320.833, 320.833)
    assert clock(HERE / "u280/system_estimate.xtxt", kind="u280") == (225, 275)
    # Products measure the product with efficiency, whose range is that of both.
    gemm = tmp_path / "gemm.csv"
    gemm.write_text("matrix_size,best_s\n4096,0.678318\n")
    csynth = tmp_path / "csynth.rpt"
    csynth.write_text(whole_csynth())
    assert clock(csynth, gemm, kind="u280") == (250, 250)


def test_efficiency_is_that_of_the_multipliers_that_were_built(tmp_path: Path) -> None:
    """The U280 of these reports reached 202.617 GFLOP/s."""
    gemm = tmp_path / "gemm.csv"
    gemm.write_text("matrix_size,gflops\n4096,202.617\n")
    done = calibrate_board([*reports_of("u280", tmp_path), gemm], "u280")
    efficiency = next(it.value for it in done.constants if it.key == "board.efficiency")
    assert efficiency == pytest.approx(202.617 / (2 * BUILT * 0.25), abs=1e-3)


def test_without_their_number_nothing_is_said_of_multipliers(tmp_path: Path) -> None:
    done = calibrate_board(HERE / "520n/acl_quartus_report.txt", "520n")
    assert isinstance(done.fit, BoardFit)
    assert "multipliers" not in done.fit.keys
    assert [it.key for it in done.constants] == ["board.clock_mhz"]
    assert any("--multipliers N" in warning for warning in done.warnings)
    told = calibrate_board(HERE / "520n/acl_quartus_report.txt", "520n", multipliers=BUILT)
    assert "multipliers = { fp32 = { per_dsp = 0.7052342, lut = 267 } }" in told.toml


def test_other_classes_stay(tmp_path: Path) -> None:
    kind = tmp_path / "ours.toml"
    kind.write_text(
        'name = "ours"\nclock_mhz = 250\ndsp = 5760\non_chip_memory_kbit = 234_420\n'
        "multipliers = { fp32 = { per_dsp = 1 }, int8 = { per_dsp = 2, lut = 40 } }\n"
    )
    done = calibrate_board(HERE / "520n/area.json", str(kind), multipliers=BUILT)
    assert "int8 = { per_dsp = 2, lut = 40 }" in done.toml
    assert "fp32 = { per_dsp = 0.705" in done.toml


def test_a_reported_class_has_its_range() -> None:
    board = {
        "type": "vc709",
        "uncertainty": {"board.power_w": {"class": "report"}},
        "power_w": 100,
    }
    links = {"bandwidth_gbps": 1, "latency_ns": 0}
    cluster = load_cluster({"name": "one", "boards": [board], "links": links})
    [entry] = [it for it in cluster.board(0).ranges if it.key == "board.power_w"]
    assert (entry.low, entry.high, entry.kind) == (0.9, 1.1, "report")


# Files that cannot be used.

BOMB = '<?xml version="1.0"?>\n<!DOCTYPE profile [\n<!ENTITY a "aaaaaaaaaa">\n' + "".join(
    f'<!ENTITY {chr(98 + level)} "{f"&{chr(97 + level)};" * 10}">\n' for level in range(12)
)
BOMB += "]>\n<profile><UserAssignments>&m;</UserAssignments></profile>"
OUTSIDE = '<!DOCTYPE profile SYSTEM "file:///etc/passwd"><profile/>'


def changed(name: str, old: str, new: str) -> str:
    text = (HERE / name).read_text()
    assert old in text
    return text.replace(old, new)


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "an XML bomb": (BOMB, "declares a document type"),
    "an entity of another file": (OUTSIDE, "declares a document type"),
    "XML cut off": (CSYNTH_XML[:300], "is no whole XML"),
    "XML of something else": ("<html><body>x</body></html>", "is no report of Vitis HLS"),
    "XML too deep": ("<a>" * 500 + "</a>" * 500, "more than 100 elements within one another"),
    "XML without DSPs": (CSYNTH_XML.replace("DSP>", "X>"), "without `Resources` with DSPs"),
    "XML with words": (CSYNTH_XML.replace("3.33", "fast"), "should be a number up to"),
    "JSON cut off": ((HERE / "520n/area.json").read_text()[:900], "is no whole JSON"),
    "JSON too deep": ('{"a":' + "[" * 200_000, "is no whole JSON"),
    "JSON too large": ("{" + " " * 2**24, "characters, above the 16,777,216 of a report"),
    "JSON of something else": ('{"a": 1}', "of JSON, area.json is read"),
    "JSON with words": (changed("520n/area.json", "503188", '"many"'), "`total` is 'many'"),
    "JSON without an end": (changed("520n/area.json", "503188", "1e999"), "`total` is inf"),
    "a larger interface": (changed("520n/area.json", "503188", "5"), "more than the total"),
    "JSON without columns": (changed("520n/area.json", '"DSPs"', '"X"'), "without the columns"),
    "Quartus was not run": ('{"quartusFitClockSummary":{"children":[]}}', "Quartus was not run"),
    "csynth cut off": ((HERE / "u280/csynth.rpt").read_text()[:1500], "without a clock"),
    "kernel_util cut off": (
        (HERE / "u280/kernel_util_routed.rpt").read_text()[:1700],
        "without the rows Platform, User Budget, Used Resources",
    ),
    "power cut off": (vivado("report_power", ""), "without `Total On-Chip Power (W)`"),
    "timing cut off": (timing(""), "without a `Clock Summary`"),
    "clocks of no kernel": (
        timing("a {0.0 1.0} 2.0 500.0\nb {0.0 1.0} 4.0 250.0\n"),
        "has 2 clocks, 'a, b', and no single one",
    ),
    "no clock": (timing("a {0.0 0.0} 0.000 0.000\n"), "`Period(ns)` = 0 ns"),
    "another command": (vivado("report_drc", ""), "'report_drc' of Vivado; known: report_acc"),
    "estimates cut off": (
        (HERE / "u280/system_estimate.xtxt").read_text()[:1200],
        "without `Timing Information`",
    ),
    "acl cut off": ((HERE / "520n/acl_quartus_report.txt").read_text()[:200], "without `Actual"),
    "a failed fit": ("Fitter Status : Failed - Wed Oct  7\n", "nothing was built"),
    "no number": (changed("520n/acl_quartus_report.txt", "726 /", "many /"), "`DSP blocks` is"),
    "too large": (
        changed("520n/acl_quartus_report.txt", "136585", "9" * 18),
        "should be a number up to 1e+09",
    ),
    "another tool": ("=== top ===\n   Number of cells:  12\n", "is of no known kind"),
    "binary": (b"\x7fELF\x02\x01\x01\x00" + bytes(range(256)), "cannot be read"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_one_line_says_what_is_wrong(tmp_path: Path, what: str) -> None:
    content, message = REFUSED[what]
    path = tmp_path / "report.rpt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as error:
        calibrate_board(path, "520n")
    assert message in str(error.value)
    assert "report.rpt" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_report_cut_off_anywhere_ends_in_one_line_or_in_less(path: Path) -> None:
    """Never in another error."""
    text = path.read_text()
    for end in range(0, len(text), max(1, len(text) // 60)):
        try:
            read_report(text[:end], "cut")
        except InputError as error:
            assert "\n" not in str(error)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_report_ends_in_one_line_or_in_figures(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([path.read_text() for path in REAL] + [CSYNTH_XML]))
    places = st.integers(0, len(text))
    start, end = sorted((data.draw(places), data.draw(places)))
    piece = data.draw(st.sampled_from(["", "|", "-1", "nan", "1e99", "\0", "{", "<", "٣", ",,,"]))
    try:
        report = read_report(text[:start] + piece + text[end:], "damaged")
    except InputError as error:
        assert "\n" not in str(error)
        return
    if report is not None:
        figures = [report.clock_mhz, report.power_w, report.multipliers, report.kernel.dsp]
        assert all(figure is None or figure >= 0 for figure in figures)


Refusal = Callable[[Path], Any]


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        (
            lambda _: calibrate_board(HERE / "u280/kernel_util_routed.rpt", "520n"),
            "of a device with 9,024 DSPs, and 520N has 5,760; give the board's `--type`",
        ),
        (
            lambda _: calibrate_board(HERE / "520n/acl_quartus_report.txt", "520n", multipliers=0),
            "`multipliers` = 0: should be 1 or more",
        ),
        (
            lambda folder: calibrate_board(csv(folder), "520n", multipliers=5),
            "no file is a report of one",
        ),
        (
            lambda folder: calibrate_board(
                [csv(folder), HERE / "520n/acl_quartus_report.txt"], "520n"
            ),
            "beside reports of a build",
        ),
        (
            lambda _: calibrate_board(HERE / "u280/power_routed.rpt", "u280", multipliers=5),
            "no report says in how many DSPs",
        ),
        (
            lambda folder: calibrate_board(fitted(folder), "520n"),
            "give their number by `--multipliers`",
        ),
        (
            lambda _: calibrate_link(HERE / "520n/area.json"),
            "measures what a build takes, not messages over a link; `emuchain calibrate board`",
        ),
    ],
)
def test_what_does_not_fit_together(tmp_path: Path, refuse: Refusal, message: str) -> None:
    with pytest.raises(InputError) as error:
        refuse(tmp_path)
    assert message in str(error.value)


def csv(folder: Path) -> Path:
    path = folder / "bitstream.csv"
    path.write_text("clock_mhz,dsp_used\n200,1600\n")
    return path


def fitted(folder: Path) -> Path:
    path = folder / "fit.summary"
    path.write_text(FIT_SUMMARY.replace("64 / 112", "64 / 5,760"))
    return path
