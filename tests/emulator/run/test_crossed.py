"""Encoder and decoder: queries of one sequence, keys and values of another. Bits on any mapping,
times and bytes by hand, and PyTorch's losses.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.run import simulate

from .gpt import MAPPINGS, Table, conv
from .test_attention import BOARDS

KEYS: Table = {
    **{"schedule": "sync", "batch": 16, "samples": 32, "test_samples": 4, "learning_rate": 0.01},
}
RULES: Table = {"dropout": 0.1, "scale": 1.0}


def attended(name: str, of: str, width: int, heads: int, **keys: Any) -> list[Table]:
    """Attention within a sequence, and its sum with what it takes."""
    return [
        conv(3 * width, f"{name}_qkv", **{"from": of}),
        {"type": "attention", "heads": heads, "name": f"{name}_heads", **keys},
        conv(width, f"{name}_out"),
        {"type": "add", "from": [f"{name}_out", of]},
        {"type": "layer-norm", "name": name},
    ]


def crossed(name: str, of: str, memory: str, width: int, heads: int, **keys: Any) -> list[Table]:
    """The same of one sequence's queries to another one."""
    return [
        conv(width, f"{name}_q", **{"from": of}),
        conv(width, f"{name}_k", **{"from": memory}),
        conv(width, f"{name}_v", **{"from": memory}),
        {"type": "concat", "axis": "rows", "from": [f"{name}_{part}" for part in "kvq"]},
        {"type": "attention", "heads": heads, "name": f"{name}_heads", **keys},
        conv(width, f"{name}_out"),
        {"type": "add", "from": [f"{name}_out", of]},
        {"type": "layer-norm", "name": name},
    ]


def fed(name: str, of: str, width: int) -> list[Table]:
    return [
        conv(2 * width, f"{name}_up", **{"from": of}),
        {"type": "relu"},
        conv(width, f"{name}_down"),
        {"type": "add", "from": [f"{name}_down", of]},
        {"type": "layer-norm", "name": name},
    ]


def translator(width: int, heads: int, source: int, target: int, **keys: Any) -> Table:
    """A block of an encoder and two of a decoder, with one table for both (Vaswani et al., 2017).

    Positions are of the whole sequence, source and then target; `keys` are those of attention.
    """
    layers: list[Table] = [
        {"type": "embedding", "features": width, "name": "table"},
        {"type": "positions", "name": "both"},
        {"type": "rows", "count": source, "name": "source"},
        {"type": "rows", "first": source, "count": target, "from": "both", "name": "target"},
        *attended("e0", "source", width, heads, **keys),
        *fed("memory", "e0", width),
    ]
    last = "target"
    for n in range(2):
        layers += attended(f"d{n}", last, width, heads, causal=True, **keys)
        layers += crossed(f"c{n}", f"d{n}", "memory", width, heads, keys=source, **keys)
        layers += fed(f"f{n}", f"c{n}", width)
        last = f"f{n}"
    layers += [conv("symbols", "head", bias=False), {"type": "softmax"}]
    steps = source + target
    return {"name": "translator", "symbols": 28, "input": ["symbols", steps, 1], "layers": layers}


@pytest.mark.parametrize(("samples", "time_ns"), [(1, 502.5), (2, 582.5)])
def test_times_by_hand(samples: int, time_ns: float) -> None:
    """Rows of two keys, two values and four queries, in two heads of a channel, one on each board.

    A query of head 0 leaves `kvq` each 10 ns from 50 on, and head 0 with 10 ns more; in head 1 they
    are 107.5 later, and take 20 each: 177.5, 197.5, 217.5, 237.5. The last row's errors are there
    first. EB takes 20: head 1's errors leave until 317.5, each with its own row; head 0's come 115
    later, and leave until 432.5. Those of keys and values leave with the last: PG, 10 a row, has
    them from 442.5 to 482.5, and updates two channels.
    """
    layers = [conv(2, "kvq", bias=False), {"type": "attention", "heads": 2, "keys": 2}]
    network = {"name": "n", "input": [1, 8, 1], "layers": [*layers, {"type": "softmax"}]}
    keys: Table = {"samples": samples, "batch": samples, "schedule": "sync"}
    plan = emuchain.plan(network, BOARDS, devices=2, **keys)
    assert [len(slices) for slices in plan.mapping.devices] == [2, 1]
    assert simulate(plan, samples).virtual_time_ps == time_ns * 1000
    streams = {stream.path.value: stream for stream in plan.timing.links[0]}
    # Eight rows of head 1's channel, and back; four of what head 0 makes, and of its errors.
    rows = {path: (stream.rows, stream.row_bytes) for path, stream in streams.items()}
    assert rows == {1: (8, 4), 2: (4, 4), 3: (4, 4), 4: (8, 4)}
    part = plan.mapping.devices[1][0]
    # Products of q and k, and of p and v; two numbers of each query are kept.
    assert (part.macs, part.eb_macs, part.kept_values) == (4 * 2 * 2, 4 * 5 * 2, 2 * 4)


