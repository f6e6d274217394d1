"""`emuchain.calibrate_link`, `calibrate_board` and `calibrate_collective`: files of measurements
in, constants with their ranges out.

Before anything is read, what is written is compared with all that is read: no measurement is ever
overwritten. With the constants comes what measurements cannot tell apart, of which the same data
fix only a product or a sum.

Constants are written as the TOML files of emuchain: a board, a cluster, a profile. `[uncertainty]`
has the ranges. Each is read back as commands will read it, before any of it is written.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..cluster import Fpga, RangeClass, load_cluster
from ..common import (
    Figures,
    InputError,
    NamedFiles,
    WholeFile,
    name_of,
    read_description,
    toml_value,
    typed,
    write_whole,
)
from ..config import roles
from ..network import load_network, zoo
from ..profile import profile_of
from ..view import picture_file
from .board import BoardFit, cluster_of, fit_board, fpga, fpga_keys
from .build import Build
from .collective import CollectiveModel, fit_collectives
from .constants import Constant, Evidence, NextMeasurement, as_json
from .engine import Check, EngineFit, fit_engine, is_of_convolutions, shape_of
from .engine import check as check_engine
from .layers import LayerTime, ProfileFit, fit_layers, is_of_layers
from .link import UNIT_BYTES, LinkFit, draw_link, fit_link
from .plausible import Line, check_link
from .reading import Path, Table, listed_files, named, of_board, read_tables, version_of


@dataclasses.dataclass(frozen=True)
class LinkCalibration(Figures):
    """A link's constants with their ranges, what the data leave open, and the cluster's file, as
    TOML.
    """

    fit: LinkFit
    constants: tuple[Constant, ...]
    left_open: tuple[str, ...]
    toml: str

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know of the data."""
        return self.fit.warnings

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, for JSON; `kernel_start_us` is fitted, and goes into no file."""
        said = as_json(self.constants, self.fit.evidence, self.fit.fitness)
        nuisance: dict[str, Any] = {"kernel_start_us": self.fit.model.start_s * 1e6}
        if self.fit.pieces is not None:
            nuisance["message_ns"] = message_ns(self.fit)
        return {
            **said,
            **nuisance,
            "cannot_tell_apart": list(self.left_open),
            "warnings": list(self.warnings),
        }


@dataclasses.dataclass(frozen=True)
class BoardCalibration(Figures):
    """A board's constants with their ranges, or a profile of layers; and the file that holds them,
    as TOML.
    """

    fit: BoardFit | ProfileFit | EngineFit
    constants: tuple[Constant, ...]
    left_open: tuple[str, ...]
    warnings: tuple[str, ...]
    toml: str
    check: Check | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, for JSON."""
        fit = self.fit
        said = as_json(
            self.constants, fit.evidence, fit.fitness if isinstance(fit, BoardFit) else None
        )
        if isinstance(fit, EngineFit):
            said |= {**fit.measured, "multipliers_each": fit.each, "rms": fit.rms}
            said |= {"tap_cycles": fit.tap_cycles, "byte_cycles": fit.byte_cycles}
            said["left_out_error"] = fit.left_out_error
            said["check"] = None if self.check is None else dataclasses.asdict(self.check)
        elif isinstance(fit, ProfileFit):
            said |= {"network": fit.network, "device": fit.device, "rms": fit.rms}
            said["layers"] = [dataclasses.asdict(time) for time in fit.times]
        else:
            said["measured"] = [
                {
                    "what": thing.what,
                    "value": thing.value,
                    "low": thing.range.low,
                    "high": thing.range.high,
                }
                for thing in fit.measured
            ]
            if fit.build is not None:
                said["multipliers"] = multipliers_json(fit.build)
        return {**said, "cannot_tell_apart": list(self.left_open), "warnings": list(self.warnings)}


