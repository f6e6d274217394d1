"""`emuchain plan`: a network's layout on a cluster, as an answer with tables, as JSON, and as a
picture.

A cut made by hand is shown beside the automatic one; `--save` writes the cut as a file to edit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....kernels.number import FP16, FP32, NumberFormat
from ... import view
from ...common import (
    InputError,
    WholeFile,
    encoded,
    format_bytes,
    format_time_ps,
    gbps,
    number,
    percent,
    plural,
    toml_file,
)
from ...config import blaming, load_config
from ...mapping import HandmadeCut, cut_channels, storage_of, stored_weight_bytes
from ...number import Storage
from ...plan import (
    ChainPlan,
    DeviceLayout,
    Layout,
    SliceLayout,
    configured_network,
    idle_settings,
    long_plan,
    make_plan,
    place_on_chip,
    smallest_cluster,
)
from ...run import (
    SteadyState,
    cause_of,
    rate_range,
    steady_actions,
    steady_rate,
    steady_state,
)
from ..frame.command import Answer
from ..frame.output import phases, tell_notes
from .pair import plan_pair
from .timeline import Recorded

_MOST_BLOCKS_SHOWN = 5
_LARGER_BOARDS = "u280"
_SAMPLES = 1000
"""Of a simulation to try."""
_PLANS = 3
"""What the search for the smallest cluster that needs no memory off chip takes beside the plan, in
plans.
"""

_SPELT = {
    "dsp": "multipliers (DSPs)",
    "ff": "flip-flops",
    "bram": "block RAM banks",
    "transceiver": "transceivers",
}


class _Asked(NamedTuple):
    """What was given to show a plan, and how it is shown: with all devices and links, with its
    range.
    """

    config_file: str | None
    flags: dict[str, Any]
    full: bool
    ranged: bool

    def command(self, name: str, more: dict[str, object]) -> str:
        """Return a command to try, with further flags."""
        return view.command_line(name, self.config_file, {**self.flags, **more})


def show_plan(
    config_file: str | None, flags: dict[str, Any], save: str | None, *, full: bool, ranged: bool
) -> Answer:
    """Lay a network out on a cluster, and write the cut into the file `save`, if one is given.

    The picture is that of the layout. It says how sure the answer is if it is `ranged`.

    Raises:
        InputError: the network or cluster is unknown, there are too many devices, or a board is too
            small.
    """
    how = _Asked(config_file, flags, full, ranged)
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        if config.schedule.offload is not None:
            if save is not None:
                raise InputError(f"`--save` = {save!r}: a pair is not cut; leave it out")
            return plan_pair(config, flags, ranged)
        saved = None if save is None else toml_file(save, "--save", "cut.toml")
        devices = plural(config.devices or 1, "device")
        with (
            saved or contextlib.nullcontext(),
            phases(f"mapping {config.network} on {devices}, and its steady pipeline") as show,
        ):
            network = configured_network(config)
            tell_notes([long_plan(config, network, _PLANS)])
            plan = make_plan(config, 1, network=network, timing_only=True)
            tell_notes(idle_settings(plan))
            beside = None
            if config.cut is not None:
                show("mapping it automatically, to compare")
                beside = CutComparison.of(plan)
            result = (
                _layout(plan, beside, how, show) if plan.times_rows else _stages(plan, beside, how)
            )
            if saved is not None:
                save_cut(plan, saved)

    def shown() -> None:
        result.show()
        if save is not None:
            view.say(f"cut in {save}; `--cut {shlex.quote(save)}` takes it, edited or not")

    return dataclasses.replace(result, show=shown)


def _layout(
    plan: ChainPlan, beside: CutComparison | None, how: _Asked, show: Callable[[str], None]
) -> Answer:
    """Return the layout of a plan; `show` names what is done meanwhile."""
    show(f"laying out {plural(plan.devices, 'device')}")
    layout, state = plan.layout(), steady_state(plan)
    sure = rate_range(plan, state.images_per_s) if how.ranged else None
    missing, smallest = plan.missing_bytes, None
    if layout.off_chip_bytes or missing:
        show(f"looking for the fewest boards that hold {plan.network.name}")
        smallest = smallest_cluster(plan.network, plan.cluster, plan.devices)

    def shown() -> None:
        first, *others = _answer(plan, layout, state, smallest, how, view.at_values(sure))
        view.print_answer([first, *_beside_lines(plan, beside), *view.range_lines(sure), *others])
        _print(layout, state, how.full)
        if missing:
            view.say(_remedies(plan))

    def as_json() -> dict[str, Any]:
        verdict = {
            "fits": not missing,
            "missing_bytes": missing,
            "stale_samples": plan.stale_samples,
        }
        verdict |= {"fits_lut": plan.fits_lut, **({} if sure is None else sure.to_dict())}
        cause = view.cause_as_json(cause_of(plan, state))
        return {
            **view.layout_as_json(layout, state, smallest),
            "memory": view.courses_as_json(Recorded.of(plan).courses),
            "cause": cause,
            **verdict,
            **cut_as_json(plan, beside),
            **_phases_as_json(plan),
        }

    return Answer(
        shown,
        as_json,
        lambda picture: view.draw_layout(layout, picture, courses=Recorded.of(plan).courses),
    )


def _stages(plan: ChainPlan, beside: CutComparison | None, how: _Asked) -> Answer:
    """Return the stages of boards that take actions as a whole; their picture is the timeline."""
    assert plan.stages is not None
    stages = plan.stages
    rate, usage = steady_actions(plan)
    sure = rate_range(plan, rate) if how.ranged else None

    def shown() -> None:
        view.print_answer(
            [
                view.rate_line(plan, rate, 0, view.at_values(sure)),
                *_beside_lines(plan, beside),
                *view.range_lines(sure),
                *view.stage_lines(plan, usage),
                view.memory_line(plan, 0),
                *_phase_lines(plan),
                view.weights_line(plan),
                *view.logic_lines(plan),
                view.next_line(how.command("simulate", {"samples": _SAMPLES})),
            ]
        )
        view.stage_rows(plan)

    def as_json() -> dict[str, Any]:
        said = {
            "mapping": str(plan.mapping).splitlines(),
            **view.stages_as_json(stages),
            "memory": view.courses_as_json(Recorded.of(plan).courses),
            "fits_lut": plan.fits_lut,
        }
        said |= {"images_per_s": rate, **cut_as_json(plan, beside), **_phases_as_json(plan)}
        return {**said, **({} if sure is None else sure.to_dict())}

    def drawn(picture: WholeFile) -> None:
        view.draw_chart(Recorded.of(plan).chart, picture)

    return Answer(shown, as_json, drawn)


def _beside_lines(plan: ChainPlan, beside: CutComparison | None) -> list[view.Line]:
    return [] if beside is None else [beside.line(plan.network.sample_noun)]


def _answer(
    plan: ChainPlan,
    layout: Layout,
    state: SteadyState,
    smallest: int | None,
    how: _Asked,
    values: str,
) -> list[view.Line]:
    cause, images, missing = cause_of(plan, state), plan.network.epoch_images, state.missing_bytes
    if missing:
        larger = (
            {"devices": smallest}
            if smallest
            else {"devices": plan.devices, "cluster": _LARGER_BOARDS}
        )
        to_try = how.command("plan", {**larger, "cut": None})
    else:
        changes = view.next_changes(plan, cause)
        command, samples = (
            ("simulate", {"samples": _SAMPLES}) if "what_if" in changes else ("plan", {})
        )
        to_try = how.command(command, {**samples, **changes})
    return [
        view.rate_line(plan, state.images_per_s, missing, values),
        *(
            []
            if images is None
            else [view.epoch_line(plan, images, state.epoch_ps(images), missing)]
        ),
        *view.limit_lines(plan, state, cause),
        *view.wide_lines(plan),
        _verdict(plan, layout, missing, smallest),
        *_phase_lines(plan),
        view.weights_line(plan),
        *view.logic_lines(plan),
        view.next_line(to_try),
    ]


def _phase_lines(plan: ChainPlan) -> list[view.Line]:
    """Return a line for each change of formats."""
    lines = []
    for phase in plan.phases:
        rate, kept = steady_rate(phase.plan), max(phase.plan.memory_bytes)
        noun = plan.network.sample_noun
        lines.append(
            view.Line(
                f"from epoch {phase.epochs + 1} on in {phase.plan.config.precision}: {rate:,.1f}"
                f" {noun}s/s, up to {view.mebibytes(kept)} on a board"
            )
        )
    return lines


def _phases_as_json(plan: ChainPlan) -> dict[str, Any]:
    phases = [
        {
            "epoch": phase.epochs + 1,
            "precision": str(phase.plan.config.precision),
            "images_per_s": steady_rate(phase.plan),
            "memory_bytes": max(phase.plan.memory_bytes),
        }
        for phase in plan.phases
    ]
    return {"phases": phases} if phases else {}


def _boards_that_hold(count: int) -> str:
    return f"{plural(count, 'board')} hold{'s' * (count == 1)}"


def _verdict(plan: ChainPlan, layout: Layout, missing: int, smallest: int | None) -> view.Line:
    if missing:
        short = sum(device.missing_bytes > 0 for device in layout.devices)
        enough = (
            f"{_boards_that_hold(smallest)} it on chip"
            if smallest
            else "nor would it fit 1,024 boards"
        )
        where = f" on {short} of {plural(len(layout.devices), 'device')}"
        return view.Line(
            f"memory: does not fit, {view.mebibytes(missing)} missing{where}; {enough}"
        )
    exceeded = {kind: devices for kind, devices in layout.exceeded().items() if kind in _SPELT}
    over = [
        f"too few {_SPELT[kind]} on {plural(len(devices), 'device')}"
        for kind, devices in exceeded.items()
    ]
    hold = [f"{_boards_that_hold(smallest)} all on chip"] if smallest else []
    return view.Line("; ".join([view.memory_line(plan, missing).text, *hold, *over]))


def _print(layout: Layout, state: SteadyState, full: bool) -> None:
    def load(device: DeviceLayout) -> float:
        shares = [share for share in layout.utilisation(device).values() if share is not None]
        return max(device.slowest.sample_ps / layout.interval_ps, *shares)

    _print_slices(layout, full)
    title, devices = view.most_loaded("Devices", "devices", layout.devices, load, full)
    _print_devices(layout, title, devices)
    if layout.links:
        title, links = view.most_loaded(
            "Links",
            "links",
            layout.links,
            lambda link: max(link.forward_bytes, link.backward_bytes),
            full,
        )
        rows = [
            [
                f"{link.link} - {link.other}",
                f"{gbps(link.forward_bytes, state.period_ps):,.2f}",
                f"{gbps(link.backward_bytes, state.period_ps):,.2f}",
                format_bytes(link.balanced_bytes),
            ]
            for link in links
        ]
        view.table(
            title,
            ["link", "right, Gb/s", "left, Gb/s", "balanced parameters per sample, each way"],
            rows,
        )
    _print_balanced(layout, full)
    _print_off_chip(layout, state, full)
    print()
    note = view.ignored(state.missing_bytes)
    view.say(f"a sample enters every {format_time_ps(layout.interval_ps)}{note}")
    view.say(f"all layers: {state.all_layers.gops_per_fpga:,.0f} GOPS{note}; for each FPGA")
    if state.convolutions is not None:
        view.say(
            f"convolutions: {state.convolutions.gops_per_fpga:,.0f} GOPS{note}; for each FPGA that"
            " holds any"
        )
    view.say(f"the fullest device holds {format_bytes(layout.storage_bytes)} on chip")


def _print_slices(layout: Layout, full: bool) -> None:
    held = [(device, slice_layout) for device in layout.devices for slice_layout in device.slices]
    title, shown = view.most_loaded(
        "Slices",
        "slices",
        held,
        lambda entry: max(engine.sample_ps for engine in entry[1].engines.built),
        full,
    )
    columns = ["device", "slice", "FP", "EB", "PG", "parameters", "activations", "line buffers"]
    off_chip = any(slice_layout.off_chip_bytes for _, slice_layout in shown)
    rows = [_slice_row(device, slice_layout, off_chip) for device, slice_layout in shown]
    view.table(title, [*columns, *(["off chip"] * off_chip)], rows, names=("slice",))


def _slice_row(device: DeviceLayout, held: SliceLayout, off_chip: bool) -> list[str]:
    engines = (held.engines.fp, held.engines.eb, held.engines.pg)
    elsewhere = format_bytes(held.off_chip_bytes) if held.off_chip_bytes else "-"
    return [
        str(device.device),
        str(held.part),
        *(f"{engine.multipliers:,}" if engine else "-" for engine in engines),
        format_bytes(held.memory.lpram.bytes),
        format_bytes(held.memory.act_ram.bytes),
        format_bytes(held.memory.line_buffers.bytes),
        *([elsewhere] if off_chip else []),
    ]


def _print_devices(layout: Layout, title: str, devices: Sequence[DeviceLayout]) -> None:
    differ = len({device.board.name for device in layout.devices}) > 1
    rows = [
        [
            str(device.device),
            *([device.board.name] if differ else []),
            device.slowest.title,
            percent(device.slowest.sample_ps / layout.interval_ps),
            str(device.in_flight),
        ]
        for device in devices
    ]
    columns = [
        "device",
        *(["board"] if differ else []),
        "slowest engine",
        "of the interval",
        "samples in flight",
    ]
    view.table(title, columns, rows, names=("board", "slowest engine"))
    columns = ["device", "DSP", "LUT", "FF", "BRAM", "on chip", "of block RAM", "stored for others"]
    view.table(
        "Resources of these devices", columns, [_resource_row(layout, device) for device in devices]
    )


def _resource_row(layout: Layout, device: DeviceLayout) -> list[str]:
    shares = layout.utilisation(device)
    return [
        str(device.device),
        *(_share(shares[f"{kind}_share"]) for kind in ("dsp", "lut", "ff", "bram")),
        format_bytes(device.buffers.bytes),
        _share(shares["block_ram_bytes_share"]),
        format_bytes(device.bpram.bytes + device.bgb.bytes) if device.bpram.bytes else "-",
    ]


def _share(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _print_balanced(layout: Layout, full: bool) -> None:
    blocks = layout.balancing.blocks
    if not blocks:
        return
    shown = blocks if full else blocks[:_MOST_BLOCKS_SHOWN]
    rows = [
        [
            str(block),
            str(block.user_device),
            str(block.store_device),
            format_bytes(block.parameter_bytes),
        ]
        for block in shown
    ]
    left_out = (
        f": {len(shown)} of {len(blocks)} blocks; --full shows all"
        if len(shown) < len(blocks)
        else ""
    )
    columns = ["channels", "used on", "stored on", "parameters"]
    view.table(f"Balanced parameters{left_out}", columns, rows, names=("channels",))


def _print_off_chip(layout: Layout, state: SteadyState, full: bool) -> None:
    """Print what is off chip on which device, and what its memory port moves."""
    held = [device for device in layout.devices if device.off_chip_bytes]
    if not held:
        return
    title, shown = view.most_loaded(
        "Off-chip memory", "devices", held, lambda device: device.port_bytes, full
    )
    rows = []
    for device in shown:
        needed, there = (
            1000 * device.port_bytes / state.period_ps,
            device.board.off_chip_gbytes_per_s,
        )
        storage = layout.cluster.storage
        parameters = sum(
            stored_weight_bytes(part.part, part.off_chip.channels, storage_of(part.part, storage))
            for part in device.slices
        )
        rows.append(
            [
                str(device.device),
                format_bytes(parameters),
                format_bytes(device.off_chip_bytes - parameters),
                format_bytes(device.port_bytes),
                f"{needed:,.1f}",
                "unknown" if there is None else f"{there:g}",
            ]
        )
    free = ", which costs no time here" if any(device.port_ps == 0 for device in held) else ""
    columns = [
        "device",
        "parameters, gradients",
        "activations",
        "moved per sample",
        "GB/s",
        "the board's GB/s",
    ]
    view.table(f"{title}{free}", columns, rows)


def _remedies(plan: ChainPlan) -> str:
    """Return what would still be missing with less to store, as text."""

    def missing(in_flight: Sequence[int], number: NumberFormat) -> str:
        storage = Storage.all_in(number, plan.cluster.parameter_copies)
        short = sum(
            place_on_chip(plan.mapping, plan.cluster, in_flight, storage)[1].shortfall_bytes
        )
        return format_bytes(short) if short else "nothing"

    held, one = plan.steady.in_flight, [1] * plan.devices
    return (
        f"missing with values of 2 bytes: {missing(held, FP16)}; with one sample in flight:"
        f" {missing(one, FP32)}; with both: {missing(one, FP16)}"
    )


def save_cut(plan: ChainPlan, file: WholeFile) -> None:
    """Write a plan's cut into a file, and read it as `--cut` does.

    Raises:
        InputError: it cannot be written, or `--cut` would not take it.
    """
    file.write(encoded(cut_file(plan)))
    again = HandmadeCut.of(str(file.path))
    if again.mapping(plan.network).devices != plan.mapping.devices:
        raise InputError(
            f"{again.blame}: is another cut than the one that was saved there; save it again"
        )


def cut_file(plan: ChainPlan) -> str:
    """Return the content of the file of a plan's cut."""
    counts = ", ".join(f"{layer.name} {cut_channels(layer)}" for layer in plan.network.layers)
    about = (
        f"{plan.network.name} over {plural(plan.stage_count, 'board')}, in the order of the chain."
        " One has layers, such as `conv1:conv3`, or channels, such as `conv4[0:20]` or"
        f" `conv4[:30%]`, of these: {counts}."
    )
    return "\n".join(
        [*textwrap.wrap(about, 100, initial_indent="# ", subsequent_indent="# "), plan.cut.toml()]
    )


