"""`emuchain schedule`: of a run, of an order without a network, as text and CSV, and the check of
both.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from emuchain.emulator.schedule import schedules

from ..running import status_of

KINDS = [
    name
    for name, kind in schedules().items()
    if kind.aligned and not kind.replicates and kind.offload is None
]
DRAINED = [name for name in KINDS if schedules()[name].drains]


command = functools.partial(status_of, "schedule")


def order(name: str, *more: str) -> list[str]:
    return ["--schedule", name, "--devices", "3", "--micro-batches", "6", *more]


def test_an_order(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--schedule", "1f1b-so", "--devices", "2", "--micro-batches", "3", "--steps", "1"]
    assert command(*arguments, "--warm-up", "2(N-i)+1") == 0
    assert (
        capsys.readouterr().out == "schedule 1f1b-so, 2 devices\n"
        "micro-batches 0:1 1:2 2:3\n"
        "0F0v0 0F1v0 0F2v0 0B0v0 0W0 0B1v0 0W1 0B2v0 0W2 0U1\n"
        "1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1F2v0 1B2v0 1W2 1U1\n"
    )


def test_pipedream_stashes(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--schedule",
        "pipedream",
        "--devices",
        "2",
        "--micro-batches",
        "1",
        "--steps",
        "3",
    ]
    assert command(*arguments) == 0
    assert (
        capsys.readouterr().out == "schedule pipedream, 2 devices\n"
        "micro-batches 0:1 | 1:2 | 2:3\n"
        "0F0v0 0F1v0 0B0v0 0W0v0 0U1 0F2v1 0B1v0 0W1v0 0U2 0B2v1 0W2v1 0U3\n"
        "1F0v0 1B0v0 1W0v0 1U1 1F1v1 1B1v1 1W1v1 1U2 1F2v2 1B2v2 1W2v2 1U3\n"
    )


@pytest.mark.parametrize("name", KINDS)
def test_what_is_printed_is_checked(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command(*order(name)) == 0
    file = tmp_path / "order.txt"
    file.write_text(capsys.readouterr().out)
    assert command("--check", str(file)) == 0
    assert (
        capsys.readouterr().out
        == f"{file}: 3 devices, 2 mini-batches: complete, in order, free of deadlock\n"
    )


@pytest.mark.parametrize("file", ["order.csv", "order"])
@pytest.mark.parametrize("name", DRAINED)
def test_what_is_printed_as_csv_is_checked(
    name: str, file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command(*order(name, "--csv")) == 0
    (tmp_path / file).write_text(capsys.readouterr().out)
    assert command("--check", str(tmp_path / file)) == 0
    expected_text = capsys.readouterr().out
    assert (
        expected_text
        == f"{tmp_path / file}: 3 devices, 1 mini-batch: complete, in order, free of deadlock\n"
    )


def test_interleaved_has_two_chunks_or_as_many_as_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for more, last in ([], 5), (["--chunks", "3"], 8):
        assert command(*order("interleaved", "--csv", *more)) == 0
        assert max(int(stage) for stage in re.findall(r"(\d+)F", capsys.readouterr().out)) == last


def test_a_run_of_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [
        "quick-cifar",
        "--schedule",
        "1f1b-so",
        "--devices",
        "4",
        "--batch",
        "4",
        "--micro-batch",
        "1",
    ]
    assert command(*keys, "--csv") == 0
    assert (
        capsys.readouterr().out == "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n"
        "1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n"
        "2F0,2F1,2F2,2F3,2B0,2B1,2B2,2B3\n"
        "3F0,3F1,3B0,3F2,3B1,3F3,3B2,3B3\n"
    )


REFUSED = {
    "no devices": ("--schedule gpipe --micro-batches 4", "`micro_batches` = 4: needs --devices"),
    "no schedule": ("--devices 2 --micro-batches 4", "`micro_batches` = 4: needs --schedule"),
    "a network": (
        "alexnet --schedule gpipe --devices 2 --micro-batches 4",
        "so network has no effect",
    ),
    "fpdeep": (
        "--schedule fpdeep --devices 2 --micro-batches 4",
        "'fpdeep': has no order without a network",
    ),
    "a ring": (
        "--schedule data-parallel-ring --devices 2 --micro-batches 4",
        "has no order without a network",
    ),
    "chunks": (
        "--schedule gpipe --devices 2 --micro-batches 4 --chunks 2",
        "gpipe has one stage on each device",
    ),
    "a fixed order": (
        "--schedule gpipe --devices 2 --micro-batches 4 --warm-up N",
        "gpipe has a fixed order",
    ),
    "a warm-up": (
        "--schedule 1f1b-so --devices 2 --micro-batches 4 --warm-up N/2",
        "must be of whole numbers",
    ),
    "a warm-up that deadlocks": (
        "--schedule 1f1b-so --devices 2 --micro-batches 4 --warm-up i",
        (
            "deadlock: device 0 waits at B0v0 for its right neighbour; device 1 waits at F1v0 for"
            " its left neighbour"
        ),
    ),
    "too many": (
        "--schedule gpipe --devices 4 --micro-batches 200000",
        "on 4 stages, at most 125000",
    ),
    "CSV of two": (
        "--schedule gpipe --devices 2 --micro-batches 2 --steps 2 --csv",
        "has 2 mini-batches; as CSV",
    ),
    "no file": ("--check nowhere.csv", "nowhere.csv: cannot be read: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected_text = REFUSED[name]
    assert command(*arguments.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert expected_text in said.err
    assert len(said.err.splitlines()) == 1


def test_versions_that_do_not_agree_are_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Under all names but fpdeep's, whose B may use newer weights."""
    file = tmp_path / "mixed.txt"
    mixed = (
        "schedule NAME, 1 device\nmicro-batches 0:1 | 1:2\n0F0v0 0B0v0 0W0 0F1v0 0U1 0B1v1 0W1"
        " 0U2\n"
    )
    file.write_text(mixed.replace("NAME", "fpdeep"))
    assert command("--check", str(file)) == 0
    capsys.readouterr()
    file.write_text(mixed.replace("NAME", "1f1b-as"))
    assert command("--check", str(file)) == 2
    assert (
        "device 0: B1v1 uses version 1 of the weights, newer than version 0 of its F"
        in capsys.readouterr().err
    )


