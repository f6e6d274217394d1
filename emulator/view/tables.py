"""Tables on the screen, drawn by rich: in parts where one is too wide, and short, of the rows that
matter first; those of the devices, links, stages, exchanges and layers of a run.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...comm.exchange import WEIGHT_BYTES
from ..common import escaped, format_bytes, format_time_ps, percent, plural
from ..mapping import DataPath
from ..network import Network, Phase, operator_graph
from ..plan import ChainPlan
from ..run import PHASES, DeviceUsage, Usage
from .terminal import is_terminal, say, screen_width, wrapped

_GAP = 2

MOST_ROWS = 5
_MOST_DRAWN = 1000
"""Rows that rich draws, at half a millisecond each; further ones are aligned alike, and wrap
nothing.
"""
T = TypeVar("T")


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[str] = (),
    names: Sequence[str] = (),
) -> None:
    """Print a table under a blank line; columns named in `left` hold words, which may wrap, and in
    `names`, which not.

    These are left-aligned, all others right-aligned. Where the screen is narrower than all columns,
    those that find no room follow in a second table, with the first column repeated.
    """
    rows = [list(map(escaped, row)) for row in rows]
    sizes = []
    for i, column in enumerate(columns):
        sizes.append(_least_and_most(column, [row[i] for row in rows], column in left))
    width = screen_width()
    for number, part in enumerate(_parts([least for least, _ in sizes], width)):
        words = [columns[i] in left or columns[i] in names for i in part]
        widths = _widths([sizes[i] for i in part], words, width)
        cells = []
        for row in rows:
            cells.append([row[i] for i in part])
        shown = f"{title} (continued)" if number else title
        _draw(shown, [columns[i] for i in part], cells, words, widths)


def _least_and_most(title: str, cells: Sequence[str], wraps: bool) -> tuple[int, int]:
    """Return the least width of a column, in which no word and no number breaks, and the width
    without any wrap.
    """
    words = title.split()
    for cell in cells:
        words += cell.split() if wraps else cell.splitlines()
    lines = [line for cell in cells for line in cell.splitlines()]
    return max(map(len, words), default=0), max(map(len, [title, *lines]))


def _parts(least: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each part; the first column stands in all of them."""
    parts, taken = [[0]], least[0]
    for column in range(1, len(least)):
        needed = _GAP + least[column]
        # Where even two columns are too wide, they still make a part: none has the first one alone.
        if taken + needed > width and len(parts[-1]) > 1:
            parts.append([0])
            taken = least[0]
        parts[-1].append(column)
        taken += needed
    return parts


def _widths(sizes: Sequence[tuple[int, int]], words: Sequence[bool], width: int) -> list[int]:
    """Return the widths of a part's columns: room that is left goes to words first, to all alike,
    then to titles.
    """
    widths = [least for least, _ in sizes]
    spare = max(0, width - sum(widths) - _GAP * (len(widths) - 1))
    for kind in (True, False):
        while spare and (
            short := [
                i for i, (_, most) in enumerate(sizes) if words[i] is kind and widths[i] < most
            ]
        ):
            # One place each in every round, so that no column takes all the room.
            for column in short[:spare]:
                widths[column] += 1
            spare -= len(short[:spare])
    return widths


def _draw(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[bool],
    widths: Sequence[int],
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    padding = (0, _GAP - 1, 0, 0)  # beside the blank that the box puts between two columns
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=padding)
    for column, holds_words, width in zip(columns, words, widths, strict=True):
        drawn.add_column(
            Text(column), justify="left" if holds_words else "right", width=width, overflow="fold"
        )
    for row in rows[:_MOST_DRAWN]:
        drawn.add_row(*map(Text, row))
    on_terminal = is_terminal()
    console = Console(
        file=sys.stdout,
        width=max(screen_width(), sum(widths) + _GAP * len(widths)),
        force_terminal=on_terminal,  # Open MPI gives ranks a terminal of their own
        highlight=False,
    )
    with console.capture() as captured:
        for line in wrapped(title, screen_width()):
            console.print(Text(escaped(line), style="bold"))
        console.print(drawn)
    print(file=console.file)
    lines = captured.get().splitlines()
    for row in rows[_MOST_DRAWN:]:
        cells = zip(row, words, widths, strict=True)
        aligned = [
            cell.ljust(width) if holds_words else cell.rjust(width)
            for cell, holds_words, width in cells
        ]
        lines.append((" " * _GAP).join(aligned))
    print("\n".join(line.rstrip() for line in lines), file=console.file)


def most_loaded(
    title: str, kind: str, items: Sequence[T], load: Callable[[T], float], full: bool
) -> tuple[str, list[T]]:
    """Return a table's title and the items that it shows, in their order: the most loaded ones, or
    all if `full`.

    The title says how many there are of this `kind`, where some are left out.
    """
    if full or len(items) <= MOST_ROWS:
        return title, list(items)
    chosen = sorted(
        heapq.nlargest(MOST_ROWS, range(len(items)), key=lambda place: load(items[place]))
    )
    left_out = f"{MOST_ROWS} of {len(items):,} {kind}, the most loaded; --full shows all"
    return f"{title}: {left_out}", [items[place] for place in chosen]


