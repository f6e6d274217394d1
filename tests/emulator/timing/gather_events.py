"""Replicas that share weights out (docs/exchange.md, ZeRO's stage 3) as events: boards that take
actions in turns, messages on links, and a ring for each layer's weights and gradients.

It imports nothing of emuchain. Layers are convolutions that keep the size of a map, and fully
connected ones, on chip, with weights in single precision and maps in any format; each device has
whole layers. Schedules are given as text, as their dry run has them: `F0v0 B0v0 W0 U1`, where W is
part of B.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from .described import VALUE_BYTES, Formats, Table, numbered, up
from .events import Clock, Marks, Process
from .exchange_events import Wires

_ACTION = re.compile(r"([FBWU])(\d+)(?:v(\d+))?")


class Layer(NamedTuple):
    """A layer's multiply-accumulates for a sample, parameters, results as channels, rows and columns,
    formats, and whether it has EB.
    """

    macs: int
    parameters: int
    results: tuple[int, int, int]
    formats: Formats
    has_eb: bool


class Action(NamedTuple):
    """An action of a program, with its number and the version of the weights that it uses."""

    kind: str
    number: int
    version: int


class Order(NamedTuple):
    """A replica's programs, by device, and the samples of its micro-batches."""

    programs: list[list[str]]
    samples: list[int]


class Op(NamedTuple):
    """What a device exchanges with its like: weights of a layer, or with `adds` their gradients."""

    values: int
    adds: bool


def layers_of(network: Table, precision: str = "fp32") -> dict[str, Layer]:
    """Return the layers by name."""
    (channels, rows, columns), layers = network["input"], dict[str, Layer]()
    for operation in network["layers"]:
        if operation["type"] == "conv":
            made, each = operation["channels"], channels * operation["kernel"] ** 2
            macs = made * each * rows * columns
        elif operation["type"] == "fc":
            made, each = operation["features"], channels * rows * columns
            rows, columns, macs = 1, 1, made * each
        else:
            continue
        formats = Formats.of(precision, operation["name"])
        own = macs, made * (each + 1), (made, rows, columns), formats
        layers[operation["name"]] = Layer(*own, bool(layers))
        channels = made
    return layers


