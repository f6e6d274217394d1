"""Chains in narrow formats: the bits of training, each row in its cycle, mutations that are seen,
what is refused.
"""

from pathlib import Path

import numpy as np
import pytest

import emuchain
from emuchain.emulator.mapping import Cut
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.rtl import Rtl

from .chains import RELU, TWO_LAYERS, Mutation, cluster, conv, fc, network, plan, simulated
from .test_drawn import drawn_chain

ICP = network([2, 3, 2], conv(36, 1), RELU, conv(2, 2), RELU, fc(2))
"""Its second convolution is cut by input channels, within a block of 32."""
OCP = network([2, 3, 2], conv(3, 1), RELU, conv(36, 2), RELU, fc(2))
"""Its second convolution is cut by output channels, within a block of 32, and has errors of its
inputs.
"""

CHANCE = "bf16 rounding=stochastic"
SMALL = network([2, 3, 2], conv(6, 1), RELU, conv(2, 2), RELU, fc(2))


def plan_of(cut: Cut, precision: str) -> ChainPlan:
    """The plan of a network on two devices, which share a layer that is cut so."""
    made = plan(ICP if cut is Cut.ICP else OCP, cluster(40), 2, precision=precision)
    assert [part.cut for slices in made.mapping.devices for part in slices if not part.is_last] == [
        cut
    ]
    return made


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize(
    ("cut", "precision"),
    [
        *(
            (Cut.ICP, precision)
            for precision in (
                *("bf16", "fp8-e4m3", "mxint8", "int8 loss_scale=16"),
                *("bf16 rounding=stochastic", "mxfp8 rounding=stochastic"),
            )
        ),
        *(
            pytest.param(Cut.OCP, precision, marks=pytest.mark.exhaustive)
            for precision in ("bf16", "fp8-e4m3", "fp8 rounding=stochastic")
        ),
        (Cut.OCP, "mxint8"),
        (Cut.OCP, "mxfp8 rounding=stochastic"),
    ],
)
def test_bits_and_cycles(tmp_path: Path, cut: Cut, precision: str) -> None:
    """Of the weights, of their master copy, and of the biases."""
    of = plan_of(cut, precision)
    result = simulated(of, tmp_path)
    assert not any(result.wrong.values())
    assert result.is_right
    weights = sum(int(np.prod(layer.weight_shape)) for layer in of.network.layers)
    assert result.values == 2 * weights + sum(layer.channels for layer in of.network.layers)


DRAWN = [
    *(
        "bf16",
        "fp8",
        "mxint8",
        "mxfp8",
        "bf16 errors=fp8-e5m2 weights=mxint8",
        "fp16 loss_scale=256",
        "int5@3",
    ),
    *("mxfp4", "mxint8 scale=floor rounding=zero", "bf16 master=bf16 rounding=away"),
    *("int8", "q4.12 weights=q2.14 errors=q1.15 master=q2.14 loss_scale=16"),
    *("bf16 rounding=stochastic", "mxfp4 rounding=stochastic", "int5@3 rounding=stochastic"),
    "fp8 errors=fp8-e5m2 rounding.weights=stochastic rounding.errors=stochastic loss_scale=256",
]
"""Blocks of three are cut almost everywhere."""


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("seed", range(len(DRAWN)))
def test_drawn_chains(tmp_path: Path, seed: int) -> None:
    of, latency = drawn_chain(seed, precision=DRAWN[seed])
    assert simulated(of, tmp_path, latency).is_right