def data_of(samples: int, source: int, target: int) -> emuchain.Dataset:
    """Random symbols of sources and targets, and labels of the targets."""
    random = np.random.default_rng(1)
    x = random.integers(0, 28, (samples + 4, 1, source + target, 1)).astype(np.int32)
    y = random.integers(0, 28, (samples + 4, target))
    parts = x[:samples], y[:samples], x[samples:], y[samples:]
    return emuchain.Dataset("n", *parts, tuple(map(str, range(28))), symbols=28, by_targets=True)


@pytest.fixture(scope="module")
def reference() -> Any:
    return trained(translator(12, 3, 6, 5, **RULES), devices=1, micro_batch=16)


def trained(network: Table, **keys: Any) -> Any:
    settings = {**KEYS, "memory": "ignored", "progress": "none", **keys}
    run = emuchain.train(network, data=data_of(32, 6, 5), seed=1, **settings)
    bits = {
        f"{name}/{key}": array.tobytes()
        for name, arrays in run.weights.items()
        for key, array in arrays.items()
    }
    return run, bits


@pytest.mark.parametrize("keys", [*MAPPINGS, {"devices": 8, "micro_batch": 1}])
def test_no_mapping_changes_a_bit(reference: Any, keys: Table) -> None:
    network = translator(12, 3, 6, 5, **RULES)
    run, bits = trained(network, **keys)
    assert bits == reference[1]
    plan = emuchain.plan(network, **{**KEYS, "memory": "ignored", **keys})
    assert run.history["virtual_time_ps"][-1] == simulate(plan, 32).virtual_time_ps


def test_heads_are_cut(reference: Any) -> None:
    cut = "table:c0_v c0_heads[:1] | c0_heads[1:] c0_out:c1_v | c1_heads c1_out:head"
    _, bits = trained(translator(12, 3, 6, 5, **RULES), cut=cut, devices=3, micro_batch=4)
    assert bits == reference[1]


@pytest.mark.parametrize(
    "precision",
    [
        *("bf16", "mxfp8", "fp8 rounding=stochastic", "bf16 accumulate=bf16"),
        "int4@8 accumulate=dot:8 rounding=stochastic",
    ],
)
def test_formats_change_no_bit_of_a_cut(precision: str) -> None:
    network = translator(12, 3, 6, 5)
    one, other = (
        trained(network, devices=devices, micro_batch=4, precision=precision)[1]
        for devices in (1, 4)
    )
    assert one == other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"causal": True}, "no order"),
        ({"kv_heads": 1}, "should be without"),
        ({"keys": 8}, "16 rows are not 8 of keys"),
        ({"heads": 5}, "12 channels do not divide"),
    ],
)
def test_refused(change: Table, message: str, one_line: Any) -> None:
    attention = {"type": "attention", "heads": 3, "keys": 6, **change}
    layers = [conv(12, "kvq"), attention, {"type": "softmax"}]
    network = {"name": "n", "input": [1, 16, 1], "layers": layers}
    with pytest.raises(InputError, match=message) as error:
        emuchain.load_network(network)
    assert one_line(error)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"type": "rows", "count": 9}, "takes 9 rows from row 0 on, and there are 8"),
        ({"type": "rows", "first": 6, "count": 3}, "takes 3 rows from row 6 on"),
        ({"type": "concat", "axis": "rows", "from": ["x", "images"]}, "joins rows of maps with as"),
    ],
)
def test_rows_that_do_not_fit(step: Table, message: str, one_line: Any) -> None:
    network = {"name": "n", "input": [3, 8, 1], "layers": [conv(2, "x"), step, {"type": "softmax"}]}
    with pytest.raises(InputError, match=message) as error:
        emuchain.load_network(network)
    assert one_line(error)


def test_samples_that_differ_in_length_are_refused(one_line: Any) -> None:
    network, data = translator(12, 3, 6, 5), data_of(32, 6, 5)
    lengths = np.arange(32) % 11 + 1
    data = dataclasses.replace(data, train_lengths=lengths, test_lengths=lengths[:4])
    with pytest.raises(InputError, match=r"differ in length, and `rows` of layer table") as error:
        emuchain.train(network, data=data, devices=1, progress="none", **KEYS)
    assert one_line(error)
