"""Constants of a board: the bandwidth of its off-chip memory from STREAM, and how well its engines
work from GEMM.

A phase of a layer takes max(MACs · samples / (multipliers · efficiency · clock), bytes / off_chip).
A product of n x n matrices has n^3 MACs and few bytes, so it measures multipliers · efficiency ·
clock; `efficiency` is that over what the board's keys allow. Rates that are sums over several FPGAs
are divided by their number.

Reports of a build (`build.py`) give what it takes: multipliers of single precision, the clock,
watts, the shell, and with `dsp_share` as many multipliers as were built.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import geometric_mean
from typing import Any

import numpy as np

from ..cluster import Fpga, board_keys, load_cluster, range_of_class
from ..common import InputError, name_of, plural
from .build import Build, Stage, build_of
from .constants import (
    ONE_RUN,
    Constant,
    Evidence,
    Fitness,
    LeftOut,
    LeftOutRow,
    NextMeasurement,
    Range,
    expected,
    left_out_rows,
    left_out_runs,
    next_by_setup,
    ranges_of,
    setups_of,
)
from .link import OTHER_UNIT
from .mixed import MixedModel, Rows, labelled
from .plausible import check_clock, check_memory, check_products, check_scatter
from .reading import Kind, Row, Table, named
from .robust import (
    LEAST_RMS,
    MOST_OUTLIERS,
    OUTLIER_SIGMAS,
    WORST_RMS,
    Floats,
    robust_sigma,
)

MEMORY_FUNCTIONS = ("copy", "scale", "add", "triad")
PRODUCTS = "products"
_OTHER_FUNCTIONS = ("pci-read", "pci-write")
"""STREAM of HPCC FPGA also times transfers with the host, which are no matter of the board's
memory.
"""

_NULL_MHZ = 200
"""The clock of the null model, in which each DSP is a multiplier."""

_AGREE = 0.01
_APART = math.log(2)
"""Root mean square of the functions' rates: some read more than they write, but none is twice as
fast as all.
"""

_LEAST_SIGMA, _FEWEST_FOR_OUTLIERS = 2e-3, 5
CHOOSE = "runs may be of different set-ups: choose some by `--only COLUMN=VALUE`"


@dataclasses.dataclass(frozen=True)
class Rate:
    """A measured rate of one FPGA: of what, in GB/s or 10^9 MACs/s."""

    row: Row
    what: str
    value: float


@dataclasses.dataclass(frozen=True)
class Measured:
    """The rates of a thing: their mean over runs, the range by the scatter between runs, and the
    rates themselves.
    """

    what: str
    value: float
    range: Range
    rates: tuple[Rate, ...]


@dataclasses.dataclass(frozen=True)
class BoardFit:
    """The constants of a board, all other keys, what was measured, how well it is predicted, and
    the build that reports are of.
    """

    board: str
    keys: Mapping[str, Any]
    constants: tuple[Constant, ...]
    measured: tuple[Measured, ...]
    has_report: bool
    fitness: Fitness | None
    evidence: Evidence
    warnings: tuple[str, ...]
    build: Build | None = None
    expected: tuple[NextMeasurement, ...] = ()


def fit_board(tables: Sequence[Table], kind: str, multipliers: int | None = None) -> BoardFit:
    """Return the constants of a board with the keys of its `kind`, a board that comes with emuchain
    or a TOML file; `multipliers` are those of the build that reports are of.

    Raises:
        InputError: no such board, or no FPGA; files cannot be used.
    """
    keys = fpga_keys(kind)
    for table in tables:
        if table.kind in (Kind.LINK, Kind.LAYERS):
            other = (
                "`emuchain calibrate link` takes it"
                if table.kind is Kind.LINK
                else "give files of layers alone"
            )
            raise InputError(
                f"{table.name}: measures {table.kind.value}, not a board's memory or products;"
                f" {other}"
            )
    is_built = fpga(kind, {}).budget is not None
    constants, warnings, has_report = _reported(tables, keys, is_built=is_built)
    build = _build(tables, keys, multipliers)
    built: dict[str, Any] = {}
    if build is not None:
        if has_report:
            raise InputError(
                f"{named(tables)}: `clock_mhz` and `dsp_used` beside reports of a build, which say"
                " both; leave one out"
            )
        has_report = build.clock_mhz is not None and build.multipliers is not None
        is_measured = any(table.kind is Kind.PRODUCTS for table in tables)
        constants = _of_build(build, keys, is_measured)
        built = _multipliers(build, keys)
        warnings += _doubts(build)
    by_key = {constant.key.removeprefix("board."): constant.value for constant in constants}
    listed = keys.get("off_chip_gbytes_per_s"), keys["dsp"] * _NULL_MHZ / 1000
    memory, further_memory = _measured(memory_rates(tables), warnings, listed[0])
    products, further_products = _measured(product_rates(tables), warnings, listed[1])
    if memory:
        constants.append(_memory(memory, keys, warnings))
    if products:
        constants.append(_efficiency(products[0], kind, {**by_key, **built}, warnings))
    measured = (*memory, *products)
    warnings += [warning for thing in measured for warning in _computed(thing)]
    rates = [rate for thing in measured for rate in thing.rates]
    runs = len({rate.row.run for rate in rates})
    if runs == 1:
        warnings.append(ONE_RUN)
    reports = (table for table in tables if table.kind in (Kind.BITSTREAM, Kind.BUILD))
    rows = len(rates) + sum(len(table.rows) for table in reports)
    evidence = Evidence.of(tables, rows, max(1, runs))
    rounded = tuple(
        constant if constant.kind == "report" else constant.rounded() for constant in constants
    )
    return BoardFit(
        str(keys["name"]),
        keys | built,
        rounded,
        measured,
        has_report,
        _fitness(measured, further_memory, further_products),
        evidence,
        tuple(warnings),
        build,
        (*further_memory.expected, *further_products.expected),
    )


def fpga_keys(kind: str) -> dict[str, Any]:
    """Return the keys of a kind of board, which comes with emuchain or is a TOML file.

    Raises:
        InputError: no such board, a wrong key in its file, or no FPGA.
    """
    fpga(kind, {})
    return dict(board_keys(kind))


def fpga(kind: str, changes: Mapping[str, Any]) -> Fpga:
    """Return a board of a kind with changed keys.

    Raises:
        InputError: as `fpga_keys`.
    """
    board_keys(kind)  # so that an unknown name is blamed alone
    board = load_cluster(
        cluster_of({"type": kind, **changes}, name_of(pathlib.PurePath(kind)))
    ).board(0)
    if not isinstance(board, Fpga):
        raise InputError(
            f"`type` = {kind!r}: is no FPGA, of which `emuchain calibrate` fits boards and links"
        )
    return board


def cluster_of(board: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the keys of a cluster of such boards, whose links are of no matter."""
    return {"name": name, "boards": [board], "links": {"bandwidth_gbps": 1, "latency_ns": 0}}


