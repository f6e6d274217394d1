"""Reports of builds, which say what a design takes of its FPGA and how fast it is.

Of Vitis HLS `csynth` as XML or text, and the `system_estimate` of its linker; of Vivado the reports
of accelerators' utilization, timing and power; of Quartus the `area.json` and `quartus.json` of an
OpenCL build, its `acl_quartus_report.txt`, and the fitter's summary. Which one a text is, its
content says, not its name. Nothing of it is run: lines are split into cells, JSON and XML are read
by parsers of their own, and a document type, with which entities grow without bounds, is refused.

How many multiply-accumulates a kernel has is told where they have most of its DSPs: `csynth.rpt`
lists each product and sum of single precision, `area.json` the DSPs of dot products, one for each
product. What several reports of one build say together is in `build.py`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from xml.parsers import expat

from ..common import InputError
from .build import NOTHING, Amounts, Report, Stage

_MOST_CHARACTERS = 2**24
"""Longest JSON and XML: reports of large designs are a thirtieth of it, and a parser takes some
tens of bytes for each character.
"""
_MOST_DEPTH = 100
_MOST = 1e9
"""Largest number, of whatever: a hundred times the LUTs of the largest FPGA."""

_NUMBER = re.compile(r"\d[\d,]{0,20}(?:\.\d{0,30})?", re.ASCII)
_HLS = re.compile(r"^== (?:Vivado|Vitis) HLS Report for '", re.MULTILINE)
_ESTIMATE = re.compile(r"^Compute Unit  +Kernel Name  +Module Name  ", re.MULTILINE)
_VIVADO = re.compile(r"^\| Tool Version *: Vivado", re.MULTILINE)
_COMMAND = re.compile(r"^\| Command *: (report_\w+)", re.MULTILINE)
_OPENCL = re.compile(r"^ALUTs: *\d", re.MULTILINE)
_QUARTUS = '"quartusFitClockSummary"'
_FITTED = re.compile(r"^Fitter Status *: *([^\n]*)", re.MULTILINE)


def read_report(text: str, name: str) -> Report | None:
    """Return what the text of a report says; None if it is none of a build.

    Raises:
        InputError: it is damaged, of another tool, or says nothing of what boards have.
    """
    begins = text.lstrip()[:1]
    if begins == "<":
        return _csynth_xml(text, name)
    if begins == "{":
        return _quartus_json(text, name) if _QUARTUS in text else _area(text, name)
    readers: Sequence[tuple[re.Pattern[str], Callable[[str, str], Report]]] = (
        (_HLS, _csynth),
        (_VIVADO, _vivado),
        (_ESTIMATE, _system_estimate),
        (_OPENCL, _opencl),
        (_FITTED, _fitted),
    )
    return next((read(text, name) for sign, read in readers if sign.search(text)), None)


def _number(text: str, what: str, name: str) -> float:
    """Return the number that a cell begins with, such as `2,566 [ 28.47%]` or `3.33 ns`.

    Raises:
        InputError: it begins with none, or one that nothing has.
    """
    match = _NUMBER.match(text.strip())
    return _within(float(match[0].replace(",", "")) if match else text, what, name)


def _within(value: object, what: str, name: str) -> float:
    """Return a number that a report may have.

    Raises:
        InputError: it is none, or one that nothing has.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _MOST:  # type: ignore[operator]  # it is a number
        said = f"{value:g}" if isinstance(value, float) else _short(repr(value).strip("'"))
        raise InputError(f"{name}: `{what}` is {said}: should be a number up to {_MOST:,g}")
    return value  # type: ignore[return-value]  # it is a number


def _count(text: str, what: str, name: str) -> int:
    return math.ceil(_number(text, what, name))


def _clock_of(period_ns: float, what: str, name: str) -> float:
    """Return the clock in MHz of a period."""
    if period_ns <= 0:
        raise InputError(f"{name}: `{what}` = 0 ns: should be above 0")
    return round(1000 / period_ns, 3)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]} ...")


def _missing(name: str, kind: str, what: str) -> InputError:
    return InputError(f"{name}: {kind} without {what}: cut off, or of another version; give all")


class _Cells(NamedTuple):
    """A row of a table with vertical bars, and the cells of the header above it."""

    header: Sequence[str]
    cells: Sequence[str]

    def under(self, begins: str) -> str | None:
        """Return the cell in the first column whose name begins so."""
        pairs = zip(self.header, self.cells, strict=True)
        return next((cell for title, cell in pairs if title.startswith(begins)), None)