MUTATIONS = {
    "what the SFU hands on stays wide": (
        "bf16",
        Mutation(
            "round_rows",
            ".y(out_row[i*32+:32])",
            ".y());\n assign out_row[i*32+:32] = (row[i*32+:32]",
        ),
    ),
    "weights are cut off": (
        "fp8",
        Mutation(
            "lpram",
            "on_grid #(.FORMAT(FORMAT)) to_grid (.x(written[lane*32+:32]), .word('0), .y(number));",
            "assign number = written[lane*32+:32];",
        ),
    ),
    "a factor has a bit less": (
        "mxint8",
        Mutation("slice", ".SIGNIFICAND(FP_SIGNIFICAND)", ".SIGNIFICAND(FP_SIGNIFICAND - 2)"),
    ),
    "blocks of weights lie along the cut": (
        "mxint8",
        Mutation("slice", ".ACROSS(ICP)", ".ACROSS(1 - ICP)"),
    ),
    "words of a row are those of its whole counters": (
        CHANCE,
        Mutation("row_words", ">> {place, 5'd0}", ">> {2'd0 & place, 5'd0}"),
    ),
    "all samples draw alike": (
        CHANCE,
        Mutation("row_words", "sample <= sample + 64'd1", "sample <= sample"),
    ),
    "rows draw from the first channel of the layer": (
        CHANCE,
        Mutation("row_words", "+ pixel) * APART + FIRST", "+ pixel) * APART"),
    ),
    "rows do not wait for their words": (
        CHANCE,
        Mutation("round_rows", "valid = there && ready", "valid = there"),
    ),
    "all updates draw alike": (
        CHANCE,
        Mutation("weight_blocks", "update <= update + 64'd1", "update <= update"),
    ),
    "weights draw as if there were no cut": (
        CHANCE,
        Mutation("weight_blocks", "element = 32'(FIRST) +", "element ="),
    ),
    "weights apart draw the words of those side by side": (
        "mxfp8 rounding=stochastic",
        Mutation("weight_words", "weight + 32'(STRIDE)", "weight + 32'd1"),
    ),
    "a rounded row is a cycle late": (
        "mxint8",
        Mutation("round_rows", ".WIDTH(1), .STAGES(LATENCY)", ".WIDTH(1), .STAGES(LATENCY + 1)"),
    ),
}


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("name", MUTATIONS)
def test_mutations_are_seen(tmp_path: Path, name: str) -> None:
    precision, mutation = MUTATIONS[name]
    result = simulated(
        plan(SMALL, cluster(30), 2, precision=precision), tmp_path, mutation=mutation
    )
    assert any(result.wrong.values()) or not all(engine.is_right for engine in result.engines)


def test_fp32_is_as_without_formats() -> None:
    """Nothing is rounded, and there are no copies."""
    top = Rtl.of(plan(TWO_LAYERS, cluster(40), 2)).top(0)
    assert not any(word in top for word in ("round_rows", "formats::", "MASTER"))


def test_rows_are_rounded_once() -> None:
    """Where a map is whole: behind the SFU, and behind EB of the first slice, or, of a layer that
    is cut by input channels, of each; at the chain's end errors of outputs.
    """
    tops = [Rtl.of(plan_of(Cut.ICP, "bf16")).top(device) for device in (0, 1)]
    rounded = [
        [line.split()[1] for line in top.splitlines() if line.endswith("_rounded (")]
        for top in tops
    ]
    assert rounded == [
        ["conv1_whole_rounded", "conv2_sums_rounded"],
        ["conv2_sums_rounded", "conv2_whole_rounded", "fc1_sums_rounded", "fc1_errors_rounded"],
    ]


@pytest.mark.parametrize(
    ("precision", "said"),
    [
        (
            "bf16 master=bf16 rounding=stochastic",
            "RTL rounds by chance what engines read, and keeps a `master` in fp32 beside that",
        ),
        (
            "nvfp4",
            "RTL hands rows on as they come, and the scale of a tensor in nvfp4 is known once",
        ),
        ("bf16 gradients=bf16", "RTL keeps gradients in fp32; leave out `gradients`"),
        ("bf16 states=bf16", "RTL keeps states in fp32; leave out `states`"),
        ("bf16 accumulate=bf16", "RTL accumulates in fp32, or by dot:N; leave out `accumulate`"),
        (
            "mxint8 accumulate=dot:8",
            "RTL adds products in blocks of numbers without scales, such as int8: those of",
        ),
        ("fp8 accumulate=dot:8", "fp8: an engine of blocks multiplies whole numbers of up to 8"),
        (
            "e5m9@16",
            "RTL has no e5m9@16 for activations; it has fp32, bf16, fp16, fp8, fixed point, and",
        ),
        (
            "mxfp8 master=bf16",
            "RTL updates weights in fp32, or in their own format if that has no blocks",
        ),
        ("mxint8 master=mxint8", "RTL updates weights in fp32"),
    ],
)
def test_what_is_refused(precision: str, said: str) -> None:
    with pytest.raises(emuchain.InputError, match=said) as refused:
        Rtl.of(plan(TWO_LAYERS, cluster(40), 2, precision=precision))
    assert "\n" not in str(refused.value)
