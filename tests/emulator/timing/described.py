"""What the event simulation reads: maps and windows of a network's description, slices of a mapping
in JSON.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from .events import Mark

Table = dict[str, Any]
VALUE_BYTES = 4


FORMATS: dict[str, tuple[int, ...]] = {
    **{
        "fp32": (32, 0),
        "bf16": (16, 0),
        "fp16": (16, 0),
        "int32": (32, 0),
        "fp8": (8, 0),
        "q2.5": (7, 0),
    },
    **{"mxfp8": (8, 32), "mxfp6": (6, 32), "mxfp4": (4, 32), "int5@12": (5, 12), "e2m3@3": (6, 3)},
    "nvfp4": (4, 16, 4),
}
"""Bits of a value, values that share a scale of 8 bits, and bytes of a row's or channel's own
scale, by a format's name.
"""


class Format(NamedTuple):
    """A format of numbers, as docs/numbers.md has it."""

    bits: int
    block: int
    tensor: int = 0

    def row(self, columns: int, begin: int, end: int) -> int:
        """Bytes of a row of the channels from `begin` to `end` of a map."""
        size = up((end - begin) * columns * self.bits, 8)
        if self.block and end > begin:
            size += columns * len({channel // self.block for channel in range(begin, end)})
            size += self.tensor
        return size

    def sample(self, shape: tuple[int, int, int]) -> int:
        """Bytes of a whole map, whose rows follow one another without gaps."""
        channels, rows, columns = shape
        size = up(channels * rows * columns * self.bits, 8) + rows * self.tensor
        return size + (up(channels, self.block) * rows * columns if self.block else 0)


class Formats(NamedTuple):
    """The formats of a layer."""

    activations: Format
    weights: Format
    errors: Format
    accumulate: Format

    @classmethod
    def of(cls, text: str, layer: str = "") -> Formats:
        """Read what the key `precision` is, as text, for a layer."""
        words = dict(word.split("=") for word in text.split() if "=" in word)
        [base] = [word for word in text.split() if "=" not in word] or ["fp32"]
        own = {f"layer.{layer}.{kind}": kind for kind in ("activations", "weights", "errors")}
        narrow = [
            words.get(key, words.get(f"layer.{layer}", words.get(kind, base)))
            for key, kind in own.items()
        ]
        sums = words.get(f"layer.{layer}.accumulate", words.get("accumulate", "fp32"))
        sums = "fp32" if sums.startswith("dot:") else sums  # of blocks, in fp32
        return cls(*[Format(*FORMATS[name]) for name in (*narrow, sums)])


SYMBOLS = Format(32, 0)
"""The format of numbers of symbols, whatever a run's are."""


