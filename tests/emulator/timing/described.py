"""What the event simulation reads: maps and windows of a network's description, slices of a mapping in JSON."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .events import Mark

Table = dict[str, Any]
VALUE_BYTES = 4


def up(count: int, by: int) -> int:
    """Divide and round up."""
    return -(-count // by)


def pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value, value]


def numbered(tables: Table | list[Table], number: int) -> Table:
    """The board or the link of a number; the last one stands for all further ones."""
    each = [t for t in (tables if isinstance(tables, list) else [tables]) for _ in range(t.get("count", 1))]
    return each[min(number, len(each) - 1)]


class Window(NamedTuple):
    """The windows of an operation over the rows, or over the columns, of what it takes."""

    kernel: int
    stride: int
    pad: int
    inputs: int
    outputs: int

    @classmethod
    def of(cls, operation: Table, axis: int, inputs: int) -> Window:
        kernel, stride, pad = 1, 1, 0
        if "kernel" in operation:
            kernel = pair(operation["kernel"])[axis]
            stride = pair(operation.get("stride") or (1 if operation["type"] == "conv" else kernel))[axis]
            pad = pair(operation.get("pad", 0))[axis]
        elif operation["type"] in ("fc", "global-average-pool"):
            kernel = stride = inputs
        return cls(kernel, stride, pad, inputs, (inputs + 2 * pad - kernel) // stride + 1)

    def last_input(self, row: int) -> int:
        """The last input row that an output row waits for; the last output row waits for all."""
        last = row * self.stride - self.pad + self.kernel - 1
        return self.inputs - 1 if row == self.outputs - 1 else min(last, self.inputs - 1)

    def last_error(self, row: int) -> int:
        """The last row of output errors that an input row's errors wait for."""
        return min((row + self.pad) // self.stride, self.outputs - 1)


class Map(NamedTuple):
    """What an operation makes: a layer itself (`opens`), or the SFU behind it. Images are made before layer 0."""

    channels: int
    rows: int
    columns: int
    layer: int
    opens: bool
    operation: Table
    sources: list[str]
    window: Window  # over rows

    def bytes(self, channels: int) -> int:
        return channels * self.rows * self.columns * VALUE_BYTES


def read_maps(network: Table) -> dict[str, Map]:
    """Return all maps by name, in the order of the file."""
    images: Table = {"type": "images"}
    maps = {"images": Map(*network["input"], -1, False, images, [], Window.of(images, 0, 1))}
    layer = -1
    for number, operation in enumerate(network["layers"]):
        sources = operation.get("from", list(maps)[-1])
        sources = [sources] if isinstance(sources, str) else list(sources)
        first, opens = maps[sources[0]], operation["type"] in ("conv", "fc")
        layer += opens
        rows, columns = Window.of(operation, 0, first.rows), Window.of(operation, 1, first.columns)
        joined = sum(maps[name].channels for name in sources) if operation["type"] == "concat" else first.channels
        channels = operation.get("channels") or operation.get("features") or joined
        made = Map(channels, rows.outputs, columns.outputs, layer, opens, operation, sources, rows)
        maps[operation.get("name", f"operation {number}")] = made
    return maps


class Slice:
    """Channels of a layer on a device: cycles and rows of its engines, what they move over the memory port."""

    def __init__(self, described: Table, device: int, layer: int, maps: dict[str, Map]) -> None:
        self.device, self.layer, self.icp, self.end = device, layer, described["cut"] == "ICP", described["end_channel"]
        self.name, self.outputs = next((name, made) for name, made in maps.items() if made.layer == layer)
        [self.source] = self.outputs.sources
        self.inputs, width = maps[self.source], self.end - described["begin_channel"]
        taken, self.made = (width, self.outputs.channels) if self.icp else (self.inputs.channels, width)
        is_fc, pixels = self.outputs.operation["type"] == "fc", self.inputs.rows * self.inputs.columns
        rows_in, columns_in = (1, 1) if is_fc else (self.inputs.rows, self.inputs.columns)
        self.rows = {"fp": self.outputs.rows, "eb": rows_in, "pg": self.outputs.rows}
        columns = {"fp": self.outputs.columns, "eb": columns_in, "pg": self.outputs.columns}
        convolutions = taken * self.made * (pixels if is_fc else 1)
        self.cycles = {at: up(convolutions * columns[at], tiles) for at, tiles in described["tiles"].items()}
        self.weights = taken * self.made * (pixels if is_fc else math.prod(pair(self.outputs.operation["kernel"])))
        weights = described["off_chip_channels"] * self.weights // width * VALUE_BYTES
        activations = self.inputs.bytes(taken) if described["off_chip_activations"] else 0
        passes = self.rows if activations else {"fp": 1, "eb": 1, "pg": 1}
        fp, eb, pg = (passes[at] * weights for at in ("fp", "eb", "pg"))
        moved = {"fp": fp + activations, "eb": eb, "pg": 2 * pg + activations}
        self.port_bytes = {at: moved[at] for at in self.cycles}

    def ended(self, sample: int) -> Mark:
        """The mark of the end of a sample's PG."""
        return "pg", self.device, self.layer, sample, self.rows["pg"] - 1