@typed
def calibrate_link(
    files: Path | Sequence[Path],
    *,
    out: Path | None = None,
    type: str = "vc709",
    from_bytes: int = 0,
    line_gbps: float | None = None,
    b_eff_version: str | None = None,
    only: Mapping[str, str] | None = None,
    plot: Path | None = None,
) -> LinkCalibration:
    """Return a link's latency and bandwidth with their ranges, from measured messages.

    Args:
        files: CSV files, or what HPCC FPGA's b_eff has printed (docs/calibration.md).
        out: write a cluster's file there, with boards of this `type` and the links as measured.
        type: a board that comes with emuchain, or a TOML file.
        from_bytes: leave out smaller messages.
        line_gbps: the rate of the line, a bound; by default that of all transceivers of the board.
        b_eff_version: of the b_eff that measured `transfer_s`, where files do not say it, such as
            "1.1".
        only: of the rows, take those with these values in their columns, such as {"board": "520N"}.
        plot: draw the fit into this file.

    Raises:
        InputError: a file cannot be read or used, or a line does not fit; what is fitted is no
            link's, or a cluster's file cannot have it; an output is an input, or cannot be written.
    """
    names = _checked(files, type, out=out, plot=plot)
    if from_bytes < 0:
        raise InputError(f"`from_bytes` = {from_bytes}: must not be negative")
    if line_gbps is not None and not 0 < line_gbps < math.inf:
        raise InputError(f"`line_gbps` = {line_gbps:g}: must be a rate above 0")
    if b_eff_version is not None:
        version_of(b_eff_version, "`b_eff_version`")
    board = fpga(type, {})
    with _file(out, "cluster.toml") as file, picture_file(plot, "--plot") as picture:
        tables = of_board(read_tables(names, only), board.name)
        fit = fit_link(tables, from_bytes, b_eff_version)
        check_link(fit, _line(line_gbps, board))
        constants = tuple(constant.rounded() for constant in _constants(fit))
        path = pathlib.PurePath(out or "cluster.toml")
        toml = cluster_toml(path, type, constants, fit)
        _check(lambda: load_cluster(read_description(toml)), tables)
        if picture is not None:
            draw_link(fit, picture)
        if file is not None:
            write_whole(file, toml)
    return LinkCalibration(fit, constants, tuple(open_of_link(fit)), toml)


def _constants(fit: LinkFit) -> Iterator[Constant]:
    latency_s, bytes_per_s, _ = fit.link
    rate = fit.bytes_per_s.times(8e-9)
    yield Constant("link.bandwidth_gbps", bytes_per_s * 8e-9, rate, "Gb/s")
    yield Constant("link.latency_ns", latency_s * 1e9, fit.latency_s.times(1e9), "ns")


@dataclasses.dataclass(frozen=True)
class CollectiveCalibration(Figures):
    """What collectives of each system cost, and the cluster's file, as TOML."""

    models: tuple[CollectiveModel, ...]
    evidence: Evidence
    toml: str

    def to_dict(self) -> dict[str, Any]:
        """Return all figures, for JSON."""
        systems = read_description(self.toml)["collectives"]
        return {**as_json((), self.evidence, None), "collectives": systems}


@typed
def calibrate_collective(
    files: Path | Sequence[Path],
    *,
    out: Path | None = None,
    type: str = "u280",
    only: Mapping[str, str] | None = None,
) -> CollectiveCalibration:
    """Return what collectives cost at their ends, from the times of some.

    Args:
        files: CSV files with the columns collective, nodes, bytes and a time, and perhaps protocol
            and system (docs/calibration.md).
        out: write a cluster's file there, with boards of this `type` and links as fitted.
        type: a board that comes with emuchain, or a TOML file.
        only: of the rows, take those with these values in their columns.

    Raises:
        InputError: a file cannot be read or used, or has too few sizes; an output is an input, or
            cannot be written.
    """
    names = _checked(files, type, out=out)
    fpga(type, {})
    with _file(out, "cluster.toml") as file:
        tables = read_tables(names, only)
        models = tuple(fit_collectives(tables))
        rows = sum(len(table.rows) for table in tables)
        evidence = Evidence.of(tables, rows, len(tables))
        toml = collectives_toml(pathlib.PurePath(out or "cluster.toml"), type, models, evidence)
        _check(lambda: load_cluster(read_description(toml)), tables)
        if file is not None:
            write_whole(file, toml)
    return CollectiveCalibration(models, evidence, toml)