def _rows_with_bars(lines: Iterable[str]) -> Iterator[_Cells]:
    """Yield the rows of tables that have LUTs in a column."""
    header: list[str] = []
    for line in lines:
        if "|" in line:
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            if "LUT" in cells:
                header = cells
            elif cells and len(cells) == len(header):
                yield _Cells(header, cells)


def _amounts_in(row: _Cells, columns: Sequence[str], name: str) -> Amounts:
    """Return DSPs, LUTs, FFs and block RAMs of a row, by the names that their columns begin
    with.
    """
    said = [None if column == "" else row.under(column) for column in columns]
    numbers = zip(said, columns, strict=True)
    return Amounts(*(None if cell is None else _count(cell, of, name) for cell, of in numbers))


_PRODUCT, _SUM = "_fmul_32ns_32ns_32_", "_fadd_32ns_32ns_32_"
"""Modules of single precision in names of Vitis HLS, behind that of the kernel."""


def _csynth(text: str, name: str) -> Report:
    """Return what Vitis HLS estimates. Its clock is the wanted one, which it slows where it
    must.
    """
    kind = "csynth.rpt of Vitis HLS"
    timed = re.search(
        r"^ *\|[^|\n]*\| *([\d.]{1,20}) ns *\| *([\d.]{1,20}) ns *\|[^|\n]*ns *\|$",
        text,
        re.MULTILINE,
    )
    _, heading, taken = text.partition("== Utilization Estimates")
    rows = list(_rows_with_bars(taken.splitlines()))
    by_name: dict[str, _Cells] = {}
    for row in rows:
        by_name.setdefault(row.cells[0], row)
    total, available = by_name.get("Total"), by_name.get("Available")
    if not timed or not heading or total is None or total.under("DSP") is None:
        raise _missing(name, kind, "a clock and a `Total` of DSPs")
    kernel = _amounts_in(total, ("DSP", "LUT", "FF", ""), name)
    period = max(_number(cell, "Timing", name) for cell in timed.groups())
    dsp: dict[str, list[int]] = {_PRODUCT: [], _SUM: []}
    for row in rows:
        module, cell = row.under("Module"), row.under("DSP")
        for sign, counts in dsp.items():
            if module and cell and sign in module:
                counts.append(_count(cell, "DSP", name))
    pairs = min(map(len, dsp.values()))
    in_pairs = sum(sum(counts[:pairs]) for counts in dsp.values())
    device = None if available is None else available.under("DSP")
    return Report(
        name,
        kind,
        Stage.ESTIMATED,
        kernel,
        clock_mhz=_clock_of(period, "Timing", name),
        multipliers=_told(pairs, in_pairs, kernel.dsp),
        device_dsp=None if device is None else _count(device, "Available", name),
    )


def _told(multipliers: int, their_dsp: float, dsp: int | None) -> int | None:
    """Return the number of multipliers if most of the kernel's DSPs are theirs."""
    return multipliers if multipliers and dsp and 2 * their_dsp > dsp else None


def _csynth_xml(text: str, name: str) -> Report:
    kind = "csynth.xml of Vitis HLS"
    texts = _xml_texts(text, name)
    estimates, taken = "profile/PerformanceEstimates", "profile/AreaEstimates/Resources"
    wanted = texts.get("profile/UserAssignments/TargetClockPeriod")
    reached = texts.get(f"{estimates}/SummaryOfTimingAnalysis/EstimatedClockPeriod")
    if wanted is None or reached is None:
        raise _missing(name, kind, "`TargetClockPeriod` and `EstimatedClockPeriod`")
    period = max(_number(wanted, "TargetClockPeriod", name), _number(reached, "clock", name))

    def amount(table: str, begins: str) -> int | None:
        cells = (texts[path] for path in texts if path.startswith(f"{table}/{begins}"))
        cell = next(cells, None)
        return None if cell is None else _count(cell, begins, name)

    kernel = Amounts(*(amount(taken, key) for key in ("DSP", "LUT", "FF")))
    if kernel.dsp is None:
        raise _missing(name, kind, "`Resources` with DSPs")
    return Report(
        name,
        kind,
        Stage.ESTIMATED,
        kernel,
        clock_mhz=_clock_of(period, "EstimatedClockPeriod", name),
        device_dsp=amount("profile/AreaEstimates/AvailableResources", "DSP"),
    )


