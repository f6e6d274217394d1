"""Blocks of rows that read once what is off chip (`rows_at_once`): bytes, times by hand, and who is
left alone.

By hand: three tokens, a convolution to q, k and v of one head of size 1, and causal attention, on
one board with a clock of 100 MHz on which every row takes a cycle, 10 ns, with all data off chip.
Weights are 12 bytes, the convolution's Act-RAM 12, attention's 60, and there are 6 pairs of a row
and a key. In blocks of B rows a sample moves over the port

    convolution   FP 12 ceil(3/B) + 12, PG 24 ceil(3/B) + 12
    attention     FP 60 + 8 ceil(6/B), EB 60 + 24 ceil(6/B)

444 bytes with B = 1, 312 with 2, 212 with 64: at 1 GB/s a row has 148, 104 or 70.667 ns of the
port. Times in ns:

    B                        1                2                64
    FP of the convolution    158 306 454      114 218 322      80.667 151.334 222.001
    FP of attention          316 464 612      332 436 540      302.668 373.335 444.002
    EB of attention          770 918 1066     654 758 862      524.669 595.336 666.003
    PG of the convolution    928 1076 1224    872 976 1080     746.670 817.337 888.004

The update takes 3 cycles. With B = 2 FP of attention's first row waits for the convolution's
second, at 218, and EB's first for the error of token 3, at 540, though that of token 2 has been
there since 436.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import emuchain
from emuchain.comm import Served
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import OffChip, Slice, block_rows, memory_streams
from emuchain.emulator.network import Phase, load_network
from emuchain.emulator.plan import ChainPlan, find_steady, idle_settings
from emuchain.emulator.run import simulate
from emuchain.emulator.timing import Timing
from emuchain.emulator.view.page.source import Run

from .gpt import Table, conv, gpt

TOKENS = 3
HEAD: Table = {
    "name": "head",
    "input": [1, TOKENS, 1],
    "layers": [
        conv(3, "qkv", bias=False),
        {"type": "attention", "heads": 1, "causal": True},
        {"type": "softmax"},
    ],
}
SMALL: Table = {
    "name": "small",
    "boards": [
        {
            **{"name": "small", "clock_mhz": 100, "dsp": 400, "on_chip_memory_kbit": 200},
            "off_chip_gbytes_per_s": 1,
        }
    ],
    "links": {"bandwidth_gbps": 10, "latency_ns": 200},
}
ALL_OFF = ((OffChip(3, True), OffChip(0, True)),)
GPT = gpt(24, 2, 3, 16)
KEYS: Table = {"devices": 3, "samples": 8, "batch": 4, "schedule": "sync"}
FORMER_PS = {"sync": 2_641_356_800, "fpdeep": 7_355_379_200}
"""The time of `GPT` where weights are read for each row; inputs of norms and GELU are off chip,
too.
"""


def all_off_chip(rows_at_once: int) -> ChainPlan:
    plan = emuchain.plan(
        HEAD, SMALL, devices=1, samples=1, batch=1, schedule="sync", rows_at_once=rows_at_once
    )
    timing = Timing.of(plan.mapping, plan.cluster, (), ALL_OFF)
    return dataclasses.replace(plan, timing=timing, steady=find_steady(timing, 1))


@pytest.mark.parametrize(
    ("rows_at_once", "moved", "ends_ps", "whole_ps"),
    [
        (1, [48, 84, 108, 204], {"FP": 612_000, "EB": 1_066_000, "PG": 1_224_000}, 1_254_000),
        (2, [36, 60, 84, 132], {"FP": 540_000, "EB": 862_000, "PG": 1_080_000}, 1_110_000),
        (64, [24, 36, 68, 84], {"FP": 444_002, "EB": 666_003, "PG": 888_004}, 918_004),
    ],
)
def test_times_by_hand(
    rows_at_once: int, moved: list[int], ends_ps: dict[str, int], whole_ps: int
) -> None:
    plan, left_ps = all_off_chip(rows_at_once), dict[str, int]()
    assert [stream.sample_bytes for held in plan.timing.memory(0) for stream in held] == moved

    def observe(served: Served) -> None:
        phase = served.resource.split()[0]
        left_ps[phase] = max(left_ps.get(phase, 0), int(np.max(served.left_ps)))

    assert simulate(plan, 1, observe).virtual_time_ps == whole_ps
    assert {phase.value: left_ps[phase.value] for phase in Phase} == ends_ps


@given(
    tokens=st.integers(1, 40),
    heads=st.integers(1, 4),
    size=st.integers(1, 5),
    causal=st.booleans(),
    rows=st.integers(1, 70),
    data=st.data(),
)
def test_bytes_of_attention(
    tokens: int, heads: int, size: int, causal: bool, rows: int, data: st.DataObject
) -> None:
    """docs/time-model.md: FP moves A + 8 h e ceil(S / B) bytes, EB A + 24 h e ceil(S / B)."""
    layers = [
        conv(3 * heads * size, "qkv"),
        {"type": "attention", "heads": heads, "causal": causal},
    ]
    described = {"name": "n", "input": [2, tokens, 1], "layers": [*layers, {"type": "softmax"}]}
    layer = load_network(described).with_rows_at_once(rows).layers[1]
    begin = data.draw(st.integers(0, heads - 1))
    part = Slice(layer, begin, data.draw(st.integers(begin + 1, heads)))
    pairs = tokens * (tokens + 1) // 2 if causal else tokens**2
    act_ram, again = (
        part.channels * (3 * size + 2) * tokens * 4,
        part.channels * size * -(-pairs // rows),
    )
    streams = memory_streams(part, OffChip(activations=True))
    assert [(stream.phase, stream.sample_bytes) for stream in streams] == [
        (Phase.FP, act_ram + 8 * again),
        (Phase.EB, act_ram + 24 * again),
    ]
    assert block_rows(part, OffChip(activations=True)) == rows and block_rows(part, OffChip()) == 1


def test_what_waits() -> None:
    """Convolutions of one place with weights and activations off chip; no embedding, and nothing
    without attention.
    """
    network = load_network(GPT).with_rows_at_once(5)
    at_once = {layer.name: layer.rows_at_once for layer in network.layers}
    assert at_once.pop("wte") == 1 and set(at_once.values()) == {5}
    part = Slice(network.layers[1], 0, 24)
    held = [OffChip(9), OffChip(0, True), OffChip(9, True)]
    assert [block_rows(part, off) for off in held] == [1, 1, 5]
    assert [stream.sample_bytes for stream in memory_streams(part, held[0])] == [
        9 * 288,
        9 * 288,
        2 * 9 * 288,
    ]
    moved = [stream.sample_bytes for stream in memory_streams(part, held[2])]
    assert moved == [4 * 9 * 288 + 16 * 96, 4 * 9 * 288, 2 * 4 * 9 * 288 + 16 * 96]
    for name in ("vgg16-cifar", "lstm-rows", "char-lstm"):
        without = load_network(name)
        assert without.with_rows_at_once(5) is without
    mixed = load_network(
        {**HEAD, "layers": [{"type": "gru", "units": 4}, *HEAD["layers"]]}
    ).with_rows_at_once(5)
    assert [layer.rows_at_once for layer in mixed.layers] == [1, 5, 5]
    maps = [conv(6, "map", kernel=3, pad=1), {"type": "tokens"}, *HEAD["layers"]]
    seen = load_network({**HEAD, "input": [1, 4, 4], "layers": maps}).with_rows_at_once(5)
    assert [layer.rows_at_once for layer in seen.layers] == [1, 5, 5]


@pytest.mark.parametrize("schedule", FORMER_PS)
def test_blocks_of_one_row_take_the_former_time(schedule: str) -> None:
    keys = {**KEYS, "schedule": schedule, **({"stages": "layers"} if schedule == "fpdeep" else {})}
    plan = emuchain.plan(GPT, SMALL, **keys, rows_at_once=1)
    assert any(block for device in range(3) for _, block in plan.timing.slices_off_chip(device))
    assert emuchain.simulate(plan).virtual_time_ps == FORMER_PS[schedule]
    in_blocks = emuchain.plan(GPT, SMALL, **keys)
    assert in_blocks.config.rows_at_once == 64
    assert in_blocks.timing.interval_ps < plan.timing.interval_ps


@pytest.mark.parametrize("network", ["vgg11-cifar", "lstm-rows"])
def test_networks_without_attention_take_the_same_time(network: str) -> None:
    one, many = (emuchain.simulate(network, SMALL, **KEYS, rows_at_once=rows) for rows in (1, 64))
    assert any(one.plan.off_chip_bytes) and one.epoch_ends_ps == many.epoch_ends_ps


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_training_takes_the_time_of_its_simulation(tmp_path: Path, schedule: str) -> None:
    """Results keep the key, and a run that is resumed has it, too."""
    keys = {**KEYS, "schedule": schedule, "rows_at_once": 3}
    simulated = emuchain.simulate(GPT, SMALL, **keys, epochs=2)
    plan = simulated.plan
    held = [each for device in range(3) for each in plan.timing.slices_off_chip(device)]
    assert any(block_rows(*each) == 3 for each in held)
    saved, out = tmp_path / "run.ckpt", tmp_path / "run.h5"
    keys |= {"data": "text", "test_samples": 4}
    first = emuchain.train(GPT, SMALL, **keys, checkpoint=str(saved), out=str(out))
    assert first.virtual_time_ps == simulated.epoch_ends_ps[0]
    assert emuchain.results(out).config["rows_at_once"] == 3
    rebuilt = Run.of("run", emuchain.results(out)).plan
    assert rebuilt is not None and rebuilt.timing.off_chip == plan.timing.off_chip
    again = emuchain.train(resume=str(saved), epochs=2)
    assert again.config["rows_at_once"] == 3
    assert again.virtual_time_ps == simulated.epoch_ends_ps[1]


@pytest.mark.parametrize(
    ("network", "keys", "said"),
    [
        ("lstm-rows", {}, "without attention"),
        ("char-gpt", {"engines": "turns"}, "on boards that take actions as a whole"),
        ("char-gpt", {"memory": "ignored"}, "with `memory` = 'ignored'"),
        ("char-gpt", {}, ""),
    ],
)
def test_where_it_has_no_effect(network: str, keys: Table, said: str) -> None:
    plan = emuchain.plan(network, devices=2, rows_at_once=2, **keys)
    lines = (f"`rows_at_once` = 2: has no effect {said}",) if said else ()
    assert isinstance(plan, ChainPlan) and idle_settings(plan) == lines


def test_flags_of_commands() -> None:
    """`plan` and `simulate` take it, `sweep` as an axis, and one place checks it."""
    words = ["char-gpt", "--devices", "2", "--rows-at-once", "7"]
    done = CliRunner().invoke(commands, ["simulate", *words, "--samples", "16", "--json"])
    assert json.loads(done.output)["config"]["rows_at_once"] == 7
    assert CliRunner().invoke(commands, ["plan", *words, "--json"]).exit_code == 0
    swept = emuchain.sweep(
        GPT, SMALL, devices=3, batch=4, rows_at_once=[1, 4], ranged=False, jobs=1
    )
    assert [row["rows_at_once"] for row in swept.rows] == [1, 4]
    assert swept.best["rows_at_once"] == 4
    for call in (emuchain.plan, emuchain.simulate):
        with pytest.raises(
            InputError, match="`rows_at_once` = 0: should be greater than or equal to 1"
        ):
            call("char-gpt", rows_at_once=0)
    with pytest.raises(InputError, match="`rows_at_once`"):
        emuchain.plan("lstm-rows", schedule="farnn", rows_at_once=2)
