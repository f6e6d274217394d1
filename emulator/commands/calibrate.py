"""`emuchain calibrate`: constants of links and boards, with their ranges, from measurements of
one's own hardware.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from .. import view
from ..common import InputError, percent, plural
from ..config import roles
from .frame.command import Answer, FileGroup, json_option
from .frame.kernels import resume_collector, starting
from .frame.named import PATH, PICTURE, Named, count_option, word_option
from .frame.output import tell_notes

if TYPE_CHECKING:
    from ..calibrate import (
        BoardCalibration,
        BoardFit,
        Build,
        CollectiveCalibration,
        Constant,
        Coverage,
        EngineFit,
        Evidence,
        Fitness,
        LinkCalibration,
        ProfileFit,
    )

_COLUMNS = ["constant", "value", "low", "high", "unit", "runs"]


@click.group("calibrate", cls=FileGroup)
def calibrate() -> None:
    """Fit constants of links and boards to measurements, with ranges that hold 90 % of further
    runs.
    """
    resume_collector()


def _measured(default: str | None) -> Callable[[Any], Any]:
    """Return what both commands take: files, the board's type, rows, and where to write."""
    options = [
        click.argument(
            "files",
            metavar="FILE...",
            nargs=-1,
            required=True,
            type=Named(roles.MEASUREMENTS, PATH),
        ),
        click.option(
            "--type",
            "kind",
            type=Named(roles.BOARD),
            **(
                {"required": True}
                if default is None
                else {"default": default, "show_default": True}
            ),
            metavar="WORD",
            help="The board: one that comes with emuchain, or a TOML file.",
        ),
        word_option(
            "--only",
            "COLUMN=VALUE",
            "Take the rows with this value, such as board=520N; may be given several times.",
            multiple=True,
        ),
        click.option("-o", "--out", type=PICTURE, metavar="FILE.toml", help="Write this file."),
        json_option(),
    ]

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@calibrate.command("link")
@_measured("vc709")
@count_option("--from-bytes", "Leave out messages below N bytes.", least=0, default=0)
@click.option(
    "--line-gbps",
    type=float,
    metavar="X",
    help=(
        "Rate of the line, which no measurement is above.  [default: that of all transceivers of"
        " the board]"
    ),
)
@word_option(
    "--b-eff-version",
    "X",
    "Version of b_eff, where files do not say it; a loop has two messages before 1.3.",
)
@click.option("--plot", type=PICTURE, metavar="FILE.png", help="Draw the fit.")
def calibrate_link(
    files: Sequence[pathlib.Path],
    kind: str,
    only: Sequence[str],
    out: pathlib.Path | None,
    **how: Any,
) -> Answer:
    """Fit latency and bandwidth of a link to the times of messages, and write a cluster with it.

    A FILE is CSV, with units in its header (message_bytes with message_ns, or transfer_s and
    loop_length), or what HPCC FPGA's b_eff has printed.
    """
    with starting():
        from ..calibrate import calibrate_link as run

    done = run(files, type=kind, only=_only(only), out=out, **how)
    return Answer(lambda: _print_link(done, out), done.to_dict)