def _xml_texts(text: str, name: str) -> dict[str, str]:
    """Return the texts of the elements of an XML file by their paths, the first of each.

    Raises:
        InputError: it is no XML, too large, too deep, or declares a document type.
    """
    _check_size(text, name)
    path: list[str] = []
    texts: dict[str, str] = {}
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise InputError(f"{name}: declares a document type, as no report does; give a csynth.xml")

    def begin(tag: str, _: dict[str, str]) -> None:
        path.append(tag[:100])
        if len(path) > _MOST_DEPTH:
            raise InputError(f"{name}: more than {_MOST_DEPTH} elements within one another")

    def take(piece: str) -> None:
        if piece.strip():
            texts.setdefault("/".join(path), piece.strip())

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = begin
    parser.EndElementHandler = lambda _: path.pop()
    parser.CharacterDataHandler = take
    parser.buffer_text = True
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise InputError(f"{name}: is no whole XML: {error}") from None
    if not any(member.startswith("profile/") for member in texts):
        raise InputError(f"{name}: is no report of Vitis HLS; of XML, csynth.xml is read")
    return texts


def _check_size(text: str, name: str) -> None:
    if len(text) > _MOST_CHARACTERS:
        raise InputError(
            f"{name}: has {len(text):,} characters, above the {_MOST_CHARACTERS:,} of a report"
        )


def _system_estimate(text: str, name: str) -> Report:
    """Return what the linker of Vitis estimates: the sum over compute units, and the slowest."""
    kind = "system_estimate of Vitis"
    timings = list(_rows_with_gaps(text, "Target Frequency"))
    units = list(_rows_with_gaps(text, "LUT"))
    columns = ("DSP", "LUT", "FF")
    if not timings or "Estimated Frequency" not in timings[0]:
        raise _missing(name, kind, "`Timing Information`")
    if not units or not units[0].keys() >= {*columns}:
        raise _missing(name, kind, "`Area Information`")
    clocks = []
    for cells in timings:
        target = _number(cells["Target Frequency"], "clock", name)
        clocks.append(min(target, _number(cells["Estimated Frequency"], "clock", name)))
    amounts = []
    for key in columns:
        amounts.append(sum(_count(unit[key], key, name) for unit in units))
    kernel = Amounts(*amounts)
    return Report(name, kind, Stage.ESTIMATED, kernel, clock_mhz=round(min(clocks), 3))


def _rows_with_gaps(text: str, column: str) -> Iterator[dict[str, str]]:
    """Yield the rows of the table with a column, of which two spaces divide the cells."""
    header: list[str] = []
    for line in text.splitlines():
        cells = re.split(r" {2,}", line.strip())
        if column in cells:
            header = cells
        elif header and not line.strip():
            return
        elif header and len(cells) == len(header) and not line.startswith("-"):
            yield dict(zip(header, cells, strict=True))


def _vivado(text: str, name: str) -> Report:
    """Return what one of Vivado's reports says."""
    command = _COMMAND.search(text)
    readers = {
        "report_accelerator_utilization": _utilization,
        "report_timing_summary": _timing,
        "report_power": _power,
    }
    said = command[1] if command else "a report"
    if said not in readers:
        raise InputError(f"{name}: {_short(said)} of Vivado; known: {', '.join(readers)}")
    return readers[said](text, name, _stage(text))


def _stage(text: str) -> Stage:
    """Return the stage that the head of one of Vivado's reports says; older ones of timing say it
    by the name of their file alone.
    """
    head = "\n".join(re.findall(r"^\| (?:Command|Design State) *: .*", text, re.MULTILINE)).lower()
    stages = {"routed": Stage.ROUTED, "placed": Stage.PLACED}
    return next((stage for word, stage in stages.items() if word in head), Stage.SYNTHESISED)


def _utilization(text: str, name: str, stage: Stage) -> Report:
    """Return what a platform and its kernels take."""
    kind = "report_accelerator_utilization of Vivado"
    rows = {row.cells[0]: row for row in _rows_with_bars(text.splitlines())}
    columns = ("DSP", "LUT", "REG", "BRAM")
    names = ("Platform", "User Budget", "Used Resources")
    if not all(key in rows and rows[key].under("DSP") is not None for key in names):
        raise _missing(name, kind, f"the rows {', '.join(names)}")
    platform, budget, used = (_amounts_in(rows[key], columns, name) for key in names)
    return Report(
        name,
        kind,
        stage,
        dataclasses.replace(used, bram=None),
        platform,
        device_dsp=(platform.dsp or 0) + (budget.dsp or 0),
    )


