"""A discrete-event simulation of docs/time-model.md and docs/exchange.md: a heap of events, and
servers of rows.

It imports nothing of emuchain. It reads plain dictionaries: a network and a cluster with the keys
of their files, and what `emuchain simulate --json` prints of a run's configuration and mapping:
channels, tiles, what is off chip, balanced parameters. It takes no time and no staleness from
there.

A mark (events.py) is something that happens once: a row is done or has arrived, a sample has
entered, weights are new. Each engine, memory port and stream on a link is a *server*, a process
that takes its rows in turn and makes a mark of each: ("fp", device, layer, sample, row) or ("fp
port", ...), and (path, link, what moves, sample, row), where link d is the one between devices d
and d + 1. On another topology than a chain, rows take other links (laid.py): their arrival where
they are needed still has the name of the link before that device in the chain, to the right, or
behind it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from .described import (
    SYMBOLS,
    VALUE_BYTES,
    Format,
    Formats,
    Slice,
    Table,
    numbered,
    read_maps,
    up,
    wire_bytes,
)
from .events import Clock, Mark, Marks, Process
from .exchange_events import Exchange, Wires
from .laid import Hop, Laid
from .staleness_events import MOST_MINI_BATCHES, Staleness, find_staleness
from .tied_events import norm_processes, norm_total, tables_from_afar, tied_processes

ACTIVATION_CYCLES = 204  # of a board that says none
Needs = Callable[[int, int], list[Mark]]  # of a sample and a row: the marks that the row waits for
Server = tuple[Mark, int, int, int, Needs]  # name, rows of a sample, time of a row, latency
Stream = tuple[Mark, int, int, Needs]  # name, rows and bytes of a sample


class Flow(NamedTuple):
    """A stream on a link of its route: the mark of its rows' arrivals, and the boards at the link's
    ends.
    """

    name: Mark
    rows: int
    size: int
    needs: Needs
    hop: Hop


class Chain(Marks):
    """A chain of devices; `version` is that of the weights which FP or EB of a sample uses on a
    device.
    """

    def __init__(
        self,
        clock: Clock,
        described: tuple[Table, Table, Table, str, int],
        mini_batches: list[int],
        version: Callable[[str, int, int], int],
    ) -> None:
        super().__init__(clock)
        network, self.cluster, mapping, precision, at_once = described
        self.maps, self.blocks, self.version = (
            read_maps(network),
            mapping["balanced_parameters"],
            version,
        )
        self.mini_batches = mini_batches
        self.layers: dict[str, int] = {}
        self.devices = [
            [
                Slice(
                    s,
                    d["device"],
                    self.layers.setdefault(s["layer"], len(self.layers)),
                    self.maps,
                    at_once,
                )
                for s in d["slices"]
            ]
            for d in mapping["devices"]
        ]
        names = [*self.layers]
        self.formats = {number: Formats.of(precision, name) for number, name in enumerate(names)}
        self.formats[-1] = self.formats[0]  # images are the first layer's
        self.paths = numbered(self.cluster["links"], 0).get("share") == "paths"
        self.laid = Laid.of(numbered(self.cluster["links"], 0), len(self.devices))
        self.ends_on = {
            -1: 0,
            **{part.layer: part.device for slices in self.devices for part in slices},
        }
        self.boards = [
            numbered(self.cluster["boards"], device) for device in range(len(self.devices))
        ]
        self.period_ps = [round(1e6 / board["clock_mhz"]) for board in self.boards]
        self.clips = False
        self.exchanges: dict[
            int, Callable[[int], None]
        ] = {}  # by device, to be notified of a mini-batch that is ready
        links = list(self.links())
        self.hop_ps = {name: row_ps + latency_ps for name, _, row_ps, latency_ps, _ in links}
        self.servers = [*self.engines(), *links]
        self.interval_ps = max(rows * row_ps for _, rows, row_ps, _, _ in self.servers)

    def launch(self) -> None:
        """Start all processes."""
        for server in self.servers:
            self.start(self.serve(*server))
        for process in [*tied_processes(self), *norm_processes(self)]:
            self.start(process)
        for device in range(len(self.devices)):
            self.happen(("weights", device, 0))
            self.start(self.gradients(device))
            self.start(self.update(device))
        self.start(self.enter())

    # Processes

    def serve(self, name: Mark, rows: int, row_ps: int, latency_ps: int, needs: Needs) -> Process:
        at, slices = str(name[0])[:2], self.devices[name[1]]
        begins = (at, name[2]) in (("fp", slices[0].layer), ("eb", slices[-1].layer))
        for sample, row in itertools.product(range(sum(self.mini_batches)), range(rows)):
            yield needs(sample, row)
            begin = (f"{at} begins", name[1], sample, 0)
            if begins and begin not in self.at_ps:
                self.happen(begin)
            yield row_ps
            self.happen((*name, sample, row), latency_ps)

    def enter(self) -> Process:
        for sample in range(sum(self.mini_batches)):
            if sample:
                yield self.interval_ps
                yield [("weights", 0, self.version("fp", 0, sample - 1))]
            self.happen(("entered", sample))

    def updates(self, device: int) -> Iterator[dict[Mark, int]]:
        """For each mini-batch, after which marks a device has all gradients, and the cycles of an
        update after each.
        """
        for end in itertools.accumulate(self.mini_batches):
            cycles: dict[Mark, int] = {
                part.ended(end - 1): part.made for part in self.devices[device] if "pg" in part.rows
            }
            cycles |= {
                mark: 0 for part in self.devices[device] for mark in self.back(part, end - 1)
            }
            for block_number, block in enumerate(self.blocks):
                if block["store_device"] == device:
                    user = self.held(self.layers[block["layer"]], block["user_device"])
                    made = user.made if user.icp else block["end_channel"] - block["begin_channel"]
                    cycles[6, device, block_number, end - 1, 0] = made
            yield cycles

    def gradients(self, device: int) -> Process:
        """Tables of tied weights wait for the gradients of slices alone, not for those of blocks
        that a device stores, unless replicas add all of them up.
        """
        for number, cycles in enumerate(self.updates(device)):
            if device not in self.exchanges:
                yield [mark for mark in cycles if mark[0] != 6]
                self.happen(("table", device, number))
            yield list(cycles)
            if device in self.exchanges:
                self.exchanges[device](number)
                yield [("total", device, number)]
                self.happen(("table", device, number))
            self.happen(("gradients", device, number))

    def update(self, device: int) -> Process:
        for number, cycles in enumerate(self.updates(device)):
            later = tables_from_afar(self, device, number)
            if device in self.exchanges:
                later.append(("total", device, number))
            later += norm_total(self, device, number)
            yield [("gradients", device, number), *later]
            least_ps = max((self.at_ps[mark] for mark in later), default=0)
            begin_ps = {mark: max(self.at_ps[mark], least_ps) for mark in cycles}
            ends_ps = (
                begin_ps[mark] + count * self.period_ps[device] for mark, count in cycles.items()
            )
            end_ps = max(
                ends_ps, default=self.clock.now_ps
            )  # at once where a device has no weights
            self.happen(("weights", device, number + 1), end_ps - self.clock.now_ps)

    def back(self, part: Slice, sample: int) -> list[Mark]:
        """After which marks a sample has come back to a slice of a frozen layer: EB, or word of
        errors.
        """
        if not part.outputs.frozen:
            return []
        if "eb" in part.cycles:
            return [("eb", part.device, part.layer, sample, part.rows["eb"] - 1)]
        return self.output_errors(part, sample, part.outputs.rows - 1)

    def exchanges_gradients(self, device: int) -> bool:
        """Whether a device holds something that is not frozen, or stores it."""
        stores = any(block["store_device"] == device for block in self.blocks)
        return stores or not all(part.outputs.frozen for part in self.devices[device])

    # What rows wait for

    def before_sending(self, part: Slice) -> list[str]:
        """The results of the SFU's first steps, which a slice carries out on its own channels
        before it sends.
        """
        found, at = list[str](), part.name
        while self.paths and not part.icp:
            takers = [
                name for name, made in self.maps.items() for source in made.sources if source == at
            ]
            step = self.maps[takers[0]]
            not_alone = ("lrn", "group-norm", "add", "multiply", "concat", "sequence", "softmax")
            moves = ("shuffle", "pixel-shuffle", "pixel-unshuffle", "transpose")
            not_alone += ("global-response-norm", *moves)
            if part.recurs or len(takers) > 1 or step.opens or step.operation["type"] in not_alone:
                break
            if step.operation.get("shared"):  # one slope of all channels
                break
            found, at = [*found, takers[0]], takers[0]
        return found

    def sent(self, part: Slice) -> str:
        """The map of which a slice sends its channels on path 2, and gets the errors on path 3."""
        return [part.name, *self.before_sending(part)][-1]

    def held(self, layer: int, device: int) -> Any:
        """The slice of a layer on a device, or None."""
        slices = self.devices[device] if 0 <= device < len(self.devices) else []
        return next((part for part in slices if part.layer == layer), None)

    def there(self, name: str, device: int, sample: int, row: int) -> list[Mark]:
        """After which marks a row of a map is on a device."""
        made = self.maps[name]
        if self.ends_on[made.layer] < device:
            return [(1, device - 1, name, sample, row)]
        if name == "images":
            return [("entered", sample)]
        part = self.held(made.layer, device)
        if name == self.sent(part):
            return self.outputs(part, sample, row)
        return [
            mark
            for of in made.sources
            for mark in self.there(of, device, sample, self.taken(made, of, row))
        ]

    def taken(self, made: Any, source: str, row: int) -> int:
        """The row of a source that a row of a map waits for; a factor of channels has one, and rows
        that are joined have their own.
        """
        if made.joins_rows:
            row = max(0, row - self.begin_of(made, source))
            return int(min(row, self.maps[source].rows - 1))
        return min(made.window.last_input(row), self.maps[source].rows - 1)

    def begin_of(self, made: Any, source: str, behind: bool = False) -> int:
        """The row of a map at which those of a source begin; `behind`, counted from the last one."""
        place = made.sources.index(source)
        others = made.sources[place + 1 :] if behind else made.sources[:place]
        return sum(self.maps[name].rows for name in others)

    def outputs(self, part: Slice, sample: int, row: int) -> list[Mark]:
        """After which a row leaves a slice: it is computed, and the slice before has sent the
        row.
        """
        computed = row
        for name in reversed(self.before_sending(part)):
            computed = self.maps[name].window.last_input(computed)
        found: list[Mark] = [("fp", part.device, part.layer, sample, computed)]
        if self.held(part.layer, part.device - 1):
            found.append((2, part.device - 1, part.layer, sample, row))
        return found

    def errors(self, name: str, device: int, sample: int, row: int) -> list[Mark]:
        """After which a row of a map's errors is on a device: of all there that take the map, and
        of those behind.
        """
        found: list[Mark] = [(4, device, name, sample, row)] if self.passes(name, device) else []
        for part in self.devices[device]:
            if part.source == name and "eb" not in part.cycles:
                found += self.output_errors(part, sample, part.outputs.window.last_error(row))
            elif part.source == name:
                left = (
                    part.rows["eb"] - 1
                    if part.attends and part.outputs.window.waits_for_all
                    else row
                )
                found.append(("eb", device, part.layer, sample, min(left, part.rows["eb"] - 1)))
        for other, made in self.maps.items():
            if name in made.sources and not made.opens and self.ends_on[made.layer] == device:
                if made.operation["type"] == "softmax":
                    return self.there(
                        name, device, sample, made.rows - 1 - row if made.window.backwards else row
                    )
                whole = made.operation["type"] == "multiply" and self.maps[name].rows < made.rows
                last = made.rows - 1 if whole else made.window.last_error(row)
                if made.joins_rows:
                    last = row + self.begin_of(made, name, made.window.backwards)
                if last < 0:
                    continue
                found += self.errors(other, device, sample, last)
        return found

    def sent_errors(self, part: Slice, sample: int, row: int) -> list[Mark]:
        """After which errors are on a device of a row that the slice sends."""
        if self.held(part.layer, part.device + 1):
            return [(3, part.device, part.layer, sample, row)]
        return self.errors(self.sent(part), part.device, sample, row)

    def output_errors(self, part: Slice, sample: int, row: int) -> list[Mark]:
        for name in self.before_sending(part):
            row = self.maps[name].window.last_error(row)
        return self.sent_errors(part, sample, row)

    def engine_needs(self, part: Slice, at: str, sample: int, row: int) -> list[Mark]:
        return [
            mark
            for other in part.together(at, row)
            for mark in self.row_needs(part, at, sample, other)
        ]

    def row_needs(self, part: Slice, at: str, sample: int, row: int) -> list[Mark]:
        if at == "pg" and part.recurs:
            return [("eb", part.device, part.layer, sample, row)]
        if at == "pg":
            return self.output_errors(part, sample, row)
        device, window = part.device, part.outputs.window
        weights: Mark = ("weights", device, self.version(at, device, sample))
        if at == "eb":
            return [
                weights,
                *self.output_errors(part, sample, row if part.attends else window.last_error(row)),
            ]
        balanced: list[Mark] = [
            (5, device - 1, number, sample, 0)
            for number, block in enumerate(self.blocks)
            if block["user_device"] == device and self.layers[block["layer"]] == part.layer
        ]
        return [
            weights,
            *balanced,
            *self.there(part.source, device, sample, window.last_input(row)),
        ]

    # Servers

    def row_cycles(self, part: Slice, at: str, cycles: int) -> int:
        """A row's cycles on an array, of which `tiles` is the multipliers of a result; `cycles` on
        tiles that take turns.
        """
        board, rows = self.boards[part.device], part.rows[at]
        if board.get("convolution_engines") != "arrays":
            return cycles
        start = board.get("start_cycles", 0)
        if at not in part.matrices:
            return cycles + up(start, rows)
        long, wide, products = part.matrices[at]
        passes = up(long, board["array_outputs"]) * up(wide, board["array_positions"])
        of_pass = max(up(products, part.tiles[at]), board.get("drain_cycles", 0))
        return up(passes * of_pass + start, rows)

    def engines(self) -> Iterator[Server]:
        for device, slices in enumerate(self.devices):
            mbytes_per_s = round(1000 * self.boards[device].get("off_chip_gbytes_per_s", 0))
            device_bytes = sum(sum(part.port_bytes.values()) for part in slices)
            for part in slices:
                for at, cycles in part.cycles.items():
                    rows, needs = part.rows[at], partial(self.engine_needs, part, at)
                    if mbytes_per_s and part.port_bytes[at]:
                        port: Mark = (f"{at} port", device, part.layer)
                        yield port, rows, up(10**6 * device_bytes, mbytes_per_s * rows), 0, needs
                        needs = partial(same, port)
                    row_ps = self.row_cycles(part, at, cycles) * self.period_ps[device]
                    if mbytes_per_s and part.port_bytes[at]:
                        load_ps = up(10**6 * part.port_bytes[at], mbytes_per_s * rows)
                        row_ps += round(self.boards[device].get("load_exposed", 0) * load_ps)
                    if part.recurs and at != "pg":
                        row_ps = self.step_ps(part.layer, at)
                    yield (at, device, part.layer), rows, row_ps, 0, needs

    def step_ps(self, layer: int, at: str) -> int:
        """The time of a row of a recurrent layer's FP or EB, the same on all devices that share
        it.
        """
        parts = [part for slices in self.devices for part in slices if part.layer == layer]
        slowest_ps = max(
            (part.cycles[at] + self.boards[part.device].get("activation_cycles", ACTIVATION_CYCLES))
            * self.period_ps[part.device]
            for part in parts
        )
        links = [part.device for part in parts[:-1]]

        def sweep_ps(*of: Any) -> int:
            return sum(self.hop_ps[(of[0], link, *of[1:])] for link in links)

        if at == "fp":
            return slowest_ps + max(sweep_ps(2, layer), sweep_ps(7, layer))
        return slowest_ps + sweep_ps(4, "states", layer) + sweep_ps(8, layer)

    def links(self) -> Iterator[Server]:
        """The servers of all streams on all links of their routes, with the shares that their bytes
        give them.
        """
        flows = list(self.flows())
        on_wires: dict[Any, list[Flow]] = defaultdict(list)
        for flow in flows:
            for wire in self.laid.wires(flow.hop):
                on_wires[wire].append(flow)
        for flow in flows:
            table = numbered(self.cluster["links"], min(flow.hop))
            mbits_per_s, latency_ps = (
                round(1000 * table["bandwidth_gbps"]),
                round(1000 * table["latency_ns"]),
            )
            size = max(
                self.as_long_as(flow, on_wires[wire], table) for wire in self.laid.wires(flow.hop)
            )
            yield (
                flow.name,
                flow.rows,
                up(8 * 10**6 * size, mbits_per_s * flow.rows),
                latency_ps,
                flow.needs,
            )

    def as_long_as(self, flow: Flow, others: list[Flow], table: Table) -> int:
        """The bytes on a wire in the time of which a stream's map crosses it."""
        own = sum(
            other.rows * wire_bytes(table, other.size // other.rows)
            for other in others
            if not self.paths or other.name[0] == flow.name[0]
        )
        parts = 0
        for side in ((1, 2, 5, 8), (3, 4, 6, 7)):
            paths = {other.name[0] for other in others} & set(side)
            parts += (3 if paths & {5, 6, 7, 8} else 2) if paths else 0
        return own * parts if self.paths else own

    def flows(self) -> Iterator[Flow]:
        """Each stream on each link of its route from a device that makes or takes what it carries
        to the next.
        """
        for link in range(len(self.devices) - 1):
            for right, streams in (
                (True, self.to_the_right(link)),
                (False, self.to_the_left(link)),
            ):
                for name, rows, size, needs in streams:
                    left_end, right_end = self.leg(name)
                    sender, receiver, onwards = (
                        (left_end, right_end, 1) if right else (right_end, left_end, -1)
                    )
                    if link != (left_end if right else right_end - 1):
                        continue  # on the way, where it is handed on
                    way, last = (
                        self.laid.way(sender, receiver),
                        right_end - 1 if right else left_end,
                    )
                    for place, hop in enumerate(way):
                        at = last if place + 1 == len(way) else link + onwards * place
                        mark = (name[0], at, *name[2:])
                        yield Flow(mark, rows, size, needs, hop)
                        needs = partial(same, mark)

    def leg(self, name: Mark) -> tuple[int, int]:
        """The devices between which a stream's rows are not needed by any other, around the link in
        its name.
        """
        path, link, what = name[:3]
        if path in (5, 6):
            return self.blocks[what]["store_device"], self.blocks[what]["user_device"]
        if path not in (1, 4) or what == "states":
            return link, link + 1
        stops = {self.ends_on[self.maps[what].layer]}
        stops |= {part.device for slices in self.devices for part in slices if part.source == what}
        stops |= {
            self.ends_on[made.layer]
            for made in self.maps.values()
            if what in made.sources and not made.opens
        }
        return max(stop for stop in stops if stop <= link), min(
            stop for stop in stops if stop > link
        )

    def is_looked_up(self, name: str) -> bool:
        """Whether a map is the numbers of symbols."""
        takers = [made for made in self.maps.values() if name in made.sources]
        return any(made.operation["type"] == "embedding" for made in takers)

    def to_the_right(self, link: int) -> Iterator[Stream]:
        for name, made in self.maps.items():
            if channels := self.passes(name, link):
                own = SYMBOLS if self.is_looked_up(name) else self.formats[made.layer].activations
                begin = made.channels - channels
                size = made.rows * own.row(made.columns, begin, made.channels)
                yield (1, link, name), made.rows, size, partial(self.there, name, link)
        for part in self.devices[link]:
            if self.held(part.layer, link + 1):
                yield (
                    (2, link, part.layer),
                    *self.across(part, self.formats[part.layer].accumulate),
                    partial(self.outputs, part),
                )
                if part.recurs:
                    yield (
                        (8, link, part.layer),
                        *self.behind(part),
                        partial(same, ("eb", link, part.layer)),
                    )
        for number, block in enumerate(self.blocks):
            if block["store_device"] <= link < block["user_device"]:
                before = (
                    ("fp begins", link) if block["store_device"] == link else (5, link - 1, number)
                )
                yield (
                    (5, link, number),
                    1,
                    self.block_bytes(block, self.formats_of(block).weights),
                    partial(same, before),
                )

    def to_the_left(self, link: int) -> Iterator[Stream]:
        for name, made in self.maps.items():
            if name != "images" and (channels := self.passes(name, link)):
                size = 0 if made.fixed else made.rows * self.row_of_errors(name, link, channels)
                yield (4, link, name), made.rows, size, partial(self.errors, name, link + 1)
        for part in self.devices[link]:
            if behind := self.held(part.layer, link + 1):
                rows, size = self.across(part, self.formats[part.layer].errors)
                yield (
                    (3, link, part.layer),
                    rows,
                    0 if part.outputs.fixed else size,
                    partial(self.sent_errors, behind),
                )
                if part.recurs:
                    states, steps = (
                        self.maps[part.name],
                        partial(same, ("eb", link + 1, part.layer)),
                    )
                    yield (
                        (4, link, "states", part.layer),
                        states.rows,
                        states.bytes(states.channels),
                        steps,
                    )
                    yield (
                        (7, link, part.layer),
                        *self.behind(part),
                        partial(same, ("fp", link + 1, part.layer)),
                    )
        for number, block in enumerate(self.blocks):
            if block["store_device"] <= link < block["user_device"]:
                needs = partial(same, (6, link + 1, number))
                if block["user_device"] == link + 1:
                    user = self.held(self.layers[block["layer"]], link + 1)
                    needs = partial(lambda user, sample, row: [user.ended(sample)], user)
                size = self.block_bytes(block, self.formats_of(block).accumulate)
                yield (6, link, number), 1, size, needs

    def formats_of(self, block: Table) -> Formats:
        """Those of a block of weights."""
        return self.formats[self.layers[block["layer"]]]

    def across(self, part: Slice, number: Format) -> tuple[int, int]:
        """Rows and bytes of what a slice sends to the next one of its layer, and of the errors that
        come back.
        """
        made = self.maps[self.sent(part)]
        return made.rows, made.rows * number.row(
            made.columns, 0, part.made if part.icp else part.out_end
        )

    def row_of_errors(self, name: str, link: int, channels: int) -> int:
        """Bytes of a row of a map's errors, of which the last `channels` cross a link.

        They are rounded if one layer alone takes the map: all, once they have left the layer;
        within it, under ICP, from the first channel on with which a block begins behind the link,
        unless a row has a scale of its own.
        """
        made = self.maps[name]
        first, end = made.channels - channels, made.channels
        takers = [
            taker for taker in self.maps.values() for source in taker.sources if source == name
        ]
        if len(takers) > 1 or not takers[0].opens:
            return Format(32, 0).row(made.columns, first, end)
        number = self.formats[takers[0].layer].errors
        part = self.held(takers[0].layer, link)
        if part is None:
            return number.row(made.columns, first, end)
        own = next(
            (channel for channel in range(first, end) if channel % max(1, number.block) == 0), end
        )
        own = own if part.icp and not number.tensor else end
        sums = self.formats[takers[0].layer].accumulate
        return sums.row(made.columns, first, own) + number.row(made.columns, own, end)

    def block_bytes(self, block: Table, number: Format) -> int:
        """Bytes of a block of weights, whose scales are of lines along the dimension that is not
        cut.
        """
        user = self.held(self.layers[block["layer"]], block["user_device"])
        values, line = (
            user.weights // user.width,
            user.made if user.icp else user.weights // user.width,
        )
        channels = block["end_channel"] - block["begin_channel"]
        return number.row(values // line * channels, 0, line) + (channels - 1) * number.tensor

    def behind(self, part: Slice) -> tuple[int, int]:
        """Rows and bytes of the states of a recurrent layer's units behind a slice, and of their
        errors.
        """
        made = self.maps[part.name]
        return made.rows, made.bytes(made.channels - part.end)

    def passes(self, name: str, link: int) -> int:
        """The channels of a map that cross a link on path 1, and whose errors cross it on path
        4.
        """
        channels, found = self.maps[name].channels, 0
        for made in self.maps.values():
            if (
                name in made.sources
                and self.ends_on[self.maps[name].layer] <= link < self.ends_on[made.layer]
            ):
                if made.operation["type"] == "embedding":
                    return 1
                part = self.held(made.layer, link) if made.opens else None
                found = max(found, channels - part.passed if part else channels)
        return found

    def values(self, device: int) -> int:
        """The values of the row of gradients that a device exchanges."""
        of_maps = 0
        for made in self.maps.values():
            if made.layer >= 0 and not made.frozen and self.ends_on[made.layer] == device:
                has_bias = made.operation["type"] in ("conv", "fc") and made.operation.get(
                    "bias", True
                )
                whole = not any(
                    part.makes_loss for part in self.devices[device] if part.layer == made.layer
                )
                of_maps += made.opens * has_bias * whole * made.channels
                channels = 1 if made.operation.get("shared") else made.channels
                of_maps += LEARNT.get(made.operation["type"], 0) * channels
        stored = sum(
            block["parameter_bytes"]
            * ((block["store_device"] == device) - (block["user_device"] == device))
            for block in self.blocks
        )
        biases = sum(
            part.made
            for part in self.devices[device]
            if part.makes_loss and part.outputs.operation.get("bias", True)
        )
        return (
            of_maps
            + biases
            + sum(part.weights for part in self.devices[device] if not part.outputs.frozen)
            + stored // VALUE_BYTES
        )


LEARNT = {"batch-norm": 2, "group-norm": 2, "prelu": 1, "scale": 1, "shift": 1}
"""Learnt numbers of a channel."""


def same(name: Mark, sample: int, row: int) -> list[Mark]:
    """The mark of the same row of another server."""
    return [(*name, sample, row)]


def connect(chains: list[Chain], wires: Wires, kind: str) -> None:
    """Let the devices of one number of all replicas exchange their gradients."""

    def tell(device: int, replica: int, number: int) -> None:
        chains[replica].happen(("total", device, number))

    count = len(chains[0].mini_batches)
    for device in range(len(chains[0].devices)):
        if not chains[0].exchanges_gradients(device):
            continue
        values = chains[0].values(device)
        exchange = Exchange(chains[0].clock, wires, kind, values, count, partial(tell, device))
        for replica, chain in enumerate(chains):
            chain.exchanges[device] = partial(exchange.is_ready, replica)


class Run(NamedTuple):
    """A run at its end: the chains of its replicas, and by how many updates weights were late where
    it is `fpdeep`.
    """

    chains: list[Chain]
    staleness: Staleness
    time_ps: int


def run(simulated: Table, network: Table, cluster: Table) -> int:
    """Return the virtual time of a run in ps; `simulated` is what `emuchain simulate --json`
    prints.
    """
    return run_of(simulated, network, cluster).time_ps


def described_of(
    simulated: Table, network: Table, cluster: Table
) -> tuple[Table, Table, Table, str, int]:
    """Return what a chain is made from."""
    config = simulated["config"]
    freeze = [name for name in config["freeze"].split(",") if name]
    return (
        {**network, "freeze": freeze},
        cluster,
        simulated["mapping"],
        config["precision"],
        config["rows_at_once"],
    )


def staleness_of(simulated: Table, network: Table, cluster: Table) -> Staleness:
    """Return by how many updates weights are late in the steady pipeline, whatever the schedule."""
    config, replicas = simulated["config"], simulated["replicas"]
    schedule, described = config["schedule"], described_of(simulated, network, cluster)
    kind = (
        schedule.removeprefix("data-parallel-")
        if "data-parallel" in schedule
        else config["exchange"]
    )
    mini_batches = [config["batch"] // replicas] * MOST_MINI_BATCHES
    free = Chain(Clock(), described, mini_batches, lambda at, device, sample: 0)
    return find_staleness(
        free, Wires(cluster, replicas, kind, len(simulated["mapping"]["devices"])), kind
    )


def run_of(
    simulated: Table,
    network: Table,
    cluster: Table,
    in_order: Callable[[Staleness], Staleness] = lambda staleness: staleness,
) -> Run:
    """Return a run at its end; `in_order` gives the staleness of devices that act in order from
    that of free ones.
    """
    config, replicas = simulated["config"], simulated["replicas"]
    described = described_of(simulated, network, cluster)
    batch, samples, schedule = config["batch"], config["samples"], config["schedule"]
    kind = (
        schedule.removeprefix("data-parallel-")
        if "data-parallel" in schedule
        else config["exchange"]
    )
    wires = Wires(cluster, replicas, kind, len(simulated["mapping"]["devices"]))
    staleness = in_order(staleness_of(simulated, network, cluster)) if schedule == "fpdeep" else []
    epoch = [min(batch, samples - begin) for begin in range(0, samples, batch)]
    clock, chains = Clock(), list[Chain]()
    for replica in range(replicas):
        sizes = [
            n * (replica + 1) // replicas - n * replica // replicas
            for n in epoch * config["epochs"]
        ]
        places = [(number, place) for number, size in enumerate(sizes) for place in range(size)]

        def version(
            at: str, device: int, sample: int, places: list[tuple[int, int]] = places
        ) -> int:
            number, place = places[sample]
            late = {"2bw": 1, "pipedream": len(simulated["mapping"]["devices"]) - 1 - device}.get(
                schedule, 0
            )
            return number - min(
                number % len(epoch), staleness[device][at][place] if staleness else late
            )

        chains.append(Chain(clock, described, sizes, version))
        chains[-1].clips = config["clip_norm"] is not None
    if replicas > 1:
        connect(chains, wires, kind)
    for chain in chains:
        chain.launch()
    clock.run()
    last = len(epoch) * config["epochs"]
    time_ps = max(
        chain.at_ps["weights", device, last]
        for chain in chains
        for device in range(len(chain.devices))
    )
    return Run(chains, staleness, time_ps)