class CutComparison(NamedTuple):
    """The rate of a cut made by hand, and of the automatic one, or why there is none; in samples
    per second.
    """

    rate: float
    automatic: float | None
    failure: str

    @classmethod
    def of(cls, plan: ChainPlan) -> CutComparison:
        """Return what the automatic cut of the same run reaches."""
        try:
            automatic = make_plan(
                plan.config.model_copy(update=_automatic_keys(plan)), 1, timing_only=True
            )
        except InputError as error:
            return cls(steady_rate(plan), None, str(error))
        return cls(steady_rate(plan), steady_rate(automatic), "")

    def line(self, noun: str) -> view.Line:
        """Return the comparison as a line."""
        if self.automatic is None:
            return view.Line(f"automatic cut: none; {self.failure}")
        ratio = self.rate / self.automatic
        compared = (
            "as fast as this one" if ratio == 1 else f"this one is {number(ratio)} times as fast"
        )
        return view.Line(f"automatic cut: {number(self.automatic)} {noun}s/s; {compared}")


def _automatic_keys(plan: ChainPlan) -> dict[str, object]:
    """Return the keys with which the same run has an automatic cut."""
    return {"cut": None, "devices": plan.devices}


def cut_as_json(plan: ChainPlan, beside: CutComparison | None) -> dict[str, Any]:
    """Return a plan's cut, and the rate of the automatic one beside one made by hand."""
    if beside is None:
        return {"cut": list(map(" ".join, plan.cut.boards))}
    return {
        "cut": list(map(" ".join, plan.cut.boards)),
        "automatic": {"images_per_s": beside.automatic},
    }
