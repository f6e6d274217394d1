"""Exchanges of gradients between replicas as events: the rings and the aggregator of
docs/exchange.md.

Groups and codecs are left out.
"""

from __future__ import annotations

from collections.abc import Callable

from .described import VALUE_BYTES, Table, cost_ps, up
from .events import Clock, Marks, Process
from .laid import Laid


class Wires:
    """How long messages and sums take between replicas: `[network]`, or links like the chain's
    slowest one.
    """

    def __init__(self, cluster: Table, replicas: int, kind: str, devices: int) -> None:
        links = cluster["links"] if isinstance(cluster["links"], list) else [cluster["links"]]
        link = min(links, key=lambda each: (each["bandwidth_gbps"], -each["latency_ns"]))
        self.network: Table = cluster.get("network", {})
        self.mbits_per_s = round(1000 * self.network.get("bandwidth_gbps", link["bandwidth_gbps"]))
        self.costs = (self.network if "network" in cluster else link).get("message_ns", [])
        self.latency_ps = round(1e6 * self.network.get("latency_us", link["latency_ns"] / 1000))
        slowest_ps = max(round(1e6 / board["clock_mhz"]) for board in cluster["boards"])
        sums = self.network.get("sum_gbytes_per_s")
        self.sum_ps_per_kbyte = round(1e6 / sums) if sums else round(1000 * slowest_ps / 64)
        laid, nodes = (
            self.network if "network" in cluster else link,
            replicas + (kind == "aggregator"),
        )
        self.laid = Laid.of(laid, nodes, shaped="network" in cluster or devices == 1)
        self.blocking = self.network.get("blocking", False)
        self.ring = self.laid.ring(replicas)

    def transfer_ps(self, size: int) -> int:
        packets = up(size, self.network.get("packet_bytes", 4096))
        wire = size + packets * self.network.get("packet_overhead_bytes", 0)
        stack_ps = packets * round(1000 * self.network.get("packet_stack_ns", 0))
        return max(up(8 * 10**6 * wire, self.mbits_per_s), stack_ps) + cost_ps(self.costs, size)

    def sum_ps(self, size: int) -> int:
        return up(size * self.sum_ps_per_kbyte, 1000)

    def between_ps(self, one: int, other: int) -> int:
        return self.latency_ps * self.laid.hops(one, other)


class Exchange(Marks):
    """Exchanges among the devices of one number of all replicas, a mini-batch after the other.

    `done` is called with a replica and a mini-batch when the replica has the sum.
    """

    def __init__(
        self,
        clock: Clock,
        wires: Wires,
        kind: str,
        values: int,
        mini_batches: int,
        done: Callable[[int, int], None],
    ) -> None:
        super().__init__(clock)
        self.wires, self.values, self.mini_batches, self.done = wires, values, mini_batches, done
        self.replicas = len(wires.ring)
        if kind == "aggregator":
            self.start(self.aggregator())
        for number in range(self.replicas):
            self.start(
                self.behind_aggregator(number) if kind == "aggregator" else self.in_ring(number)
            )

    def is_ready(self, replica: int, number: int) -> None:
        """A replica has its own gradients of a mini-batch."""
        self.happen(("ready", replica, number))

    def in_ring(self, at: int) -> Process:
        """The worker at a place of the ring: it sends a block, receives one, and adds it up in the
        first half.
        """
        wires, count = self.wires, self.replicas
        left, own, right = wires.ring[at - 1], wires.ring[at], wires.ring[(at + 1) % count]
        sizes = [
            VALUE_BYTES * (self.values // count + (block < self.values % count))
            for block in range(count)
        ]
        for number in range(self.mini_batches):
            yield [("ready", own, number)]
            for step in range(1, 2 * count - 1):
                sent, received = sizes[(at - step + 1) % count], sizes[(at - step) % count]
                if wires.blocking:
                    self.happen(("begun", own, number, step))
                    yield [("begun", left, number, step)]
                    yield (
                        wires.transfer_ps(sent)
                        + wires.transfer_ps(received)
                        + 2 * wires.between_ps(left, own)
                    )
                else:
                    yield wires.transfer_ps(sent)
                    self.happen(("arrived", right, number, step), wires.between_ps(own, right))
                    yield [("arrived", own, number, step)]
                if step < count:
                    yield wires.sum_ps(received)
            self.done(own, number)

    def behind_aggregator(self, worker: int) -> Process:
        for number in range(self.mini_batches):
            yield [("ready", worker, number)]
            self.happen(("asks", worker, number), self.wires.between_ps(worker, self.replicas))
            yield [("passed on", worker, number)]
            self.done(worker, number)

    def aggregator(self) -> Process:
        """It takes one gradient after the other, in the workers' order, and hands the sum on."""
        size = VALUE_BYTES * self.values
        for number in range(self.mini_batches):
            for worker in range(self.replicas):
                yield [("asks", worker, number)]
                yield self.wires.transfer_ps(size)
                if worker:
                    yield self.wires.sum_ps(size)
            yield from self.pass_on(number, 0, self.replicas + 1)

    def pass_on(self, number: int, node: int, nodes: int) -> Process:
        """A node with the sum, which is to reach `nodes` nodes from it on: 0 is the aggregator, 1
        the last worker.
        """
        while nodes > 1:
            near = up(nodes, 2)
            sent_ps = self.wires.between_ps(self.replicas - node, self.replicas - node - near)
            yield sent_ps + self.wires.transfer_ps(VALUE_BYTES * self.values)
            self.start(self.pass_on(number, node + near, nodes - near))
            nodes = near
        self.happen(("passed on", self.replicas - node, number))


def alone_ps(wires: Wires, kind: str, values: int) -> int:
    """Return how long an exchange takes for which all replicas are ready at once, in ps."""
    clock = Clock()
    exchange = Exchange(clock, wires, kind, values, 1, lambda replica, number: None)
    for replica in wires.ring:
        exchange.is_ready(replica, 0)
    clock.run()
    return clock.now_ps
