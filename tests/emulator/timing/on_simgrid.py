"""Messages on SimGrid, in a process of its own, for it has one engine a process: JSON in on stdin,
JSON out on stdout.

A second of SimGrid stands for a microsecond, so that its precision is far below a picosecond. In:

- `links`, by name [bandwidth in bytes/us, latency in us], all of the bandwidth in each direction;
- `routes`, [from host, to host, [[link, "UP" or "DOWN"], ...]];
- `actors`, by name [host, steps]. Steps are ["until", us], ["sleep", us], ["put", mailbox, bytes],
  which ends when the message has arrived, ["send", mailbox, bytes], which goes on at once, and
  ["get", mailbox].

Out: for each actor the time in us after each of its steps.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from simgrid import Engine, LinkInRoute, Mailbox, this_actor

# Links alone: no TCP windows, no correction factors, no acknowledgements on the way back.
SETTINGS = [
    "network/model:CM02",
    "network/crosstraffic:0",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/TCP-gamma:0",
    "network/weight-S:0",
]


def act(name: str, steps: list[list[Any]], times_us: dict[str, list[float]]) -> None:
    """Carry out the steps of an actor."""
    times, comms = times_us.setdefault(name, []), []
    for step in steps:
        if step[0] == "until":
            this_actor.sleep_until(step[1])
        elif step[0] == "sleep":
            this_actor.sleep_for(step[1])
        elif step[0] == "put":
            Mailbox.by_name(step[1]).put(name, step[2])
        elif step[0] == "send":
            comms.append(Mailbox.by_name(step[1]).put_async(name, step[2]))
        else:
            Mailbox.by_name(step[1]).get()
        times.append(Engine.clock)
    for comm in comms:
        comm.wait()


def main() -> None:
    """Read a scenario, run it, and write when each step ended."""
    wanted = json.load(sys.stdin)
    engine = Engine(
        ["on_simgrid", "--log=root.thresh:error", *(f"--cfg={setting}" for setting in SETTINGS)]
    )
    zone = engine.netzone_root.add_netzone_full("zone")
    names = {host for route in wanted["routes"] for host in route[:2]} | {
        host for host, _ in wanted["actors"].values()
    }
    hosts, links = {name: zone.add_host(name, 1e9) for name in sorted(names)}, {}
    for name, (bytes_per_us, latency_us) in wanted["links"].items():
        links[name] = zone.add_split_duplex_link(name, bytes_per_us)
        links[name].set_latency(latency_us)
        links[name].seal()
    for first, second, way in wanted["routes"]:
        over = [
            LinkInRoute(links[name], getattr(LinkInRoute.Direction, direction))
            for name, direction in way
        ]
        zone.add_route(hosts[first], hosts[second], over, False)
    zone.seal()
    times_us: dict[str, list[float]] = {}
    for name, (host, steps) in wanted["actors"].items():
        actor = hosts[host].add_actor(name, act, name, steps, times_us)
        for mailbox in {step[1] for step in steps if step[0] == "get"}:
            Mailbox.by_name(mailbox).set_receiver(
                actor
            )  # messages start before their receiver asks for them
    engine.run()
    json.dump(times_us, sys.stdout)


main()
