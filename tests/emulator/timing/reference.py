"""A second simulator, written from docs/time-model.md alone: recurrences over whole numbers, one row after another.

It shares with the emulator what the time model starts from: layers and what they read, the slices of each device, the
multipliers of their engines, what is off chip, blocks of balanced parameters, boards, links, and the staleness of each
sample. All rows, bytes and times are worked out here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from emuchain.emulator.mapping import Cut, Slice
from emuchain.emulator.network import Layer, SfuStep, Tensor
from emuchain.emulator.schedule import Staleness
from emuchain.emulator.timing import Timing

VALUE_BYTES = 4
RIGHT = (1, 2, 5)
"""The paths that go right; the others go left."""

Rows = list[int]
"""The time of each row of a map."""
Maps = dict[int, Rows]
"""The times of maps, by the number of the tensor, or of the block of balanced parameters."""


@dataclasses.dataclass
class Fifo:
    """Serves rows in order, each for `row_ps`; `left_ps` says when each of them left."""

    row_ps: int
    latency_ps: int = 0
    left_ps: Rows = dataclasses.field(default_factory=list)

    def serve(self, ready_ps: Rows) -> Rows:
        """Return when the rows arrive."""
        for ready in ready_ps:
            self.left_ps.append(max(ready, self.left_ps[-1] if self.left_ps else 0) + self.row_ps)
        return [left + self.latency_ps for left in self.left_ps[-len(ready_ps) :]]


@dataclasses.dataclass
class Engine:
    """FP, EB or PG of a slice, and its share of the memory port, if it moves anything."""

    rows: int
    work: Fifo
    port: Fifo | None = None

    def serve(self, ready_ps: Rows) -> Rows:
        """Return when the rows are done."""
        return self.work.serve(self.port.serve(ready_ps) if self.port else ready_ps)

    def start_ps(self) -> int:
        """When the sample that was served last started."""
        first = self.port or self.work
        return first.left_ps[-self.rows] - first.row_ps


@dataclasses.dataclass(frozen=True)
class Carried:
    """What a path carries over a link for a sample."""

    path: int
    number: int
    rows: int
    bytes: int


class Reference:
    """A chain. After `run`, `resources` have all times, by the names that observers see."""

    def __init__(self, timing: Timing) -> None:
        self.devices, self.cluster = timing.mapping.devices, timing.cluster
        self.has_fixed_paths = self.cluster.link.share.value == "paths"
        self.blocks = dict(enumerate(timing.blocks))
        self.resources: dict[str, Fifo] = {}
        sample_ps = [1]
        self.engines: list[dict[Slice, dict[str, Engine]]] = []
        for device, slices in enumerate(self.devices):
            multipliers = [[of.multipliers if of else 0 for of in (e.fp, e.eb, e.pg)] for e in timing.engines[device]]
            self.engines.append({s: self._engines(device, s, m) for s, m in zip(slices, multipliers, strict=True)})
            if timing.off_chip:
                held = [(of.channels, of.activations) for of in timing.off_chip[device]]
                self._open_port(device, dict(zip(slices, held, strict=True)))
            for engine in (engine for of in self.engines[device].values() for engine in of.values()):
                sample_ps += [engine.rows * fifo.row_ps for fifo in (engine.work, engine.port) if fifo]
        self.links: list[dict[tuple[int, int], Fifo]] = []
        for link in range(len(self.devices) - 1):
            carried = list(self._carried(link))
            self.links.append({(of.path, of.number): self._path(link, of, carried) for of in carried})
            sample_ps += [of.rows * self.links[link][of.path, of.number].row_ps for of in carried]
        self.interval_ps = max(sample_ps)

    def _engines(self, device: int, part: Slice, multipliers: Sequence[int]) -> dict[str, Engine]:
        layer, engines = part.layer, {}
        inputs, tile = len(part.in_channels), math.prod(layer.kernel)
        (_, in_rows, in_columns), (_, out_rows, out_columns) = layer.input, layer.output
        if not layer.convolves:
            inputs, tile, in_rows, in_columns = inputs * in_rows * in_columns, 1, 1, 1
        sizes = {"FP": (out_rows, out_columns), "EB": (in_rows, in_columns), "PG": (out_rows, out_columns)}
        for (phase, (rows, columns)), count in zip(sizes.items(), multipliers, strict=True):
            if phase != "EB" or not layer.reads.is_images:
                cycles = up(inputs * len(part.out_channels) * columns, count // tile)
                work = Fifo(cycles * self.cluster.board(device).period_ps)
                engines[phase] = Engine(rows, work)
                self.resources[f"{phase} of {part} on device {device}"] = work
        return engines

    def _open_port(self, device: int, held: Mapping[Slice, tuple[int, bool]]) -> None:
        moved: dict[tuple[Slice, str], int] = {}
        for part, (channels, is_off_chip) in held.items():
            across = len(part.out_channels if part.cut is Cut.ICP else part.in_channels)
            kernel = part.layer.kernel if part.layer.convolves else part.layer.input[1:]
            weights = VALUE_BYTES * channels * across * math.prod(kernel)
            maps = VALUE_BYTES * len(part.in_channels) * math.prod(part.layer.input[1:]) if is_off_chip else 0
            for phase, engine in self.engines[device][part].items():
                passes = engine.rows if is_off_chip else 1
                times_weights, times_maps = {"FP": (1, 1), "EB": (1, 0), "PG": (2, 1)}[phase]
                moved[part, phase] = times_weights * passes * weights + times_maps * maps
        for (part, phase), size in moved.items():
            if size:
                engine = self.engines[device][part][phase]
                mbytes_per_s = round(1000 * (self.cluster.board(device).off_chip_gbytes_per_s or 0))
                engine.port = Fifo(up(10**6 * sum(moved.values()), mbytes_per_s * engine.rows))
                self.resources[f"memory of device {device}, {phase} of {part}"] = engine.port

    def _carried(self, link: int) -> Iterator[Carried]:
        part = self.devices[link][-1]
        layer = part.layer
        cut = {} if part.is_last else {layer.makes: (2, 3), layer.reads: (1, 4)}
        whole = {tensor: (1, 4) for tensor in (layer.hands_on if part.is_last else layer.bypass)}
        for tensor, paths in {**cut, **whole}.items():
            channels, rows, columns = tensor.shape
            if tensor is layer.makes and tensor not in whole:
                steps = self._before_sending(layer)
                _, rows, columns = steps[-1].output if steps else tensor.shape
            if tensor not in whole:
                if tensor is layer.makes:
                    channels = channels if part.cut is Cut.ICP else part.end
                else:
                    channels -= part.end if part.cut is Cut.ICP else 0
            for path in paths:
                if path != 4 or not tensor.is_images:
                    yield Carried(path, tensor.number, rows, VALUE_BYTES * channels * rows * columns)
        for number, block in self.blocks.items():
            if block.store_device <= link < block.user_device:
                for path in (5, 6):
                    yield Carried(path, number, 1, block.parameter_bytes)

    def _path(self, link: int, of: Carried, carried: Sequence[Carried]) -> Fifo:
        wire, to_right = self.cluster.link_at(link), of.path in RIGHT
        beside = [other for other in carried if (other.path in RIGHT) == to_right]
        as_long_as = sum(other.bytes for other in beside)
        if self.has_fixed_paths:
            parts = 3 if any(other.path in (5, 6) for other in beside) else 2
            as_long_as = parts * sum(other.bytes for other in beside if other.path == of.path)
        fifo = Fifo(up(8 * 10**6 * as_long_as, wire.bandwidth_mbps * of.rows), wire.latency_ps)
        sender, receiver = (link, link + 1) if to_right else (link + 1, link)
        self.resources[f"link {sender} -> {receiver}, path {of.path} #{of.number}"] = fifo
        return fifo

    def run(self, samples: int, batch: int, staleness: Sequence[Staleness], epochs: int = 1) -> int:
        """Return the virtual time of the run, in ps."""
        versions = [[0] for _ in self.devices]
        enters_ps = 0
        for _ in range(epochs):
            versions = [made[-1:] for made in versions]
            for sample in range(samples):
                step, place = divmod(sample, batch)
                late = [(of.forward[place], of.backward[place]) for of in staleness] or [(0, 0)] * len(versions)
                weights = [[v[max(0, step - behind)] for behind in b] for v, b in zip(versions, late, strict=True)]
                updated = self._sample(enters_ps, weights)
                enters_ps = max(enters_ps + self.interval_ps, weights[0][0])
                if place == batch - 1 or sample == samples - 1:
                    versions = [[*made, time] for made, time in zip(versions, updated, strict=True)]
        return max(made[-1] for made in versions)

    def staleness(self, batch: int) -> list[list[tuple[int, int]]]:
        """Return for each device by how many updates each sample of a mini-batch is late, in FP and in EB.

        For an own `Reference`: mini-batches are run until two in a row agree, but at most 256.
        """
        made: list[Rows] = [[] for _ in self.devices]
        found: list[list[list[tuple[int, int]]]] = []
        while len(found) < 256 and (len(found) < 2 or found[-1] != found[-2]):
            step, late = len(found), [[] for _ in self.devices]
            for sample in range(step * batch, (step + 1) * batch):
                updated = self._sample(sample * self.interval_ps, [[0, 0]] * len(self.devices))
                for own, times, starts in zip(late, made, self.starts_ps, strict=True):
                    own.append(tuple(sum(time > start for time in times) for start in starts))
            for times, time in zip(made, updated, strict=True):
                times.append(time)
            for block in sorted(self.blocks.values(), key=lambda block: block.user_device):
                pairs = zip(late[block.user_device], late[block.store_device], strict=True)
                late[block.user_device] = [tuple(map(max, *pair)) for pair in pairs]
            found.append(late)
        return found[-1]

    def _sample(self, enters_ps: int, weights: Sequence[Sequence[int]]) -> Rows:
        """Return when each device has updated, if the sample is the last one of its mini-batch."""
        layer = self.devices[0][0].layer
        self.starts_ps = [[0, 0] for _ in self.devices]
        maps: Maps = {layer.reads.number: [enters_ps] * layer.input[1]}
        stored: Maps = {}
        for device, slices in enumerate(self.devices):
            for part in slices:
                layer, engine = part.layer, self.engines[device][part]["FP"]
                parameters = [stored[n][0] for n in self._used(device, part)]
                inputs = maps[layer.reads.number]
                last = needed(layer) if layer.convolves else [len(inputs) - 1]
                done = engine.serve([max(inputs[row], weights[device][0], *parameters) for row in last])
                steps = self._before_sending(layer)
                for step in filter(pools, steps):
                    done = [done[row] for row in needed(step)]
                maps[layer.makes.number] = done if part.is_first else later(done, maps[layer.makes.number])
                if part.is_last:
                    if steps:
                        maps[steps[-1].makes.number] = maps[layer.makes.number]
                    self._sfu(layer.sfu[len(steps) :], maps)
            self.starts_ps[device][0] = start_ps = self.engines[device][slices[0]]["FP"].start_ps()
            stored |= {n: [start_ps] for n, block in self.blocks.items() if block.store_device == device}
            self._send(device, {1: maps, 2: maps, 5: stored})
        return self._backward({tensor.number: maps[tensor.number] for tensor in layer.hands_on}, weights)

    def _backward(self, errors: Maps, weights: Sequence[Sequence[int]]) -> Rows:
        updated = [0] * len(self.devices)
        gradients: Maps = {}
        for device in reversed(range(len(self.devices))):
            cycle_ps = self.cluster.board(device).period_ps
            for part in reversed(self.devices[device]):
                layer, engines = part.layer, self.engines[device][part]
                steps = self._before_sending(layer)
                if part.is_last:
                    self._sfu_errors(layer.sfu[len(steps) :], errors)
                    if steps:
                        errors[layer.makes.number] = errors[steps[-1].makes.number]
                outputs = errors[layer.makes.number]
                for step in filter(pools, reversed(steps)):
                    outputs = [outputs[row] for row in reaching(step)]
                last = reaching(layer) if layer.convolves else [0]
                begun_ps = outputs[last[0]]
                if "EB" in engines:
                    done = engines["EB"].serve([max(outputs[row], weights[device][1]) for row in last])
                    begun_ps = engines["EB"].start_ps()
                    add(errors, layer.reads, done if layer.convolves else done * layer.input[1])
                if part is self.devices[device][-1]:
                    self.starts_ps[device][1] = begun_ps
                end_ps = engines["PG"].serve(outputs)[-1]
                updated[device] = max(updated[device], end_ps + len(part.out_channels) * cycle_ps)
                gradients |= {n: [end_ps] for n in self._used(device, part)}
            for n, block in self.blocks.items():
                if block.store_device == device:
                    updated[device] = max(updated[device], gradients[n][0] + len(block.part.out_channels) * cycle_ps)
            self._send(device - 1, {3: errors, 4: errors, 6: gradients})
        return updated

    def _used(self, device: int, part: Slice) -> list[int]:
        """The blocks of balanced parameters that a slice uses."""
        return [n for n, block in self.blocks.items() if (block.user_device, block.layer) == (device, part.layer)]

    def _send(self, link: int, paths: Mapping[int, Maps]) -> None:
        if 0 <= link < len(self.links):
            for (path, number), fifo in self.links[link].items():
                if path in paths:
                    paths[path][number] = fifo.serve(paths[path][number])

    def _before_sending(self, layer: Layer) -> Sequence[SfuStep]:
        """The first steps of the SFU that each slice carries out on its own outputs, before it sends them."""
        steps: list[SfuStep] = []
        if self.has_fixed_paths and layer.input[0] < min(16, layer.channels):
            made = layer.makes
            for step in layer.sfu:
                users = [other for other in layer.sfu if made in other.reads]
                if users != [step] or made in layer.hands_on or step.operation.type in ("lrn", "add", "concat"):
                    break
                steps, made = [*steps, step], step.makes
        return steps

    def _sfu(self, steps: Sequence[SfuStep], maps: Maps) -> None:
        for step in steps:
            made = [max(rows) for rows in zip(*(maps[tensor.number] for tensor in step.reads), strict=True)]
            maps[step.makes.number] = [made[row] for row in needed(step)] if pools(step) else made

    def _sfu_errors(self, steps: Sequence[SfuStep], errors: Maps) -> None:
        for step in reversed(steps):
            made = errors[step.makes.number]
            for tensor in step.reads:
                add(errors, tensor, [made[row] for row in reaching(step)] if pools(step) else made)


def up(number: int, by: int) -> int:
    """Divide and round up."""
    return -(-number // by)


def later(one: Rows, other: Rows) -> Rows:
    """Return when rows of both are there."""
    return [max(times) for times in zip(one, other, strict=True)]


def add(errors: Maps, tensor: Tensor, rows: Rows) -> None:
    """Add errors of a map to those that are there."""
    errors[tensor.number] = later(errors[tensor.number], rows) if tensor.number in errors else rows


def pools(step: SfuStep) -> bool:
    """Whether windows slide over the map."""
    return hasattr(step.operation, "kernel")


def sizes(of: Layer | SfuStep) -> tuple[int, int, int, int, int]:
    """Return rows of input and output, and rows of kernel, stride and padding."""
    window = of.window if isinstance(of, Layer) else (of.operation.kernel, of.operation.stride, of.operation.pad)
    return of.input[1], of.output[1], *(pair[0] for pair in window)


def needed(of: Layer | SfuStep) -> list[int]:
    """Return for each output row the last input row that it waits for."""
    rows_in, rows_out, kernel, stride, pad = sizes(of)
    last = [min(row * stride - pad + kernel - 1, rows_in - 1) for row in range(rows_out)]
    return [*last[:-1], rows_in - 1]


def reaching(of: Layer | SfuStep) -> list[int]:
    """Return for each input row the last row of output errors that reaches it."""
    rows_in, rows_out, _, stride, pad = sizes(of)
    return [min((row + pad) // stride, rows_out - 1) for row in range(rows_in)]