@calibrate.command("board")
@_measured(None)
@word_option("--array", "OxP", "Outputs x pixels that engines of convolutions make at once.")
@click.option(
    "--check",
    type=Named(roles.MEASUREMENTS, PATH),
    metavar="FILE",
    multiple=True,
    help="Predict these convolutions, which are not fitted; may be given several times.",
)
@count_option(
    "--multipliers",
    "Multiply-accumulates of single precision in the build that reports are of.",
)
def calibrate_board(
    files: Sequence[pathlib.Path],
    kind: str,
    only: Sequence[str],
    out: pathlib.Path | None,
    array: str | None,
    check: Sequence[pathlib.Path],
    multipliers: int | None,
) -> Answer:
    """Fit memory bandwidth and efficiency of a board to STREAM and GEMM, the shape of its engines
    to convolutions, read what a build takes, or make a profile of measured layers.

    A FILE is CSV with units in its header (function, best_mbytes_per_s; matrix_size, best_s or
    gflops; clock_mhz, dsp_used of a bitstream; oc, ic, oh, ow, k, cycles of single convolutions;
    network, layer, phase, samples, us or cycles), what HPCC FPGA has printed, or a report of a
    build: csynth, system_estimate, kernel_util_routed, report_timing_summary and report_power of
    Vitis and Vivado; area.json, quartus.json, acl_quartus_report.txt and fit.summary of Quartus.
    """
    with starting():
        from ..calibrate import EngineFit, ProfileFit
        from ..calibrate import calibrate_board as run

    rows, checked = _only(only), check or None
    done = run(files, kind, only=rows, out=out, array=array, check=checked, multipliers=multipliers)
    if isinstance(done.fit, EngineFit):
        return Answer(functools.partial(_print_engine, done, done.fit, out), done.to_dict)
    if isinstance(done.fit, ProfileFit):
        return Answer(functools.partial(_print_profile, done, done.fit, out), done.to_dict)
    return Answer(functools.partial(_print_board, done, done.fit, out), done.to_dict)


@calibrate.command("collective")
@_measured("u280")
def calibrate_collective(
    files: Sequence[pathlib.Path], kind: str, only: Sequence[str], out: pathlib.Path | None
) -> Answer:
    """Fit what collectives cost at their ends to the times of some, by which others are predicted.

    A FILE is CSV with the columns collective (sendrecv, broadcast, reduce, gather, ...), nodes,
    bytes, and time_us or time_ms; protocol says whether messages are copied from buffers (eager) or
    put in their place (rendezvous).
    """
    with starting():
        from ..calibrate import calibrate_collective as run

    done = run(files, type=kind, only=_only(only), out=out)
    return Answer(lambda: _print_collectives(done, out), done.to_dict)


@calibrate.command("check")
@click.argument("constants", metavar="FILE.toml", type=Named(roles.CONSTANTS, PATH))
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=Named(roles.MEASUREMENTS, PATH)
)
@word_option(
    "--only",
    "COLUMN=VALUE",
    "Take the rows with this value, such as board=520N; may be given several times.",
    multiple=True,
)
@word_option(
    "--b-eff-version",
    "X",
    "Version of b_eff, where files do not say it; a loop has two messages before 1.3.",
)
@json_option()
def calibrate_check(
    constants: pathlib.Path,
    files: Sequence[pathlib.Path],
    only: Sequence[str],
    b_eff_version: str | None,
) -> Answer:
    """Compare measurements that were not fitted with what a file of constants expects of them.

    FILE.toml is what `emuchain calibrate link`, `board` or `collective` has written; a FILE is as
    there.
    """
    with starting():
        from ..calibrate import calibrate_check as run

    coverage = run(constants, files, only=_only(only), b_eff_version=b_eff_version)
    return Answer(lambda: _print_coverage(coverage), lambda: dataclasses.asdict(coverage))


def _print_coverage(coverage: Coverage) -> None:
    view.print_answer(
        [
            f"{plural(coverage.rows, 'row')}: {coverage.mean_percent:.2f} % off on average,"
            f" {coverage.worst_percent:.2f} % at most ({coverage.worst_row})",
            f"ranges of 90 % hold {percent(coverage.in_range)} of the rows,"
            f" {coverage.half_width_percent:.1f} % to either side on average",
            f"null model: {coverage.null_percent:.2f} % off on average",
        ]
    )


def _only(given: Sequence[str]) -> dict[str, str]:
    for text in given:
        if "=" not in text:
            raise InputError(f"`--only` = {text!r}: should be COLUMN=VALUE, such as board=520N")
    parts = [text.partition("=") for text in given]
    return {column.strip().lower(): value.strip() for column, _, value in parts}


