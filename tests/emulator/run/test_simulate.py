"""Whole chains, for their times alone: what must hold whatever the network, the boards and the
links.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Cluster, Fpga, Link, LinkShare
from emuchain.emulator.config import Config, settings_config
from emuchain.emulator.mapping import cut_channels, partition
from emuchain.emulator.network import Network, load_network
from emuchain.emulator.plan import ChainPlan, find_steady
from emuchain.emulator.run import simulate
from emuchain.emulator.schedule import dry_run
from emuchain.emulator.timing import Timing

FEW = settings(max_examples=25)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """A few layers with few rows."""
    channels = st.sampled_from([1, 2, 3, 5, 16, 18])
    shape = [draw(channels), draw(st.integers(2, 7)), draw(st.integers(2, 7))]
    rows, columns = shape[1:]
    layers: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 2))):
        kernel = draw(st.sampled_from([1, 2, 3]))  # with its padding it fits any map
        stride = draw(st.sampled_from([1, 1, 2]))
        pad = kernel // 2
        layers.append(
            {
                "type": "conv",
                "channels": draw(channels),
                "kernel": kernel,
                "stride": stride,
                "pad": pad,
            }
        )
        rows, columns = ((size + 2 * pad - kernel) // stride + 1 for size in (rows, columns))
        if draw(st.booleans()):
            layers.append({"type": "relu"})
    if min(rows, columns) > 1 and draw(st.booleans()):
        layers.append({"type": "max-pool", "kernel": 2})
    layers += [{"type": "fc", "features": draw(st.sampled_from([2, 4]))}, {"type": "softmax"}]
    return load_network({"name": "n", "input": shape, "layers": layers})


@st.composite
def plans(draw: st.DrawFn, schedule: str | None = None) -> ChainPlan:
    """A network on a chain of unlike boards."""
    network = draw(networks())
    boards = tuple(
        Fpga("b", draw(st.integers(1, 20)) * 500, draw(st.integers(60, 1500)), 1000)
        for _ in range(draw(st.integers(1, 3)))
    )
    mbps, latency_ps = draw(st.sampled_from([5, 300, 10_000, 150_000])), draw(st.integers(0, 10**7))
    cluster = Cluster("c", boards, Link(mbps, latency_ps, draw(st.sampled_from(LinkShare))))
    mapping = partition(
        network, cluster, draw(st.integers(1, min(4, sum(map(cut_channels, network.layers)))))
    )
    config = Config(
        batch=draw(st.integers(1, 6)),
        schedule=schedule or draw(st.sampled_from(["sync", "fpdeep"])),
        epochs=draw(st.integers(1, 2)),
        devices=len(mapping.devices),
    )
    timing = Timing.of(mapping, cluster)
    return ChainPlan(config, network, cluster, mapping, timing, find_steady(timing, config.batch))


def changed(plan: ChainPlan, **keys: object) -> ChainPlan:
    """The same plan with another configuration."""
    return dataclasses.replace(
        plan, config=settings_config({**plan.config.model_dump(exclude_none=True), **keys})
    )


@FEW
@given(plans(), st.integers(1, 20), st.integers(1, 7))
def test_times_do_not_depend_on_the_micro_batches(
    trace_epoch: Any, plan: ChainPlan, samples: int, micro_batch: int
) -> None:
    assert trace_epoch(plan, samples, micro_batch) == trace_epoch(plan, samples, plan.config.batch)


@FEW
@given(plans(), st.integers(1, 20))
def test_a_simulation_is_an_epoch_of_the_chain_and_a_pure_function(
    trace_epoch: Any, plan: ChainPlan, samples: int
) -> None:
    found = simulate(plan, samples)
    assert found == simulate(plan, samples)
    assert len(found.epoch_ends_ps) == plan.config.epochs
    assert found.epoch_ends_ps[0] == max(
        trace.updated_ps[-1] for trace in trace_epoch(plan, samples, 1)
    )
    assert found.usage.virtual_time_ps == found.epoch_ends_ps[-1]
    assert list(found.epoch_ends_ps) == sorted({*found.epoch_ends_ps})


@FEW
@given(plans(), st.integers(1, 20))
def test_bytes_on_links_follow_from_the_mapping(plan: ChainPlan, samples: int) -> None:
    """Where a link cuts a layer by input channels, those beyond it cross it as activations, and as
    errors on the way back; its outputs cross it as partial sums, and as errors on the way back. By
    output channels, all inputs cross it and the outputs so far, pooled where paths have fixed
    parts. Between two layers, what the one feeds to the other."""
    links = simulate(plan, samples).usage.links
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
            if by_outputs and plan.cluster.link.share is LinkShare.PATHS:
                out_rows, out_columns = layer.feeds[1:]
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
def test_nothing_is_busier_than_all_the_time(plan: ChainPlan, samples: int) -> None:
    found = simulate(plan, samples).usage
    for device in found.devices:
        assert all(0 < busy <= 1 for busy in device.busy.values())
    assert all(0 < link.utilisation <= 1 for link in found.links)
    # Nor does a run end before its slowest resource has served all samples.
    assert found.virtual_time_ps >= plan.timing.interval_ps * samples * plan.config.epochs


@FEW
@given(plans(schedule="sync"), st.integers(6, 9))
def test_under_sync_the_times_of_mini_batches_repeat(
    trace_epoch: Any, plan: ChainPlan, steps: int
) -> None:
    """From the third on, each takes the same time, or two times take turns: `steady_period_ps`
    relies on it.
    """
    ends = [
        0,
        *np.max(
            [trace.updated_ps for trace in trace_epoch(plan, steps * plan.config.batch, 1)], axis=0
        ).tolist(),
    ]
    spans = [after - before for before, after in itertools.pairwise(ends)]
    assert spans[2:-2] == spans[4:]


@FEW
@given(plans(schedule="sync"), st.integers(1, 20))
def test_sync_waits_for_new_weights(trace_epoch: Any, plan: ChainPlan, samples: int) -> None:
    batch = plan.config.batch
    for trace in trace_epoch(plan, samples, 2):
        for starts in (trace.forward_ps, trace.backward_ps):
            assert len(starts) == samples
            for sample, start in enumerate(starts):
                step = sample // batch
                assert start >= (trace.updated_ps[step - 1] if step else 0)
        for step, updated in enumerate(trace.updated_ps):
            assert updated > max(trace.gradient_ps[step * batch : (step + 1) * batch])


@FEW
@given(plans(schedule="fpdeep"), st.integers(1, 20))
def test_fpdeep_is_never_slower_than_sync(plan: ChainPlan, samples: int) -> None:
    fpdeep, sync = simulate(plan, samples), simulate(changed(plan, schedule="sync"), samples)
    for quick, slow in zip(fpdeep.epoch_ends_ps, sync.epoch_ends_ps, strict=True):
        assert quick <= slow


@FEW
@given(plans(schedule="fpdeep"), st.integers(1, 30))
def test_in_fpdeep_nothing_waits_for_weights_in_steady_state(
    trace_epoch: Any, plan: ChainPlan, samples: int
) -> None:
    """Each sample starts on each device as it would if there were no weights to wait for: in one
    mini-batch.
    """
    free = changed(plan, batch=samples, schedule="sync")
    for waiting, freely in zip(
        trace_epoch(plan, samples, 3), trace_epoch(free, samples, samples), strict=True
    ):
        assert waiting.forward_ps == freely.forward_ps
        assert waiting.backward_ps == freely.backward_ps
        assert waiting.gradient_ps == freely.gradient_ps


@FEW
@given(plans(schedule="fpdeep"), st.integers(1, 40), st.integers(1, 7))
def test_staleness_makes_a_schedule_that_passes_the_dry_run(
    plan: ChainPlan, samples: int, micro_batch: int
) -> None:
    dry_run(plan.schedule(samples, micro_batch))
    for late in plan.steady.staleness:
        assert len(late.forward) == len(late.backward) == plan.config.batch
        # EB of a sample starts after its FP, so it sees weights as new or newer.
        assert all(
            backward <= forward
            for forward, backward in zip(late.forward, late.backward, strict=True)
        )


@FEW
@given(plans())
def test_samples_in_flight(trace_epoch: Any, plan: ChainPlan) -> None:
    """At least the one that has just started, and at most as many as the trace of a long free run
    shows.
    """
    batch = plan.config.batch
    steps = 256  # `find_steady` looks at no more
    free = changed(plan, batch=steps * batch, schedule="sync")
    for held, trace in zip(
        plan.steady.in_flight, trace_epoch(free, steps * batch, steps * batch), strict=True
    ):
        assert held >= 1
        starts, ends = np.array(trace.forward_ps), np.array(trace.gradient_ps)
        assert held <= max(np.sum(starts <= now) - np.sum(ends <= now) for now in starts)
