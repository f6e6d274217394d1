"""What to say before a run: that it takes long or too much memory, or that a setting changes
nothing.

Times and bytes are rough, to a factor of three or so: they tell seconds from weeks. Without
replicas, what only replicas would do changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...kernels.optimizers import optimizer_kind, optimizers
from ..common import InputError, format_bytes, free_room, plural
from ..network import Network
from ..schedule import PASSES

if TYPE_CHECKING:
    from ..config import Config
    from .plan import ChainPlan


_ROW_BYTES = 32
"""Memory for a row of a sample in the clocks of a mini-batch."""
_ROWS_PER_S = 1e6
_MACS_PER_S = 2e10
_DEVICE_BYTES = 20_000
"""Memory for a device in a simulation, at least."""
_PLAN_S_A_LAYER, _PLAN_S_A_CHANNEL, _PLAN_S_A_GROUP = 1e-2, 1.2e-5, 2e-4
_RING_S_A_MESSAGE = 1e-7
_EXCHANGES = 3
"""How often that of a mini-batch is timed: by a plan twice, and by a simulation."""
_LONG_S = {False: 600, True: 24 * 3600}
"""How long a run without and with numbers may take before a warning."""
_ACTIONS_PER_S = 3e4
"""Of F, B and W of micro-batches on stages, how many are timed in a second."""
_LONG_TIMING_S = 10
"""How long that may take before a warning."""


def check_memory(config: Config, network: Network) -> None:
    """Check that the clocks of a mini-batch fit into this machine's memory; it raises as
    `check_batch`.
    """
    check_batch(config.batch, network)


def check_batch(batch: int, network: Network) -> None:
    """Check that the clocks of a mini-batch of `batch` samples fit into the memory that is left
    here.

    Raises:
        InputError: they take more than there is.
    """
    rows = _rows(network)
    needed, room = _ROW_BYTES * rows * batch, free_room()
    if needed > room.free_bytes:
        most = room.free_bytes // (_ROW_BYTES * rows)
        raise InputError(
            f"`batch` = {batch}: planning takes about {format_bytes(needed)} of memory for"
            f" {plural(rows, 'row')} a sample, and {room.limit} {format_bytes(room.free_bytes)}; "
            + (f"give at most {most:,}" if most else "the network's maps have too many rows")
        )


def check_devices(replicas: int, devices: int, key: str) -> None:
    """Check that a simulation of `replicas` chains of `devices` devices fits into the memory that
    is left here.

    Raises:
        InputError: it takes more than there is; `key` is what says how many replicas there are.
    """
    needed, room = _DEVICE_BYTES * replicas * devices, free_room()
    if needed > room.free_bytes:
        raise InputError(
            f"`{key}` = {replicas}: simulating {plural(replicas * devices, 'device')} takes about"
            f" {format_bytes(needed)} of memory, and {room.limit} {format_bytes(room.free_bytes)};"
            f" give at most {room.free_bytes // (_DEVICE_BYTES * devices):,}"
        )


def long_work(config: Config, network: Network, samples: int, *, numbers: bool) -> str | None:
    """Return a line of warning if epochs of `samples` samples take long here, with or without
    numbers; else None.
    """
    count = samples * config.epochs
    seconds = count * (
        network.training_macs / _MACS_PER_S if numbers else _rows(network) / _ROWS_PER_S
    )
    if seconds < _LONG_S[numbers]:
        return None
    what = "training on" if numbers else "simulating"
    epochs = f" in {config.epochs:,} epochs" if config.epochs > 1 else ""
    return (
        f"{what} {count:,} samples{epochs} takes about {duration(seconds)} on one core; see"
        " --samples and --epochs"
    )


def long_timing(what: str, actions: float) -> str | None:
    """Return a line of warning if `what`, which goes through F, B and W on stages, takes long here;
    else None.
    """
    seconds = actions / _ACTIONS_PER_S
    return f"{what} takes about {duration(seconds)}" if seconds >= _LONG_TIMING_S else None


def long_actions(plan: ChainPlan, samples: int, draws: int) -> str | None:
    """Return such a line for epochs of `samples` samples on boards that take actions, and draws of
    a mini-batch.
    """
    per_sample = len(PASSES) * plan.stage_count / min(plan.config.micro_batch, plan.batch)
    actions = per_sample * (samples * plan.config.epochs + draws * plan.batch)
    ranged = f", and a mini-batch {draws:,} times for --range," if draws else ""
    return long_timing(f"timing {plural(samples, plan.network.sample_noun)}{ranged}", actions)


def long_plan(config: Config, network: Network, plans: int = 1) -> str | None:
    """Return a line of note if plans of a network under a configuration take long here, else
    None.
    """
    layers, channels = network.layers, sum(layer.channels for layer in network.layers)
    groups = sum(
        layer.operation.groups for layer in layers if layer.operation.groups < layer.channels
    )
    seconds = (
        len(layers) * _PLAN_S_A_LAYER + channels * _PLAN_S_A_CHANNEL + groups * _PLAN_S_A_GROUP
    )
    seconds *= plans
    size = f"{plural(len(layers), 'layer')} of {plural(channels, 'channel')} in all"
    exchanges_s = _EXCHANGES * _RING_S_A_MESSAGE * _ring_messages(config)
    if exchanges_s >= _LONG_TIMING_S:
        seconds, size = seconds + exchanges_s, f"{size}, and exchanges between its replicas,"
    return (
        None
        if seconds < _LONG_TIMING_S
        else f"planning {size} takes about {duration(seconds)} on one core"
    )


def _ring_messages(config: Config) -> int:
    """Return the number of messages in the rings of an exchange; each worker sends one in each of a
    ring's steps.
    """
    schedule = config.schedule
    replicas = config.replicas if schedule.replicates is None else config.devices or 1
    members, messages = replicas // config.groups, 0
    if config.groups > 1 or (schedule.replicates or config.exchange) != "aggregator":
        messages += config.groups * 2 * members**2
    if config.groups > 1 and config.exchange == "ring":
        messages += 2 * config.groups**2
    return messages


def _rows(network: Network) -> int:
    return sum(layer.output[1] for layer in network.layers) + network.input[1]


def duration(seconds: float) -> str:
    """Return a time in the largest unit, from seconds to years, of which it has two."""
    for unit, size in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.0f} seconds"


def idle_settings(plan: ChainPlan) -> tuple[str, ...]:
    """Return a line for each setting of a plan that was given and has no effect, with what would
    give it one.
    """
    return tuple(f"`{key}` = {said}: has no effect {why}" for key, said, why in _idle(plan))


def _idle(plan: ChainPlan) -> Iterator[tuple[str, object, str]]:
    config, exchange = plan.config, plan.data_parallel
    given = config.model_fields_set
    alone = "without replicas; add `replicas`, such as 2"
    if plan.has_idle_codec:
        yield "compress", exchange.codec, alone
    if config.error_feedback and not exchange.residuals:
        why = (
            alone
            if exchange.codec.compresses
            else "without a codec; add `compress`, such as topk:0.01"
        )
        yield "error_feedback", "true", why
    late = [epoch for epoch, _ in config.precision.epochs if epoch > config.epochs]
    if late and "epochs" in given:
        why = f"before epoch {late[0]}, and there are {config.epochs}"
        yield f"precision.epoch.{late[0]}", config.precision.phases[-1][1], why
    if exchange.replicas == 1 and "exchange" in given:
        yield "exchange", config.exchange, alone
    if "rows_at_once" in given and (why := _without_blocks(plan)):
        yield "rows_at_once", config.rows_at_once, why
    yield from ((key, getattr(config, key), why) for key, why in _of_rates(config) if key in given)
    for key, value in (config.changes or {}).items() if exchange.replicas == 1 else ():
        table = key.partition(".")[0].partition("[")[0]
        if table == "network":
            yield key, value, alone
        if table in ("link", "links") and plan.devices == 1:
            yield key, value, "on one device; add `devices`, such as 2"


def _without_blocks(plan: ChainPlan) -> str:
    """Return why no rows wait for one another; nothing where some may."""
    if not plan.network.attends:
        return "without attention"
    if not plan.times_rows:
        return "on boards that take actions as a whole"
    return f"with `memory` = {plan.config.memory!r}" if plan.config.memory != "modelled" else ""


def _of_rates(config: Config) -> Iterator[tuple[str, str]]:
    own = optimizer_kind(config.optimizer).settings()
    others = dict.fromkeys(
        key for kind in optimizers().values() for key in kind.settings() if key not in own
    )
    for key in filter(config.__class__.model_fields.__contains__, others):
        yield key, f"with `optimizer` = {config.optimizer!r}"