@typed
def calibrate_board(
    files: Path | Sequence[Path],
    type: str,
    *,
    out: Path | None = None,
    only: Mapping[str, str] | None = None,
    array: str | None = None,
    check: Path | Sequence[Path] | None = None,
    multipliers: int | None = None,
) -> BoardCalibration:
    """Return a board's memory bandwidth and efficiency with their ranges, the shape of its engines,
    what a build takes by its reports, or the profile of measured layers.

    Args:
        files: CSV files, what HPCC FPGA's STREAM and GEMM have printed, or reports of a build by
            Vitis, Vivado or Quartus (docs/calibration.md); or files of layers alone, or of single
            convolutions.
        type: the board that was measured: one that comes with emuchain, or a TOML file.
        out: write the board's file there, or the profile.
        only: of the rows, take those with these values in their columns, such as {"board": "520N"}.
        array: outputs x pixels that the engine of convolutions makes at once, such as "32x64".
        check: files of further convolutions, which are predicted and not fitted.
        multipliers: the multiply-accumulates of single precision that the reports' build has.

    Raises:
        InputError: a file cannot be read or used; what it says can be no board's, or no file can
            have it; an output is an input, or cannot be written.
    """
    names = _checked(files, type, out=out)
    further = [] if check is None else _checked(check, type, out=out)
    if multipliers is not None and multipliers < 1:
        raise InputError(f"`multipliers` = {multipliers}: should be 1 or more")
    keys = fpga_keys(type)
    with _file(out, "board.toml") as file:
        tables = of_board(read_tables(names, only), str(keys["name"]))
        others = read_tables(further, only) if further else []
        if not is_of_convolutions(tables) and (array is not None or further):
            name = "check" if array is None else "array"
            raise InputError(f"`{name}`: is of convolutions alone (oc, ic, oh, ow, k, cycles)")
        if is_of_convolutions(tables):
            engine = fit_engine(tables, type, None if array is None else shape_of(array))
            done = BoardCalibration(
                engine,
                engine.constants,
                (_OUTPUTS,) if array is None else (),
                (),
                board_toml(engine),
                check_engine(engine, tables, others) if others else None,
            )
            _check(lambda: load_cluster(cluster_of(read_description(done.toml), "board")), tables)
        elif is_of_layers(tables):
            profile = fit_layers(tables, type)
            done = BoardCalibration(profile, (), (), profile.warnings, profile_toml(profile))
            _check(lambda: _read_profile_back(done.toml), tables)
        else:
            fit = fit_board(tables, type, multipliers)
            done = BoardCalibration(
                fit, fit.constants, tuple(open_of_board(fit)), fit.warnings, board_toml(fit)
            )
            _check(lambda: load_cluster(cluster_of(read_description(done.toml), "board")), tables)
        if file is not None:
            write_whole(file, done.toml)
    return done


def _line(said_gbps: float | None, board: Fpga) -> Line | None:
    """Return what bounds the rate of a link: what a user says, or the transceivers of its board."""
    if said_gbps is not None:
        return Line(said_gbps, "the line's rate", True)
    if not board.transceivers or not board.transceiver_gbps:
        return None
    what = f"what all {board.transceivers} transceivers of {board.name} carry"
    return Line(board.transceivers * board.transceiver_gbps, what, False)


def _checked(files: Path | Sequence[Path], kind: str, **written: Path | None) -> list[Path]:
    """Return the files of measurements as a list, once it is checked that none of them is
    written.
    """
    measurements = listed_files(files)
    named = NamedFiles()
    named.add("FILE", measurements, roles.MEASUREMENTS)
    named.add("type", kind, roles.BOARD)
    for argument, path in written.items():
        named.add(argument, path, roles.OUTPUT)
    named.check()
    return measurements


def _file(path: Path | None, example: str) -> AbstractContextManager[WholeFile | None]:
    return nullcontext() if path is None else WholeFile(path, "out", example)


_OUTPUTS = (
    "outputs of the array and multipliers of a result, where all layers have channels by the same"
    " power of two: `--array` says the design's"
)


def multipliers_json(build: Build) -> dict[str, Any] | None:
    """Return the multipliers of a build and what each takes, for JSON; None if their number is
    unknown.
    """
    if build.multipliers is None:
        return None
    return {"fp32": build.multipliers, **{key: build.each(key) for key in ("dsp", "lut", "ff")}}


_SHARE = (
    "`share` of links: what one message at a time takes says nothing of how several share a link"
)


def open_of_link(fit: LinkFit) -> list[str]:
    """Return what the data of a link leave open."""
    messages = fit.messages
    assumptions = [
        "bandwidth and header bytes: `bandwidth_gbps` is that of payload, `header_bytes` stays 0",
        "link latency and kernel hand-over: `latency_ns` is their sum",
    ]
    if not messages.starts:
        why = (
            "`loop_length` is the same in all rows"
            if messages.rows[0].has("loop_length")
            else "no `loop_length`"
        )
        assumptions.append(
            f"latency and the start of kernels ({why}): `latency_ns` holds the start's part of each"
            " message"
        )
    if messages.sizes.min() > UNIT_BYTES:
        assumptions.append(
            "latency and what small messages take besides: none is below"
            f" {messages.sizes.min():,.0f} bytes"
        )
    return [*assumptions, _SHARE]