def up(count: int, by: int) -> int:
    """Divide and round up."""
    return -(-count // by)


def cost_ps(points: list[list[int]], size: int) -> int:
    """What a message takes beside its bytes, of points of bytes and ns; one of no bytes,
    nothing.
    """
    if not points or not size:
        return 0
    within = min(max(size, points[0][0]), points[-1][0])
    if within == points[0][0]:
        return 1000 * points[0][1]
    begin, end = next((a, b) for a, b in itertools.pairwise(points) if within <= b[0])
    steps, height = end[0] - begin[0], 1000 * (end[1] - begin[1])
    return 1000 * begin[1] + math.floor((within - begin[0]) * height / steps)


def wire_bytes(table: Table, size: int) -> int:
    """Bytes that a link carries in the time of a message."""
    cost = cost_ps(table.get("message_ns", []), size)
    return size + up(cost * round(1000 * table["bandwidth_gbps"]), 8 * 10**6)


def pair(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value, value]


def numbered(tables: Table | list[Table], number: int) -> Table:
    """The board or the link of a number; the last one stands for all further ones."""
    each = [
        t
        for t in (tables if isinstance(tables, list) else [tables])
        for _ in range(t.get("count", 1))
    ]
    return each[min(number, len(each) - 1)]


RECURRENT = {"lstm": 4, "gru": 3}
"""Gates of recurrent layers."""
OPENS = ("conv", "fc", "embedding", "attention", *RECURRENT)
"""Operations that open a layer."""


SIDES = ("above", "below"), ("left", "right")
"""Those of rows and of columns."""


KEEPING = (
    *("batch-norm", "lrn", "layer-norm", "rms-norm", "group-norm", "head-norm"),
    "global-response-norm",
    *("gelu", "silu", "hard-swish", "sigmoid", "multiply", "prelu", "scale", "tanh", "elu", "mish"),
)
"""Operations of an SFU that need a whole map when errors come back."""


class Window(NamedTuple):
    """The windows of an operation over the rows, or over the columns, of what it takes.

    Where errors go `backwards`, their rows are numbered from the map's last row on. Of a `whole`
    map, errors of each row wait for all, too.
    """

    kernel: int
    stride: int
    pad: int
    inputs: int
    outputs: int
    waits_for_all: bool = False
    backwards: bool = False
    whole: bool = False
    scale: int = 1
    linear: bool = False
    zeros: bool = False  # between values, `scale` - 1, and `pad` before the first
    table: bool = False  # which waits for the first row alone, and whose errors nothing else does
    adaptive: bool = False

    @classmethod
    def of(cls, operation: Table, axis: int, inputs: int) -> Window:
        if operation["type"] == "sequence":
            return cls(1, 1, 0, inputs, 1) if axis else cls(1, 1, 0, inputs, inputs)
        kernel, stride, pad = 1, 1, 0
        if "kernel" in operation:
            kernel = pair(operation["kernel"])[axis]
            kernel += (kernel - 1) * (pair(operation.get("dilation", 1))[axis] - 1)
            stride = pair(
                operation.get("stride") or (1 if operation["type"] == "conv" else kernel)
            )[axis]
            pad = pair(operation.get("pad", 0))[axis]
        elif operation["type"] in ("fc", "global-average-pool") or (
            operation["type"] in ("last-step", "first-step") and not axis
        ):
            kernel = stride = inputs
        elif operation["type"] == "upsample":
            scale = pair(operation["scale"])[axis]
            linear = operation.get("mode") == "bilinear"
            return cls(1, 1, 0, inputs, inputs * scale, scale=scale, linear=linear)
        elif operation["type"] == "pixel-shuffle":
            scale = operation["scale"]
            return cls(1, 1, 0, inputs, inputs * scale, scale=scale)
        elif operation["type"] == "pixel-unshuffle":
            kernel = stride = operation["scale"]
        elif operation["type"] == "adaptive-average-pool":
            return cls(1, 1, 0, inputs, pair(operation["size"])[axis], adaptive=True)
        elif operation["type"] == "zeros":
            scale = pair(operation.get("scale", 1))[axis]
            before, after = (operation.get(side, 0) for side in SIDES[axis])
            outputs = (inputs - 1) * scale + 1 + before + after
            return cls(1, 1, before, inputs, outputs, scale=scale, zeros=True)
        elif operation["type"] == "rows" and not axis:
            return cls(1, 1, -operation.get("first", 0), inputs, operation["count"])
        elif operation["type"] == "attention" and "keys" in operation and not axis:
            before = 2 * operation["keys"]  # keys and values, before the queries
            return cls(1, 1, -before, inputs, inputs - before)
        waits_for_all = operation.get("bidirectional", False)
        if operation["type"] == "attention":
            waits_for_all = not operation.get("causal", False)
        outputs, whole = (
            (inputs + 2 * pad - kernel) // stride + 1,
            operation["type"] in ("group-norm", "global-response-norm"),
        )
        if operation.get("ceil"):  # windows that begin within, while there are values left
            last = itertools.takewhile(
                lambda n: (
                    n * stride < inputs + pad and (n - 1) * stride + kernel < inputs + 2 * pad
                ),
                itertools.count(outputs),
            )
            outputs += len([*last])
        return cls(kernel, stride, pad, inputs, outputs, waits_for_all or whole, whole=whole)

    def near(self, row: int) -> list[int]:
        """The input rows that a row of larger maps lies between, or that an adaptive pool takes."""
        if self.adaptive:
            begin, end = (own * self.inputs / self.outputs for own in (row, row + 1))
            return [*range(math.floor(begin), math.ceil(end))]
        if not self.linear:
            return [row // self.scale]
        at = int(max(0.0, (row + 0.5) / self.scale - 0.5))
        return [at, min(at + 1, self.inputs - 1)]

    def last_input(self, row: int) -> int:
        """The last input row that an output row waits for; the last output row waits for all."""
        if self.zeros:
            reached = max(0, row - self.pad) // self.scale
            return self.inputs - 1 if row == self.outputs - 1 else min(reached, self.inputs - 1)
        if self.scale > 1 or self.adaptive:
            return max(self.near(row))
        if self.table:
            return 0
        last = row * self.stride - self.pad + self.kernel - 1
        return (
            self.inputs - 1
            if self.waits_for_all or row == self.outputs - 1
            else min(last, self.inputs - 1)
        )

    def last_error(self, row: int) -> int:
        """The last row of output errors that an input row's errors wait for; -1 if none."""
        if self.table:
            return self.outputs - 1 if row == self.inputs - 1 else -1
        if self.whole:
            return self.outputs - 1
        if self.zeros and not self.backwards:
            return row * self.scale + self.pad
        if (self.scale > 1 or self.adaptive) and not self.backwards:
            return max(out for out in range(self.outputs) if row in self.near(out))
        if self.backwards:
            waiting = (
                out for out in range(self.outputs) if self.last_input(out) >= self.inputs - 1 - row
            )
            return self.outputs - 1 - next(waiting)
        return min(max(0, row + self.pad) // self.stride, self.outputs - 1)


class Map(NamedTuple):
    """What an operation makes: a layer itself (`opens`), or the SFU behind it. Images are made
    before layer 0.
    """

    channels: int
    rows: int
    columns: int
    layer: int
    opens: bool
    operation: Table
    sources: list[str]
    window: Window  # over rows
    frozen: bool = False  # whether its layer is
    fixed: bool = False  # whether nothing that learns lies before it, in a run with frozen layers

    def bytes(self, channels: int) -> int:
        return channels * self.rows * self.columns * VALUE_BYTES

    @property
    def joins_rows(self) -> bool:
        """Whether its rows are those of its sources, one after another."""
        return self.operation.get("axis") == "rows"


def read_maps(network: Table) -> dict[str, Map]:
    """Return all maps by name, in the order of the file."""
    images: Table = {"type": "images"}
    maps = {"images": Map(*network["input"], -1, False, images, [], Window.of(images, 0, 1))}
    layer, operations = -1, list(network["layers"])
    if operations[0]["type"] == "sequence":  # images enter as sequences
        channels, rows, columns = network["input"]
        maps["images"] = maps["images"]._replace(channels=channels * columns, columns=1)
        del operations[0]
    backwards = any(operation["type"] in (*RECURRENT, "attention") for operation in operations)
    for number, operation in enumerate(operations):
        sources = operation.get("from", list(maps)[-1])
        sources = [sources] if isinstance(sources, str) else list(sources)
        first, opens = maps[sources[0]], operation["type"] in OPENS
        if operation["type"] == "multiply":  # one may have a value for each channel
            first = max((maps[name] for name in sources), key=lambda made: made.bytes(1))
        layer += opens
        rows, columns = Window.of(operation, 0, first.rows), Window.of(operation, 1, first.columns)
        if operation["type"] == "transpose":  # each row has a value of all others
            rows = rows._replace(outputs=first.channels, waits_for_all=True, whole=True)
        joined, made_rows = first.channels, rows.outputs
        if operation.get("axis") == "rows":
            made_rows = sum(maps[name].rows for name in sources)
        elif operation["type"] == "channels":
            joined = operation["count"]
        elif operation["type"] == "pixel-shuffle":
            joined = first.channels // operation["scale"] ** 2
        elif operation["type"] == "pixel-unshuffle":
            joined = first.channels * operation["scale"] ** 2
        elif operation["type"] == "transpose":
            joined = first.rows
        elif operation["type"] == "concat":
            joined = sum(maps[name].channels for name in sources)
        if operation["type"] == "sequence":
            joined = first.channels * first.columns
        channels = operation.get("channels") or operation.get("features") or joined
        if "buckets" in operation:  # rows of a table, with a group's terms in its own channels
            groups = operation.get("kv_heads") or operation["heads"]
            table = up(operation["heads"] // groups * operation["buckets"], joined // groups)
            if operation["type"] == "attention":
                made_rows = first.rows - table
                rows = rows._replace(pad=-table, outputs=made_rows)
            else:
                made_rows, rows = table, rows._replace(outputs=table, table=True)
        if operation["type"] == "attention":
            heads, keys = operation["heads"], operation.get("kv_heads") or operation["heads"]
            channels = joined if "keys" in operation else joined * heads // (heads + 2 * keys)
        if operation["type"] in RECURRENT:
            channels = Recurrent.of(operation, 0).values
        window = rows._replace(backwards=backwards)
        made = Map(channels, made_rows, columns.outputs, layer, opens, operation, sources, window)
        maps[operation.get("name", f"operation {number}")] = made
    return _with_frozen(maps, network.get("freeze", []))


def _with_frozen(maps: dict[str, Map], freeze: list[str]) -> dict[str, Map]:
    """Mark maps of frozen layers, and those that need no errors."""
    layers = {maps[name].layer for name in freeze}
    marked = {"images": maps["images"]._replace(fixed=bool(layers))}
    for name, made in list(maps.items())[1:]:
        frozen, kind = made.layer in layers, made.operation["type"]
        rests = frozen or made.operation.get("scale") is False
        learns = not rests and kind in (
            "conv",
            "fc",
            "embedding",
            *RECURRENT,
            "batch-norm",
            "group-norm",
            "layer-norm",
            "rms-norm",
            "head-norm",
            "score-table",
            "prelu",
            "scale",
            "shift",
        )
        fixed = not learns and all(marked[source].fixed for source in made.sources)
        marked[name] = made._replace(frozen=frozen, fixed=fixed)
    return marked


class Recurrent(NamedTuple):
    """A recurrent layer's numbers, as docs/time-model.md has them; its pieces are what it may be
    cut into.
    """

    inputs: int
    units: int
    gates: int
    directions: int
    projection: int
    pieces: int

    @classmethod
    def of(cls, operation: Table, inputs: int) -> Recurrent:
        units, directions = operation["units"], 2 if operation.get("bidirectional") else 1
        whole = directions == 2 or operation.get("projection") or operation.get("reset") == "before"
        gates, projection = RECURRENT[operation["type"]], operation.get("projection") or 0
        return cls(inputs, units, gates, directions, projection, 1 if whole else units)

    @property
    def state(self) -> int:
        return self.projection or self.units

    @property
    def values(self) -> int:
        """Values of a step's outputs."""
        return self.directions * self.state

    def of_gates(self, columns: int) -> int:
        """Numbers for `columns` columns a gate, with those of the projection, in all directions."""
        return self.directions * self.units * (self.gates * columns + self.projection)

    def work(self, at: str, *, needs_errors: bool) -> int:
        """Multiply-accumulates of a row."""
        return self.of_gates(self.state + (self.inputs if at != "eb" or needs_errors else 0))

    @property
    def weights(self) -> int:
        """Weights, with both biases of each gate."""
        return self.of_gates(self.inputs + self.state + 2)

    @property
    def kept(self) -> int:
        """Values of a step that are kept besides the inputs."""
        return self.directions * (self.state + self.units * (self.gates + 1))


class Slice:
    """Channels of a layer on a device: cycles and rows of its engines, what they move over the
    memory port.
    """

    def __init__(
        self, described: Table, device: int, layer: int, maps: dict[str, Map], rows_at_once: int
    ) -> None:
        self.device, self.layer, self.icp, self.end = (
            device,
            layer,
            described["cut"] == "ICP",
            described["end_channel"],
        )
        self.name, self.outputs = next(
            (name, made) for name, made in maps.items() if made.layer == layer
        )
        [self.source] = self.outputs.sources
        self.inputs, width = maps[self.source], self.end - described["begin_channel"]
        self.width, self.block = width, 1
        taken, self.made = (
            (width, self.outputs.channels) if self.icp else (self.inputs.channels, width)
        )
        is_fc, pixels = (
            self.outputs.operation["type"] == "fc",
            self.inputs.rows * self.inputs.columns,
        )
        rows_in, columns_in = (1, 1) if is_fc else (self.inputs.rows, self.inputs.columns)
        self.rows = {"fp": self.outputs.rows, "eb": rows_in, "pg": self.outputs.rows}
        columns = {"fp": self.outputs.columns, "eb": columns_in, "pg": self.outputs.columns}
        operation, kept = self.outputs.operation, 0
        of_one, self.passed = (
            taken,
            self.end if self.icp else 0,
        )  # channels of its inputs that those behind do not need
        if (groups := operation.get("groups", 1)) > 1:
            of_one, outputs = self.inputs.channels // groups, self.outputs.channels // groups
            begun, self.passed = described["begin_channel"] // outputs, self.end // outputs * of_one
            taken = (up(self.end, outputs) - begun) * of_one
        convolutions = of_one * self.made * (pixels if is_fc else 1)
        taps = math.prod(pair(operation.get("kernel", 1)))
        self.matrices: dict[str, tuple[int, int, int]] = {}
        """Of a convolution, its results as two sides and the products of each, by engine."""
        if operation["type"] == "conv":
            made_pixels = self.outputs.rows * self.outputs.columns
            self.matrices = {
                "fp": (self.made, made_pixels, of_one * taps),
                "eb": (of_one, pixels, self.made * taps),
                "pg": (self.made, of_one * taps, made_pixels),
            }
        self.tiles: dict[str, int] = described["tiles"]
        work = dict.fromkeys(
            ("fp", "eb", "pg"), self.made if operation["type"] == "embedding" else convolutions
        )
        self.weights = (
            of_one * self.made * (pixels if is_fc else math.prod(pair(operation.get("kernel", 1))))
        )
        self.recurs, self.attends = operation["type"] in RECURRENT, operation["type"] == "attention"
        if self.recurs:
            layer_is = Recurrent.of(operation, self.inputs.channels)
            needs_errors = self.source != "images"
            work = {
                at: layer_is.work(at, needs_errors=needs_errors) * width // layer_is.pieces
                for at in work
            }
            self.weights = layer_is.weights * width // layer_is.pieces
            kept = up(self.inputs.rows * layer_is.kept * width, layer_is.pieces) * VALUE_BYTES
            self.made = layer_is.values if layer_is.pieces == 1 else width
        pieces = {
            "attention": operation.get("kv_heads") or operation.get("heads"),
            "gru": 0,
            "lstm": 0,
        }
        whole = pieces.get(
            operation["type"], self.inputs.channels if self.icp else self.outputs.channels
        )
        in_sfu = sum(
            maps[source].bytes(maps[source].channels)
            for made in maps.values()
            if made.layer == layer and made.operation["type"] in KEEPING and not made.fixed
            for source in made.sources
        )
        if self.end < (layer_is.pieces if self.recurs else whole):
            in_sfu = 0
        self.out_end = self.end
        *_, closing = maps.values()
        self.makes_loss = (
            closing.operation.get("vocabulary_parallel", False) and self.name in closing.sources
        )
        if self.makes_loss:
            self.out_end, kept = 2, self.outputs.bytes(width)
        if self.attends:
            groups = operation.get("kv_heads") or operation["heads"]  # what it may be cut into
            heads, tokens = operation["heads"] // groups * width, self.outputs.rows
            parts = operation["heads"] + 2 * groups * ("keys" not in operation)
            size, seen = self.inputs.channels // parts, operation.get("keys", tokens)
            keys = seen + 1 if operation.get("causal") else 2 * seen  # twice the mean of a row
            self.rows["eb"] = tokens
            group = self.inputs.channels // groups
            taken, self.passed = group * width, group * self.end
            self.made, self.out_end = size * heads, size * operation["heads"] // groups * self.end
            work = {"fp": heads * size * keys, "eb": heads * up(5 * size * keys, 2)}
            self.weights, kept = 0, 2 * tokens * heads * VALUE_BYTES
            if described["off_chip_activations"]:
                self.block = rows_at_once
            again = size * width * up(tokens * keys // 2, self.block) * VALUE_BYTES
            self.cycles = {at: up(work[at], tiles) for at, tiles in described["tiles"].items()}
            moved = (
                self.inputs.bytes(taken) + kept + in_sfu if described["off_chip_activations"] else 0
            )
            self.port_bytes = {
                "fp": moved + 2 * again * (moved > 0),
                "eb": moved + 6 * again * (moved > 0),
            }
            del self.rows["pg"]
            return
        self.cycles = {
            at: up(work[at] * columns[at], tiles) for at, tiles in described["tiles"].items()
        }
        looks_up = operation["type"] == "embedding"
        weights = described["off_chip_channels"] * self.weights // width * VALUE_BYTES
        off_chip = described["off_chip_activations"]
        activations = self.inputs.bytes(1 if looks_up else taken) + kept + in_sfu if off_chip else 0
        attention = any(made.operation["type"] == "attention" for made in maps.values())
        pixel_rows = operation["type"] == "conv" and [
            *pair(operation["kernel"]),
            self.inputs.columns,
        ] == [1, 1, 1]
        if attention and pixel_rows and weights and activations:
            self.block = rows_at_once
        by_row = {at: off_chip or (self.recurs and at != "pg") for at in self.rows}
        passes = {at: up(rows, self.block) if by_row[at] else 1 for at, rows in self.rows.items()}
        if looks_up:  # a row of weights for each symbol that comes
            weights, passes = described["off_chip_channels"] * VALUE_BYTES, self.rows
        fp, eb, pg = (passes[at] * weights for at in ("fp", "eb", "pg"))
        if self.outputs.frozen:  # EB takes what the SFU keeps
            activations = in_sfu if off_chip else 0
            eb += activations
            del self.rows["pg"]
        moved = {"fp": fp + activations, "eb": eb, "pg": 2 * pg + activations}
        self.port_bytes = {at: moved[at] for at in self.cycles}

    def together(self, at: str, row: int) -> range:
        """The rows of an engine that wait for one another, as it reads once what all of them need
        off chip.
        """
        first = row - row % self.block
        return range(first, min(first + self.block, self.rows[at]))

    def ended(self, sample: int) -> Mark:
        """The mark of the end of a sample's PG."""
        return "pg", self.device, self.layer, sample, self.rows["pg"] - 1
