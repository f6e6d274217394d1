"""Whole chains, for their times alone: what must hold whatever the network, the boards and the links."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.comm.host import run
from emuchain.emulator.cluster.board import Board, Cluster, Link
from emuchain.emulator.config.config import Config
from emuchain.emulator.device.device import Epoch, Trace
from emuchain.emulator.device.parameter import Sgd
from emuchain.emulator.mapping.partition import partition
from emuchain.emulator.mapping.slices import cut_channels
from emuchain.emulator.network.description import Conv, Description, Fc, Pool, Relu, Softmax
from emuchain.emulator.network.graph import resolve
from emuchain.emulator.network.layers import Network
from emuchain.emulator.plan.plan import Plan
from emuchain.emulator.plan.steady import find_steady
from emuchain.emulator.run.chain import Placement, Wiring, build
from emuchain.emulator.run.simulate import simulate
from emuchain.emulator.schedule.dry_run import dry_run
from emuchain.emulator.timing.timing import Timing

FEW = settings(max_examples=25)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """A few layers with few rows."""
    channels = st.sampled_from([1, 2, 3, 5, 16, 18])
    shape = draw(channels), draw(st.integers(2, 7)), draw(st.integers(2, 7))
    rows, columns = shape[1:]
    operations: list[Conv | Fc | Pool | Relu] = []
    for _ in range(draw(st.integers(1, 2))):
        kernel = draw(st.sampled_from([1, 2, 3]))  # with its padding it fits any map
        stride = draw(st.sampled_from([1, 1, 2]))
        pad = kernel // 2
        operations.append(
            Conv(type="conv", channels=draw(channels), kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2)
        )
        rows, columns = ((size + 2 * pad - kernel) // stride + 1 for size in (rows, columns))
        if draw(st.booleans()):
            operations.append(Relu(type="relu"))
    if min(rows, columns) > 1 and draw(st.booleans()):
        operations.append(Pool(type="max-pool", kernel=(2, 2)))
    operations.append(Fc(type="fc", features=draw(st.sampled_from([2, 4]))))
    return resolve(Description(name="n", input=shape, layers=(*operations, Softmax(type="softmax"))), "test")


@st.composite
def plans(draw: st.DrawFn, schedule: str | None = None) -> Plan:
    """A network on a chain of unlike boards."""
    network = draw(networks())
    boards = tuple(
        Board("b", draw(st.integers(1, 20)) * 500, draw(st.integers(60, 1500)), 1000)
        for _ in range(draw(st.integers(1, 3)))
    )
    cluster = Cluster("c", boards, Link(draw(st.sampled_from([5, 300, 10_000, 150_000])), draw(st.integers(0, 10**7))))
    mapping = partition(network, cluster, draw(st.integers(1, min(4, sum(map(cut_channels, network.layers))))))
    config = Config(
        batch=draw(st.integers(1, 6)),
        schedule=schedule or draw(st.sampled_from(["sync", "fpdeep"])),
        epochs=draw(st.integers(1, 2)),
        devices=len(mapping.devices),
    )
    timing = Timing.of(mapping, cluster)
    return Plan(config, network, cluster, mapping, timing, find_steady(timing, config.batch))


def changed(plan: Plan, **settings_: object) -> Plan:
    """The same plan with another configuration."""
    return dataclasses.replace(plan, config=plan.config.model_copy(update=settings_))


def traces(plan: Plan, samples: int, micro_batch: int) -> list[Trace]:
    """What all devices did when, in an epoch with micro-batches of that size."""
    wiring = Wiring(Placement(plan.devices, 1), 0, None, throttled=False, most_samples=samples, with_data=False)
    chain = build(plan.timing, wiring, None)
    for device in chain.devices:
        device.trace = Trace()
    schedule = plan.schedule(samples, micro_batch)
    epoch = Epoch(schedule.micro_batches, [0] * schedule.steps, np.zeros(0, np.int64), Sgd(0, 0, 0))
    programs = schedule.programs(range(plan.devices))
    run([device.train(programs[device.number], epoch, None) for device in chain.devices])
    return [device.trace for device in chain.devices if device.trace is not None]


@FEW
@given(plans(), st.integers(1, 20), st.integers(1, 7))
def test_times_do_not_depend_on_the_micro_batches(plan: Plan, samples: int, micro_batch: int) -> None:
    assert traces(plan, samples, micro_batch) == traces(plan, samples, plan.config.batch)


@FEW
@given(plans(), st.integers(1, 20))
def test_a_simulation_is_an_epoch_of_the_chain_and_a_pure_function(plan: Plan, samples: int) -> None:
    found = simulate(plan, samples)
    assert found == simulate(plan, samples)
    assert len(found.epoch_ends_ps) == plan.config.epochs
    assert found.epoch_ends_ps[0] == max(trace.updated_ps[-1] for trace in traces(plan, samples, 1))
    assert found.figures.virtual_time_ps == found.epoch_ends_ps[-1]
    assert list(found.epoch_ends_ps) == sorted({*found.epoch_ends_ps})


@FEW
@given(plans(), st.integers(1, 20))
def test_bytes_on_links_follow_from_the_mapping(plan: Plan, samples: int) -> None:
    """Where a link cuts a layer by input channels, those beyond it cross it as activations, and as errors on the way
    back; its outputs cross it as partial sums, and as errors on the way back. By output channels, all inputs cross it
    and the outputs so far. Between two layers, what the one feeds to the other."""
    links = simulate(plan, samples).figures.links
    total = samples * plan.config.epochs
    devices = plan.mapping.devices
    assert [(link.sender, link.receiver) for link in links] == [
        pair for d in range(len(devices) - 1) for pair in ((d, d + 1), (d + 1, d))
    ]
    for forward, backward in zip(links[::2], links[1::2], strict=True):
        left, right = devices[forward.sender][-1], devices[forward.receiver][0]
        layer = right.layer
        ins, rows, columns = layer.input
        outs, out_rows, out_columns = layer.output
        if left.layer is not layer:
            assert left.layer.feeds == layer.input
            expected = {1: ins * rows * columns, 4: ins * rows * columns}
        else:
            by_outputs = ins < 16 and outs > ins
            inputs = (ins if by_outputs else ins - right.begin) * rows * columns
            outputs = (right.begin if by_outputs else outs) * out_rows * out_columns
            expected = {1: inputs, 2: outputs, 3: outputs, 4: inputs}
            if layer.index == 0:
                del expected[4]
        assert {path.value: count for path, count in forward.path_bytes.items()} == {
            path: 4 * count * total for path, count in expected.items() if path in (1, 2)
        }
        assert {path.value: count for path, count in backward.path_bytes.items()} == {
            path: 4 * count * total for path, count in expected.items() if path in (3, 4)
        }


@FEW
@given(plans(), st.integers(1, 20))
def test_nothing_is_busier_than_all_the_time(plan: Plan, samples: int) -> None:
    found = simulate(plan, samples).figures
    for device in found.devices:
        assert all(0 < busy <= 1 for busy in device.busy.values())
    assert all(0 < link.utilisation <= 1 for link in found.links)
    # Nor does a run end before its slowest server has served all samples.
    assert found.virtual_time_ps >= plan.timing.interval_ps * samples * plan.config.epochs


@FEW
@given(plans(schedule="sync"), st.integers(3, 8))
def test_sync_takes_as_long_for_each_mini_batch_as_for_the_one_before(plan: Plan, steps: int) -> None:
    """From the second on: only the first meets an empty chain."""
    ends = [0, *np.max([trace.updated_ps for trace in traces(plan, steps * plan.config.batch, 1)], axis=0).tolist()]
    spans = [after - before for before, after in itertools.pairwise(ends)]
    assert len(set(spans[1:])) == 1


@FEW
@given(plans(schedule="sync"), st.integers(1, 20))
def test_sync_waits_for_new_weights(plan: Plan, samples: int) -> None:
    batch = plan.config.batch
    for trace in traces(plan, samples, 2):
        for starts in (trace.forward_ps, trace.backward_ps):
            assert len(starts) == samples
            for sample, start in enumerate(starts):
                step = sample // batch
                assert start >= (trace.updated_ps[step - 1] if step else 0)
        for step, updated in enumerate(trace.updated_ps):
            assert updated > max(trace.gradient_ps[step * batch : (step + 1) * batch])


@FEW
@given(plans(schedule="fpdeep"), st.integers(1, 20))
def test_fpdeep_is_never_slower_than_sync(plan: Plan, samples: int) -> None:
    fpdeep, sync = simulate(plan, samples), simulate(changed(plan, schedule="sync"), samples)
    for quick, slow in zip(fpdeep.epoch_ends_ps, sync.epoch_ends_ps, strict=True):
        assert quick <= slow


@FEW
@given(plans(schedule="fpdeep"), st.integers(1, 30))
def test_in_fpdeep_nobody_waits_for_weights_in_steady_state(plan: Plan, samples: int) -> None:
    """Each sample starts on each device as it would if there were no weights to wait for: in one mini-batch."""
    free = changed(plan, batch=samples, schedule="sync")
    for waiting, freely in zip(traces(plan, samples, 3), traces(free, samples, samples), strict=True):
        assert waiting.forward_ps == freely.forward_ps
        assert waiting.backward_ps == freely.backward_ps
        assert waiting.gradient_ps == freely.gradient_ps


@FEW
@given(plans(schedule="fpdeep"), st.integers(1, 40), st.integers(1, 7))
def test_lags_make_a_schedule_that_passes_the_dry_run(plan: Plan, samples: int, micro_batch: int) -> None:
    dry_run(plan.schedule(samples, micro_batch))
    for lags in plan.steady.lags:
        assert len(lags.forward) == len(lags.backward) == plan.config.batch
        # EB of a sample starts after its FP, so it sees weights as new or newer.
        assert all(backward <= forward for forward, backward in zip(lags.forward, lags.backward, strict=True))


@FEW
@given(plans())
def test_samples_in_flight(plan: Plan) -> None:
    """At least the one that has just started; the first device holds as many as any, and the count is the trace's."""
    batch = plan.config.batch
    steps = 256  # more are never looked at
    free = changed(plan, batch=steps * batch, schedule="sync")
    for held, trace in zip(plan.steady.in_flight, traces(free, steps * batch, steps * batch), strict=True):
        assert held >= 1
        starts, ends = np.array(trace.forward_ps), np.array(trace.gradient_ps)
        assert held <= max(np.sum(starts <= now) - np.sum(ends <= now) for now in starts)