def _reported(
    tables: Sequence[Table], keys: Mapping[str, Any], *, is_built: bool
) -> tuple[list[Constant], list[str], bool]:
    """Return clock and share of the DSPs by a bitstream's report, if there is one.

    Of built multipliers that share is of engines and shell together.
    """
    rows = [row for table in tables if table.kind is Kind.BITSTREAM for row in table.rows]
    of_gemm = [row for row in rows if row.cells.get("benchmark", "").upper() == "GEMM"]
    reports = {(row.number("clock_mhz"), row.count("dsp_used")): row for row in of_gemm or rows}
    if not reports:
        return [], [], False
    if len(reports) > 1:
        raise InputError(
            f"{rows[0].file}: reports of {len(reports)} bitstreams: choose that of the products by"
            " `--only COLUMN=VALUE`"
        )
    [((clock, used), row)] = reports.items()
    check_clock(row, clock)
    if used > keys["dsp"]:
        raise InputError(
            f"{row}: `dsp_used` = {used:,}: {keys['name']} has {keys['dsp']:,}; give the board's"
            " `--type`"
        )
    held = used + keys.get("shell_dsp", 0) if is_built else used
    share = round(min(1.0, held / keys["dsp"]), 6)
    exact = [Constant("board.clock_mhz", clock, Range(clock, clock, 1), "MHz")]
    exact.append(Constant("board.dsp_share", share, Range(share, share, 1), ""))
    return exact, [], True


