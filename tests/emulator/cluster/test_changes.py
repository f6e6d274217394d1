"""Changed keys of a cluster: each is what the edited file would be."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from emuchain.emulator.cluster import Cluster, changeable_keys, load_cluster, settable_keys
from emuchain.emulator.common import InputError

FPGA: dict[str, Any] = {
    "name": "edited",
    "boards": [
        {"type": "vc709", "count": 2, "pe_chains": 8, "pes_per_chain": 16, "pe_words": 512},
        {
            "type": "u280",
            "dsp_type": "DSP48E2",
            "pe_chains": 8,
            "pes_per_chain": 16,
            "pe_words": 512,
        },
    ],
    "links": {"bandwidth_gbps": 100, "latency_ns": 500, "topology": "torus"},
    "machine": {"engines": "split"},
    "resources": {"alpha": 1.0},
    "network": {"topology": "torus", "bandwidth_gbps": 10},
    "faults": {"seed": 3, "boards": [{"board": 1, "factor": 2}]},
}
GPU: dict[str, Any] = {
    "name": "gpu",
    "boards": [
        {
            "kind": "gpu",
            "name": "card",
            "peak_tflops": 9.3,
            "gemm_efficiency": 0.5,
            "memory_gbytes_per_s": 700,
            "recurrent_us": 20,
            "persistent_gbytes_per_s": 4000,
        }
    ],
    "links": {"bandwidth_gbps": 100, "latency_ns": 500},
}

NEXT = {"sizes": [1], "values": [2.0], "lows": [1.5], "highs": [2.5], "null": [3.0]}
COSTS = {
    "bandwidth_gbps": 95,
    "pass_ns_per_kbyte": 88,
    "goals": ["gather"],
    "nodes": [3, 4],
    **dict.fromkeys(("row_scatter", "node_scatter", "goal_scatter"), 0.1),
    "protocols": {"eager": {"latency_ns": 100}},
}
BOARD = {
    "type": "kc705",
    "kind": "fpga",
    "name": "other",
    "clock_mhz": 180,
    "dsp": 700,
    "dsp_share": 0.5,
    "efficiency": 0.9,
    "on_chip_memory_kbit": 12345,
    "power_w": 11,
    "price": 900,
    "lut": 300_000,
    "lut_share": 0.5,
    "lut_per_dsp": 90,
    "dsp_type": "DSP48E1",
    "multipliers": {"half": {"per_dsp": 2}},
    "ff": 400_000,
    "shell_dsp": 20,
    "shell_lut": 30_000,
    "shell_ff": 40_000,
    "shell_bram": 50,
    "bram": 1000,
    "bram_kbit": 20,
    "uram": 4,
    "transceivers": 8,
    "transceiver_gbps": 10,
    "off_chip_memory_gbytes": 2,
    "off_chip_gbytes_per_s": 5,
    "host_gbytes_per_s": 8,
    "off_chip_pj_per_bit": 20,
    "convolution_engines": "whole",
    "load_exposed": 0.5,
    "pe_chains": 4,
    "pes_per_chain": 8,
    "pe_words": 256,
    "mvm_units": 3,
    "activation_cycles": 100,
    "source": "a bench",
    "uncertainty": {"board.dsp": {"low": 1, "high": 9999, "class": "measured"}},
    "next_measurement": [{"what": "copy", **NEXT}],
    "count": 3,
}
COUNTED: dict[str, Any] = {
    **FPGA,
    "boards": [{**board, "multipliers": "one-per-dsp"} for board in FPGA["boards"]],
}
"""Boards of which engines may be built of LUTs in part (`resources.alpha`)."""
ARRAYS: dict[str, Any] = {
    "name": "arrays",
    "boards": [
        {
            "type": "vc709",
            "convolution_engines": "arrays",
            "array_outputs": 8,
            "array_positions": 16,
        }
    ],
    "links": {"bandwidth_gbps": 100, "latency_ns": 500},
}
KINDS: dict[str, Any] = {
    "name": "kinds",
    "boards": [{"type": "vc709"}],
    "links": {"kind": "aurora"},
}
ON_ARRAYS = {"array_outputs": 4, "array_positions": 8, "drain_cycles": 4, "start_cycles": 99}
ON_GPU = {
    "name": "other",
    "peak_tflops": 10,
    "gemm_efficiency": 0.6,
    "memory_gbytes_per_s": 800,
    "recurrent_us": 25,
    "persistent_gbytes_per_s": 3000,
    "persistent_gru_gbytes_per_s": 2000,
    "memory_gbytes": 16,
    "power_w": 200,
    "price": 4000,
}
LINK = {
    "topology": "ring",
    "shape": [1, 3],
    "bandwidth_gbps": 25,
    "latency_ns": 250,
    "share": "paths",
    "header_bytes": 20,
    "packet_bytes": 1024,
    "message_ns": [[64, 100], [4096, 300]],
    "core_dsp": 1,
    "core_lut": 3000,
    "core_ff": 4000,
    "core_bram": 5,
    "count": 2,
    "source": "a bench",
}
TABLES = {
    "machine": {"engines": "turns", "transport": "stored"},
    "resources": {"alpha": 0.5, "beta": 0.5, "aim": "storage"},
    "network": {
        "topology": "chain",
        "shape": [2, 2],
        "bandwidth_gbps": 25,
        "latency_us": 7,
        "packet_bytes": 1500,
        "packet_overhead_bytes": 78,
        "packet_stack_ns": 30,
        "blocking": True,
        "sum_gbytes_per_s": 3,
        "nic_clock_mhz": 100,
        "burst_bits": 512,
        "message_ns": 40,
        "start_us": 3,
        "send_ns": 20,
        "receive_ns": 30,
        "copy_gbytes_per_s": 5,
        "sum_start_ns": 50,
        "turn_bytes": 65536,
    },
    "faults": {
        "boards": [{"board": 0, "factor": 3}],
        "links": [{"link": 0, "factor": 3}],
        "flips": [{"of": "weights", "rate": 1e-6}],
        "deaths": [{"board": 1, "at_us": 5}],
        "seed": 4,
        "compare": False,
    },
    "cluster": {
        "name": "renamed",
        "boards": [{"type": "vc709"}],
        "machine": {"engines": "shared"},
        "resources": {"alpha": 0.25},
        "network": {"topology": "chain"},
        "faults": {},
        "uncertainty": {"link.latency_ns": {"low": 400, "high": 600, "class": "measured"}},
        "next_measurement": [{"what": "message", **NEXT}],
        "collectives": [COSTS],
        "links": [{"bandwidth_gbps": 10, "latency_ns": 1}, {"bandwidth_gbps": 20, "latency_ns": 2}],
    },
}


def edited(
    base: dict[str, Any], table: str, key: str, value: Any, number: int | None = None
) -> Cluster:
    """The cluster whose file has this value."""
    file = copy.deepcopy(base)
    tables = file["boards"] if table == "board" else [file["links"]]
    if table == "cluster":
        file[key] = value
    elif table in ("board", "link"):
        for place, of_table in enumerate(tables):
            if number in (None, place):
                of_table[key] = value
    else:
        file[table][key] = value
    return load_cluster(file)


def bare(cluster: Cluster) -> tuple[Cluster, Any]:
    """A cluster without its text, as that of changed keys is written anew; and its ranges, which
    `==` leaves out.
    """
    return dataclasses.replace(cluster, text=""), (
        cluster.ranges,
        [board.ranges for board in cluster.boards],
    )


CASES = [
    *((FPGA, "board", key, value) for key, value in BOARD.items()),
    *((ARRAYS, "board", key, value) for key, value in ON_ARRAYS.items()),
    *((GPU, "board", key, value) for key, value in ON_GPU.items()),
    *((FPGA, "link", key, value) for key, value in LINK.items()),
    (KINDS, "link", "kind", "roce"),
    *(
        (COUNTED if "resources" in (table, key) else FPGA, table, key, value)
        for table, keys in TABLES.items()
        for key, value in keys.items()
    ),
]


def test_there_is_a_case_for_each_key() -> None:
    assert {f"{table}.{key}" for _, table, key, _ in CASES} == set(settable_keys())
    assert set(changeable_keys()) < set(settable_keys())


@pytest.mark.parametrize(
    ("base", "table", "key", "value"), CASES, ids=[f"{c[1]}.{c[2]}-{c[0]['name']}" for c in CASES]
)
def test_each_changed_key_is_the_edited_file(
    base: dict[str, Any], table: str, key: str, value: Any
) -> None:
    before = copy.deepcopy(base)
    changed = bare(load_cluster(base, {f"{table}.{key}": value}))
    assert changed == bare(edited(base, table, key, value))
    assert base == before
    kept_nowhere = {"kind", "source", "next_measurement", "collectives"}
    repeated = {"link.count"}  # the last link of a chain is repeated anyway
    assert (
        key in kept_nowhere or f"{table}.{key}" in repeated or changed != bare(load_cluster(base))
    )


@pytest.mark.parametrize("number", [0, 1])
def test_a_key_of_one_board(number: int) -> None:
    changed = bare(load_cluster(FPGA, {f"boards[{number}].clock_mhz": 175}))
    assert changed == bare(edited(FPGA, "board", "clock_mhz", 175, number))


def test_a_changed_value_has_no_range_of_another_value() -> None:
    """The file's range would be refused where it does not hold the new value."""
    board = {
        **FPGA["boards"][0],
        "clock_mhz": 200,
        "uncertainty": {"board.clock_mhz": {"low": 150, "high": 250, "class": "measured"}},
    }
    [ranges, *_] = [board.ranges for board in load_cluster({**FPGA, "boards": [board]}).boards]
    assert {entry.key for entry in ranges} == {"board.clock_mhz", "board.efficiency"}
    changed = load_cluster({**FPGA, "boards": [board]}, {"board.clock_mhz": 400})
    assert [entry.key for entry in changed.boards[0].ranges] == ["board.efficiency"]


