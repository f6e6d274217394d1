"""The costs of a stage on a board: counted by hand, and against all ways to place its data."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from emuchain.emulator.cluster import Fpga, load_cluster
from emuchain.emulator.mapping import Mapping, Slice, cut_channels, streams
from emuchain.emulator.network import Network, Phase, load_network
from emuchain.emulator.number import Storage
from emuchain.emulator.profile import Data, DoesNotFit, board_stage, boundary_bytes, cut_bytes
from emuchain.kernels.number import FP16, number_format

PERIOD_PS, MULTIPLIERS = 1000, 10
MACS = 20 * 20 * 100  # of conv2: a 1x1 kernel, 20 channels in and out, maps of 10x10
PARAMETERS, FEATURES = 20 * 20 + 20, 20 * 100
BUFFERS = 4 * (
    20 * 10 + 20 * 10 + 20 * 10 + 20 * 10
)  # a row each for FP and EB, of input errors, of outputs


def net() -> Network:
    layers = [
        {"type": "conv", "channels": 20, "kernel": 1},
        {"type": "conv", "channels": 20, "kernel": 1},
    ]
    closing = [{"type": "global-average-pool"}, {"type": "softmax"}]
    return load_network({"name": "n", "input": [20, 10, 10], "layers": layers + closing})


def board(
    on_chip: int = 10**9, gbytes_per_s: float | None = None, off_chip: int | None = None
) -> Fpga:
    return Fpga(
        "b",
        PERIOD_PS,
        MULTIPLIERS,
        on_chip,
        off_chip_memory_bytes=off_chip,
        off_chip_gbytes_per_s=gbytes_per_s,
    )


def whole(network: Network, first: int, last: int) -> list[Slice]:
    return [Slice(layer, 0, cut_channels(layer)) for layer in network.layers[first : last + 1]]


def test_on_chip_a_stage_takes_its_multiply_accumulates() -> None:
    found = board_stage(whole(net(), 0, 1), board(), 3, 6)
    each = 3 * MACS * PERIOD_PS // MULTIPLIERS
    assert found.costs.forward_ps == 2 * each
    assert found.costs.backward_ps == 3 * each, "the layer that takes images has no EB"
    assert found.costs.pg_ps == 2 * each
    assert found.costs.feature_bytes == 3 * 2 * 4 * FEATURES
    assert found.costs.parameter_bytes == 2 * 4 * PARAMETERS
    assert (found.off_chip_bytes, found.moved_bytes, found.bound_by_memory) == (0, 0, False)
    assert found.on_chip_bytes == 2 * 4 * (2 * PARAMETERS + 6 * FEATURES) + BUFFERS


def test_times_are_rounded_up_for_each_layer_and_phase() -> None:
    seven = dataclasses.replace(board(), dsp=7)
    assert board_stage(whole(net(), 1, 1), seven, 1, 1).costs.forward_ps == -(
        -MACS * PERIOD_PS // 7
    )


def test_what_is_off_chip_costs_its_bytes() -> None:
    found = board_stage(whole(net(), 1, 1), board(BUFFERS, 0.001), 2, 5, weight_copies=3)
    [layer] = found.layers
    weights, features = 4 * PARAMETERS, 2 * 4 * FEATURES
    assert layer.off_chip == Data.WEIGHTS | Data.GRADIENTS | Data.FEATURES
    assert layer.moved_bytes == (weights + features, weights, 2 * weights + features)
    assert layer.times_ps == tuple(
        count * 10**6 for count in layer.moved_bytes
    )  # a byte takes 1 us
    assert layer.bound_by_memory == tuple(Phase)
    assert found.off_chip_bytes == 4 * (4 * PARAMETERS + 5 * FEATURES)
    assert found.costs.forward_ps == layer.times_ps.fp
    assert found.costs.backward_ps == layer.times_ps.eb + layer.times_ps.pg


def test_shared_weights_are_gathered_on_chip_where_they_find_room() -> None:
    """One of 4 replicas keeps a quarter, has room for a layer's, and reads none of them off
    chip.
    """
    room, gathered = BUFFERS + 4 * PARAMETERS, 4 * PARAMETERS
    found = board_stage(whole(net(), 0, 1), board(room, 0.001), 2, 5, shares=4)
    features = 2 * 4 * FEATURES
    for layer, has_eb in zip(found.layers, (False, True), strict=True):
        assert layer.off_chip == Data.WEIGHTS | Data.GRADIENTS | Data.FEATURES
        assert layer.stored_bytes == (PARAMETERS, 4 * PARAMETERS, 5 * 4 * FEATURES)
        assert layer.moved_bytes == (features, 0, 2 * 4 * PARAMETERS + features)
        assert layer.times_ps.eb == has_eb * 2 * MACS * PERIOD_PS // MULTIPLIERS
    assert (found.gathered_bytes, found.data_on_chip.weights) == (gathered, gathered)
    assert found.on_chip_bytes == BUFFERS + gathered
    assert found.off_chip_bytes == 2 * (5 * PARAMETERS + 5 * 4 * FEATURES)
    all_on_chip = board_stage(whole(net(), 0, 1), board(), 2, 5, shares=4)
    assert all_on_chip.data_on_chip.weights == 2 * PARAMETERS + gathered
    assert all_on_chip.costs == board_stage(whole(net(), 0, 1), board(), 2, 5).costs


def test_shared_weights_are_gathered_off_chip_where_they_find_no_room_on_it() -> None:
    """A byte less, and FP and EB read all of a layer's weights off chip, where shares are, too."""
    room = BUFFERS + 4 * PARAMETERS - 1
    found = board_stage(whole(net(), 0, 1), board(room, 0.001), 2, 5, shares=4)
    held = board_stage(whole(net(), 0, 1), board(BUFFERS, 0.001), 2, 5)
    assert all(layer.off_chip & Data.WEIGHTS for layer in found.layers)
    assert [layer.moved_bytes[:2] for layer in found.layers] == [
        layer.moved_bytes[:2] for layer in held.layers
    ]
    assert (found.gathered_bytes, found.data_on_chip.weights) == (0, 0)
    rooms = sum(sum(layer.stored_bytes) for layer in found.layers)
    on_chip = found.on_chip_bytes - BUFFERS
    assert found.off_chip_bytes == rooms - on_chip + 4 * PARAMETERS


