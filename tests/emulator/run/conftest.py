"""What tests of runs share: traces of timed epochs, and balanced parameters where a test wants
them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from emuchain.comm import FifoResource, Times, run
from emuchain.emulator.device import Device, Epoch
from emuchain.emulator.mapping import BalancedParameters, channel_bytes
from emuchain.emulator.plan import ChainPlan, find_steady
from emuchain.emulator.run import Placement
from emuchain.emulator.run.chain import Chain, Wiring, build_chain
from emuchain.emulator.timing import Timing


@dataclasses.dataclass(frozen=True)
class Trace:
    """When each sample's FP and EB started and its PG ended on a device, and when updates were
    ready, in ps.
    """

    forward_ps: list[int] = dataclasses.field(default_factory=list)
    backward_ps: list[int] = dataclasses.field(default_factory=list)
    gradient_ps: list[int] = dataclasses.field(default_factory=list)
    updated_ps: list[int] = dataclasses.field(default_factory=list)


Prepare = Callable[[Chain], None]
TraceEpoch = Callable[..., list[Trace]]
WithBlocks = Callable[..., ChainPlan]


@pytest.fixture(scope="session")
def many_blocks() -> Callable[[ChainPlan], list[BalancedParameters]]:
    """Gives blocks of balanced parameters: of each slice with enough channels, some to either
    device to its left.
    """

    def blocks(plan: ChainPlan) -> list[BalancedParameters]:
        return [
            BalancedParameters(
                part.layer, begin, end, device, store, (end - begin) * channel_bytes(part)
            )
            for device, slices in enumerate(plan.mapping.devices)
            for part in slices
            for store, begin, end in (
                (device - 1, part.begin, part.begin + 1),
                (device - 2, part.end - 2, part.end),
            )
            if store >= 0 and part.channels > 3
        ]

    return blocks


@pytest.fixture(scope="session")
def with_blocks() -> WithBlocks:
    """Gives a plan with chosen blocks of balanced parameters: `with_blocks(plan,
    many_blocks(plan))`.
    """

    def replace(plan: ChainPlan, blocks: list[BalancedParameters]) -> ChainPlan:
        timing = Timing.of(plan.mapping, plan.cluster, tuple(blocks))
        return dataclasses.replace(plan, timing=timing, steady=find_steady(timing, plan.batch))

    return replace


@pytest.fixture(scope="session")
def trace_epoch() -> TraceEpoch:
    """Runs an epoch of one chain for its times alone, and gives the trace of each device.

    `trace_epoch(plan, samples, micro_batch, prepare)`: without a micro-batch, the plan's; `prepare`
    gets the chain before it starts.
    """

    def trace(
        plan: ChainPlan,
        samples: int,
        micro_batch: int | None = None,
        prepare: Prepare = lambda _: None,
    ) -> list[Trace]:
        wiring = Wiring(
            Placement.of([1] * plan.devices, 1), 0, None, throttled=False, most_samples=samples
        )
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
        return [
            max(slices)
            for slices in zip(*(part.pg_end_ps.tolist() for part in clock.slices), strict=True)
        ]

    after("forward", lambda: trace.forward_ps.extend(clock.slices[0].fp_start_ps.tolist()))
    after("backward", lambda: trace.backward_ps.extend(clock.slices[-1].eb_start_ps.tolist()))
    after("gradient", lambda: trace.gradient_ps.extend(ends()))
    after("update", lambda: trace.updated_ps.append(clock.updated_ps))
    return trace


class Recorder(FifoResource):
    """A FIFO resource that keeps what it returns: for each sample the times of its rows, in ns."""

    def __init__(self, resource: FifoResource) -> None:
        super().__init__(resource.name, resource.row_ps, resource.latency_ps)
        self.returned: list[list[float]] = []

    def serve(self, ready: Times) -> Times:
        times = super().serve(ready)
        self.returned.extend((times / 1000).tolist())
        return times


@dataclasses.dataclass
class Recording:
    """What every engine and path of a chain returned, and the traces of the devices."""

    engines: dict[str, list[list[float]]]
    paths: dict[int, list[list[float]]]
    traces: list[Trace]


@pytest.fixture
def record(trace_epoch: TraceEpoch) -> Callable[[ChainPlan, int], Recording]:
    """Runs an epoch for its times, with a recorder in place of every engine and path."""

    def recorded(plan: ChainPlan, samples: int) -> Recording:
        engines: dict[str, Recorder] = {}
        paths: dict[int, Recorder] = {}

        def prepare(chain: Chain) -> None:
            for clock in (device.clock for device in chain.devices):
                for part, of_slice in zip(clock.streams.slices, clock.slices, strict=True):
                    for phase in ("fp", "eb", "pg"):
                        resource = getattr(of_slice, phase)
                        if resource is not None:
                            recorder = Recorder(resource)
                            setattr(of_slice, phase, recorder)
                            engines[f"{clock.streams.device} {part.layer.name} {phase}"] = recorder
                recorders = {key: Recorder(resource) for key, resource in clock.links.items()}
                for key, recorder in recorders.items():
                    assert int(key.path) not in paths
                    paths[int(key.path)] = recorder
                clock.links = recorders

        traces = trace_epoch(plan, samples, prepare=prepare)
        return Recording(
            {name: recorder.returned for name, recorder in engines.items()},
            {path: recorder.returned for path, recorder in paths.items()},
            traces,
        )

    return recorded