def test_a_key_in_a_table_of_a_board() -> None:
    changed = bare(load_cluster(FPGA, {"board.multipliers.half.per_dsp": 2}))
    assert changed == bare(edited(FPGA, "board", "multipliers", {"half": {"per_dsp": 2}}))


def test_a_key_in_a_table_of_a_board_that_says_how_multipliers_count() -> None:
    """A word in place of the table is no table to add to."""
    boards = [{"type": "u280", "multipliers": "built"}]
    changed = load_cluster({**FPGA, "boards": boards}, {"board.multipliers.half.per_dsp": 2})
    assert [rate.kind for rate in changed.board(0).rates] == ["half"]  # type: ignore[attr-defined]


def test_built_multipliers_have_their_own_mix() -> None:
    with pytest.raises(InputError, match="`resources.alpha` = 0.5: built multipliers have"):
        load_cluster("u280", {"resources.alpha": 0.5})


def test_the_plural_is_the_singular() -> None:
    assert load_cluster(FPGA, {"links.latency_ns": 7}) == load_cluster(FPGA, {"link.latency_ns": 7})


def test_one_board_goes_over_all() -> None:
    boards = load_cluster(FPGA, {"boards[1].dsp": 50, "board.dsp": 60}).boards
    # The shell of a U280 takes 10.
    assert [board.dsp for board in boards] == [60, 60, 40]  # type: ignore[attr-defined]  # FPGAs


BAD = {
    "board.dps": "did you mean `board.dsp`?",
    "boards[2].dsp": "has 2 tables `[[boards]]`, counted from 0; should be at most boards[1]",
    "links[1].latency_ns": "has 1 table `[[links]]`, counted from 0; should be at most links[0]",
    "board.peak_tflops": "no board of edited is of a kind that has this key",
    "machine.engine": "did you mean `machine.engines`?",
    "latency_ns": "unknown key `latency_ns`",
    "board.dsp.half": "unknown key `board.dsp.half`",
}


@pytest.mark.parametrize("key", BAD)
def test_what_is_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], key: str
) -> None:
    with pytest.raises(InputError) as error:
        load_cluster(FPGA, {key: 5}, blame="--set")
    assert BAD[key] in one_line(error)
    assert one_line(error).startswith("--set: ")
