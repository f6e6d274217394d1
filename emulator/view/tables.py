"""Tables of the devices, links, exchanges and layers of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common import format_bytes, format_time_ps, percent
from ..mapping import DataPath
from ..network import Network, Phase, operator_graph
from ..run import PHASES, DeviceUsage, Usage
from .table import most_loaded, table
from .terminal import say

_WIDTHS = (0, 8, 16, 32)
"""Bits of compressed values."""

_MOST_NAMES = 4
"""Slices of a device that are named where the table is short."""


def device_rows(usage: Usage, full: bool = False) -> None:
    """Print the devices' busy shares and memory: of the most loaded devices, or of all."""

    def load(device: DeviceUsage) -> float:
        return max(*device.busy.values(), device.memory.share, 0.0)

    title, shown = most_loaded("Devices", "devices", usage.devices, load, full)
    differ = len({device.board for device in usage.devices}) > 1
    rows = [
        [
            str(device.device),
            *([device.board] if differ else []),
            slice_names(device.slices, full),
            f"{device.multipliers:,}",
            *(percent(device.busy[phase]) if phase in device.busy else "-" for phase in PHASES),
        ]
        for device in shown
    ]
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
    """Print how busy a pair's resources are, and what its links have carried, in a run of `total_ps`."""
    columns = ["resource", "busy", "of the time", "carried", "longest task"]
    rows = [
        [
            str(resources["resource"][i]),
            format_time_ps(int(resources["busy_ps"][i])),
            percent(int(resources["busy_ps"][i]) / max(1, total_ps)),
            format_bytes(int(resources["carried_bytes"][i])) if resources["carried_bytes"][i] else "-",
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
                *([format_bytes(memory.off_chip), percent(device.port_utilisation)] if off_chip else []),
            ]
        )
    stored = ["stored for others"] if balanced else []
    columns = ["device", "parameters", "gradients", *stored, "activations", "of the board's memory"]
    table("Memory of these devices", [*columns, *(["off chip", "port busy"] if off_chip else [])], rows)


def slice_names(names: Sequence[str], full: bool) -> str:
    """Return the names of a device's slices, a line each; of many only the first and the last, unless `full`."""
    if full or len(names) <= _MOST_NAMES:
        return ",\n".join(names)
    return f"{names[0]} to\n{names[-1]}: {len(names)} slices"


def link_rows(usage: Usage, full: bool = False) -> None:
    """Print the bytes on each data path, and utilisation: of the most loaded links, or of all."""
    title, shown = most_loaded("Links", "links", usage.links, lambda link: link.utilisation, full)
    used = [path for path in DataPath if any(path in link.path_bytes for link in shown)]
    rows = [
        [
            f"{link.sender} -> {link.receiver}",
            *(format_bytes(link.path_bytes[path]) if path in link.path_bytes else "-" for path in used),
            percent(link.utilisation),
        ]
        for link in shown
    ]
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
    """Print what replicas exchanged in each epoch; `virtual_time_ps` is the time from the start to each epoch's end."""
    has_widths = any(exchange[f"width_{bits}"].any() for bits in _WIDTHS)  # where the codec is INCEPTIONN's
    table("Exchange between replicas", *exchange_table(exchange, virtual_time_ps, _WIDTHS if has_widths else ()))


def rounding_rows(rounding: Mapping[str, Any], kinds: Sequence[str]) -> None:
    """Print what was rounded in the last epoch, by kind of number, and the share of weights that did not move."""
    rows = []
    for kind in kinds:
        saturated, flushed = (float(rounding[f"{kind}_{what}"][-1]) for what in ("saturated", "flushed"))
        if saturated == saturated:  # not of kinds in single precision
            rows.append([kind, percent(saturated), percent(flushed)])
    if rows:
        table("Rounding, last epoch", ["kind", "saturated", "flushed to zero"], rows, names=("kind",))
        say(f"weights that an update left unmoved: {percent(float(rounding['weights_unmoved'][-1]))}")


def exchange_table(
    exchange: Mapping[str, Any], virtual_time_ps: Any, widths: Sequence[int]
) -> tuple[list[str], list[list[str]]]:
    """Return the columns and rows of a table of exchanges, with the shares of values of some widths in bits."""
    rows = []
    for i, epoch in enumerate(exchange["epoch"]):
        took_ps = max(1, virtual_time_ps[i] - (virtual_time_ps[i - 1] if i else 0))
        counts = [exchange[f"width_{bits}"][i] for bits in widths]
        rows.append(
            [
                str(epoch),
                format_bytes(int(exchange["value_bytes"][i])),
                format_bytes(int(exchange["compressed_bytes"][i])),
                f"{exchange['value_bytes'][i] / exchange['compressed_bytes'][i]:.2f}",
                *(percent(count / sum(counts)) if sum(counts) else "-" for count in counts),
                percent(exchange["device_ps"][i] / took_ps),
            ]
        )
    return ["epoch", "gradients", "sent", "ratio", *(f"{bits} bits" for bits in widths), "of the time"], rows


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
