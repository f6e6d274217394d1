"""Costs of collectives: known ones are found again, others are predicted by them, and what is no
measurement of a collective is refused.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emuchain import InputError, calibrate_check, calibrate_collective, load_cluster
from emuchain.comm.collective import Goal
from emuchain.comm.exchange import DataParallel, exchange_ps
from emuchain.emulator.calibrate import CollectiveModel
from emuchain.emulator.calibrate.collective import Protocol
from emuchain.emulator.common import read_toml

SIZES = [2**power for power in range(9, 21, 2)]
PROTOCOLS = {
    "eager": Protocol(0.3, 0.2, 4.0),
    "rndzvs": Protocol(7.0, 0.4, 0.6, 1.2, 65536),
}


def model(*, blocks: bool = True, start_us: float = 0.05, **steps: str) -> CollectiveModel:
    """A system of links of 100 Gb/s and memory of 11 GB/s."""
    return CollectiveModel({}, 0.08, 0.09, start_us, PROTOCOLS, steps, blocks)


def measured(
    path: Path,
    true: CollectiveModel,
    rows: list[tuple[str, int]],
    protocols: tuple[str, ...] = ("eager", "rndzvs"),
    noise: float = 0.02,
) -> Path:
    """Write times of collectives among numbers of nodes."""
    random = np.random.default_rng(len(rows))
    lines = ["collective,nodes,protocol,bytes,time_us"]
    for goal, nodes in rows:
        for protocol in protocols:
            for size in SIZES:
                us = true.us(Goal(goal), nodes, size, protocol)
                us *= math.exp(random.normal(0, noise))
                lines.append(f"{goal},{nodes},{protocol},{size},{us!r}")
    path.write_text("\n".join(lines), "utf-8")
    return path


FITTED = [("sendrecv", 2), ("gather", 3), ("gather", 4), ("reduce", 3), ("reduce", 4)]
OTHERS = [("broadcast", 6), ("broadcast", 8), ("gather", 8), ("reduce", 8), ("alltoall", 6)]


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_others_are_predicted(tmp_path: Path, noise: float) -> None:
    fitted = measured(tmp_path / "fitted.csv", model(), FITTED, noise=noise)
    others = measured(tmp_path / "others.csv", model(), OTHERS, noise=noise)
    out = tmp_path / "system.toml"
    [of_system] = calibrate_collective(fitted, out=out).models
    assert of_system.link_us == pytest.approx(0.08, rel=0.1)
    assert of_system.pass_us == pytest.approx(0.09, rel=0.1)
    assert of_system.row_scatter == pytest.approx(noise, rel=0.5)
    coverage = calibrate_check(out, others)
    assert coverage.rows == len(OTHERS) * 2 * len(SIZES)
    assert coverage.mean_percent < 4 + 100 * noise
    assert coverage.in_range >= 0.85
    assert coverage.null_percent > 2 * coverage.mean_percent


def test_a_file_is_read_back(tmp_path: Path) -> None:
    out = tmp_path / "system.toml"
    fitted = measured(tmp_path / "fitted.csv", model(), FITTED)
    [of_system] = calibrate_collective(fitted, out=out).models
    [table] = read_toml(out)["collectives"]
    read = CollectiveModel.of(table)
    assert read.us(Goal.REDUCE, 6, 4096, "rndzvs") == pytest.approx(
        of_system.us(Goal.REDUCE, 6, 4096, "rndzvs"), rel=1e-3
    )
    assert (read.goals, read.nodes) == (("sendrecv", "gather", "reduce"), (2, 3, 4))
    assert load_cluster(str(out)).link.bandwidth_gbps == pytest.approx(
        8 / of_system.link_us, rel=0.01
    )


@pytest.mark.parametrize("blocks", [True, False])
def test_sizes_are_of_blocks_or_of_all_by_what_fits(tmp_path: Path, blocks: bool) -> None:
    rows = [("sendrecv", 2), ("allgather", 3), ("allgather", 4)]
    true = model(blocks=blocks, start_us=200.0)
    fitted = measured(tmp_path / "fitted.csv", true, rows, ("eager",))
    [of_system] = calibrate_collective(fitted).models
    assert of_system.blocks is blocks


def test_steps_are_those_that_fit(tmp_path: Path) -> None:
    rows = [("sendrecv", 2), ("allreduce", 3), ("allreduce", 4), ("allreduce", 8)]
    fitted = measured(tmp_path / "fitted.csv", model(allreduce="tree"), rows, ("eager",))
    [of_system] = calibrate_collective(fitted).models
    assert of_system.steps["allreduce"] == "tree"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "collective,nodes,bytes,us\nbarrier,2,8,1\n",
            "`collective` = 'barrier': should be one of",
        ),
        ("collective,nodes,bytes,us\nbcast,1,8,1\n", "1 node: should be from 2 to 512"),
        ("collective,nodes,bytes,us\nbcast,2,8,-1\n", "`us` = '-1': should be a finite number"),
        ("collective,nodes,bytes,us\nbcast,2,8,1\nbcast,2,16,2\n", "needs three sizes at least"),
        ("collective,nodes,bytes\nbcast,2,8\n", "`collective` needs a column with its unit"),
        ("message_bytes,message_us\n8,1\n", "measures messages over a link, not collectives"),
    ],
)
def test_bad_files(
    tmp_path: Path,
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
    text: str,
    message: str,
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError) as error:
        calibrate_collective(path)
    assert message in one_line(error)


def test_what_was_not_fitted_is_named(
    tmp_path: Path, one_line: Callable[[pytest.ExceptionInfo[Exception]], str]
) -> None:
    out = tmp_path / "system.toml"
    calibrate_collective(
        measured(tmp_path / "fitted.csv", model(), [("sendrecv", 2)], ("eager",)), out=out
    )
    other = measured(tmp_path / "other.csv", model(), [("gather", 4)], ("rndzvs",))
    with pytest.raises(InputError) as error:
        calibrate_check(out, other)
    assert "expects nothing of protocol 'rndzvs', but of eager" in one_line(error)
    with pytest.raises(InputError) as error:
        wrong = out.read_text("utf-8").replace(
            "blocks = true", 'blocks = true\nsteps = { gather = "ring" }'
        )
        (tmp_path / "wrong.toml").write_text(wrong, "utf-8")
        calibrate_check(tmp_path / "wrong.toml", other)
    assert "`steps.gather` = 'ring': should be 'linear-gather'" in one_line(error)


def chosen(file: Path, out: Path, keep: Callable[[dict[str, str]], bool]) -> Path:
    """Write some rows of a file."""
    with (
        file.open(encoding="utf-8") as read,
        out.open("w", encoding="utf-8", newline="") as written,
    ):
        rows = csv.DictReader(read)
        writer = csv.DictWriter(written, rows.fieldnames or [])
        writer.writeheader()
        writer.writerows(filter(keep, rows))
    return out


@pytest.mark.parametrize("one", ["gather", "reduce"])
def test_u55c_over_rdma(tmp_path: Path, one: str) -> None:
    """ACCL+: from `sendrecv` and one collective at 3 and 4 boards, all of them at 6 and 8."""
    rows = witness("accl_rdma.csv")
    fitted = chosen(
        rows,
        tmp_path / "fitted.csv",
        lambda row: (
            row["collective"] == "sendrecv" or (row["collective"] == one and row["nodes"] in "34")
        ),
    )
    calibrate_collective(fitted, out=tmp_path / "accl.toml")
    others = chosen(rows, tmp_path / "others.csv", lambda row: row["nodes"] in "68")
    coverage = calibrate_check(tmp_path / "accl.toml", others)
    assert coverage.rows > 300
    assert coverage.mean_percent <= 15 < coverage.null_percent
    assert 0.85 <= coverage.in_range <= 0.96


def test_u280_over_tcp(tmp_path: Path) -> None:
    rows = witness("accl_tcp.csv")
    kinds = ("allreduce", "allgather")
    fitted, others = (
        chosen(
            rows,
            tmp_path / f"{nodes}.csv",
            lambda row, nodes=nodes: row["collective"] in kinds and row["nodes"] in nodes,
        )
        for nodes in ("34", "68")
    )
    calibrate_collective(fitted, out=tmp_path / "accl.toml")
    coverage = calibrate_check(tmp_path / "accl.toml", others)
    assert coverage.mean_percent <= 20 < coverage.null_percent


def witness(name: str) -> Path:
    path = Path(os.environ.get("EMUCHAIN_WITNESSES") or "/none") / name
    if not path.exists():
        pytest.skip(f"EMUCHAIN_WITNESSES names no folder with {name}")
    return path


@pytest.mark.parametrize("protocols", [("eager",), ("rndzvs",), ("eager", "rndzvs")], ids=str)
def test_gradients_are_exchanged_at_fitted_costs(
    tmp_path: Path, protocols: tuple[str, ...]
) -> None:
    """The file's `[network]` has them: a ring of replicas takes what the model says."""
    path = measured(tmp_path / "fitted.csv", model(), FITTED, protocols)
    done = calibrate_collective(path, out=tmp_path / "c.toml")
    cluster, values = load_cluster(str(tmp_path / "c.toml")), 300_000
    over = cluster.between_replicas(4, 1)
    taken_us = exchange_ps(DataParallel(4), over, values) / 1e6
    said = done.models[0].us(Goal.ALL_REDUCE, 4, 4 * values, protocols[-1])
    assert taken_us == pytest.approx(said, rel=1e-3)
