"""What to try next: the change that would lift what limits a run, as a command to be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ..cluster import Cluster
from ..mapping import can_take, cut_channels
from ..plan import ChainPlan
from ..run import Cause
from ..schedule import Transport


def next_changes(plan: ChainPlan, cause: Cause) -> dict[str, object]:
    """Return the flags of `simulate` that would lift what limits, with their values.

    More boards where engines limit and more boards are faster, faster links where links do or keep more boards from
    being faster, a faster clock where neither helps, larger mini-batches where exchanges limit, and a schedule that
    does not drain where draining does.
    """
    config, replicates = plan.config, plan.config.schedule.replicates
    cuts_layers = plan.network.last_first and plan.devices > len(plan.network.layers)
    if cause.kind == "draining" and not replicates and not cuts_layers:
        return {"schedule": "fpdeep"}
    if cause.kind in ("draining", "exchange"):
        return {"batch": 2 * config.batch}
    if cause.wider is not None:
        return {"what_if": f"link.bandwidth_gbps={cause.wider.gbps:g}"}
    return _more_devices(plan)


def other_schedule(plan: ChainPlan, flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags of a run with another schedule, to try where boards take actions as a whole."""
    assert plan.stages is not None
    hides = plan.stages.machine.transport is Transport.HIDDEN
    first, second = ("fbp-as", "1f1b-as") if hides else ("1f1b-so", "zero-bubble")
    kept = {key: value for key, value in flags.items() if key not in ("chunks", "warm_up")}
    return {**kept, "schedule": second if plan.config.schedule.name == first else first}


def _more_devices(plan: ChainPlan) -> dict[str, object]:
    if plan.config.schedule.replicates:
        batch = plan.config.batch
        devices = 2 * plan.data_parallel.replicas
        return {"devices": devices, **({"batch": 2 * batch} if batch % devices else {})}
    layers, whole = plan.network.layers, plan.network.last_first and not plan.config.schedule.aligned
    more = min(2 * plan.devices, len(layers) if whole else sum(map(cut_channels, layers)))
    if more > plan.devices and _may_be_faster(plan, more, plan.cluster):
        return {"devices": more}
    links = [plan.cluster.link, *plan.cluster.own_links]
    wider = plan.cluster.with_bandwidth(2 * max(link.bandwidth_mbps for link in links))
    if plan.devices > 1 and _may_be_faster(plan, plan.devices, wider):
        return {"what_if": f"link.bandwidth_gbps={wider.link.bandwidth_gbps:g}"}
    return {"what_if": f"board.clock_mhz={round(2e6 / plan.cluster.boards[0].period_ps)}"}


def _may_be_faster(plan: ChainPlan, devices: int, cluster: Cluster) -> bool:
    """Return whether some boards, whatever their memory, take a sample in less time than the plan's."""
    return can_take(plan.network, cluster, devices, plan.timing.interval_ps - 1)


def command_line(command: str, config_file: str | None, flags: Mapping[str, object]) -> str:
    """Return a command of emuchain with a configuration's file or, of the flags, the network as its first word."""
    words = ["emuchain", command]
    first = config_file or flags.get("network")
    if first is not None:
        words.append(str(first))
    for key, value in flags.items():
        if key != "network" or config_file is not None:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [_spelt(value)])]
    return shlex.join(words)


def _spelt(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
