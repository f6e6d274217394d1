"""ACCL+, Aurora and DeepBench's all-reduces: which rows are fitted, guesses by hand, planted
faults, and rows that are not part of emuchain.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emuchain import calibrate_collective, calibrate_link
from emuchain.emulator.calibrate import Coverage
from emuchain.papers import Class, Verdict, load_claims, tables, validate
from emuchain.papers.accl import allreduce, collectives, links, rows
from emuchain.papers.accl.allreduce import FLAT, Levels
from emuchain.papers.claim import NoEvidence

from .rows import Rows

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = load_claims("accl")
ROWS = Rows("accl", CLAIMS, (links, collectives, allreduce))
with_files = pytest.mark.skipif(
    not os.environ.get(rows.WITNESSES),
    reason=f"{rows.WITNESSES} names no folder of measurements",
)
BUNDLED = ("aurora", "deepbench")


@pytest.fixture
def witnesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of measurements that are not part of emuchain."""
    monkeypatch.setenv(rows.WITNESSES, str(tmp_path))
    ROWS.forget()
    yield tmp_path
    ROWS.forget()


def write(path: Path, *listed: dict[str, object]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*listed[0]])
        writer.writeheader()
        writer.writerows(listed)


def test_the_document_has_current_values() -> None:
    lines = (ROOT / "docs" / "validation-accl.md").read_text(encoding="utf-8").splitlines()
    results = [result for result in validate("accl", CLAIMS.values()) if result.is_run]
    assert len(results) >= 8
    printed = tables.markdown_tables(results)
    assert [row for row in printed[: printed.index("")] if row not in lines] == []


def test_nothing_without_a_licence_is_bundled() -> None:
    """Each file of rows says its source and its licence."""
    files = sorted((ROOT / "papers" / "accl").glob("*.csv"))
    assert [path.name for path in files] == ["aurora_u280.csv", "deepbench_allreduce.csv"]
    for path in files:
        note, _, _ = path.read_text(encoding="utf-8").partition("\n" + ",".join(read(path)[0]))
        said = " ".join(note.replace("#", "").split())
        assert "https://github.com/" in said and "Apache License 2.0 (APACHE-2.0.txt)" in said
    licence = (ROOT / "papers" / "accl" / "APACHE-2.0.txt").read_text(encoding="utf-8")
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence


def read(path: Path) -> list[Any]:
    return rows.bundled(path.name)


def test_parts_of_aurora_share_no_row() -> None:
    parts = links.aurora_parts()
    counts = {part: len(listed) for part, listed in parts.items()}
    assert counts == {"fitted": 5 * 15, "other nodes": 3 * 23, "larger messages": 3 * 8}
    assert not {row["run"] for row in parts["fitted"]} & {
        row["run"] for row in parts["other nodes"]
    }
    assert max(int(row["message_bytes"]) for row in parts["fitted"]) == 1 << 20
    assert min(int(row["message_bytes"]) for row in parts["larger messages"]) == 1 << 21


@pytest.mark.parametrize(("prefix", "file"), [("rdma", "accl_rdma.csv"), ("tcp", "accl_tcp.csv")])
def test_rows_that_are_not_here_are_not_run(prefix: str, file: str, witnesses: Path) -> None:
    claims = [
        claim
        for name, claim in CLAIMS.items()
        if name.startswith(f"accl-{prefix}") and claim.expect
    ]
    assert len(claims) >= 4
    for result in validate("accl", claims):
        assert result.verdict is Verdict.NOT_RUN
        assert f"set EMUCHAIN_WITNESSES to a folder with {file}, of zhenhaohe/" in result.how


