"""The RTL of a plan as files: the hand-written modules, and a top module for each device.

All logic is in the modules of `sv/`; a top module is a list of instances, their parameters and
wires: a device's slices, the SFUs behind them, and the data paths between.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping

from ..common import InputError, write_whole
from ..network.operations.pool import MaxPool
from ..plan import ChainPlan
from .clock import clocks_of, run_mini_batches
from .design import DeviceDesign, Room, SliceDesign, comment, designs_of
from .formats import RowDraws, literal, row_latency
from .ports import (
    ERRORS,
    FORMATS,
    IMAGES,
    Port,
    bias_parameters,
    engines_of,
    inputs_of,
    outputs_of,
    slice_parameters,
    step_parameters,
    units_of,
)
from .verilator import sources

SETTINGS = "share", "rate", "momentum", "decay"
"""Numbers of the update, which a device takes in reset."""


@dataclasses.dataclass(frozen=True)
class _Bus:
    """A stream of rows within a device: wires NAME_valid and NAME_row, of `words` values."""

    name: str
    words: int

    @property
    def valid(self) -> str:
        return f"{self.name}_valid"

    @property
    def row(self) -> str:
        return f"{self.name}_row"

    @property
    def declared(self) -> str:
        return f"    logic {self.valid};\n    logic [{self.words * 32 - 1}:0] {self.row};"


def top_module(device: DeviceDesign, rooms: Iterable[Room], title: str) -> str:
    """Return the text of a device's top module; `rooms` has those of its slices, `title` says what
    it is of.
    """
    return _Top(device, tuple(rooms), title).text()


class _Top:
    """The parts of a top module, collected from the left to the right."""

    def __init__(self, device: DeviceDesign, rooms: tuple[Room, ...], title: str) -> None:
        self._device, self._rooms, self._title = device, rooms, title
        self._precision = device.precision
        self._body: list[str] = []
        self._overruns: list[str] = []
        self._inputs = {
            port.key or port.name: _Bus(f"in_{port.name}", port.words) for port in inputs_of(device)
        }
        self._units = units_of(device)

    def text(self) -> str:
        """Return the module."""
        for port in inputs_of(self._device):
            self._take_in(port)
        self._slices()
        units, bits = len(self._units), len(engines_of(self._device))
        self._body += [
            "    // ---- The mini-batch.\n",
            instance(
                "mini_batch",
                "schedule",
                {"UNITS": units},
                {
                    **_same("clk", "reset", "batch"),
                    "settings": "{share, rate, momentum, decay}",
                    **_same("updated"),
                    "samples": "of_samples",
                    **{name: f"of_{name}" for name in SETTINGS},
                    **_same("limit", "done"),
                },
            ),
            "    assign overrun = |overruns;",
            f"    assign host_read = {'reads[host_unit*32+:32]' if units > 1 else 'reads'};",
        ]
        if units == 1:
            self._body.append("    wire unused_unit = host_unit[0];")
        declared = [
            f"    logic [31:0] limit, of_samples, {', '.join(f'of_{name}' for name in SETTINGS)};",
            f"    logic [{units - 1}:0] updated;",
            f"    logic [{units * 32 - 1}:0] reads;",
            f"    logic [{len(self._overruns) - 1}:0] overruns;",
            *self._formats(),
        ]
        return "\n".join([self._head(bits), *declared, "", *self._body, "", "endmodule", ""])

    def _head(self, bits: int) -> str:
        slices = "".join(f"\n//   - {comment(str(design.part))}" for design in self._device.slices)
        unit_bits = max(1, (len(self._units) - 1).bit_length())
        ports = [
            "    input  logic clk",
            "    input  logic reset",
            *(f"    input  logic [31:0] {name}" for name in ("batch", *SETTINGS)),
        ]
        for port in inputs_of(self._device):
            ports += [
                f"    input  logic {port.name}_valid",
                f"    input  logic [{port.words * 32 - 1}:0] {port.name}_row",
            ]
        for port in outputs_of(self._device):
            ports += [
                f"    output logic {port.name}_valid",
                f"    output logic [{port.words * 32 - 1}:0] {port.name}_row",
            ]
        ports += [
            "    input  logic host_write",
            f"    input  logic [{unit_bits - 1}:0] host_unit",
            "    input  logic [31:0] host_address",
            "    input  logic [31:0] host_data",
            "    output logic [31:0] host_read",
            f"    output logic [{bits - 1}:0] rows_done",
            "    output logic overrun",
            "    output logic done",
        ]
        listed = ",\n".join(ports)
        return (
            f"// Device {self._device.number} of {comment(self._title)} (FPDeep, Fig."
            f" 12):{slices}\n// Written by `emuchain rtl`; the modules beside it are the same for"
            f" every device.\nmodule {self._device.module} (\n{listed}\n);\n"
        )

    def _formats(self) -> list[str]:
        """Return the constants of the number formats, where they are not fp32 alone."""
        precision = self._precision
        if precision.is_single:
            return []
        weights = "weights" if precision.has_copies else "master"
        kinds = zip(FORMATS, ("activations", weights, "errors"), strict=True)
        return [
            f"    localparam formats::format_t {name} ="
            f" {literal(precision.format(kind), precision.rounding_of(kind))};"
            for name, kind in kinds
        ]

    def _rounded(
        self,
        name: str,
        kind: str,
        size: tuple[int, int],
        to: _Bus,
        room: Room,
        draws: RowDraws | None,
        sums: int = 0,
    ) -> _Bus:
        """Return the bus of rows of a whole map, of (channels, columns), that are rounded as their
        kind on their way to another bus, but for the first channels, `sums` of them; maybe by
        chance.
        """
        channels, columns = size
        number = self._precision.format(kind.lower())
        if number.grid is None:
            return to
        raw = self._bus(name, channels * columns)
        parameters: dict[str, int | str] = {
            "FORMAT": kind,
            "COLUMNS": columns,
            "CHANNELS": channels,
            "SUMS": sums,
            "LATENCY": row_latency(number),
        }
        if draws is not None:
            parameters |= draws.parameters(self._device.seed, room.rows)
        ports = {**_same("clk", "reset"), **_both("in", raw), **_both("out", to)}
        ports["overrun"] = self._overrun()
        self._body.append(instance("round_rows", f"{name}_rounded", parameters, ports) + "\n")
        return raw

    def _take_in(self, port: Port) -> None:
        bus = self._inputs[port.key or port.name]
        ports = {
            **_same("clk", "reset"),
            "in_valid": f"{port.name}_valid",
            "in_row": f"{port.name}_row",
            "valid": bus.valid,
            "row": bus.row,
        }
        self._body += [
            bus.declared,
            instance("port_in", f"take_{port.name}", {"WIDTH": port.words * 32}, ports),
            "",
        ]

    def _bus(self, name: str, words: int) -> _Bus:
        bus = _Bus(name, words)
        self._body.append(bus.declared)
        return bus

    def _send(self, port: str, valid: str, row: str) -> None:
        self._body.append(f"    assign {port}_valid = {valid};\n    assign {port}_row = {row};\n")

    def _overrun(self) -> str:
        self._overruns.append("")
        return f"overruns[{len(self._overruns) - 1}]"

    def _slices(self) -> None:
        slices, walk = self._device.slices, self._device.streams
        x = self._inputs[walk.arriving[0] if walk.arriving else IMAGES]
        # Errors of what leaves the device come from the right, all others from the slice behind.
        dxs = [self._dx(design) for design in slices]
        for place, (design, visit) in enumerate(zip(slices, walk.visits, strict=True)):
            last = place == len(slices) - 1
            behind = dxs[place + 1] if not last else None
            if behind is None and visit.errors is None:
                behind = self._inputs[walk.errors_arriving[0] if walk.errors_arriving else ERRORS]
            x = self._slice(place, design, x, dxs[place], behind)
        if slices[0].eb is not None:
            self._send("path4_out", dxs[0].valid, dxs[0].row)

    def _dx(self, design: SliceDesign) -> _Bus:
        return self._bus(f"{design.name}_dx", design.arriving * design.layer.input[2])

    def _slice(
        self, place: int, design: SliceDesign, x: _Bus, dx: _Bus, behind: _Bus | None
    ) -> _Bus:
        """Add a slice and its SFU; return the results, or x where they go to the next device."""
        name, columns = design.name, design.layer.output[2]
        walk = self._device.streams
        visit = walk.visits[place]
        self._body.append(f"\n    // ---- {design.part}\n")
        y = self._bus(f"{name}_y", design.sent * columns)
        if visit.errors is None:
            dy = self._bus(f"{name}_dy", design.sent * columns)
        else:
            dy = self._inputs[visit.errors]
        passed_words = (design.passed if design.passed else 1) * design.layer.input[2]
        partial_words = (design.sent if design.is_icp else design.before or 1) * columns
        self._body += [
            f"    logic [{passed_words * 32 - 1}:0] {name}_passed;",
            f"    logic [{partial_words * 32 - 1}:0] {name}_dy_passed;",
            f"    logic {name}_update;",
            f"    logic [31:0] {name}_others, {name}_master;",
        ]
        before = None if visit.partial is None else self._inputs[visit.partial]
        comes_back = visit.errors is not None and walk.errors_arriving
        beyond = self._inputs[walk.errors_arriving[0]] if comes_back else None
        sums = design.summed(self._precision.errors)
        if design.eb is not None and sums < design.arriving:
            size, room = (design.arriving, design.layer.input[2]), self._rooms[place]
            draws = design.input_error_draws(self._precision)
            dx = self._rounded(f"{name}_sums", "ERRORS", size, dx, room, draws, sums)
        settings = {name: f"of_{name}" for name in SETTINGS}
        done = {
            f"{phase}_done": f"rows_done[{3 * place + bit}]"
            for bit, phase in enumerate(("fp", "eb", "pg"))
        }
        ports = {
            **_same("clk", "reset", "limit"),
            "batch": "of_samples",
            **_both("x", x),
            "passed_row": f"{name}_passed",
            **(_both("before", before) if before else {"before_valid": "1'b0", "before_row": "'0"}),
            **_both("y", y),
            **_both("dy", dy),
            "dy_passed_row": f"{name}_dy_passed",
            **(_both("beyond", beyond) if beyond else {"beyond_valid": "1'b0", "beyond_row": "'0"}),
            **_both("dx", dx),
            "others": f"{name}_others",
            "update_start": f"{name}_update",
            **settings,
            **self._host_of_weights(place),
            "host_master": f"{name}_master",
            **done,
            "overrun": self._overrun(),
        }
        parameters = slice_parameters(
            design, self._rooms[place], self._precision, self._device.seed
        )
        self._body.append(instance("slice", name, parameters, ports) + "\n")
        if self._precision.has_copies:
            unit = self._units.index((place, "master"))
            self._body += [
                f"    assign reads[{unit * 32}+:32] = {name}_master;",
                f"    assign updated[{unit}] = updated[{self._units.index((place, 'weight'))}];",
            ]
        else:
            self._body.append(f"    wire unused_{name}_master = &{name}_master;")
        if visit.returned is not None:
            self._send("path3_out", dy.valid, f"{name}_dy_passed")
        else:
            self._body.append(f"    wire unused_{name}_dy = &{name}_dy_passed;")
        if design.eb is None:
            self._body.append(f"    wire unused_{name}_dx = &{{{dx.valid}, {dx.row}}};")
        if behind is None:
            self._body.append(
                f"    assign {name}_others = limit;\n    wire unused_{name}_update = {name}_update;"
            )
            self._send("path1_out", x.valid, f"{name}_passed")
            self._send("path2_out", y.valid, y.row)
            return x
        self._body.append(f"    wire unused_{name}_passed = &{name}_passed;\n")
        result = self._sfu(place, design, y, dy, behind)
        if place == len(self._device.slices) - 1:
            self._send("outputs" if self._device.is_end else "path1_out", result.valid, result.row)
        return result

    def _sfu(self, place: int, design: SliceDesign, y: _Bus, dy: _Bus, behind: _Bus) -> _Bus:
        """Add the SFU of a layer: from `y` to the result, and from the errors `behind` back to
        `dy`.
        """
        name, room = design.name, self._rooms[place]
        if design.bias is not None:
            made = self._bus(f"{name}_biased", y.words)
            ports = {
                **_same("clk", "reset", "limit"),
                "batch": "of_samples",
                **_both("in", y),
                **_both("out", made),
                **_both("error", dy),
                "samples": f"{name}_others",
                "update_start": f"{name}_update",
                **{name: f"of_{name}" for name in SETTINGS},
                **self._host(self._units.index((place, "bias"))),
                "overrun": self._overrun(),
            }
            self._body.append(
                instance("bias", f"{name}_bias", bias_parameters(design, design.bias, room), ports)
                + "\n"
            )
            y = made
        else:
            self._body.append(
                f"    assign {name}_others = limit;\n    wire unused_{name}_update = {name}_update;"
            )
        errors = dy  # of what the next step takes
        is_end = self._device.is_end and place == len(self._device.slices) - 1
        if (
            is_end
        ):  # all others come from EB, rounded; what the SFU lets pass of them stays as it is
            channels, _, columns = design.layer.output
            draws = design.output_error_draws(self._precision)
            size = channels, columns
            errors = self._rounded(f"{name}_errors", "ERRORS", size, dy, room, draws)
        for number, step in enumerate(design.steps):
            kind = "max_pool" if isinstance(step.operation, MaxPool) else "relu"
            title = f"{name}_{kind.replace('-', '_')}{number}"
            made = self._bus(title, step.output[0] * step.output[2])
            after = (
                behind
                if number == len(design.steps) - 1
                else self._bus(f"{title}_errors", made.words)
            )
            ports = {
                **_same("clk", "reset"),
                **_both("in", y),
                **_both("out", made),
                **_both("error", after),
                **_both("error_out", errors),
                "overrun": self._overrun(),
            }
            self._body.append(
                instance(kind, f"{title}_unit", step_parameters(step, room), ports) + "\n"
            )
            y, errors = made, after
        if not design.steps:
            self._body.append(
                f"    assign {errors.valid} = {behind.valid};\n    assign {errors.row} ="
                f" {behind.row};\n"
            )
        if is_end or self._precision.activations.grid is None:  # softmax takes what the SFU made
            return y
        channels, _, columns = design.layer.hands_on[0].shape
        result = self._bus(f"{name}_result", y.words)
        draws, size = design.activation_draws(self._precision), (channels, columns)
        raw = self._rounded(f"{name}_whole", "ACTIVATIONS", size, result, room, draws)
        self._body.append(f"    assign {raw.valid} = {y.valid};\n    assign {raw.row} = {y.row};\n")
        return result

    def _host_of_weights(self, place: int) -> Mapping[str, str]:
        """Return the host's ports of a slice: what it writes goes to the master copy, where there
        is one.
        """
        ports = self._host(self._units.index((place, "weight")))
        if not self._precision.has_copies:
            return ports
        return {
            **ports,
            "host_write": f"host_write && host_unit == {self._units.index((place, 'master'))}",
        }

    def _host(self, unit: int) -> Mapping[str, str]:
        several = len(self._units) > 1
        return {
            "updated": f"updated[{unit}]",
            "host_write": f"host_write && host_unit == {unit}" if several else "host_write",
            **_same("host_address", "host_data"),
            "host_read": f"reads[{unit * 32}+:32]",
        }


def instance(
    module: str, name: str, parameters: Mapping[str, int | str], ports: Mapping[str, str]
) -> str:
    """Return an instance of a module."""
    given = ",\n".join(f"        .{key}({value})" for key, value in parameters.items())
    wired = ",\n".join(
        f"        .{key}" if key == value else f"        .{key}({value})"
        for key, value in ports.items()
    )
    return f"    {module} #(\n{given}\n    ) {name} (\n{wired}\n    );"


def _same(*names: str) -> Mapping[str, str]:
    return {name: name for name in names}


def _both(port: str, bus: _Bus) -> Mapping[str, str]:
    return {f"{port}_valid": bus.valid, f"{port}_row": bus.row}


MINI_BATCHES = 2
"""Mini-batches of a simulation: the second update reads the velocities that the first has left."""


@dataclasses.dataclass(frozen=True)
class Rtl:
    """The RTL of a plan: its devices, the room of each slice, and when all have updated, by
    mini-batch, in ps.
    """

    plan: ChainPlan
    devices: tuple[DeviceDesign, ...]
    rooms: tuple[tuple[Room, ...], ...]
    updated_ps: tuple[int, ...]

    @classmethod
    def of(cls, plan: ChainPlan, latency: int = 0) -> Rtl:
        """Return the RTL of a plan, with multiply-adds of `latency` cycles; memories hold what
        mini-batches need.

        Raises:
            InputError: something in the plan has no RTL; the message says what has.
        """
        devices = designs_of(plan, latency)
        clocks = clocks_of(plan, devices)
        updated_ps = run_mini_batches(clocks, plan.config.batch, MINI_BATCHES)
        rooms = []
        for clock in clocks:
            rooms.append(tuple(part.room for part in clock.parts))
        return cls(plan, devices, tuple(rooms), updated_ps)

    def top(self, device: int) -> str:
        """Return the text of a device's top module."""
        title = (
            f"{self.plan.network.name} on {self.plan.devices} x {self.plan.cluster.boards[0].name}"
        )
        return top_module(self.devices[device], self.rooms[device], title)

    def write(self, folder: pathlib.Path) -> list[pathlib.Path]:
        """Write all modules into a folder; return the files of the tops, by device.

        Raises:
            InputError: it cannot be written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"`out` = {str(folder)!r}: {error.strerror}; give a folder that can be written"
            ) from None
        for module in sources():
            write_whole(folder / module.name, module.read_bytes())
        tops = [folder / f"{device.module}.sv" for device in self.devices]
        for device, top in enumerate(tops):
            write_whole(top, self.top(device))
        return tops


def ports_text(design: DeviceDesign) -> str:
    """Return `ports.inc` of a device, for `cpp/device.cpp`."""
    ins = "".join(f"IN({port.name}, {port.words})\n" for port in inputs_of(design))
    return ins + "".join(f"OUT({port.name}, {port.words})\n" for port in outputs_of(design))