def _print_link(done: LinkCalibration, out: pathlib.Path | None) -> None:
    bandwidth, latency = done.constants
    start = done.fit.model.start_s
    rate = f"{bandwidth.value:,.4g} Gb/s ({_range(bandwidth)})"
    view.print_answer(
        [
            f"link: {rate}, latency {latency.value:,.4g} ns ({_range(latency)})",
            _rows_line(done.fit.evidence, done.fit.fitness),
            *_left_out_lines(done.fit.fitness, done.fit.evidence),
            *(
                [
                    f"start of kernels: {start * 1e6:,.4g} us, once a loop; links of clusters have none"
                ]
                if start
                else []
            ),
            *_written(out),
            view.next_line(
                f"emuchain plan quick-cifar --devices 4 --cluster {_file(out, 'cluster.toml')}"
            ),
        ]
    )
    _print_rest(done.constants, done.left_open, done.warnings)


def _print_board(done: BoardCalibration, fit: BoardFit, out: pathlib.Path | None) -> None:
    constants = [_said(constant) for constant in done.constants]
    reports = plural(fit.evidence.rows, "report")
    view.print_answer(
        [
            f"{fit.board}: {', '.join([*_multipliers(fit.build), *constants])}",
            _rows_line(fit.evidence, fit.fitness) if fit.fitness else f"{reports}: {fit.evidence}",
            *_left_out_lines(fit.fitness, fit.evidence),
            *_written(out),
            view.next_line(
                f"emuchain calibrate link FILE --type {_file(out, 'board.toml')} -o cluster.toml"
            ),
        ]
    )
    if fit.measured:
        rows = []
        for thing in fit.measured:
            rates = [f"{rate:,.5g}" for rate in (thing.value, *thing.range[:2])]
            rows.append([thing.what, *rates, str(len(thing.rates))])
        title = "Measured, of one FPGA: GB/s, and 10^9 MACs/s"
        view.table(title, ["what", "mean", "low", "high", "rows"], rows, names=["what"])
    _print_rest(done.constants, done.left_open, done.warnings)


def _print_collectives(done: CollectiveCalibration, out: pathlib.Path | None) -> None:
    first = done.models[0]
    view.print_answer(
        [
            f"collectives: links of {8 / first.link_us:,.4g} Gb/s, {1e3 * first.pass_us:,.4g} ns for"
            f" 1,000 bytes through memory, a start of {first.start_us:,.4g} us",
            f"{plural(done.evidence.rows, 'row')} of {plural(len(done.models), 'system')}: rms"
            f" {percent(first.row_scatter)}; other numbers of nodes {percent(first.node_scatter)},"
            f" other collectives {percent(first.goal_scatter)}",
            *_written(out),
            view.next_line(f"emuchain calibrate check {_file(out, 'cluster.toml')} FILE"),
        ]
    )
    rows = []
    for model in done.models:
        system = " ".join(model.where.values()) or "-"
        for name, protocol in model.protocols.items():
            times = (protocol.latency_us, protocol.send_us, protocol.receive_us, protocol.sum_us)
            rows.append(
                [system, name, f"{8 / model.link_us:,.4g}", *(f"{us:,.4g}" for us in times)]
            )
    columns = ["system", "protocol", "Gb/s", "latency", "send", "receive", "sum"]
    view.table("Costs of a message, in us", columns, rows, names=["system", "protocol"])


def _print_engine(done: BoardCalibration, fit: EngineFit, out: pathlib.Path | None) -> None:
    array, check = fit.array, done.check
    exposed = f"{percent(fit.load_exposed)} of loading weights exposed"
    view.print_answer(
        [
            f"{fit.board}: engines of {array.outputs} outputs x {array.positions} pixels,"
            f" {fit.each} multipliers each, busy in {percent(fit.efficiency)} of their cycles",
            f"start of {array.start_cycles:,} cycles a layer, drain of {array.drain_cycles:,} a"
            f" pass; {exposed}",
            f"{plural(fit.evidence.rows, 'row')}: rms {100 * fit.rms:.2f} %; each layer from the"
            f" others: {100 * fit.left_out_error:.2f} %",
            *(
                []
                if check is None
                else [
                    f"further layers: {check.near:,} of {check.layers:,} within 10 %, by a"
                    f" roofline {check.roofline_near:,}; worst {100 * check.worst_error:+.0f} %"
                    f" ({check.worst})"
                ]
            ),
            *_written(out),
            view.next_line(
                f"emuchain calibrate link FILE --type {_file(out, 'board.toml')} -o cluster.toml"
            ),
        ]
    )
    _print_rest(done.constants, done.left_open, done.warnings)