def _build(
    tables: Sequence[Table], keys: Mapping[str, Any], multipliers: int | None
) -> Build | None:
    """Return the build that reports are of; None without any."""
    reports = [table.report for table in tables if table.report is not None]
    if not reports:
        if multipliers is not None:
            raise InputError(
                f"`multipliers` = {multipliers}: those of a build, and no file is a report of one"
            )
        return None
    for report in reports:
        if report.device_dsp not in (None, keys["dsp"]):
            raise InputError(
                f"{report.name}: of a device with {report.device_dsp:,} DSPs, and {keys['name']} has"
                f" {keys['dsp']:,}; give the board's `--type`"
            )
    build = build_of(reports, multipliers)
    if multipliers is not None and not build.kernel.dsp:
        raise InputError(
            f"`multipliers` = {multipliers}: no report says in how many DSPs; give csynth,"
            " kernel_util_routed.rpt or acl_quartus_report.txt, too"
        )
    if build.multipliers is None and (build.clock_mhz, build.power_w) == (None, None):
        raise InputError(
            f"{reports[0].name}: {report.kind} says nothing of how many multiply-accumulates the"
            " design has; give their number by `--multipliers`"
        )
    return build


def _of_build(build: Build, keys: Mapping[str, Any], is_measured: bool) -> list[Constant]:
    """Return the constants of a build. What it takes is counted, and exact, as is the clock of a
    routed design, and any where products are measured: the range of efficiency holds it.
    """
    constants = []
    if build.clock_mhz is not None:
        exact = is_measured or build.clock_stage is Stage.ROUTED
        constants.append(_reported_as("clock_mhz", build.clock_mhz, "MHz", exact))
    if build.power_w is not None:
        constants.append(_reported_as("power_w", build.power_w, "W", False))
    shell = dataclasses.asdict(build.shell)
    if build.multipliers is not None and build.kernel.dsp is not None:
        taken = keys.get("shell_dsp", 0) if shell["dsp"] is None else shell["dsp"]
        left = keys["dsp"] - taken
        if build.kernel.dsp > left:
            raise InputError(
                f"a kernel of {build.kernel.dsp:,} DSPs beside a shell of {taken:,}:"
                f" {keys['name']} has {keys['dsp']:,}; give the board's `--type`"
            )
        # Upwards, so that the share holds all DSPs that were built.
        share = math.ceil(1e6 * build.kernel.dsp / left) / 1e6
        constants.append(_reported_as("dsp_share", share, "", True))
    for key, unit in _UNITS.items():
        if shell[key] is not None:
            constants.append(_reported_as(f"shell_{key}", shell[key], unit, True))
    return constants


_UNITS = {"lut": "LUTs", "ff": "FFs", "bram": "blocks", "dsp": "DSPs"}


def _reported_as(key: str, value: float, unit: str, exact: bool) -> Constant:
    low, high = (1, 1) if exact else range_of_class(f"board.{key}", "report")
    bounds = Range(round(value * low, 6), round(value * high, 6), 1)
    return Constant(f"board.{key}", value, bounds, unit, "report")


_MOST_DENOMINATOR = 1000
"""As in a board's file, which keeps `per_dsp` as a fraction."""


