"""Special functions: enough pipelines to keep up with the engines, and what they take."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.emulator.cluster import DSP_TYPES, FUNCTIONS, Fpga, Resources, load_cluster
from emuchain.emulator.network import Arithmetic, load_network
from emuchain.emulator.plan.layout import function_resources

from .test_limits import fullest, plan_on

COUNTS = st.tuples(*[st.integers(0, 10**7)] * 3)


def board_of(kind: str, **keys: Any) -> Fpga:
    links = {"bandwidth_gbps": 1, "latency_ns": 0}
    described = {"name": kind, "boards": [{"type": kind, **keys}], "links": links}
    board = load_cluster(described).board(0)
    assert isinstance(board, Fpga)
    return board


U280 = board_of("u280")


def test_each_type_of_dsps_has_them() -> None:
    assert FUNCTIONS.keys() == DSP_TYPES.keys()
    for cores in FUNCTIONS.values():
        assert all(core.lut > 0 and core.ff > 0 and core.source for core in cores)


@given(counts=COUNTS, sample_ps=st.integers(1, 10**12))
def test_pipelines_keep_up_and_no_fewer_would(counts: tuple[int, int, int], sample_ps: int) -> None:
    """Each gives one result in a cycle; of one kind alone, LUTs tell how many there are."""
    for kind, count in enumerate(counts):
        one, asked = [0, 0, 0], [0, 0, 0]
        one[kind], asked[kind] = 1, count
        each = U280.function_resources((one[0], one[1], one[2]), 10**12).lut
        taken = U280.function_resources((asked[0], asked[1], asked[2]), sample_ps).lut
        pipelines, rest = divmod(taken, each)
        assert rest == 0
        assert pipelines * sample_ps >= count * U280.period_ps
        assert pipelines == 0 or (pipelines - 1) * sample_ps < count * U280.period_ps


@given(first=COUNTS, second=COUNTS, sample_ps=st.integers(10**6, 10**12))
def test_two_units_take_no_less_than_one_that_does_both(
    first: tuple[int, int, int], second: tuple[int, int, int], sample_ps: int
) -> None:
    both = (first[0] + second[0], first[1] + second[1], first[2] + second[2])
    apart = U280.function_resources(first, sample_ps) + U280.function_resources(second, sample_ps)
    together = U280.function_resources(both, sample_ps)
    assert together.lut <= apart.lut
    assert together.dsp <= apart.dsp


def test_an_exponential_is_as_vitis_builds_it() -> None:
    assert U280.function_resources((0, 1, 0), 10**9) == Resources(lut=748, ff=316, dsp=7)
    assert board_of("520n").function_resources((1, 0, 0), 10**9) == Resources(108, 336, 0, 2)


def test_boards_that_papers_count_have_none() -> None:
    counted = board_of("u280", multipliers="one-per-dsp")
    assert counted.function_resources((10, 10, 10), 1) == Resources()


def test_softmax_of_attention_has_an_exponential_for_each_score_and_again_in_eb() -> None:
    """char-gpt's are causal: token t sees t + 1."""
    [*layers] = [
        layer for layer in load_network("char-gpt").layers if layer.operation.type == "attention"
    ]
    layer = layers[0]
    heads, tokens = layer.operation.heads, layer.input[1]  # type: ignore[attr-defined]
    of_layer = layer.operation.arithmetic(layer.input, layer.output)
    assert of_layer.exponentials == 2 * heads * sum(range(1, tokens + 1))
    assert of_layer.divisions == heads * tokens


@pytest.mark.parametrize("network", ["char-gpt", "char-lstm", "resnet8-cifar", "quick-cifar"])
def test_layouts_add_up_with_functions(network: str) -> None:
    plan = emuchain.plan(network, "u280", devices=2)
    lut = 0
    for device in plan.layout().devices:
        assert device.resources.dsp == sum(held.resources.dsp for held in device.slices)
        for held in device.slices:
            [engines] = device.board.slice_resources([held.engines.multipliers])
            own = function_resources(held.part, held.engines, device.board)
            assert held.resources.dsp == engines.dsp + own.dsp
            assert held.resources.ff == engines.ff + own.ff
            lut += own.lut
    has_none = network == "quick-cifar"  # convolutions, pools and ReLU
    assert (lut == 0) is has_none


def test_parts_of_a_layer_have_about_as_much_as_all_of_it() -> None:
    """Of heads on several boards, each rounds up."""
    exponentials = []
    for devices in (1, 3):
        plan = emuchain.plan("char-gpt", "u280", devices=devices)
        total = 0
        for device in plan.layout().devices:
            for held in device.slices:
                layer = held.part.layer
                work = layer.operation.arithmetic(layer.input, layer.output)
                share = held.part.channels / layer.operation.pieces(layer.output)
                if layer.operation.type == "attention":
                    total += math.ceil(share * work.exponentials)
        exponentials.append(total)
    assert exponentials[0] == exponentials[1] > 0


def test_functions_shrink_engines_where_look_up_tables_are_few() -> None:
    keys: dict[str, Any] = {"board_lut_share": 1.0, "board_shell_lut": 0, "board_lut": 150_000}
    plan = plan_on("u280", "resnet8-cifar", 2, **keys)
    assert 0.9 < fullest(plan)["lut"] <= 1
    own = [
        function_resources(held.part, held.engines, device.board).lut
        for device in plan.layout().devices
        for held in device.slices
    ]
    assert sum(own) > 1000


def test_arithmetic_of_values_adds_up() -> None:
    assert Arithmetic(3, 1, 1).times(4) == (12, 4, 4)


def test_functions_of_a_gate_keep_up_with_the_map_that_it_multiplies() -> None:
    """And not with the engine of its own layer, which is done much sooner."""
    layers: list[dict[str, Any]] = [
        {"type": "conv", "channels": 8, "kernel": 3, "pad": 1, "name": "map"},
        {"type": "global-average-pool"},
        *({"type": "conv", "channels": 8, "kernel": 1}, {"type": "sigmoid", "name": "gate"}),
        {"type": "multiply", "from": ["map", "gate"]},
        *({"type": "fc", "features": 10}, {"type": "softmax"}),
    ]
    network = {"name": "gated", "input": [3, 16, 16], "layers": layers}
    [device] = emuchain.plan(network, "u280", devices=1).layout().devices  # type: ignore[arg-type]
    made, gated, _ = device.slices
    values, times_ps = 8 * 16 * 16, [held.engines.fp.sample_ps for held in (made, gated)]
    assert times_ps[1] < times_ps[0]
    board = device.board
    product = board.function_resources((3 * values, 0, 0), times_ps[0])
    gate = board.function_resources((3 * 8, 8, 8), times_ps[1])
    [engines] = board.slice_resources([gated.engines.multipliers])
    assert gated.resources.dsp == engines.dsp + product.dsp + gate.dsp
