"""A CNN whose products are summed in blocks, a transformer and an LSTM in narrow formats on two
boards of 40 multipliers: multipliers, memory, bytes on the link and the time of one sample, by hand
as docs/numbers.md, docs/resources.md and docs/time-model.md say.

A block of 32 takes a scale of one byte. A clock cycle is 10 ns, a byte on the link 1 ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import emuchain
from emuchain.emulator.run import steady_state
from emuchain.emulator.view import layout_as_json

CLUSTER = {
    "name": "two",
    "boards": [
        {"name": "b", "clock_mhz": 100, "dsp": 40, "on_chip_memory_kbit": 40000, "count": 2}
    ],
    "links": [{"bandwidth_gbps": 8, "latency_ns": 100}],
}
CYCLE_PS, BYTE_PS, LATENCY_PS = 10_000, 1_000, 100_000
FP32 = 4  # bytes


@dataclass(frozen=True)
class Memory:
    """Bytes of a slice's buffers."""

    act_ram: int
    lpram: int
    lgb: int
    line_buffers: int
    error_buffer: int
    pab: int


@dataclass(frozen=True)
class Hand:
    """What is worked out by hand: of slices in the order of the chain, of the link, and of a run of
    one sample.
    """

    network: dict[str, Any]
    precision: str
    multipliers: tuple[tuple[int, ...], ...]
    memory: tuple[Memory, ...]
    forward_bytes: int
    backward_bytes: int
    time_ps: int


def cnn() -> Hand:
    """Of 3 channels of 8 x 8: board 0 has `a` and the first 32 input channels of `b`, board 1 the
    others and `c`.

    In `dot:32`, FP's copy of weights has blocks of inputs and EB's one of outputs; PG's engine
    holds 32 pixels, 33 bytes, of each input at each place of the kernel, and of each output.
    """
    image, half, outputs = 8 * 3 + 8, 8 * 32 + 8, 8 * 40 + 2 * 8  # a row's bytes
    flight = 4
    a = Memory(
        act_ram=image * 8 * flight,
        lpram=27 * 64 + 9 * 64 + 64 * FP32,  # weights, FP's scales and biases; no EB
        lgb=27 * 64 * 2 * FP32 + 64 * FP32,  # gradients and masters; gradients of biases
        line_buffers=3 * image + 33 * (27 + 64),
        error_buffer=0,
        pab=64 * 8 * FP32,
    )
    b_weights = 32 * 40
    b = Memory(
        act_ram=half * 8 * flight,
        lpram=(b_weights + 40) + (b_weights + 32 * 2),
        lgb=b_weights * 2 * FP32,
        line_buffers=half + outputs + 33 * (32 + 40),
        error_buffer=half,
        pab=40 * 8 * FP32,
    )
    ends_b = Memory(**{**vars(b), "lpram": b.lpram + 40 * FP32, "lgb": b.lgb + 40 * FP32})
    c_weights = 40 * 64 * 10
    c = Memory(
        act_ram=outputs * 8 * flight,
        lpram=(c_weights + 64 * 10 * 2) + (c_weights + 40 * 64) + 10 * FP32,
        lgb=c_weights * 2 * FP32 + 10 * FP32,
        # PG has one output pixel: blocks of one number and its scale
        line_buffers=8 * outputs + (10 + 1) + 2 * (40 * 64 + 10),
        error_buffer=outputs * 8,
        pab=10 * FP32,
    )
    return Hand(
        network={
            "name": "cnn",
            "input": [3, 8, 8],
            "layers": [
                {"type": "conv", "channels": 64, "kernel": 3, "pad": 1, "name": "a"},
                {"type": "relu"},
                {"type": "conv", "channels": 40, "kernel": 1, "name": "b"},
                {"type": "fc", "features": 10, "name": "c"},
                {"type": "softmax"},
            ],
        },
        precision="mxint8 accumulate=dot:32",
        multipliers=((9, 9), (7, 7, 7), (7, 7, 7), (3, 3, 3)),
        memory=(a, b, ends_b, c),
        forward_bytes=(half + 40 * 8 * FP32) * 8,  # activations of `a`, sums of `b`
        backward_bytes=(outputs + half) * 8,  # errors of b's outputs, and of a's
        time_ps=cnn_time_ps(half, outputs),
    )