def open_of_board(fit: BoardFit) -> list[str]:
    """Return what the data of a board leave open."""
    keys = {constant.key for constant in fit.constants}
    assumptions = []
    if "board.efficiency" in keys:
        assumptions.append(
            "`dsp_share` and efficiency: the bitstream's report fixes clock and DSPs, products the"
            " rest"
            if fit.has_report
            else (
                "clock, DSPs, `dsp_share` and efficiency, of which products fix the product:"
                " without a bitstream's report (clock_mhz, dsp_used), the first three are those of"
                " the board's type, and exact"
            )
        )
    if "board.off_chip_gbytes_per_s" in keys:
        assumptions.append(
            "reading and writing: bandwidth is the mean of functions that do both, and its range"
            " holds each"
        )
    if "board.power_w" in keys:
        assumptions.append(
            "power of the FPGA and of what stands beside it: Vivado's report estimates the FPGA's"
        )
    if fit.build is not None and fit.build.multipliers is not None:
        assumptions += [
            "multipliers and what feeds them: the kernel's LUTs and FFs are divided by their number",
            "multipliers of narrower classes: those of fp32 serve them, unless `[multipliers]` has"
            " more",
        ]
    return [*assumptions, _SHARE]


_HELD_BY_EFFICIENCY = ("board.clock_mhz", "board.dsp", "board.dsp_share")
"""Constants of which products measure the product with efficiency, whose range is that of all of
them.
"""

_OF_NETWORK = ("output_bytes", "feature_bytes", "parameter_bytes")
"""Keys of a profile's layers that are left to the network."""


def cluster_toml(
    path: pathlib.PurePath,
    board: str,
    constants: Sequence[Constant],
    fit: LinkFit,
) -> str:
    """Return the file of a cluster of boards of one type, whose links have the constants
    `link.KEY`, and the fit's pieces.
    """
    links: dict[str, Any] = {
        constant.key.removeprefix("link."): constant.value for constant in constants
    }
    if fit.pieces is not None:
        links["message_ns"] = message_ns(fit)
    further = [*_uncertainty(constants, fit.evidence, {}), *_tables(fit.expected)]
    heading = f"Links as measured ({fit.evidence}); `emuchain calibrate link`"
    return _of_cluster(path, board, heading, links, further)


def message_ns(fit: LinkFit) -> list[list[float]]:
    """Return what messages cost beside their bytes as a file has it, to the ps: [[bytes, ns],
    ...].
    """
    return [[int(size), round(cost * 1e9, 3)] for size, cost in fit.link.costs]


def collectives_toml(
    path: pathlib.PurePath, board: str, models: Sequence[CollectiveModel], evidence: Evidence
) -> str:
    """Return the file of a cluster of boards of one type, with links and network of the first
    system, and what collectives cost in each.
    """
    first = models[0]
    [latency_us, *_] = (protocol.latency_us for protocol in first.protocols.values())
    links = {"bandwidth_gbps": 8 / first.link_us, "latency_ns": latency_us * 1e3}
    links = {key: float(f"{value:.6g}") for key, value in links.items()}
    heading = f"Collectives as measured ({evidence}); `emuchain calibrate collective`"
    tables = itertools.chain(*(model.toml() for model in models))
    network = ["", "[network]", *_keys(first.network())]
    return _of_cluster(path, board, heading, links, [*network, *tables])


def _of_cluster(
    path: pathlib.PurePath,
    board: str,
    heading: str,
    links: Mapping[str, Any],
    further: Iterable[str],
) -> str:
    """Return the file of a cluster of boards of one type; `further` are lines behind its links."""
    return "\n".join(
        [
            f"# {heading} wrote this file.",
            f"name = {toml_value(name_of(path))}",
            "",
            "[[boards]]",
            f"type = {toml_value(board)}",
            "",
            "[links]",
            *_keys(links),
            *further,
            "",
        ]
    )


def _tables(expected: Sequence[NextMeasurement]) -> Iterator[str]:
    """Yield the lines of what further measurements are expected to be."""
    for table in expected:
        yield from table.toml()


