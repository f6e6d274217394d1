"""Mini-batches on pairs: by hand, by the sums of the arithmetic model, and as FARNN published
them.
"""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.cluster import Fpga, Gpu, Link, PeArray
from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import Offload
from emuchain.emulator.timing.pair import (
    Cell,
    OtherWork,
    Pair,
    Part,
    Phase,
    RecurrentWork,
    Resource,
    Workload,
    time_mini_batch,
)

from .workloads import pair, synthetic, timed

MS = 10**9
GPU = Gpu("toy GPU", 1e-3, 1.0, 1.0, 5000, 1.0, 2.0)
"""1,000 ps for a floating-point operation, and for a byte of memory."""
TOY = Pair(
    GPU,
    Link(8_000, 0),
    Fpga("toy FPGA", 1000, 1, 1, pe_array=PeArray(1, 2, 99, activation_cycles=3)),
)
"""1,000 ps for a byte of the link, too; MVM units of two PEs at 1 GHz."""
LAYERS = tuple(RecurrentWork(name, Cell.LSTM, 2, 2, 2) for name in "ab")


def test_a_toy_by_hand() -> None:
    """Two layers of two cells, two steps, in ns: docs/time-model.md, with its figures.

    I-MVM: 2 x 16 x 2 = 64. R: 16 weights, 64; in FW with 16 biases, 128. A step: 2 + 3 cycles; but
    gates, 4 x 2 x 4 = 32 bytes a step, come at a byte a ns: 64 for both. Transposition: 128.
    GC: 128. WU: 5 x 4 x 48 = 960.
    """
    found = time_mini_batch(Workload("toy", LAYERS), TOY, Offload.OVERLAPPED)
    times = {each.task.name: (each.start_ps // 1000, each.end_ps // 1000) for each in found.timed}
    assert times == {
        "FW I-MVM of a": (0, 64),
        "FW weights of a": (0, 128),
        "FW R-MVM and activations of a": (128, 192),
        "FW I-MVM of b": (192, 256),
        "FW weights of b": (192, 320),
        "FW R-MVM and activations of b": (320, 384),
        "BW transposition of b": (256, 384),
        "BW weights of b": (384, 448),
        "BW R-MVM and activations of b": (448, 512),
        "BW I-MVM of b": (512, 576),
        "BW transposition of a": (576, 704),
        "BW GC of b": (704, 832),
        "BW WU of b": (832, 1792),
        "BW weights of a": (704, 768),
        "BW R-MVM and activations of a": (768, 832),
        "BW I-MVM of a": (1792, 1856),
        "BW GC of a": (1856, 1984),
        "BW WU of a": (1984, 2944),
    }
    assert (found.forward_ps, found.mini_batch_ps) == (384_000, 2_944_000)
    assert found.busy[Resource.FPGA].busy_ps == 4 * 64_000
    assert found.limit.resource is Resource.GPU
    # I-MVM of both layers and ways at the GPU's peak, R-MVM at 8 multiply-accumulates a ns.
    assert found.peak_ps == 4 * 64_000 + 4 * 2 * 2_000


def model_ms(layers: int, cells: int, steps: int, batch: int, cycles: int) -> float:
    """The sums of the arithmetic model, in ms: transposition, WU and latencies take no time."""
    product = 2 * 4 * cells**2 * steps * batch / (0.9 * 9.3e9)
    weights = 4 * 4 * cells**2 / 6e6
    passes = steps * batch * (cycles + 204) / 400e3
    forward = max(product, weights) + passes
    backward = weights + passes + product
    return layers * (forward + backward) + 2 * product


@pytest.mark.parametrize("batch", [1, 2, 4])
@pytest.mark.parametrize(("cluster", "cycles"), [("farnn-9p", 4096), ("farnn-13p", 3072)])
def test_the_arithmetic_model(cluster: str, cycles: int, batch: int) -> None:
    """The timeline adds a third of a millisecond: five transpositions, the last update,
    latencies.
    """
    found = timed(synthetic(batch=batch), cluster).mini_batch_ps / MS
    assert 0 < found - model_ms(5, 1024, 1600, batch, cycles) < 0.5


@pytest.mark.parametrize(("cluster", "published"), [("farnn-9p", 211.2), ("farnn-13p", 170.2)])
def test_five_layers(cluster: str, published: float) -> None:
    assert timed(synthetic(), cluster).mini_batch_ps / MS == pytest.approx(published, rel=0.01)


def test_utilisation_grows_with_the_batch() -> None:
    found = [100 * (timed(synthetic(batch=batch)).utilisation or 0) for batch in (1, 2, 4)]
    assert found == pytest.approx([82.8, 88.0, 92.5], abs=3)
    assert 3.4 < timed(synthetic(batch=4)).mini_batch_ps / timed(synthetic()).mini_batch_ps < 3.8


def test_other_ways_to_share_the_work() -> None:
    workload = synthetic(steps=800)
    farnn = timed(workload).mini_batch_ps
    assert timed(workload, schedule="farnn-no-overlap").mini_batch_ps > 1.2 * farnn
    assert 1.8 < timed(workload, schedule="farnn-all-fpga").mini_batch_ps / farnn < 2.1


@pytest.mark.parametrize("cluster", ["farnn-9p", "farnn-13p"])
def test_speed_up_grows_with_the_length(cluster: str) -> None:
    found = []
    for steps in (100, 200, 400, 800, 1600):
        alone = timed(synthetic(steps=steps), "p100", "gpu-standard").mini_batch_ps
        found.append(alone / timed(synthetic(steps=steps), cluster).mini_batch_ps)
    assert found == sorted(set(found))
    assert found[0] == pytest.approx(1, abs=0.1)


works = st.builds(
    RecurrentWork,
    st.just("x"),
    st.sampled_from(Cell),
    st.integers(1, 30),
    st.integers(1, 30),
    st.integers(1, 9),
    st.none() | st.integers(1, 30),
    st.integers(1, 2),
)
parts = st.one_of(
    works, st.builds(OtherWork, st.just("other"), st.integers(1, 10**4), st.integers(0, 99))
)
workloads = st.builds(
    Workload, st.just("w"), st.lists(parts, min_size=1, max_size=4).map(tuple), st.integers(1, 3)
)
ROOMY = dataclasses.replace(
    TOY, fpga=dataclasses.replace(TOY.fpga, pe_array=PeArray(2, 3, 10**6)), link=Link(8_000, 7_000)
)


@settings(deadline=None)
@given(workloads, st.sampled_from(Offload))
def test_timelines_hold_together(workload: Workload, offload: Offload) -> None:
    """Resources do one task at a time, none before those that it waits for; nothing is lost by any
    order.
    """
    if offload is Offload.PERSISTENT:
        workload = dataclasses.replace(
            workload,
            parts=tuple(
                (
                    dataclasses.replace(part, projection=None)
                    if isinstance(part, RecurrentWork)
                    else part
                )
                for part in workload.parts
            ),
        )
    devices = ROOMY if offload.devices > 1 else Pair(GPU, ROOMY.link)
    found = time_mini_batch(workload, devices, offload)
    for resource in Resource:
        taken = [each for each in found.timed if resource in each.task.resources]
        assert all(before.end_ps <= after.start_ps for before, after in itertools.pairwise(taken))
    for each in found.timed:
        assert (
            each.end_ps - each.start_ps == each.task.duration_ps > 0
            or each.task.part is Part.UPDATE
        )
        assert all(found.timed[other].end_ps <= each.start_ps for other in each.task.after)
    assert 0 < found.forward_ps < found.mini_batch_ps
    steps = [each.task for each in found.timed if each.task.part is Part.STEPS]
    expected = sum(1 if offload.devices == 1 else part.directions for part in workload.recurrent)
    assert [sum(task.phase is phase for task in steps) for phase in Phase] == [expected, expected]
    if (
        found.peak_ps is not None and offload is not Offload.ALL_STEPS
    ):  # the peak has I-MVM on the GPU
        assert found.peak_ps <= found.mini_batch_ps


@settings(deadline=None)
@given(workloads)
def test_overlap_never_costs_time(workload: Workload) -> None:
    overlapped, in_turn = (
        time_mini_batch(workload, ROOMY, offload).mini_batch_ps
        for offload in (Offload.OVERLAPPED, Offload.IN_TURN)
    )
    assert overlapped <= in_turn


def test_two_directions_take_turns_on_the_fpga() -> None:
    [layer] = synthetic(layers=1).recurrent
    both = timed(Workload("both", (dataclasses.replace(layer, directions=2),)))
    passes = [
        each
        for each in both.timed
        if each.task.part is Part.STEPS and each.task.phase is Phase.FORWARD
    ]
    loads = [
        each
        for each in both.timed
        if each.task.part is Part.WEIGHTS and each.task.phase is Phase.FORWARD
    ]
    assert passes[0].end_ps == loads[1].start_ps and loads[1].end_ps == passes[1].start_ps


def test_padded_sequences() -> None:
    [layer] = synthetic(layers=1, steps=548).recurrent
    assert layer.padded(1.3).steps == 713
    assert layer.padded(1).steps == 548


def test_a_link_that_is_too_slow_for_the_steps_limits() -> None:
    slow = dataclasses.replace(pair(), link=Link(8_000, 0))
    found = time_mini_batch(synthetic(), slow, Offload.OVERLAPPED)
    assert found.limit.resource is Resource.TO_FPGA or found.limit.resource is Resource.FPGA
    steps = next(each.task for each in found.timed if each.task.part is Part.STEPS)
    assert steps.duration_ps == 1600 * 4 * 1024 * 4 * 1000


def test_chains_take_a_weight_a_cycle() -> None:
    assert pair().load_ps(6_000) == 4_000_000 + 1_000_000
    one_chain = dataclasses.replace(TOY, link=Link(10**9, 0))
    assert one_chain.load_ps(70) == 70 * 1000


@pytest.mark.parametrize(
    ("cluster", "schedule", "message"),
    [
        ("vc709", "farnn", "device 0 is a VC709, where `schedule` = 'farnn' needs a GPU"),
        ("p100", "farnn", "device 1, P100, is a GPU, too"),
        ("vc709", "gpu-standard", "needs a GPU"),
    ],
)
def test_clusters_that_are_no_pair(cluster: str, schedule: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        pair(cluster, schedule)


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(
        InputError, match=r"`pe_words` = 4608: .* 16,384 words in a PE, 48,234,496 bytes too much"
    ):
        timed(synthetic(cells=2048))


def test_no_persistent_form_with_a_projection() -> None:
    work = RecurrentWork("encoder", Cell.LSTM, 640, 2048, 10, projection=640)
    with pytest.raises(InputError, match="encoder has a projection"):
        timed(Workload("x", (work,)), "p100", "gpu-persistent")
