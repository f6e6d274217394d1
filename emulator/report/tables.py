"""Tables: the history, devices, links and layers of a run, drawn by rich."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..common import format_bytes, format_time_ps
from ..mapping import DataPath
from ..network import Network, Phase, operator_graph
from ..run import PHASES, Usage
from .terminal import is_terminal, terminal_width

_PIPE_WIDTH = 160


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = ()) -> None:
    """Print a table; the columns named in `left` are left-aligned, the others right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, title_style="bold")
    for column in columns:
        drawn.add_column(column, justify="left" if column in left else "right")
    for row in rows:
        drawn.add_row(*row)
    on_terminal = is_terminal()
    width = terminal_width() if on_terminal else _PIPE_WIDTH
    Console(file=sys.stdout, width=width, force_terminal=on_terminal or None, highlight=False).print(drawn)


def device_rows(usage: Usage) -> None:
    """Print the devices' busy shares and memory."""
    rows = []
    balanced = any(device.memory.bpram for device in usage.devices)
    for device in usage.devices:
        memory = device.memory
        rows.append(
            [
                str(device.device),
                device.board,
                ", ".join(device.slices),
                str(device.multipliers),
                *(percent(device.busy[phase]) if phase in device.busy else "-" for phase in PHASES),
                format_bytes(memory.lpram),
                *([format_bytes(memory.bpram)] if balanced else []),
                format_bytes(memory.act_ram),
                percent(memory.share),
            ]
        )
    busy = [f"{phase} busy" for phase in PHASES]
    bpram = ["BPRAM"] if balanced else []
    columns = ["device", "board", "slices", "DSPs", *busy, "LPRAM", *bpram, "Act-RAM", "memory"]
    table("Devices", columns, rows, left=("board", "slices"))
    if any(device.memory.share > 1 for device in usage.devices):
        print(
            "memory: LPRAM, LGB, BPRAM, BGB and Act-RAM over the board's on-chip memory. Above 100 % a device needs\n"
            "off-chip memory, whose time is not modelled. `emuchain plan` says by how much, and what would be enough."
        )


def link_rows(usage: Usage) -> None:
    """Print the links' bytes on each data path, and their utilisation."""
    used = [path for path in DataPath if any(path in link.path_bytes for link in usage.links)]
    rows = [
        [
            f"{link.sender} -> {link.receiver}",
            *(format_bytes(link.path_bytes[path]) if path in link.path_bytes else "-" for path in used),
            percent(link.utilisation),
        ]
        for link in usage.links
    ]
    names = [f"{path.value} {path.name.lower().replace('_', ' ')}" for path in used]
    table("Links", ["link", *names, "utilisation"], rows)


def exchange_rows(exchange: Mapping[str, Any], virtual_time_ps: Any) -> None:
    """Print what replicas exchanged in each epoch; `virtual_time_ps` is the time from the start to each epoch's end."""
    widths = [f"width_{bits}" for bits in (0, 8, 16, 32)]
    values = sum(exchange[width] for width in widths)
    rows = []
    for i, epoch in enumerate(exchange["epoch"]):
        took_ps = virtual_time_ps[i] - (virtual_time_ps[i - 1] if i else 0)
        rows.append(
            [
                str(epoch),
                format_bytes(int(exchange["value_bytes"][i])),
                format_bytes(int(exchange["compressed_bytes"][i])),
                f"{exchange['value_bytes'][i] / exchange['compressed_bytes'][i]:.2f}",
                *(percent(exchange[width][i] / values[i]) if values[i] else "-" for width in widths),
                percent(exchange["device_ps"][i] / took_ps),
            ]
        )
    columns = ["epoch", "gradients", "sent", "ratio", "0 bits", "8 bits", "16 bits", "32 bits", "of the time"]
    if not values.any():  # the codec is not INCEPTIONN's
        rows = [[*row[:4], row[-1]] for row in rows]
        columns = [*columns[:4], columns[-1]]
    table("Exchange between replicas", columns, rows)


def layer_rows(network: Network) -> None:
    """Print the network's layers; if any has a bypass, also the tensor that each reads and those that bypass it."""
    branches, graph = any(layer.bypass for layer in network.layers), operator_graph(network)
    rows = []
    for layer in network.layers:
        around = [layer.reads.name, ", ".join(tensor.name for tensor in layer.bypass)] if branches else []
        rows.append(
            [
                layer.name,
                *around,
                "x".join(map(str, layer.input)),
                "x".join(map(str, layer.feeds)),
                "x".join(map(str, layer.weight_shape)),
                f"{layer.macs / 1e6:.2f}",
                *_operations(graph.layer_operations(layer.name)),
                " ".join(step.operation.type for step in layer.sfu),
            ]
        )
    around = ["from", "passes by"] if branches else []
    columns = ["layer", *around, "input", "feeds", "weights", "MMAC"]
    columns += [*(f"{phase.value} MOP" for phase in Phase), "SFU"]
    table(f"Network {network.name}", columns, rows, left=("layer", *around, "SFU"))


def _operations(by_phase: dict[Phase, int]) -> list[str]:
    return [f"{by_phase[phase] / 1e6:.2f}" if phase in by_phase else "-" for phase in Phase]


def percent(share: float) -> str:
    """Return a share as text in percent."""
    return f"{100 * share:.1f} %"


def time_and_ps(time_ps: int) -> str:
    """Return a time as readable text, and to the picosecond."""
    return f"{format_time_ps(time_ps)} ({time_ps} ps)"