def test_a_fast_port_hides_what_is_off_chip() -> None:
    found = board_stage(whole(net(), 1, 1), board(BUFFERS, 1000.0), 2, 5)
    assert found.moved_bytes and not found.bound_by_memory
    assert found.costs == board_stage(whole(net(), 1, 1), board(), 2, 5).costs


def test_half_precision_halves_bytes() -> None:
    whole_values = board_stage(whole(net(), 0, 1), board(), 1, 4)
    half = board_stage(whole(net(), 0, 1), board(), 1, 4, storage=Storage.all_in(FP16))
    assert 2 * half.on_chip_bytes == whole_values.on_chip_bytes
    assert 2 * half.costs.feature_bytes == whole_values.costs.feature_bytes
    assert half.costs.forward_ps == whole_values.costs.forward_ps


@pytest.mark.parametrize("room", [0, 1700, 3400, 5000, 9000, 12000, 20000])
@pytest.mark.parametrize("gbytes_per_s", [0.005, 0.02, 0.1])
def test_the_rule_is_near_the_best_of_all_placements(room: int, gbytes_per_s: float) -> None:
    """The best of all placements that fit is no better than a fifth, and what the rule takes fits,
    too.
    """
    found = board_stage(whole(net(), 0, 1), board(BUFFERS + room, gbytes_per_s), 1, 1)
    kinds = list(map(Data, range(8)))
    alone = {
        (place, kind): _alone(place, kind, gbytes_per_s)
        for place, kind in itertools.product(range(2), kinds)
    }
    fits = [pair for pair in itertools.product(kinds, kinds) if sum(map(_room, pair)) <= room]
    best = min(alone[0, first] + alone[1, second] for first, second in fits)
    assert found.on_chip_bytes <= BUFFERS + room
    assert best <= found.costs.work_ps <= 1.2 * best


def _room(off_chip: Data) -> int:
    """The bytes on chip of a layer of `net()`."""
    parameters = sum(data not in off_chip for data in (Data.WEIGHTS, Data.GRADIENTS))
    return 4 * (PARAMETERS * parameters + FEATURES * (Data.FEATURES not in off_chip))