_WAVEFORM = re.compile(r"\s*(\S{1,500})\s+\{[^{}]*\}\s+(-?[\d.]+)\s+[\d.]+\s*")
_SLACK = re.compile(r"\s*(\S{1,500})\s+(-?\d{1,9}\.\d{1,9})\s.*")


def _timing(text: str, name: str, stage: Stage) -> Report:
    """Return the clock of the kernel, or of a design with a single clock. Where paths are too slow
    for it, it is the one that they allow, to which the linker of Vitis scales it down.
    """
    kind = "report_timing_summary of Vivado"
    matches = map(_WAVEFORM.fullmatch, _under(text, "Clock Summary"))
    periods = {match[1]: match[2] for match in matches if match}
    if not periods:
        raise _missing(name, kind, "a `Clock Summary`")
    of_kernel = [clock for clock in periods if "kernel" in clock and "kernel2" not in clock]
    chosen = of_kernel or list(periods)
    if len(chosen) > 1:
        raise InputError(
            f"{name}: has {len(chosen)} clocks, {_short(', '.join(chosen))}, and no single one with"
            " `kernel` in its name; leave this report out, and give `--set board.clock_mhz=X`"
        )
    [clock] = chosen
    slacks = map(_SLACK.fullmatch, _under(text, "Intra Clock Table"))
    slack = next((float(match[2]) for match in slacks if match and match[1] == clock), 0.0)
    period = _number(periods[clock], "Period(ns)", name)
    return Report(
        name, kind, stage, clock_mhz=_clock_of(period - min(slack, 0.0), "Period(ns)", name)
    )


def _under(text: str, title: str) -> list[str]:
    """Return the lines under a title between rules, up to the next one."""
    _, _, behind = text.partition(f"\n| {title}\n")
    return re.split(r"^\| [^-\n]", behind, maxsplit=1, flags=re.MULTILINE)[0].splitlines()


def _power(text: str, name: str, stage: Stage) -> Report:
    kind = "report_power of Vivado"
    total = re.search(r"^\| Total On-Chip Power \(W\) *\| *([^ |\n]{1,60})", text, re.MULTILINE)
    if total is None:
        raise _missing(name, kind, "`Total On-Chip Power (W)`")
    return Report(name, kind, stage, power_w=_number(total[1], "Total On-Chip Power (W)", name))


_DOT_PRODUCT = re.compile(r"Hardened Dot Product of Size \d+")


def _area(text: str, name: str) -> Report:
    """Return what the compiler of OpenCL estimates of a kernel, and of the board's interface.

    Both have a row each of ALUTs, FFs, RAMs, DSPs; the kernel takes what the interface leaves of
    the total, so that what connects it with the memory is its own.
    """
    kind = "area.json of Quartus"
    _check_size(text, name)
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: is no whole JSON: {_short(str(error))}") from None
    if not isinstance(said, dict) or not {"columns", "total", "children"} <= said.keys():
        raise InputError(f"{name}: is no report of Quartus; of JSON, area.json is read")
    columns = said["columns"]
    wanted = ("DSPs", "ALUTs", "FFs", "RAMs")
    if not isinstance(columns, list) or not all(column in columns for column in wanted):
        raise _missing(name, kind, f"the columns {', '.join(wanted)}")
    places = [columns.index(column) - 1 for column in wanted]  # the first is the name's

    def row(values: Any, what: str) -> list[float]:
        if not isinstance(values, list) or len(values) <= max(places):
            raise _missing(name, kind, f"figures of {what}")
        return [_within(values[place], what, name) for place in places]

    nodes = list(_nodes(said))
    shells = [node for node in nodes if node.get("name") == "Board interface"]
    shell = row(shells[0].get("data"), "Board interface") if shells else [0.0] * len(wanted)
    total = row(said["total"], "total")
    dots = [node for node in nodes if _DOT_PRODUCT.fullmatch(str(node.get("name"))[:100])]
    products = sum(row(dot.get("data"), "dot products")[0] for dot in dots)
    dsp, lut, ff, _ = (
        math.ceil(all_of_it - own) for all_of_it, own in zip(total, shell, strict=True)
    )
    if min(dsp, lut, ff) < 0:
        raise InputError(
            f"{name}: the board interface takes more than the total; give another file"
        )
    device = said.get("max_resources")
    return Report(
        name,
        kind,
        Stage.ESTIMATED,
        Amounts(dsp, lut, ff),
        Amounts(*map(math.ceil, shell)) if shells else NOTHING,
        multipliers=_told(round(products), products, dsp),
        device_dsp=None if device is None else math.ceil(row(device, "max_resources")[0]),
    )


