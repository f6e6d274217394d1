"""What is generated of a plan, without Verilator."""

import dataclasses

import numpy as np
import pytest

import emuchain
from emuchain.emulator.rtl import EngineDesign, Rtl, clocks_of, designs_of, run_mini_batches
from emuchain.emulator.rtl.engines import interleaved_every

from .chains import QUICK, RELU, TWO_LAYERS, cluster, conv, fc, network, plan, pool


def test_rows_take_the_plans_cycles() -> None:
    of = plan(QUICK, cluster(150), 4)
    for device in designs_of(of):
        for place, part in enumerate(device.slices):
            engines = of.timing.engines[device.number][place]
            pairs = [(engines.fp, part.fp), (engines.eb, part.eb), (engines.pg, part.pg)]
            for planned, built in pairs:
                assert (planned is None) == (built is None)
                if planned is not None and built is not None:
                    assert built.row_cycles * device.period_ps == planned.row_ps
                    assert built.tiles * part.layer.engine_view.tile == planned.multipliers


@pytest.mark.parametrize("sums", [1, 3, 10, 64])
@pytest.mark.parametrize("tiles", [1, 2, 7, 40])
@pytest.mark.parametrize("depth", [0, 4, 36])
def test_a_sum_is_there_when_its_next_product_comes(sums: int, tiles: int, depth: int) -> None:
    """Convolution q works on sum q modulo `sums`; tiles of one cycle on the same sum are
    chained.
    """
    every = interleaved_every(sums, tiles, depth)
    free = [0] * sums  # when each sum has been written
    for q in range(10 * sums * tiles):
        group, tile = divmod(q, tiles)
        if tile < sums:
            assert group * every >= free[q % sums]
        free[q % sums] = group * every + (tile // sums + 1) * depth + 1
    if depth == 0:
        assert every == 1


def test_latency_is_a_constant_where_interleaving_hides_it() -> None:
    design = EngineDesign.of(convolutions=640, sums=64, tiles=2, depth=20)
    assert (design.every, design.row_cycles, design.tail) == (1, 320, 22)


def test_without_cuts_rows_are_later_by_a_constant() -> None:
    """One device: all of FP is later than in the time model by its pipeline, which images enter row
    by row.
    """
    of = plan(network([3, 6, 6], conv(4, pad=1), RELU, fc(3)), cluster(200), 1)
    clocks = clocks_of(of, designs_of(of))
    modelled = [of.timing.clock(0)]
    ends = [run_mini_batches(chain, of.config.batch, 1) for chain in (clocks, modelled)]
    assert ends[0] > ends[1]
    later = clocks[0].slices[0].fp_start_ps - modelled[0].slices[0].fp_start_ps
    assert np.unique(later).size == 1


def test_memories_hold_what_a_mini_batch_needs() -> None:
    rooms = Rtl.of(plan(TWO_LAYERS, cluster(40), 2, batch=8)).rooms
    held = [room.samples for device in rooms for room in device]
    assert all(1 <= samples <= 8 for samples in held)
    assert min(held) < 8


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (
            [conv(4), {"type": "batch-norm"}, fc(3)],
            "conv1: batch-norm has no RTL; these have: conv",
        ),
        (
            [conv(4), RELU, pool(3, stride=2), fc(3)],
            "conv1: max-pool with windows that overlap has no RTL",
        ),
        ([conv(6, groups=3), RELU, fc(3)], "conv1: conv in 3 groups has no RTL"),
        ([conv(4), {"type": "dropout", "rate": 0.5}, fc(3)], "conv1: dropout has no RTL"),
    ],
)
def test_layers_without_rtl(layers: list[dict[str, object]], said: str) -> None:
    with pytest.raises(emuchain.InputError, match=said):
        Rtl.of(plan(network([3, 8, 8], *layers), cluster(200), 1))


def test_maps_that_bypass_a_layer() -> None:
    layers = [
        conv(3, pad=1, name="a"),
        RELU,
        conv(3, pad=1, name="b"),
        {"type": "add", "from": ["a", "b"]},
        fc(3),
    ]
    with pytest.raises(emuchain.InputError, match="maps that bypass a layer have no RTL"):
        Rtl.of(plan(network([3, 8, 8], *layers), cluster(200), 1))


def test_what_does_not_fit_the_board() -> None:
    boards = cluster(200)
    boards["boards"][0]["on_chip_memory_kbit"] = 36
    with pytest.raises(
        emuchain.InputError, match="do not fit on chip, but RTL keeps all of a device's data there"
    ):
        Rtl.of(plan(network([3, 8, 8], conv(16), RELU, fc(10)), boards, 1))


def test_other_schedules() -> None:
    of = plan(TWO_LAYERS, cluster(40), 2)
    other = dataclasses.replace(of, config=of.config.model_copy(update={"optimizer": "adam"}))
    with pytest.raises(emuchain.InputError, match="supports one optimiser, 'sgd'"):
        Rtl.of(other)