def _multipliers(build: Build, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of the multipliers of a build, and those of other classes that it has."""
    lut = build.each("lut")
    if build.multipliers is None or build.kernel.dsp is None:
        return {}
    # The least fraction with which the DSPs that were built have all multipliers that were.
    fractions = (
        Fraction(-(-build.multipliers * below // build.kernel.dsp), below)
        for below in range(1, _MOST_DENOMINATOR + 1)
    )
    single: dict[str, Any] = {"per_dsp": round(float(min(fractions)), 7)}
    single |= {} if lut is None else {"lut": math.ceil(lut)}
    others = keys.get("multipliers")
    return {"multipliers": {**(others if isinstance(others, Mapping) else {}), "fp32": single}}


_ROUTED_LUT = "0.73 times on a U280 and 1.77 times on a 520N"
"""GEMM of pc2/hpcc_fpga_eval: 149,486 of 205,256 LUTs, and 42,323 ALMs of 47,948 ALUTs."""


def _doubts(build: Build) -> list[str]:
    """Return what a user should know of the figures of reports."""
    doubts = []
    if build.multipliers is None:
        doubts.append(
            "multipliers: no report tells how many multiply-accumulates the design has; with"
            " `--multipliers N`, what each takes is written, too"
        )
    elif build.lut_stage is None and build.kernel.lut is not None:
        doubts.append(
            "LUTs of a multiplier: those of the whole FPGA, its shell included, are divided; a"
            " report of the kernel, such as area.json or quartus.json, goes before them"
        )
    elif build.lut_stage is not Stage.ROUTED and build.kernel.lut is not None:
        doubts.append(
            f"LUTs of a multiplier: estimated before routing, which took {_ROUTED_LUT} of what was"
            " estimated; a report of the routed kernel goes before it"
        )
    return doubts


def memory_rates(tables: Sequence[Table]) -> Iterable[Rate]:
    """Yield the rates of memory that tables have.

    Raises:
        InputError: a row is of no known function, or has no valid number.
    """
    for table in tables:
        if table.kind is Kind.MEMORY:
            for row in table.rows:
                function = row.cells["function"].lower().replace(" ", "-")
                if function in MEMORY_FUNCTIONS:
                    yield Rate(row, function, row.number("best_mbytes_per_s") / row.boards() / 1000)
                elif function not in _OTHER_FUNCTIONS:
                    known = ", ".join((*MEMORY_FUNCTIONS, *_OTHER_FUNCTIONS))
                    raise InputError(f"{row}: `function` = {function!r}: known: {known}")


def product_rates(tables: Sequence[Table]) -> Iterable[Rate]:
    """Yield the rates of products of matrices that tables have; it raises as `memory_rates`."""
    for table in tables:
        if table.kind is Kind.PRODUCTS:
            for row in table.rows:
                macs = row.count("matrix_size") ** 3 * row.boards()
                rates = [macs / row.number("best_s") / 1e9] if row.has("best_s") else []
                rates += [row.number("gflops") / 2] if row.has("gflops") else []
                if max(rates) > (1 + _AGREE) * min(rates):
                    ratio = rates[1] / rates[0]
                    raise InputError(
                        f"{row}: mixed units: `gflops` is {ratio:.3g} times 2 `matrix_size`^3 /"
                        " `best_s`"
                    )
                yield Rate(row, PRODUCTS, rates[0] / row.boards())


@dataclasses.dataclass(frozen=True)
class _FurtherRates:
    """What further rates are expected to be, and rows of runs that are left out; with the number of
    these runs.
    """

    expected: tuple[NextMeasurement, ...] = ()
    left_out: tuple[LeftOutRow, ...] = ()
    runs: int = 0


def _measured(
    rates: Iterable[Rate], warnings: list[str], listed: float | None
) -> tuple[list[Measured], _FurtherRates]:
    """Return what was measured, each with its mean over runs, and further rates; outliers are
    named, and left out. `listed` is the data sheet's rate.
    """
    by_what: dict[str, list[Rate]] = defaultdict(list)
    for rate in rates:
        by_what[rate.what].append(rate)
    if not by_what:
        return [], _FurtherRates()
    kept = []
    for what, all_of_it in by_what.items():
        by_what[what] = _without_outliers(all_of_it, warnings)
        check_scatter(
            [(str(rate.row), rate.value) for rate in by_what[what]],
            WORST_RMS,
            f"10^9 MACs/s of {what}" if what == PRODUCTS else f"GB/s of {what}",
            CHOOSE,
        )
        kept += by_what[what]
    means = np.array(
        [
            geometric_mean([geometric_mean(values) for values in _by_run(of_it).values()])
            for of_it in by_what.values()
        ]
    )
    model = _Rates([*by_what], kept, means)
    things = [
        Measured(what, float(mean), held, tuple(by_what[what]))
        for what, mean, held in zip(by_what, means, model.ranges(), strict=True)
    ]
    return things, model.further(listed)


class _Rates:
    """The mixed model of rates, each thing with a mean of its own; runs and set-ups are common."""

    def __init__(self, names: Sequence[str], rates: Sequence[Rate], means: Floats) -> None:
        self._names, self._rates, self._means = names, rates, means
        self._runs, runs = labelled([rate.row.run for rate in rates])
        self._setups, setups = labelled(setups_of([rate.row for rate in rates]))
        self._things = np.array([names.index(rate.what) for rate in rates], np.intp)
        self._values = np.array([rate.value for rate in rates])
        self._rows = Rows(np.eye(len(names))[self._things], np.zeros(len(rates)), runs, setups)
        self._model = MixedModel(np.log(self._values / means[self._things]), self._rows)

    def ranges(self) -> list[Range]:
        """Return the range of each thing."""
        ranges = ranges_of(self._model.constants(), self._means, 1)
        counts = [
            len({rate.row.run for rate in self._rates if rate.what == name}) for name in self._names
        ]
        return [
            Range(held.low, held.high, count).around(float(mean))
            for held, count, mean in zip(ranges, counts, self._means, strict=True)
        ]

    def further(self, listed: float | None) -> _FurtherRates:
        """Return what further rates are expected to be."""
        nowhere = np.full(len(self._names), -1, np.intp)
        terms = np.eye(len(self._names))
        expected_rates = []
        for setup, mixture in next_by_setup(
            self._model,
            self._setups,
            lambda number: Rows(terms, np.zeros(len(nowhere)), nowhere, nowhere * 0 + number),
        ):
            values = expected(mixture, self._means)
            ends = ranges_of(mixture, self._means, len(self._runs))
            expected_rates += [
                NextMeasurement.single(name, dict(setup), float(value), (end.low, end.high), listed)
                for name, value, end in zip(self._names, values, ends, strict=True)
            ]
        chosen = left_out_runs(self._runs) if len(self._runs) > 1 else []
        left_out = tuple(row for run in chosen for row in self._left_out(run))
        return _FurtherRates(tuple(expected_rates), left_out, len(chosen))

    def _left_out(self, run: str) -> Iterator[LeftOutRow]:
        number = self._runs.index(run)
        places = np.flatnonzero(self._rows.runs == number)
        means = self._means[self._things[places]]
        yield from left_out_rows(
            self._model, number, self._rows.at(places), means, self._values[places]
        )


def _by_run(rates: Iterable[Rate]) -> dict[str, list[float]]:
    by_run: dict[str, list[float]] = defaultdict(list)
    for rate in rates:
        by_run[rate.row.run].append(rate.value)
    return by_run


def _without_outliers(rates: list[Rate], warnings: list[str]) -> list[Rate]:
    """Return rates without those far from all others; where these are many, none is an outlier."""
    if len(rates) < _FEWEST_FOR_OUTLIERS:
        return rates
    logs = np.array([math.log(rate.value) for rate in rates])
    residuals = logs - np.median(logs)
    sigma = robust_sigma(residuals, _LEAST_SIGMA)
    outliers = np.abs(residuals) > OUTLIER_SIGMAS * sigma
    if not 0 < outliers.mean() <= MOST_OUTLIERS:
        return rates
    worst = int(np.argmax(np.abs(residuals)))
    if abs(residuals[worst]) > math.log(OTHER_UNIT):
        raise InputError(
            f"{rates[worst].row}: mixed units: {rates[worst].what} reach"
            f" {math.exp(residuals[worst]):,.3g} times what other rows say"
        )
    places = np.flatnonzero(outliers).tolist()
    named = ", ".join(
        f"{rates[place].row} ({math.exp(residuals[place]):.3g} times)" for place in places[:3]
    )
    warnings.append(f"{plural(len(places), 'outlier')} of {rates[0].what} left out: {named}")
    return [rate for rate, is_outlier in zip(rates, outliers, strict=True) if not is_outlier]


def _computed(thing: Measured) -> list[str]:
    """Return a warning if several runs have the same rate."""
    rms = math.sqrt(
        math.fsum((rate.value / thing.value - 1) ** 2 for rate in thing.rates) / len(thing.rates)
    )
    if rms >= LEAST_RMS or thing.range.runs == 1:
        return []
    return [
        f"residuals of {rms:.1e} of {thing.what} in {thing.range.runs} runs: computed, not measured"
    ]


def _memory(
    functions: Sequence[Measured], keys: Mapping[str, Any], warnings: list[str]
) -> Constant:
    """Return the bandwidth: the mean of all functions, with a range that holds each of them."""
    row = functions[0].rates[0].row
    named = [
        (f"{function.what} of {function.rates[0].row}", function.value) for function in functions
    ]
    check_scatter(named, _APART, "GB/s", CHOOSE)
    value = geometric_mean([function.value for function in functions])
    low = min(function.range.low for function in functions)
    high = max(function.range.high for function in functions)
    listed = keys.get("off_chip_gbytes_per_s")
    check_memory(row, value, listed)
    if listed is not None and value > 1.02 * listed:
        warnings.append(
            f"memory reaches {value / listed:.3g} times the {listed:,g} GB/s of {keys['name']}: is"
            " `--type` the board that was measured?"
        )
    held = Range(low, high, max(function.range.runs for function in functions))
    return Constant("board.off_chip_gbytes_per_s", value, held, "GB/s")


def _efficiency(
    products: Measured, kind: str, reported: Mapping[str, float], warnings: list[str]
) -> Constant:
    """Return the efficiency: what products reach of what multipliers and clock allow, which is 1 at
    most.
    """
    board = fpga(kind, {**reported, "efficiency": 1.0})
    allowed = board.multipliers * board.clock_mhz / 1000
    value, low, high = (
        rate / allowed for rate in (products.value, products.range.low, products.range.high)
    )
    check_products(products.rates[0].row, value, board)
    if value > 1:
        warnings.append(
            f"products reach {value:.3g} times what {board.multipliers:,} multipliers at"
            f" {board.clock_mhz:g} MHz allow: `dsp`, `dsp_share` or `clock_mhz` of {board.name} is"
            " too low; `efficiency` = 1 is written"
        )
    return Constant(
        "board.efficiency",
        min(value, 1.0),
        Range(min(low, 1.0), min(high, 1.0), products.range.runs),
        "",
    )


def _fitness(measured: Sequence[Measured], *further: _FurtherRates) -> Fitness | None:
    """Return how well each rate is that of its thing, and how well those of a run follow from the
    other runs.
    """
    errors = [(rate.value / thing.value - 1, rate) for thing in measured for rate in thing.rates]
    if not errors:
        return None
    worst, rate = max(errors, key=lambda error: abs(error[0]))
    rms = math.sqrt(math.fsum(error**2 for error, _ in errors) / len(errors))
    rows = [row for rates in further for row in rates.left_out]
    left_out = LeftOut.of(rows, sum(rates.runs for rates in further))
    return Fitness(rms, f"{rate.row}, {rate.what}", worst, left_out)
