"""`scripts/record`: what it keeps, and that it finds whatever differs."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def record(load: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script with one thing of each kind to record, so that it takes seconds."""
    script: ModuleType = load("record")
    few = {
        "SIMULATIONS": ["--network quick-cifar --devices 2 --samples 64"],
        "PLANS": ["quick-cifar --devices 2"],
        "SCHEDULES": ["--schedule sync --devices 2 --batch 4 --micro-batch 2"],
        "OTHERS": ["network quick-cifar --toml"],
        "TRAININGS": [(1, "--network quick-cifar --devices 2 --samples 32 --test-samples 8")],
        "VALIDATIONS": [],
    }
    for name, value in few.items():
        monkeypatch.setattr(script, name, value)
    return script


def recorded(script: ModuleType, out: Path) -> dict[str, Any]:
    """What the script records."""
    script.record(sys.executable, out)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_a_recording_can_be_repeated_and_holds_times_and_bits(
    record: ModuleType, tmp_path: Path
) -> None:
    first, second = (recorded(record, tmp_path / name) for name in ("first.json", "second.json"))
    assert list(record.differences(first, second)) == []
    [training] = [of for name, of in first.items() if name.startswith("train")]
    [simulation] = [of for name, of in first.items() if name.startswith("simulate")]
    assert len(training["weights"]["conv1/weight"]) == 24
    assert training["history"]["virtual_time_ps"][0] > 0
    assert "host_time_s" not in training["history"]
    assert simulation["virtual_time_ps"] > 0
    assert len(first) == 5


def test_another_seed_gives_other_bits_in_the_same_time(record: ModuleType) -> None:
    words = record.TRAININGS[0][1]
    first = record.train(sys.executable, 1, words)
    other = record.train(sys.executable, 1, f"{words} --seed 2")
    found = list(record.differences(first, other))
    weights = {name for name in first["weights"] if name.endswith("weight")}
    assert {f"/weights/{name}" for name in weights} <= {line.split(":")[0] for line in found}
    assert not any("virtual_time_ps" in line for line in found)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, ["/a[1]: 2 before, 3 after"]),
        ({"a": 1, "b": 2}, {"a": 1}, ["/b: only before"]),
        ({}, {"c": {}}, ["/c: only after"]),
        ({"a": [1]}, {"a": [1, 2]}, ["/a: [1] before, [1, 2] after"]),
        ({"a": float("nan")}, {"a": float("nan")}, []),
        ({"a": float("nan")}, {"a": 1.0}, ["/a: nan before, 1.0 after"]),
        ({"a": "x"}, {"a": "x"}, []),
    ],
)
def test_differences(record: ModuleType, before: Any, after: Any, message: list[str]) -> None:
    assert list(record.differences(before, after)) == message


def test_compare_ends_with_status_1_where_anything_differs(run_script: Any, tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps({"simulate": {"virtual_time_ps": 700, "links": [1, 2]}}))
    after.write_text(json.dumps({"simulate": {"virtual_time_ps": 700, "links": [1, 2]}}))
    done = run_script("record", "compare", before, after, cwd=tmp_path)
    assert "1 outputs with 3 values: 0 differences" in done.stdout
    after.write_text(json.dumps({"simulate": {"virtual_time_ps": 701, "links": [1, 2]}}))
    done = run_script("record", "compare", before, after, cwd=tmp_path, status=1)
    assert done.stdout.splitlines()[0] == "/simulate/virtual_time_ps: 700 before, 701 after"


def test_a_command_that_fails_ends_the_recording(record: ModuleType) -> None:
    with pytest.raises(SystemExit, match="simulate --devices 0: status 2"):
        record.run(sys.executable, 1, ["simulate", "--devices", "0"])