def cnn_time_ps(half: int, outputs: int) -> int:
    """Each path has a share of the link by its bytes: a row of one takes as long as one of both."""
    row_a, row_b = 8 * 27 * 64 // 9, -(-8 * 32 * 40 // 7)  # cycles
    fc = -(-64 * 40 * 10 // 3)
    forth, back = half + 40 * 8 * FP32, outputs + half
    last_sums = (8 * row_a + row_b) * CYCLE_PS + forth * BYTE_PS + LATENCY_PS
    errors = last_sums + 2 * fc * CYCLE_PS  # FP and EB of `c`
    first_errors_of_a = errors + back * BYTE_PS + LATENCY_PS + row_b * CYCLE_PS
    return first_errors_of_a + (8 * row_a + 64) * CYCLE_PS  # PG of `a`, and its update


def transformer() -> Hand:
    """Of 8 tokens: board 0 has the table and `qkv`, board 1 attention, `out` and `head`; in MXFP8,
    blocks of weights lie along outputs, those of the table along symbols.
    """
    row, rows_of_three = 32 + 1, 96 + 3  # bytes
    flight = 3
    table = Memory(
        # symbols, and what the norm keeps, in fp32
        act_ram=(8 * FP32 + 8 * 32 * FP32) * flight,
        lpram=40 * 32 + 2 * 32 + 8 * 32 * FP32 + 32 * FP32,  # table, positions, norm
        lgb=40 * 32 * 2 * FP32 + 8 * 32 * FP32 + 32 * FP32,
        line_buffers=FP32,
        error_buffer=0,
        pab=32 * FP32,
    )

    def product(outputs: int, bias: bool) -> Memory:
        scales = -(-outputs // 32)
        biases = outputs * FP32 * bias
        return Memory(
            act_ram=8 * row * flight,
            lpram=32 * (outputs + scales) + biases,
            lgb=32 * outputs * 2 * FP32 + biases,
            line_buffers=row + outputs + scales,
            error_buffer=row,
            pab=outputs * FP32,
        )

    attention = Memory(
        act_ram=8 * (rows_of_three + 2 * 2 * FP32) * flight,  # two numbers of a row and head
        lpram=0,
        lgb=0,
        line_buffers=rows_of_three + row,
        error_buffer=rows_of_three,
        pab=32 * FP32,
    )
    qkv_fp, qkv_pg = -(-32 * 96 // 13), 32 * 96 // 12  # cycles of a row
    scores = 2 * 32 * 9 // 2 // 2  # two products of 32 channels by 4.5 keys in the mean, 2 wide
    out, head, head_back = -(-32 * 32 // 5), -(-32 * 40 // 7), -(-32 * 40 // 6)
    errors_of_scores = 5 * 32 * 9 // 2 // 4
    forward = 32 + 8 * qkv_fp + scores + out + head
    backward = head_back + out + errors_of_scores + 8 * qkv_pg + 96
    assert qkv_pg > max(head_back, out, errors_of_scores)  # so PG of `qkv` never waits
    return Hand(
        network={
            "name": "transformer",
            "input": [40, 8, 1],
            "layers": [
                {"type": "embedding", "features": 32, "name": "table"},
                {"type": "positions"},
                {"type": "rms-norm"},
                {"type": "conv", "channels": 96, "kernel": 1, "name": "qkv"},
                {"type": "attention", "heads": 2, "causal": True, "name": "attention"},
                {"type": "conv", "channels": 32, "kernel": 1, "name": "out"},
                {"type": "conv", "channels": 40, "kernel": 1, "name": "head", "bias": False},
                {"type": "softmax"},
            ],
        },
        precision="mxfp8",
        multipliers=((1, 1), (13, 13, 12), (2, 4), (5, 5, 5), (7, 6, 6)),
        memory=(table, product(96, True), attention, product(32, True), product(40, False)),
        forward_bytes=8 * rows_of_three,
        backward_bytes=8 * rows_of_three,
        time_ps=(forward + backward) * CYCLE_PS + 2 * (rows_of_three * BYTE_PS + LATENCY_PS),
    )


def lstm() -> Hand:
    """Of 8 steps: board 0 has the table and the LSTM of 32 units, board 1 the head; gates and cells
    stay in fp32, states are in blocks.
    """
    row = state = 32 + 1  # bytes
    table = Memory(
        act_ram=8 * FP32 * 3,
        lpram=40 * 32 + 2 * 32,
        lgb=40 * 32 * 2 * FP32,
        line_buffers=FP32,
        error_buffer=0,
        pab=32 * FP32,
    )
    units = Memory(
        act_ram=8 * (row + state + 5 * 32 * FP32) * 3,  # four gates and the cell of a unit
        lpram=128 * row + 128 * state + 2 * 128 * FP32,  # W, R and their biases
        lgb=128 * (32 + 32) * 2 * FP32 + 2 * 2 * 128 * FP32,  # of masters, too
        line_buffers=row + state,
        error_buffer=row,
        pab=32 * FP32,
    )
    head = Memory(
        act_ram=8 * state * 2,
        lpram=32 * (40 + 2) + 40 * FP32,
        lgb=32 * 40 * 2 * FP32 + 40 * FP32,
        line_buffers=state + 40 + 2,
        error_buffer=state,
        pab=40 * FP32,
    )
    # Cycles; activations wait 204.
    step, step_pg = -(-128 * 64 // 13) + 204, -(-128 * 64 // 12)
    head_fp, head_eb = -(-32 * 40 // 14), -(-32 * 40 // 13)
    forward = 32 + 8 * step + head_fp
    backward = head_eb + 8 * step + step_pg + 32
    return Hand(
        network={
            "name": "lstm",
            "input": [40, 8, 1],
            "layers": [
                {"type": "embedding", "features": 32, "name": "table"},
                {"type": "lstm", "units": 32, "name": "lstm"},
                {"type": "conv", "channels": 40, "kernel": 1, "name": "head"},
                {"type": "softmax"},
            ],
        },
        precision="mxfp8",
        multipliers=((1, 1), (13, 13, 12), (14, 13, 13)),
        memory=(table, units, head),
        forward_bytes=8 * state,
        backward_bytes=8 * state,
        time_ps=(forward + backward) * CYCLE_PS + 2 * (state * BYTE_PS + LATENCY_PS),
    )


@pytest.mark.parametrize("by_hand", [cnn, transformer, lstm], ids=lambda make: make.__name__)
def test_by_hand(by_hand: Any) -> None:
    hand: Hand = by_hand()
    keys: Any = {"devices": 2, "schedule": "sync", "precision": hand.precision}
    plan = emuchain.plan(hand.network, CLUSTER, batch=4, **keys)
    planned = layout_as_json(plan.layout(), steady_state(plan), None)
    slices = [part for device in planned["devices"] for part in device["slices"]]
    multipliers = tuple(tuple(part["multipliers"].values()) for part in slices)
    assert multipliers == hand.multipliers
    buffers = [
        Memory(**{name: part[f"{name}_bytes"] for name in Memory.__dataclass_fields__})
        for part in slices
    ]
    assert tuple(buffers) == hand.memory
    (link,) = planned["links"]
    assert link["forward_bytes_per_sample"] == hand.forward_bytes
    assert link["backward_bytes_per_sample"] == hand.backward_bytes
    run = emuchain.simulate(hand.network, CLUSTER, batch=1, samples=1, **keys)
    assert run.virtual_time_ps == hand.time_ps