def test_a_folder_that_is_not_named_is_not_this_one(
    witnesses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(witnesses / "accl_rdma.csv", {"collective": "gather"})
    monkeypatch.chdir(witnesses)
    monkeypatch.setenv(rows.WITNESSES, "")
    with pytest.raises(NoEvidence):
        rows.witnesses("accl_rdma.csv")


def collective(name: str, nodes: int, size: int, us: float, **more: object) -> dict[str, object]:
    said = {"collective": name, "nodes": nodes, "bytes": size, collectives.TIME: us}
    return {**said, **more}


SIZES = (1024, 16384, 262144, 1048576)


def test_only_few_boards_are_fitted(witnesses: Path) -> None:
    """What more boards take, and other collectives, does not change the constants."""
    names = ("sendrecv", "bcast", "gather", "reduce", "alltoall")
    listed = [
        collective(name, nodes, size, nodes * size / 1000, protocol="eager")
        for name in names
        for nodes in ((2,) if name == "sendrecv" else (3, 4, 6, 8))
        for size in SIZES
    ]
    write(witnesses / "accl_rdma.csv", *listed)
    fitted = collectives.rdma_fitted_rows("gather")
    assert {(row["collective"], row["nodes"]) for row in fitted} == {
        *(("sendrecv", "2"), ("gather", "3"), ("gather", "4"))
    }
    assert {row["collective"] for row in collectives.rdma_fitted_rows("")} == {"sendrecv"}
    more = collectives.rdma_more_rows("")
    assert {row["collective"] for row in more} == {"bcast", "gather", "reduce", "alltoall"}
    assert {row["nodes"] for row in more} == {"6", "8"}


def test_more_boards_in_the_time_of_four(witnesses: Path) -> None:
    write(
        witnesses / "accl_tcp.csv",
        collective("allreduce", 3, 1024, 70),
        collective("allreduce", 4, 1024, 100),
        collective("allreduce", 6, 1024, 125),
        collective("allreduce", 8, 1024, 200),
        collective("allreduce", 8, 2048, 300),  # no size of four boards
        collective("allgather", 4, 1024, 100),
        collective("allgather", 8, 1024, 80),
    )
    assert collectives.tcp_same_time_percent("allreduce") == pytest.approx((20 + 50) / 2)
    assert collectives.tcp_same_time_percent("") == pytest.approx((20 + 50 + 25) / 3)


def test_factors_by_hand() -> None:
    assert allreduce.mean_factor([2, 0.5, 1]) == pytest.approx(2 ** (2 / 3))
    two, four = (
        float(row["ms"])
        for chips in "24"
        for row in rows.bundled(allreduce.FILE)
        if (row["gpu"], row["floats"], row["chips"]) == ("NV_P100", "64500000", chips)
    )
    assert 1.4 < four / two < 1.6
    assert allreduce.times_two_factor(1) == pytest.approx(1.537, abs=0.001)
    assert allreduce.times_two_factor(1.5) < allreduce.times_two_factor(1.7)
    assert allreduce.times_two_worst_factor(1) > allreduce.times_two_factor(1)


def test_a_ring_on_one_level_has_the_closed_form() -> None:
    """Of many values: 2 (p - 1) steps, each of a p-th over the link and out of the buffer."""
    over = allreduce._interconnect("NV_P100")
    values, chips = 64_500_000, 4
    piece = 4 * values / chips
    step_us = piece * (8 / over.bandwidth_mbps + over.ends.copy_ps_per_kbyte / 1e9)
    ours = allreduce.all_reduce_us("NV_P100", chips, values, FLAT)
    assert ours == pytest.approx(2 * (chips - 1) * step_us, rel=0.01)


def test_levels_cost_what_they_say() -> None:
    """With two chips a host, slower links between hosts slow four chips, and not two."""
    flat, slow = (
        [allreduce.all_reduce_us("NV_P100", chips, 64_500_000, levels) for chips in (2, 4)]
        for levels in (FLAT, Levels(slower=4))
    )
    assert slow[0] == flat[0]
    assert slow[1] > 2 * flat[1]
    assert Levels(slower=4, latencies=2).topology.hops(0, 3) == 2
    assert Levels(slower=4).topology.shares([(1, 2)]) == [4]


def test_a_second_level_is_found_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that are made with one, half of the sizes choose it, and the others agree."""
    truth = Levels(slower=4, latencies=4)
    listed = [
        dict(row, ms=allreduce.all_reduce_us(row["gpu"], 4, int(row["floats"]), truth) / 1000)
        for row in allreduce._at(4)
    ]
    at = allreduce._at
    monkeypatch.setattr(allreduce, "_at", lambda chips: listed if chips == 4 else at(chips))
    allreduce.levels_of.forget()
    assert {allreduce.levels_of(gpu, 2) for gpu in allreduce._chips()} == {truth}
    assert allreduce.with_second_level() == 6
    assert allreduce.gain_by_levels() == pytest.approx(0, abs=1e-9)
    allreduce.levels_of.forget()


def test_eight_chips_are_compared_where_they_are_measured(witnesses: Path) -> None:
    name = "NV_P100"
    ours_us = allreduce.all_reduce_us(name, 8, 16_777_216, FLAT)
    known = {"gpu": name, "sheet": "", "floats": 16_777_216, "std_ms": 0, "algorithm": ""}
    write(
        witnesses / allreduce.FILE,
        {**known, "chips": 4, "ms": 1},
        {**known, "chips": 8, "ms": 1.2 * ours_us / 1000},
        {**known, "gpu": "of no rows", "chips": 8, "ms": 1},
    )
    assert allreduce.beyond_factor() == pytest.approx(1.2)
    write(witnesses / allreduce.FILE, {**known, "chips": 4, "ms": 1})
    with pytest.raises(NoEvidence, match="have 2 and 4 chips alone"):
        allreduce.beyond_factor()


def slow_links(patch: pytest.MonkeyPatch) -> None:
    """Constants by which messages take a tenth longer."""
    check = links.compared

    def slower(constants: str, further: Any) -> Coverage:
        return check(constants, [{**row, **longer(row)} for row in further])

    def longer(row: Any) -> dict[str, float]:
        return {"message_us": float(row["message_us"]) / 1.1}

    patch.setattr(links, "compared", slower)


def half_a_ring(patch: pytest.MonkeyPatch) -> None:
    """Exchanges that take half as long."""
    exchange = allreduce.exchange_ps
    patch.setattr(allreduce, "exchange_ps", lambda *words: exchange(*words) // 2)


FAULTS: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (slow_links, "aurora-mean aurora-worst aurora-larger"),
    (half_a_ring, "deepbench-4 deepbench-4-worst"),
]


@pytest.mark.parametrize(("fault", "named"), FAULTS)
def test_rows_notice_faults(fault: Callable[[pytest.MonkeyPatch], None], named: str) -> None:
    ROWS.check_noticed(fault, named)


def test_every_bundled_prediction_has_a_planted_fault() -> None:
    planted = [name for _, named in FAULTS for name in ROWS.named(named)]
    run = {result.claim.id for result in validate("accl", CLAIMS.values()) if result.is_run}
    bundled = [
        name
        for name in ROWS.of(Class.PREDICTION)
        if name in run and name.split("-")[1] in BUNDLED and name != "accl-deepbench-8"
    ]
    assert sorted(planted) == sorted(bundled)


def test_guesses_are_what_they_say() -> None:
    """Each `null` is what is measured of its guess."""
    for part, name in (("other nodes", "mean"), ("larger messages", "larger")):
        null = CLAIMS[f"accl-aurora-{name}"].null
        assert links._aurora(part).null_percent == pytest.approx(null, abs=0.005)
    worst = links._aurora("other nodes").null_worst_percent
    assert worst == pytest.approx(CLAIMS["accl-aurora-worst"].null, abs=0.005)
    factors = allreduce.times_two_factor(1.5), allreduce.times_two_worst_factor(1.5)
    for factor, name in zip(factors, ("4", "4-worst"), strict=True):
        assert factor == pytest.approx(CLAIMS[f"accl-deepbench-{name}"].null, abs=0.005)


@with_files
def test_guesses_of_collectives_are_what_they_say() -> None:
    for name in ("", "bcast", "gather", "reduce", "alltoall"):
        null = CLAIMS[f"accl-rdma-{name or 'mean'}"].null
        assert collectives.rdma_textbook_percent(name) == pytest.approx(null, abs=0.06)
    for name in ("", "allreduce", "allgather"):
        null = CLAIMS[f"accl-tcp-{name or 'mean'}"].null
        assert collectives.tcp_same_time_percent(name) == pytest.approx(null, abs=0.06)


@with_files
def test_bundled_rows_are_those_of_the_files() -> None:
    for name in ("aurora_u280.csv", allreduce.FILE):
        whole = rows.witnesses(name)
        assert [row for row in rows.bundled(name) if row not in whole] == []


def test_rows_are_compared_as_the_commands_do(tmp_path: Path) -> None:
    """By files, as `emuchain calibrate link` and `check` take them."""
    from emuchain import calibrate_check

    parts = links.aurora_parts()
    paths = [rows.written(parts[part], str(tmp_path), f"{part}.csv") for part in parts]
    calibrate_link(paths[0], out=tmp_path / "c.toml", type="u280")
    done = calibrate_check(tmp_path / "c.toml", paths[1])
    assert done.mean_percent == pytest.approx(links.aurora_percent("other nodes").ours)
    assert math.isclose(done.worst_percent, links.aurora_worst_percent("other nodes").ours)
    made = rows.constants_of(
        rows.chosen(rows.bundled(allreduce.FILE), chips="2"), calibrate_collective
    )
    assert made.count("[[collectives]]") == 6