def _nodes(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield an object and all that are among its children, however deep."""
    left: list[Any] = [root]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            children = node.get("children")
            left += children if isinstance(children, list) else []


_KERNEL = re.compile(r'"name" *: *"[^"\n]{1,500}" *, *"data" *: *\[ *("ALMs"[^\]\n]{1,500})\]')
_FMAX = re.compile(r'"Kernel fmax" *: *([^]\s]{1,60})')


def _quartus_json(text: str, name: str) -> Report:
    """Return what Quartus says of the kernels of an OpenCL build, in a file that is no JSON: its
    lists have keys, `["ALMs": 42322.6 ,"DSPs": 728]`.
    """
    kind = "quartus.json"
    clock, kernels = _FMAX.search(text), _KERNEL.findall(text)
    if clock is None or not kernels:
        raise InputError(f"{name}: {kind} without a kernel: Quartus was not run; build to the end")

    def of_all(key: str) -> float:
        values = [re.search(rf'"{key}" *: *([^,\s]{{1,60}})', kernel) for kernel in kernels]
        if None in values:
            raise _missing(name, kind, f"`{key}` of a kernel")
        return sum(_number(value[1], key, name) for value in values if value)

    dsp, alms, ff = (math.ceil(of_all(key)) for key in ("DSPs", "ALMs", "FFs"))
    fmax = _number(clock[1], "Kernel fmax", name)
    return Report(name, kind, Stage.ROUTED, Amounts(dsp, 2 * alms, ff), clock_mhz=round(fmax, 3))


def _opencl(text: str, name: str) -> Report:
    """Return what Quartus says of a whole OpenCL build, whose DSPs are the kernel's."""
    kind = "acl_quartus_report.txt"
    said = _pairs(text)
    needed = ("ALUTs", "Registers", "DSP blocks", "Actual clock freq")
    _check_pairs(said, needed, kind, name)
    lut, ff, dsp = (_count(said[key], key, name) for key in needed[:3])
    return Report(
        name,
        kind,
        Stage.ROUTED,
        Amounts(dsp),
        together=Amounts(None, lut, ff),
        clock_mhz=round(_number(said[needed[3]], needed[3], name), 3),
        device_dsp=_out_of(said["DSP blocks"], "DSP blocks", name),
    )


def _fitted(text: str, name: str) -> Report:
    """Return what the fitter of Quartus says of a whole design, whose DSPs are the kernel's."""
    kind = "the fitter's summary of Quartus"
    said = _pairs(text)
    if not said["Fitter Status"].startswith("Successful"):
        raise InputError(
            f"{name}: `Fitter Status` is {_short(said['Fitter Status'])}: nothing was built"
        )
    logic = "Logic utilization (in ALMs)"
    needed = ("Total DSP Blocks", logic)
    _check_pairs(said, needed, kind, name)
    registers = next((said[key] for key in said if key.endswith("registers")), None)
    return Report(
        name,
        kind,
        Stage.ROUTED,
        Amounts(_count(said["Total DSP Blocks"], "Total DSP Blocks", name)),
        together=Amounts(
            None,
            2 * _count(said[logic], logic, name),
            None if registers is None else _count(registers, "Total registers", name),
        ),
        device_dsp=_out_of(said["Total DSP Blocks"], "Total DSP Blocks", name),
    )


def _pairs(text: str) -> dict[str, str]:
    """Return what stands behind the colons of lines, the first of each name."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            pairs.setdefault(key.strip(), value.strip())
    return pairs


def _check_pairs(said: dict[str, str], needed: Sequence[str], kind: str, name: str) -> None:
    missing = next((key for key in needed if key not in said), None)
    if missing is not None:
        raise _missing(name, kind, f"`{missing}`")


def _out_of(text: str, what: str, name: str) -> int | None:
    """Return how many there are where a cell says `726 / 5,760 ( 13 % )`."""
    _, slash, there = text.partition("/")
    return _count(there, what, name) if slash else None