class Replicas(Marks):
    """All replicas of a chain, from their first action to their last update."""

    def __init__(self, simulated: Table, network: Table, cluster: Table, orders: list[Order]):
        super().__init__(Clock())
        self.cluster, self.orders = cluster, orders
        layers = layers_of(network, simulated["config"]["precision"])
        self.devices = [
            [layers[part["layer"]] for part in device["slices"]]
            for device in simulated["mapping"]["devices"]
        ]
        self.multipliers = [device["multipliers"] for device in simulated["devices"]]
        self.wires = Wires(cluster, len(orders), "ring", len(self.devices))
        self.programs = [
            [[self.read(text) for text in program] for program in order.programs]
            for order in orders
        ]

    def read(self, text: str) -> Action:
        """Read an action."""
        found = _ACTION.fullmatch(text)
        assert found is not None, text
        kind, number, version = found.groups()
        return Action(kind, int(number), int(version or 0))

    def time_ps(self) -> int:
        """Return the time at which all have made their last update."""
        for replica, order in enumerate(self.orders):
            for device in range(len(self.devices)):
                self.happen(("weights", replica, device, 0))
                self.start(self.board(replica, device, order.samples))
                self.start(self.link(replica, device, "F", order.samples))
                self.start(self.link(replica, device, "B", order.samples))
        for device in range(len(self.devices)):
            ops = [op for action in self.programs[0][device] for op in self.ops(device, action)]
            for place in range(len(self.orders)):
                self.start(self.in_ring(device, place, ops))
        self.clock.run()
        last = sum(action.kind == "U" for action in self.programs[0][0])
        return max(
            self.at_ps["weights", replica, device, last]
            for replica in range(len(self.orders))
            for device in range(len(self.devices))
        )

    def ops(self, device: int, action: Action) -> list[Op]:
        """What an action exchanges, in order."""
        layers = self.devices[device]
        if action.kind == "F":
            return [Op(layer.parameters, False) for layer in layers]
        if action.kind == "B":
            return [Op(layer.parameters, False) for layer in reversed(layers) if layer.has_eb]
        return [Op(layer.parameters, True) for layer in layers if action.kind == "U"]

    def board(self, replica: int, device: int, samples: list[int]) -> Process:
        """A board, one action after another; an update takes no time of its own."""
        at, done = (replica, device), 0
        period_ps = round(1e6 / numbered(self.cluster["boards"], device)["clock_mhz"])
        for kind, number, version in self.programs[replica][device]:
            if kind == "U":
                count = len(self.devices[device])
                self.start(self.update(replica, device, number, range(done, done + count)))
                done += count
                continue
            if kind == "W":
                continue
            ahead = device > 0 if kind == "F" else device + 1 < len(self.devices)
            came = [("came", kind, *at, number)] if ahead else []
            yield [("weights", *at, version), *came]
            layers = self.devices[device]
            for layer in layers if kind == "F" else reversed(layers):
                if kind == "F" or layer.has_eb:
                    self.happen(("ready", device, replica, done))
                    yield [("exchanged", device, replica, done)]
                    done += 1
                one_ps = up(layer.macs * samples[number] * period_ps, self.multipliers[device])
                yield one_ps if kind == "F" else one_ps * (1 + layer.has_eb)
            self.happen(("done", kind, *at, number))

    def update(self, replica: int, device: int, number: int, ops: range) -> Process:
        """The gradients of one layer after another, and then new weights."""
        for op in ops:
            self.happen(("ready", device, replica, op))
            yield [("exchanged", device, replica, op)]
        self.happen(("weights", replica, device, number))

    def link(self, replica: int, device: int, kind: str, samples: list[int]) -> Process:
        """A direction of the link behind a device, or before it, which takes whole messages."""
        to = device + 1 if kind == "F" else device - 1
        if to not in range(len(self.devices)):
            return
        table = numbered(self.cluster["links"], min(device, to))
        left, right = self.devices[min(device, to)][-1], self.devices[max(device, to)][0]
        form = left.formats.activations if kind == "F" else right.formats.errors
        for own, number, _ in self.programs[replica][device]:
            if own == kind:
                yield [("done", kind, replica, device, number)]
                size = form.sample(left.results) * samples[number]
                yield up(8 * 10**6 * size, round(1000 * table["bandwidth_gbps"]))
                came = ("came", kind, replica, to, number)
                self.happen(came, round(1000 * table["latency_ns"]))

    def in_ring(self, device: int, at: int, ops: list[Op]) -> Process:
        """The worker at a place of the ring: in each step it sends a block and takes one."""
        wires, count = self.wires, len(self.orders)
        left, own, right = wires.ring[at - 1], wires.ring[at], wires.ring[(at + 1) % count]
        for number, (values, adds) in enumerate(ops):
            sizes = [
                VALUE_BYTES * (values // count + (block < values % count)) for block in range(count)
            ]
            yield [("ready", device, own, number)]
            for step in range(1, count) if adds else range(count, 2 * count - 1):
                sent, taken = sizes[(at - step + 1) % count], sizes[(at - step) % count]
                if wires.blocking:
                    self.happen(("begun", device, own, number, step))
                    yield [("begun", device, left, number, step)]
                    both_ps = wires.transfer_ps(sent) + wires.transfer_ps(taken)
                    yield both_ps + 2 * wires.between_ps(left, own)
                else:
                    yield wires.transfer_ps(sent)
                    between_ps = wires.between_ps(own, right)
                    self.happen(("arrived", device, right, number, step), between_ps)
                    yield [("arrived", device, own, number, step)]
                if adds:
                    yield wires.sum_ps(taken)
            self.happen(("exchanged", device, own, number))


def largest(simulated: Table, network: Table, device: int) -> tuple[int, int]:
    """Return a device's bytes of weights by hand: its shares, and the largest layer."""
    layers, held = layers_of(network), simulated["mapping"]["devices"][device]["slices"]
    own = [layers[part["layer"]].parameters for part in held]
    shares = sum(math.ceil(VALUE_BYTES * count / simulated["replicas"]) for count in own)
    return shares, VALUE_BYTES * max(own)