_WIDTHS = (0, 8, 16, 32)
"""Bits of compressed values."""

_MOST_NAMES = 4
"""Slices of a device that are named where the table is short."""


def usage_rows(usage: Usage, full: bool = False) -> None:
    """Print busy shares, memory and links of a run: of the most loaded devices and links, or of
    all.
    """
    _device_rows(usage, full)
    if usage.links:
        _link_rows(usage, full)


def _device_rows(usage: Usage, full: bool) -> None:

    def load(device: DeviceUsage) -> float:
        return max(*device.busy.values(), device.memory.share, 0.0)

    title, shown = most_loaded("Devices", "devices", usage.devices, load, full)
    differ = len({device.board for device in usage.devices}) > 1
    rows = []
    for device in shown:
        cells = [str(device.device), *([device.board] if differ else [])]
        cells += [slice_names(device.slices, full), f"{device.multipliers:,}"]
        busy = device.busy
        cells += [percent(busy[phase]) if phase in busy else "-" for phase in PHASES]
        rows.append(cells)
    columns = [
        "device",
        *(["board"] if differ else []),
        "slices",
        "multipliers",
        *(f"{phase} busy" for phase in PHASES),
    ]
    table(title, columns, rows, names=("board", "slices"))
    _memory_rows(shown)


def resource_rows(resources: Mapping[str, Any], total_ps: int) -> None:
    """Print how busy a pair's resources are, and what its links have carried, in a run of
    `total_ps`.
    """
    columns = ["resource", "busy", "of the time", "carried", "longest task"]
    rows = [
        [
            str(resources["resource"][i]),
            format_time_ps(int(resources["busy_ps"][i])),
            percent(int(resources["busy_ps"][i]) / max(1, total_ps)),
            (
                format_bytes(int(resources["carried_bytes"][i]))
                if resources["carried_bytes"][i]
                else "-"
            ),
            str(resources["longest"][i]),
        ]
        for i in range(len(resources["resource"]))
    ]
    table("Resources", columns, rows, left=["longest task"], names=["resource"])


def _memory_rows(devices: Sequence[DeviceUsage]) -> None:
    balanced = any(device.memory.bpram for device in devices)
    off_chip = any(device.memory.off_chip for device in devices)
    rows = []
    for device in devices:
        memory = device.memory
        rows.append(
            [
                str(device.device),
                format_bytes(memory.lpram),
                format_bytes(memory.lgb),
                *([format_bytes(memory.bpram + memory.bgb)] if balanced else []),
                format_bytes(memory.act_ram),
                percent(memory.share),
                *(
                    [format_bytes(memory.off_chip), percent(device.port_utilisation)]
                    if off_chip
                    else []
                ),
            ]
        )
    stored = ["stored for others"] if balanced else []
    columns = ["device", "parameters", "gradients", *stored, "activations", "of the board's memory"]
    table(
        "Memory of these devices",
        [*columns, *(["off chip", "port busy"] if off_chip else [])],
        rows,
    )


def slice_names(names: Sequence[str], full: bool) -> str:
    """Return the names of a device's slices, a line each; of many only the first and the last,
    unless `full`.
    """
    if full or len(names) <= _MOST_NAMES:
        return ",\n".join(names)
    return f"{names[0]} to\n{names[-1]}: {len(names)} slices"


def _link_rows(usage: Usage, full: bool) -> None:
    """Print the bytes on each data path, and utilisation."""
    title, shown = most_loaded("Links", "links", usage.links, lambda link: link.utilisation, full)
    carried = {path for link in shown for path in link.path_bytes}
    used = [path for path in DataPath if path in carried]
    rows = []
    for link in shown:
        sizes = link.path_bytes
        cells = [format_bytes(sizes[path]) if path in sizes else "-" for path in used]
        rows.append([f"{link.sender} -> {link.receiver}", *cells, percent(link.utilisation)])
    names = [f"{path.value} {path.name.lower().replace('_', ' ')}" for path in used]
    table(title, ["link", *names, "utilisation"], rows)


def epoch_rows(history: Mapping[str, Any]) -> list[list[str]]:
    """Return each epoch's learning rate, losses, accuracies and times."""
    return [
        [
            str(history["epoch"][i]),
            f"{history['learning_rate'][i]:g}",
            f"{history['train_loss'][i]:.4f}",
            percent(history["train_accuracy"][i]),
            f"{history['test_loss'][i]:.4f}",
            percent(history["test_accuracy"][i]),
            format_time_ps(int(history["virtual_time_ps"][i])),
            f"{history['host_time_s'][i]:.1f} s",
        ]
        for i in range(len(history["epoch"]))
    ]