def _alone(place: int, off_chip: Data, gbytes_per_s: float) -> int:
    """The time of a layer of `net()`, worked out anew."""
    work = MACS * PERIOD_PS // MULTIPLIERS
    weights, gradients, features = (
        size * 4 * (data in off_chip)
        for data, size in (
            (Data.WEIGHTS, PARAMETERS),
            (Data.GRADIENTS, PARAMETERS),
            (Data.FEATURES, FEATURES),
        )
    )
    phases = [weights + features, 2 * gradients + features] + [weights] * place
    return sum(max(work, round(count * 1000 / gbytes_per_s)) for count in phases)


def test_parameters_together_are_all_on_chip_or_all_off_chip() -> None:
    slices, room = whole(net(), 0, 1), BUFFERS + 8 * FEATURES + 4 * 3 * PARAMETERS
    apart = board_stage(slices, board(room, 1.0), 1, 1)
    together = board_stage(slices, board(room, 1.0), 1, 1, parameters_together=True)
    assert apart.off_chip_bytes == 4 * PARAMETERS
    assert together.off_chip_bytes == 4 * 4 * PARAMETERS
    more = board_stage(slices, board(room + 4 * PARAMETERS, 1.0), 1, 1, parameters_together=True)
    assert more.off_chip_bytes == 0


@pytest.mark.parametrize(
    ("small", "said"),
    [
        (
            board(5000),
            (
                f"stage 3: needs {8 * PARAMETERS + 4 * FEATURES + BUFFERS:,} bytes on chip; b,"
                " without off-chip memory of known bandwidth, has 5,000"
            ),
        ),
        (
            board(5000, 1.0, 100),
            f"stage 3: needs {4 * FEATURES + 4 * PARAMETERS:,} bytes off chip; b has 100",
        ),
        (board(3000, 1.0), f"stage 3: needs {BUFFERS:,} bytes of buffers on chip; b has 3,000"),
    ],
)
def test_memory_that_is_too_small_is_named(small: Fpga, said: str) -> None:
    with pytest.raises(DoesNotFit) as refused:
        board_stage(whole(net(), 1, 1), small, 1, 1, stage=3)
    assert str(refused.value) == said
    assert f"{refused.value.needed_bytes:,} bytes" in said
    assert said.endswith(f"{refused.value.capacity_bytes:,}")


def test_shortcuts_cross_a_cut_too() -> None:
    network = load_network("resnet18")
    last = len(network.layers) - 1
    for layer in network.layers[:-1]:
        ahead, behind = whole(network, 0, layer.index), whole(network, layer.index + 1, last)
        mapping = Mapping(network, (tuple(ahead), tuple(behind)))
        right = [stream for stream in streams(mapping, 0) if stream.path.is_forward]
        assert boundary_bytes(network, layer.index) == sum(stream.sample_bytes for stream in right)
        assert cut_bytes(layer, behind[0], FP16) == boundary_bytes(network, layer.index, FP16)
    assert boundary_bytes(network, last) == 4 * network.classes


def test_a_cut_within_a_layer_carries_partial_sums() -> None:
    layer = net().layers[1]
    assert cut_bytes(layer, Slice(layer, 5, 20)) == 4 * (15 + 20) * 100


def test_boards_that_come_with_emuchain_have_what_it_takes() -> None:
    found = board_stage(
        whole(load_network("resnet50"), 0, 53), load_cluster("vc709").board(0), 1, 1
    )
    assert found.off_chip_bytes and found.bound_by_memory


def test_sums_of_blocks_take_weights_of_eb_and_blocks_of_pixels() -> None:
    """Of conv2 EB has 20 blocks of 20 weights; of 20 channels in and out, PG has 32 pixels."""
    storage = Storage.all_in(number_format("mxint8"))
    blocks = dataclasses.replace(storage, dot=32)
    plain = board_stage(whole(net(), 0, 1), board(), 3, 6, storage=storage)
    found = board_stage(whole(net(), 0, 1), board(), 3, 6, storage=blocks)
    assert found.costs == plain.costs
    assert found.on_chip_bytes - plain.on_chip_bytes == 20 * 21 + 2 * 20 * 33
    twice = board_stage(whole(net(), 0, 1), board(), 3, 6, storage=blocks, weight_copies=2)
    assert twice.on_chip_bytes - found.on_chip_bytes == 20 * 21 + 2 * (20 * 21 + 21)
