"""`emuchain explore`: the answer first, its steps, JSON; boards, profiles and graphs; bad input in
one line.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator import view
from emuchain.emulator.commands.cli import main

from ..running import status_of

MIXED = """
name = "mixed"
boards = [
  { type = "vcu129", count = 2, clock_mhz = 100, off_chip_gbytes_per_s = 40 },
  { type = "vcu118", count = 2, clock_mhz = 100, off_chip_gbytes_per_s = 40 },
]
links = { bandwidth_gbps = 100, latency_ns = 1000 }
"""
GPUS = """
name = "gpus"
boards = [{ name = "v100", count = 3 }]
links = { bandwidth_gbps = 1, latency_ns = 0 }
"""


command = functools.partial(status_of, "explore")


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert command(*arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    (tmp_path / "mixed.toml").write_text(MIXED)
    return str(tmp_path / "mixed.toml")


@pytest.fixture
def gpus(tmp_path: Path) -> str:
    (tmp_path / "gpus.toml").write_text(GPUS)
    return str(tmp_path / "gpus.toml")


def profile(
    tmp_path: Path, layers: int = 6, output_bytes: int = 100_000, memory_gbytes: float = 1
) -> str:
    rows = "".join(
        f'[[layers]]\nname = "l{n}"\noutput_bytes = {output_bytes}\nfeature_bytes ='
        ' 1000\nparameter_bytes = 10000000\ntimes = [{ device = "v100", micro_batch = 1,'
        " forward_us = 1000, backward_us = 2000 }]\n"
        for n in range(layers)
    )
    path = tmp_path / "p.toml"
    path.write_text(f'name = "six"\n[devices.v100]\nmemory_gbytes = {memory_gbytes}\n{rows}')
    return str(path)


def test_the_unequal_cluster_gets_zero_bubble(
    capsys: pytest.CaptureFixture[str], mixed: str
) -> None:
    words = ("resnet50", "--cluster", mixed, "--micro-batch", "1", "--precision", "fp16")
    assert command(*words, "--range", "none") == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines[: lines.index("")]
    assert first[0].startswith(
        "zero-bubble, micro-batches of 1 sample: resnet50 on 2 VCU129, 2 VCU118: "
    )
    assert len(first) <= 8 and all(line == line.rstrip() for line in lines)
    assert all(len(line) <= 80 for line in lines if not line.startswith("next: "))
    assert [line.split(":")[0] for line in first if not line.startswith(" ")][1:] == [
        *("limit", "runner-up", "changes", "gap", "next")
    ]
    steps = [
        "profile",
        "ideal",
        "inter-layer",
        "communication",
        "intra-layer",
        "memory",
        "schedule",
    ]
    assert re.findall(r"^\d\. ([\w-]+):", "\n".join(lines), re.MULTILINE) == steps
    found = as_json(capsys, *words)
    assert (
        found["winner"]["schedule"] == "zero-bubble"
        and [step["step"] for step in found["steps"]] == steps[:-1]
    )
    assert (
        found["bound_ps"]
        <= found["winner"]["time_ps"]
        <= min(each["time_ps"] for each in found["candidates"])
    )
    assert 0 <= found["gap"] < 0.03
    assert found == as_json(capsys, *words), "deterministic"


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adam", "adamw"])
def test_states_of_optimisers_take_memory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gpus: str, optimizer: str
) -> None:
    """Six layers of 10 MB on three devices: two layers on each, with the optimiser's arrays for
    each parameter.
    """
    arrays = {"sgd": 2, "nesterov": 3, "adam": 4, "adamw": 4}[optimizer]
    needed = arrays * 2 * 10_000_000 + 2 * 1000
    words = ("--cluster", gpus, "--batch", "1", "--optimizer", optimizer)
    fits = profile(tmp_path, memory_gbytes=needed / 1e9)
    found = as_json(capsys, "--profile", fits, *words)
    why_not = {
        each["schedule"]: each["why_not"] for each in found["candidates"] if each["time_ps"] is None
    }
    assert {*why_not} == {"data-parallel", "zero-bubble"}
    assert why_not["zero-bubble"] == "what B and W take apart is not known"
    too_small = profile(tmp_path, memory_gbytes=(needed - 1) / 1e9)
    assert command("--profile", too_small, *words, "--whole-layers") == 2
    assert f"needs {needed:,} bytes of memory" in capsys.readouterr().err


SLOW_MEMORY = """
name = "slow-memory"
boards = [{ type = "vc709", count = 2, clock_mhz = 100, on_chip_memory_kbit = 12_000, off_chip_gbytes_per_s = 1 }]
links = { bandwidth_gbps = 100, latency_ns = 1000 }
"""


def test_the_run_named_next_takes_the_same_time(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        view, "print_answer", lambda lines: print("\n".join(line.text for line in lines))
    )
    Path("s.toml").write_text(SLOW_MEMORY)
    words, times = (
        (
            "quick-cifar",
            "--cluster",
            "s.toml",
            "--micro-batch",
            "2",
            "--batch",
            "4",
            "--whole-layers",
        ),
        {},
    )
    for optimizer in ("sgd", "adam"):
        assert command(*words, "--optimizer", optimizer) == 0
        [line] = [
            line
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("next: emuchain ")
        ]
        with pytest.raises(SystemExit):
            main([*shlex.split(line.removeprefix("next: emuchain ")), "--json"])
        simulated = json.loads(capsys.readouterr().out)["virtual_time_ps"]
        found = as_json(capsys, *words, "--optimizer", optimizer)
        times[optimizer] = min(
            each["time_ps"] for each in found["candidates"] if each["time_ps"] is not None
        )
        assert simulated == times[optimizer]
    assert times["sgd"] < times["adam"], "moments push weights off chip"


def test_gpus_with_slow_links_end_at_a_coarse_cut(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gpus: str
) -> None:
    said = profile(tmp_path, output_bytes=5_000_000)
    found = as_json(capsys, "--profile", said, "--cluster", gpus, "--batch", "8")
    assert {each["schedule"] for each in found["candidates"]} == {
        "1f1b-sno",
        "1f1b-so",
        "gpipe",
        "zero-bubble",
        "data-parallel",
    }
    assert [step["step"] for step in found["steps"]][-2:] == ["coarse", "memory"]
    pipelines = [each for each in found["candidates"] if "stages" in each]
    assert all(each["limit"].startswith("link ") for each in pipelines)


def test_the_winner_changes_with_the_bandwidth_that_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """At the bandwidth itself the other one wins, and a fiftieth nearer the winner still does."""
    said = profile(tmp_path)

    def at(gbps: float) -> dict[str, Any]:
        path = tmp_path / "at.toml"
        path.write_text(GPUS.replace("bandwidth_gbps = 1,", f"bandwidth_gbps = {gbps!r},"))
        return as_json(capsys, "--profile", said, "--cluster", str(path), "--batch", "8")

    here = at(1.0)
    turn = here["turn"]
    assert turn["parameter"] == "link.bandwidth_gbps"
    assert at(turn["value"])["winner"]["schedule"] == turn["winner"] != here["winner"]["schedule"]
    nearer = turn["value"] * (0.98 if turn["value"] > 1 else 1.02)
    assert at(nearer)["winner"]["schedule"] == here["winner"]["schedule"]


def test_a_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path, gpus: str) -> None:
    costs = (
        "forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8.0,"
        " parameter_size=4.0"
    )
    nodes = "".join(f"node{n} -- Conv2d(1) -- {costs}\n" for n in range(4))
    (tmp_path / "graph.txt").write_text(
        nodes + "".join(f"\tnode{n} -- node{n + 1}\n" for n in range(3))
    )
    words = (
        "--profile",
        str(tmp_path / "graph.txt"),
        "--cluster",
        gpus,
        "--devices",
        "2",
        "--batch",
        "64",
    )
    found = as_json(capsys, *words, "--micro-batch", "16")
    assert found["winner"]["time_ps"] >= 4 * 6 * 10**9
    assert command(*words) == 2
    assert "give the one it was measured with as `--micro-batch N`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["lenet-mnist", "--cluster", "vc709", "--devices", "6"],
            "`devices` = 6: lenet-mnist has ",
        ),
        (["--cluster", "vc709"], "NETWORK is missing"),
        (
            ["lenet-mnist", "--cluster", "vc709", "--micro-batch", "3"],
            "`micro_batch` = '3': must be `search`, or a divisor",
        ),
        (
            ["lenet-mnist", "--cluster", "vc709", "--engines", "shared", "--transport", "stored"],
            "`engines` = 'shared'",
        ),
        (
            ["lenet-mnist", "--cluster", "vc709", "--profile", "none.toml"],
            "none.toml: cannot be read",
        ),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert command(*words) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_memory_that_nothing_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gpus: str
) -> None:
    said = profile(tmp_path, memory_gbytes=0.03)
    assert command("--profile", said, "--cluster", gpus, "--batch", "8") == 2
    error = capsys.readouterr().err
    assert error.startswith("emuchain: error: stage 0: needs ") and "v100 has 30,000,000" in error
    assert error.count("\n") == 1


def test_a_negative_time(capsys: pytest.CaptureFixture[str], tmp_path: Path, gpus: str) -> None:
    said = Path(profile(tmp_path))
    said.write_text(said.read_text().replace("forward_us = 1000", "forward_us = -1000", 1))
    assert command("--profile", str(said), "--cluster", gpus) == 2
    error = capsys.readouterr().err
    assert (
        "layer l0: `forward_us` = -1000: must not be negative" in error and error.count("\n") == 1
    )


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("schedule", "flags"),
    [
        ("1f1b-as", ["--engines", "turns", "--transport", "hidden"]),
        ("fbp-as", ["--engines", "shared", "--transport", "hidden"]),
        ("1f1b-so", ["--engines", "turns", "--transport", "stored"]),
        ("zero-bubble", ["--engines", "turns", "--transport", "hidden"]),
        ("zero-bubble", ["--engines", "turns", "--transport", "stored"]),
    ],
)
def test_the_chain_takes_the_time_that_was_explored(
    capsys: pytest.CaptureFixture[str], schedule: str, flags: list[str], whole: bool
) -> None:
    """Cut alike, and timed by clocks that hand times on from device to device."""
    named = [
        "vgg16-cifar",
        "--cluster",
        "vc709",
        "--devices",
        "4",
        "--batch",
        "64",
        "--micro-batch",
        "8",
        *flags,
    ]
    found = as_json(capsys, *named, *["--whole-layers"] * whole)
    [explored] = (each["time_ps"] for each in found["candidates"] if each["schedule"] == schedule)
    with pytest.raises(SystemExit):
        stages = "layers" if whole else "channels"
        main(
            [
                "simulate",
                *named,
                "--schedule",
                schedule,
                "--stages",
                stages,
                "--samples",
                "64",
                "--json",
            ]
        )
    assert json.loads(capsys.readouterr().out)["virtual_time_ps"] == explored


def test_the_next_command_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command(
            "quick-cifar",
            "--cluster",
            "vc709",
            "--devices",
            "3",
            "--micro-batch",
            "4",
            "--batch",
            "32",
        )
        == 0
    )
    [line] = (
        line for line in capsys.readouterr().out.splitlines() if line.startswith("next: emuchain ")
    )
    with pytest.raises(SystemExit) as ended:
        main(line.removeprefix("next: emuchain ").split())
    assert not ended.value.code


def test_a_cluster_says_how_its_boards_execute(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = tmp_path / "turns.toml"
    cluster.write_text(MIXED + '[machine]\nengines = "turns"\ntransport = "stored"\n')
    found = as_json(
        capsys, "quick-cifar", "--cluster", str(cluster), "--micro-batch", "8", "--batch", "32"
    )
    names = {each["schedule"] for each in found["candidates"]}
    assert names == {"1f1b-sno", "1f1b-so", "gpipe", "zero-bubble", "data-parallel"}


FAST_LINKS = """
name = "fast-links"
boards = [{ type = "vc709" }]
links = { bandwidth_gbps = 400, latency_ns = 1000 }
"""


@pytest.mark.parametrize(
    "network, devices, batch", [("vgg16-cifar", 8, 128), ("vgg11-cifar", 4, 64)]
)
def test_the_winner_is_simulated_next_where_replicas_win(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, network: str, devices: int, batch: int
) -> None:
    """A run of replicas, whose clocks hand times on, takes the time that the exploration adds
    up.
    """
    cluster = tmp_path / "fast.toml"
    cluster.write_text(FAST_LINKS)
    words = (network, "--cluster", str(cluster), "--devices", str(devices), "--batch", str(batch))
    found = as_json(capsys, *words)
    best = min(found["candidates"], key=lambda each: each["time_ps"] or float("inf"))
    assert best["schedule"] == "data-parallel"
    assert command(*words) == 0
    [line] = (
        line for line in capsys.readouterr().out.splitlines() if line.startswith("next: emuchain ")
    )
    assert f"--replicas {devices} " in line
    with pytest.raises(SystemExit):
        main([*shlex.split(line.removeprefix("next: emuchain ")), "--json"])
    assert json.loads(capsys.readouterr().out)["virtual_time_ps"] == best["time_ps"]
