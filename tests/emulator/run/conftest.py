"""What tests of runs share: traces of timed epochs, and balanced parameters where a test wants them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from emuchain.comm import run
from emuchain.emulator.device import Device, Epoch
from emuchain.emulator.mapping import BalancedParameters, channel_bytes
from emuchain.emulator.plan import Plan, find_steady
from emuchain.emulator.run import Placement
from emuchain.emulator.run.chain import Chain, Wiring, build_chain
from emuchain.emulator.timing import Timing, Trace

Prepare = Callable[[Chain], None]
TraceEpoch = Callable[..., list[Trace]]
WithBlocks = Callable[..., Plan]


@pytest.fixture(scope="session")
def many_blocks() -> Callable[[Plan], list[BalancedParameters]]:
    """Gives blocks of balanced parameters: of each slice with enough channels, some to either device to its left."""

    def blocks(plan: Plan) -> list[BalancedParameters]:
        return [
            BalancedParameters(part.layer, begin, end, device, store, (end - begin) * channel_bytes(part))
            for device, slices in enumerate(plan.mapping.devices)
            for part in slices
            for store, begin, end in ((device - 1, part.begin, part.begin + 1), (device - 2, part.end - 2, part.end))
            if store >= 0 and part.channels > 3
        ]

    return blocks


@pytest.fixture(scope="session")
def with_blocks() -> WithBlocks:
    """Gives a plan with chosen blocks of balanced parameters: `with_blocks(plan, many_blocks(plan))`."""

    def replace(plan: Plan, blocks: list[BalancedParameters]) -> Plan:
        timing = Timing.of(plan.mapping, plan.cluster, tuple(blocks))
        return dataclasses.replace(plan, timing=timing, steady=find_steady(timing, plan.batch))

    return replace


@pytest.fixture(scope="session")
def trace_epoch() -> TraceEpoch:
    """Runs an epoch of one chain for its times alone, and gives the trace of each device.

    `trace_epoch(plan, samples, micro_batch, prepare)`: without a micro-batch, the plan's; `prepare` gets the chain
    before it starts.
    """

    def trace(
        plan: Plan, samples: int, micro_batch: int | None = None, prepare: Prepare = lambda _: None
    ) -> list[Trace]:
        wiring = Wiring(Placement(plan.devices, 1), 0, None, throttled=False, most_samples=samples)
        chain = build_chain(plan.timing, wiring, None)
        prepare(chain)
        traces = [_traced(device) for device in chain.devices]
        schedule = plan.schedule(samples, micro_batch)
        epoch = Epoch(schedule.micro_batches, schedule.step_samples)
        run(chain.train(schedule.programs(range(plan.devices)), epoch))
        return traces

    return trace


def _traced(device: Device) -> Trace:
    """The trace of a device, which its clock fills from now on."""
    trace, clock = Trace(), device.clock

    def after(function: str, note: Callable[[], None]) -> None:
        original = getattr(clock, function)

        def noting(*args: Any, **keys: Any) -> Any:
            found = original(*args, **keys)
            note()
            return found

        setattr(clock, function, noting)

    def ends() -> list[int]:
        return [max(slices) for slices in zip(*(part.pg_end_ps.tolist() for part in clock.slices), strict=True)]

    after("forward", lambda: trace.forward_ps.extend(clock.slices[0].fp_start_ps.tolist()))
    after("backward", lambda: trace.backward_ps.extend(clock.slices[-1].eb_start_ps.tolist()))
    after("gradient", lambda: trace.gradient_ps.extend(ends()))
    after("update", lambda: trace.updated_ps.append(clock.updated_ps))
    return trace