def exchange_rows(exchange: Mapping[str, Any], virtual_time_ps: Any) -> None:
    """Print what replicas exchanged in each epoch; `virtual_time_ps` is the time from the start to
    each epoch's end.
    """
    has_widths = any(
        exchange[f"width_{bits}"].any() for bits in _WIDTHS
    )  # where the codec is INCEPTIONN's
    table(
        "Exchange between replicas",
        *exchange_table(exchange, virtual_time_ps, _WIDTHS if has_widths else ()),
    )


def rounding_rows(rounding: Mapping[str, Any], kinds: Sequence[str]) -> None:
    """Print what was rounded in the last epoch, by kind of number, and the share of weights that
    did not move.
    """
    rows = []
    for kind in kinds:
        saturated, flushed = (
            float(rounding[f"{kind}_{what}"][-1]) for what in ("saturated", "flushed")
        )
        if saturated == saturated:  # not of kinds in single precision
            rows.append([kind, percent(saturated), percent(flushed)])
    if rows:
        table(
            "Rounding, last epoch", ["kind", "saturated", "flushed to zero"], rows, names=("kind",)
        )
        say(
            "weights that an update left unmoved:"
            f" {percent(float(rounding['weights_unmoved'][-1]))}"
        )
    if "updates_skipped" in rounding:
        skipped = rounding["updates_skipped"]
        say(
            "updates skipped, as gradients overflowed:"
            f" {percent(float(skipped.mean()))} of all, {percent(float(skipped[-1]))} of the last"
            f" epoch's; then the loss scale is {int(rounding['loss_scale'][-1]):,}"
        )


def exchange_table(
    exchange: Mapping[str, Any], virtual_time_ps: Any, widths: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table of exchanges, with the shares of values of some widths
    in bits, and weights where they were gathered.
    """
    rows, weights = [], exchange.get(WEIGHT_BYTES)
    for i, epoch in enumerate(exchange["epoch"]):
        took_ps = max(1, virtual_time_ps[i] - (virtual_time_ps[i - 1] if i else 0))
        counts = [exchange[f"width_{bits}"][i] for bits in widths]
        rows.append(
            [
                str(epoch),
                format_bytes(int(exchange["value_bytes"][i])),
                format_bytes(int(exchange["compressed_bytes"][i])),
                f"{exchange['value_bytes'][i] / exchange['compressed_bytes'][i]:.2f}",
                *([] if weights is None else [format_bytes(int(weights[i]))]),
                *(percent(count / sum(counts)) if sum(counts) else "-" for count in counts),
                percent(exchange["device_ps"][i] / took_ps),
            ]
        )
    return [
        "epoch",
        "gradients",
        "sent",
        "ratio",
        *([] if weights is None else ["weights"]),
        *(f"{bits} bits" for bits in widths),
        "of the time",
    ], rows


def layer_rows(network: Network) -> None:
    """Print the network's layers; if any has a bypass, also the tensor that each reads and those
    that bypass it.
    """
    branches, graph = any(layer.bypass for layer in network.layers), operator_graph(network)
    rows = []
    for layer in network.layers:
        around = (
            [layer.reads.name, ", ".join(tensor.name for tensor in layer.bypass)]
            if branches
            else []
        )
        rows.append(
            [
                layer.name,
                *around,
                "x".join(map(str, layer.input)),
                "x".join(map(str, layer.feeds)),
                "x".join(map(str, layer.weight_shape)),
                f"{layer.macs / 1e6:,.2f}",
                *_operations(graph.layer_operations(layer.name)),
                " ".join(step.operation.type for step in layer.sfu),
            ]
        )
    around = ["from", "passes by"] if branches else []
    columns = ["layer", *around, "input", "feeds", "weights", "MMAC"]
    columns += [*(f"{phase.value} MOP" for phase in Phase), "then"]
    table(f"Network {network.name}", columns, rows, left=("then",), names=("layer", *around))


def _operations(by_phase: dict[Phase, int]) -> list[str]:
    return [f"{by_phase[phase] / 1e6:,.2f}" if phase in by_phase else "-" for phase in Phase]


def stage_rows(plan: ChainPlan) -> None:
    """Print the costs of each stage for a micro-batch."""
    assert plan.stages is not None
    chunks = plan.chunks > 1
    rows = []
    for stage in range(plan.stage_count):
        planned = plan.stages.stage(stage, plan.stages.samples)
        rows.append(
            [
                str(stage),
                *([str(plan.fold.device(stage))] if chunks else []),
                *(
                    format_time_ps(ps)
                    for ps in (planned.costs.forward_ps, planned.costs.backward_ps)
                ),
                str(plan.stages.kept_samples[stage]),
                str(plan.stages.weight_copies[stage]),
                format_bytes(planned.on_chip_bytes),
                format_bytes(planned.off_chip_bytes),
                "yes" if planned.bound_by_memory else "no",
            ]
        )
    columns = ["stage", *(["device"] if chunks else []), "F", "B", "samples kept", "weight copies"]
    table(
        f"Stages: a micro-batch of {plural(plan.stages.samples, 'sample')}",
        [*columns, "on chip", "off chip", "waits for memory"],
        rows,
    )
