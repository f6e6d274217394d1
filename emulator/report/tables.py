"""Tables for people: the history, devices, links and layers of a run, drawn by rich."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..common.units import format_bytes, format_time_ps
from ..mapping.traffic import DataPath
from ..network.layers import Network
from ..network.operator_graph import Phase, operator_graph
from ..run.usage import PHASES, Figures
from .terminal import is_terminal, terminal_width

_PIPE_WIDTH = 160


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = ()) -> None:
    """Print a table; the columns named in `left` are aligned to the left."""
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


def device_rows(figures: Figures) -> None:
    """The devices' busy shares and memory."""
    rows = []
    balanced = any(device.memory.bpram for device in figures.devices)
    for device in figures.devices:
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
    columns = [
        "device",
        "board",
        "slices",
        "DSPs",
        *busy,
        "LPRAM",
        *(["BPRAM"] if balanced else []),
        "Act-RAM",
        "memory",
    ]
    table("Devices", columns, rows, left=("board", "slices"))
    if any(device.memory.share > 1 for device in figures.devices):
        print(
            "memory: LPRAM, LGB, BPRAM, BGB and Act-RAM over the board's on-chip memory. Above 100 % a device needs\n"
            "off-chip memory, whose time is not modelled. `emuchain plan` says what is too much, and what would do."
        )


def link_rows(figures: Figures) -> None:
    """The links' bytes on each data path and utilisation."""
    used = [path for path in DataPath if any(path in link.path_bytes for link in figures.links)]
    rows = [
        [
            f"{link.sender} -> {link.receiver}",
            *(format_bytes(link.path_bytes[path]) if path in link.path_bytes else "-" for path in used),
            percent(link.utilisation),
        ]
        for link in figures.links
    ]
    names = [f"{path.value} {path.name.lower().replace('_', ' ')}" for path in used]
    table("Links", ["link", *names, "utilisation"], rows)


def exchange_rows(exchange: Mapping[str, Any], virtual_time_ps: Any) -> None:
    """What replicas exchanged, epoch by epoch; `virtual_time_ps` is since the start, at the end of each."""
    rows, classes = [], exchange["width_0"] + exchange["width_8"] + exchange["width_16"] + exchange["width_32"]
    for i, epoch in enumerate(exchange["epoch"]):
        took_ps = virtual_time_ps[i] - (virtual_time_ps[i - 1] if i else 0)
        shares = [exchange[f"width_{bits}"][i] / classes[i] for bits in (0, 8, 16, 32)] if classes[i] else []
        rows.append(
            [
                str(epoch),
                format_bytes(int(exchange["value_bytes"][i])),
                format_bytes(int(exchange["made_bytes"][i])),
                f"{exchange['value_bytes'][i] / exchange['made_bytes'][i]:.2f}",
                *([percent(share) for share in shares] or ["-"] * 4),
                percent(exchange["device_ps"][i] / took_ps),
            ]
        )
    columns = ["epoch", "gradients", "sent", "ratio", "0 bits", "8 bits", "16 bits", "32 bits", "of the time"]
    table("Exchange between replicas", columns, rows)


def layer_rows(network: Network) -> None:
    """The network's layers; where any has something pass by, also what each of them reads and what passes by it."""
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
    """A share in percent."""
    return f"{100 * share:.1f} %"


def time_and_ps(time_ps: int) -> str:
    """A time for people and to the picosecond."""
    return f"{format_time_ps(time_ps)} ({time_ps} ps)"