def test_csv_that_deadlocks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "swapped.csv"
    file.write_text("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n")
    assert command("--check", str(file)) == 2
    assert (
        "deadlock: device 0 waits at B0v0 for its right neighbour; device 1 waits at F1v0"
        in capsys.readouterr().err
    )


def test_a_file_in_the_other_form(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """From CSV to text and back."""
    as_csv, as_text = tmp_path / "order.csv", tmp_path / "order.txt"
    assert command(*"--schedule interleaved --devices 2 --micro-batches 4 --csv".split()) == 0
    as_csv.write_text(capsys.readouterr().out)
    assert command("--check", str(as_csv), "--text") == 0
    as_text.write_text(capsys.readouterr().out)
    assert command("--check", str(as_text), "--csv") == 0
    assert capsys.readouterr().out == as_csv.read_text()


WRONG = {
    "order.csv": ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1\n", "device 1: never does B1"),
    "twice.csv": ("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1F1,1B1\n", "device 1: F1v0 is done twice"),
    "message.csv": (
        "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
        "rank 1 waits at 1RECV_F0 for 0SEND_F0, which",
    ),
    "order.txt": (
        "schedule mine, 1 device\nmicro-batches 0:1\n0F0v0 0B0v0 0U1\n",
        "device 0: never does W0",
    ),
    "several.txt": (
        "schedule mine, 1 device\nmicro-batches 0:1 | 1:2\n0F0v0 0B0v0 0W0 0U1\n",
        "never does F1",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_with_its_file(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, (text, expected_text) = tmp_path / name, WRONG[name]
    file.write_text(text)
    assert command("--check", str(file)) == 2
    error = capsys.readouterr().err
    assert expected_text in error and str(file) in error


def test_a_check_takes_a_file_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--check", "order.csv", "--devices", "3") == 2
    assert "--check takes a file" in capsys.readouterr().err