def _said(constant: Constant) -> str:
    """Return a constant with its range; what a build takes is counted, and has none."""
    if constant.kind == "report" and constant.range.low == constant.range.high:
        return f"{constant.key} {constant.value:,.9g}"
    return f"{constant.key} {constant.value:,.4g} ({_range(constant)})"


def _multipliers(build: Build | None) -> list[str]:
    """Return how many multipliers a build has, and what each takes."""
    if build is None or build.multipliers is None:
        return []
    takes = [
        f"{amount:,.4g} {unit}"
        for key, unit in (("dsp", "DSPs"), ("lut", "LUTs"), ("ff", "FFs"))
        if (amount := build.each(key)) is not None
    ]
    return [f"{plural(build.multipliers, 'multiplier')} of {', '.join(takes)}"]


def _print_profile(done: BoardCalibration, fit: ProfileFit, out: pathlib.Path | None) -> None:
    layers = len({time.layer for time in fit.times})
    scatter = (
        ""
        if fit.rms is None
        else f"; rows are {percent(fit.rms)} (rms) from the mean of their time"
    )
    profile = _file(out, "profile.toml")
    view.print_answer(
        [
            f"{fit.network} on {fit.device}: a profile of {plural(layers, 'layer')}{scatter}",
            f"{plural(fit.evidence.rows, 'row')}, {plural(fit.evidence.runs, 'run')}",
            *_written(out),
            view.next_line(
                f"emuchain explore {shlex.quote(fit.network)} --profile {profile} --cluster FILE"
            ),
        ]
    )
    _print_rest((), (), done.warnings)


def _file(out: pathlib.Path | None, example: str) -> str:
    return shlex.quote(str(out or example))


def _range(constant: Constant) -> str:
    return f"{constant.range.low:,.4g} to {constant.range.high:,.4g}"


def _rows_line(evidence: Evidence, fitness: Fitness) -> str:
    return (
        f"{plural(evidence.rows, 'row')}, {plural(evidence.runs, 'run')}: rms"
        f" {100 * fitness.rms:.2f} %; worst row {100 * fitness.worst_error:+.2f} %"
        f" ({fitness.worst})"
    )


def _left_out_lines(fitness: Fitness | None, evidence: Evidence) -> list[str]:
    if fitness is None:
        return []
    left = fitness.left_out
    if left is None:
        return ["leave one run out: not possible with one run"]
    some = f", each of {left.runs} of {evidence.runs:,}" if left.runs < evidence.runs else ""
    return [
        f"leave one run out{some}: {100 * left.mean:.2f} % off on average, {100 * left.largest:.2f}"
        f" % at most; ranges hold {percent(left.held)} of the rows, {100 * left.half_width:.1f} %"
        " to either side"
    ]


def _written(out: pathlib.Path | None) -> list[str]:
    return ["nothing written: `-o FILE.toml` does"] if out is None else [f"written: {out}"]


def _print_rest(
    constants: Sequence[Constant], left_open: Sequence[str], warnings: Sequence[str]
) -> None:
    """Print what the data leave open, the constants, and what a user should know, on standard
    error.
    """
    if constants:
        rows = [
            [
                constant.key,
                f"{constant.value:.6g}",
                f"{constant.range.low:.6g}",
                f"{constant.range.high:.6g}",
                constant.unit or "-",
                str(constant.range.runs),
            ]
            for constant in constants
        ]
        view.table(
            "Constants, with ranges that hold 90 % of further runs",
            _COLUMNS,
            rows,
            names=["constant", "unit"],
        )
    if left_open:
        print()
        view.say("These data cannot tell apart:")
        for sentence in left_open:
            view.say(f"- {sentence}")
    tell_notes(warnings)
