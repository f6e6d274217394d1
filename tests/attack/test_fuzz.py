"""`tests/attack/fuzz`: a small count for each reader, and that it finds what may not happen."""

from __future__ import annotations

import os
import pathlib
import random
import types
from collections.abc import Callable

import pytest

from emuchain.emulator.common import InputError

from .conftest import Load


@pytest.fixture
def fuzz(load: Load) -> types.ModuleType:
    """The script as a module."""
    return load("fuzz")


READERS = [
    *("config", "network", "cluster", "faults", "schedule", "profile", "codec"),
    *("checkpoint", "onnx", "safetensors", "npz", "hdf5", "chunks", "text", "archive", "journal"),
    *("report", "retime", "init"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("reader", READERS)
def test_no_reader_ends_as_none_may(
    fuzz: types.ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path, reader: str
) -> None:
    if reader in ("onnx", "safetensors"):
        pytest.importorskip(reader)
    whole = fuzz.READERS[reader]()
    assert set(fuzz.attempts(whole, whole.examples, tmp_path)) == {"ok"}
    assert fuzz.main([reader, "--count", "30", "--seed", "7"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{reader}, seed 7: ") and "refused" in said


def refuse(_: pathlib.Path) -> None:
    raise InputError("no")


class LongError(InputError):
    """One that is not in one line, as no other is."""

    def __str__(self) -> str:
        return "no\nand no"


def refuse_at_length(_: pathlib.Path) -> None:
    raise LongError


def crash(_: pathlib.Path) -> None:
    os.abort()


def eat(_: pathlib.Path) -> None:
    bytearray(3 * 2**30)


def trip(_: pathlib.Path) -> None:
    raise KeyError("none")


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (len, "traceback TypeError"), (trip, "traceback KeyError"), (crash, "crash"), (eat, "over 2 GB"),
        (refuse, "refused"), (refuse_at_length, "several lines"), (pathlib.Path.read_bytes, "ok"),
    ],
)  # fmt: skip
def test_outcomes(
    fuzz: types.ModuleType,
    tmp_path: pathlib.Path,
    read: Callable[[pathlib.Path], object],
    said: str,
) -> None:
    assert fuzz.attempts(fuzz.Reader([], ".txt", read), [b"a", b"b"], tmp_path) == [said] * 2


@pytest.mark.parametrize("reader", ["init", "checkpoint", "journal"])
def test_damage_is_never_silent(
    fuzz: types.ModuleType, capsys: pytest.CaptureFixture[str], reader: str
) -> None:
    assert fuzz.main([reader, "--damage", "--count", "4", "--seed", "7"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        f"{reader}, seed 7, {kind}" for kind in fuzz.DAMAGE
    ]


def test_what_is_read_otherwise_is_silent_damage(
    fuzz: types.ModuleType, tmp_path: pathlib.Path
) -> None:
    reader = fuzz.Reader([], ".txt", pathlib.Path.read_bytes)
    assert fuzz.attempts(reader, [b"a", b"b"], tmp_path, b"a") == ["ok", "silent"]


def test_the_same_seed_gives_the_same_input(fuzz: types.ModuleType) -> None:
    example = bytes(range(256))
    first, again, other = (fuzz.changed(example, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other