def board_toml(fit: BoardFit | EngineFit) -> str:
    """Return the file of a board: the keys of its type, with the constants in their place."""
    measured = (
        fit.measured
        if isinstance(fit, EngineFit)
        else {constant.key.removeprefix("board."): constant.value for constant in fit.constants}
    )
    keys = {**fit.keys, **measured}
    named_keys = [*measured]
    if fit.build is not None and fit.build.multipliers is not None:
        named_keys.append("multipliers")
    kinds = ["reported" if constant.kind == "report" else "measured" for constant in fit.constants]
    before = keys.pop("uncertainty", {})
    keys.pop("next_measurement", None)
    if "efficiency" in measured and isinstance(fit, BoardFit):
        before = {key: entry for key, entry in before.items() if key not in _HELD_BY_EFFICIENCY}
        before["board.clock_mhz"] = _entry(keys["clock_mhz"], keys["clock_mhz"], fit.evidence)
    return "\n".join(
        [
            (
                f"# {', '.join(named_keys)} as {' or '.join(dict.fromkeys(kinds))}"
                f" ({fit.evidence}); `emuchain calibrate board`"
                " wrote this file."
            ),
            *_keys(keys),
            *_uncertainty(fit.constants, fit.evidence, before),
            *(_tables(fit.expected) if isinstance(fit, BoardFit) else ()),
            "",
        ]
    )


def profile_toml(fit: ProfileFit) -> str:
    """Return the file of a profile, for `emuchain explore NETWORK --profile FILE`; bytes are those
    of the network.
    """
    lines = [
        f"# Layers as measured ({fit.evidence}); `emuchain calibrate board` wrote this file.",
        f"name = {toml_value(fit.network)}",
        "",
        f"[devices.{toml_value(fit.device)}]",
    ]
    layers: dict[str, list[LayerTime]] = {}
    for time in fit.times:
        layers.setdefault(time.layer, []).append(time)
    for layer, times in layers.items():
        lines += ["", "[[layers]]", f"name = {toml_value(layer)}", "times = ["]
        lines += [f"  {toml_value(_times(fit.device, time))}," for time in times] + ["]"]
    return "\n".join([*lines, ""])


def _times(device: str, time: LayerTime) -> dict[str, Any]:
    said: dict[str, Any] = {"device": device, "micro_batch": time.samples}
    said |= {"forward_us": time.forward_us, "backward_us": time.backward_us}
    return said if time.gradient_us is None else {**said, "gradient_us": time.gradient_us}


def _uncertainty(
    constants: Sequence[Constant], evidence: Evidence, before: Mapping[str, Any]
) -> list[str]:
    """Return the table of ranges; those that the file had `before` stay where nothing was measured
    anew.
    """
    ranges: dict[str, Any] = dict(before)
    for constant in constants:
        if constant.kind == "report" and not constant.value:
            # Ranges are of values above zero, and a shell may take no DSPs.
            ranges.pop(constant.key, None)
            continue
        low, high, _ = constant.range
        ranges[constant.key] = _entry(low, high, evidence, constant.kind)
    return [
        "",
        "[uncertainty]",
        *(f"{json.dumps(key)} = {toml_value(keys)}" for key, keys in ranges.items()),
    ]


def _entry(
    low: float, high: float, evidence: Evidence, kind: RangeClass = "measured"
) -> dict[str, Any]:
    return {
        "low": low,
        "high": high,
        "class": kind,
        "from": str(evidence),
        "date": evidence.date,
    }


def _keys(values: Mapping[str, Any]) -> list[str]:
    """Return lines of keys; tables, such as a board's `multipliers`, stand in one line."""
    return [f"{key} = {toml_value(value)}" for key, value in values.items()]


def _read_profile_back(toml: str) -> None:
    """Read the file of a profile as commands do, as far as its network is known."""
    said = read_description(toml)
    network = load_network(said["name"]) if said["name"] in zoo() else None
    if network is None:
        said["layers"] = [{**layer, **dict.fromkeys(_OF_NETWORK, 0)} for layer in said["layers"]]
    profile_of(said, network, "the profile")


def _check(read: Callable[[], object], tables: Sequence[Table]) -> None:
    """Check that commands take a file; of one that they refuse, blame the measurements."""
    try:
        read()
    except InputError as error:
        raise InputError(
            f"{named(tables)}: what follows from these rows is refused by all who read it: {error}"
        ) from None
