"""Schedules from files train to the bits of `sync`, whatever their order, and take as long as in a
simulation.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain import InputError
from emuchain.emulator.commands.cli import main
from emuchain.emulator.schedule import EpochShape, parse_csv, schedules, to_csv, to_text

from ..commands.running import status_of
from ..networks import CONV, GROUPED, of_images
from ..schedule.chains import order_in_v

NETWORK = of_images(
    "edited",
    CONV,
    {"type": "batch-norm"},
    {"type": "relu"},
    GROUPED,
    {"type": "dropout", "rate": 0.3},
)
KEYS: dict[str, Any] = {
    "samples": 44,
    "test_samples": 10,
    "batch": 16,
    "micro_batch": 4,
    "epochs": 2,
}

SWAPPED = "0F1,0F0,0F2,0F3,0B1,0B0,0B2,0B3\n1F1,1F0,1F2,1F3,1B1,1B0,1B2,1B3\n"
"""GPipe's, with two micro-batches swapped."""
W_APART = "0F0,0F1,0F2,0F3,0I0,0I1,0I2,0I3,0W2,0W0,0W3,0W1\n1F0,1F1,1I0,1F2,1W0,1I1,1F3,1I2,1I3,1W3,1W2,1W1\n"
ZBV = """0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,0I2,0W2,0I3,0W3
,1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,1I3,1W2,2W3,1W3
"""
DUALPIPE_V = """\
0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3
1F0,2F0,1F1,2F1,1F2,2B0,(2F2;1B0)OVERLAP_F_B,(1F3;2B1)OVERLAP_F_B,(2F3;1B1)OVERLAP_F_B,2B2,1B2,2I3,1I3,2W3,1W3
"""
LOOP = "0F0,0F1,2F0,2F1,2B0,2B1,0F2,0F3,0B0,0B1,2F2,2F3,2B2,2B3,0B2,0B3\n"
LOOP += "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1F3,1B0,1B1,3F2,3F3,3B2,3B3,1B2,1B3\n"
FILES = {"swapped": SWAPPED, "w apart": W_APART, "zbv": ZBV, "dualpipe-v": DUALPIPE_V, "loop": LOOP}
MACHINES: dict[str, dict[str, str]] = {
    "rows": {},
    "turns": {"engines": "turns"},
    "hidden": {"engines": "turns", "transport": "hidden"},
    "shared": {"engines": "shared"},
    "split": {"engines": "split", "transport": "stored"},
}

Edited = Callable[[str], str]
Bits = Callable[[Any, Any], bool]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """Writes a schedule into a file, and gives its path."""

    def write(text: str) -> str:
        file = tmp_path / "edited.csv"
        file.write_text(text)
        return str(file)

    return write


@pytest.fixture(scope="module")
def synced() -> Any:
    """The run under `sync`."""
    return emuchain.train(NETWORK, devices=2, schedule="sync", **KEYS)


def check_same(run: Any, other: Any) -> None:
    """Weights and losses are the same, bit for bit."""
    assert list(run.history["train_loss"]) == list(other.history["train_loss"])
    assert list(run.history["test_loss"]) == list(other.history["test_loss"])
    for layer, arrays in other.weights.items():
        for name, array in arrays.items():
            assert (run.weights[layer][name] == array).all(), (layer, name)


def timing_only(keys: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key != "test_samples"}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", FILES)
def test_any_order_trains_as_sync(edited: Edited, synced: Any, name: str, machine: str) -> None:
    keys = {**KEYS, **MACHINES[machine], "devices": 2, "schedule": edited(FILES[name])}
    run = emuchain.train(NETWORK, **keys)
    check_same(run, synced)
    assert (
        run.history["virtual_time_ps"][-1]
        == emuchain.simulate(NETWORK, **timing_only(keys)).virtual_time_ps
    )


@pytest.mark.parametrize("machine", ["rows", "turns"])
@pytest.mark.parametrize("seed", range(4))
def test_orders_that_are_drawn(edited: Edited, synced: Any, seed: int, machine: str) -> None:
    text = order_in_v(2 + seed % 2, 4, random.Random(seed))
    keys = {**KEYS, **MACHINES[machine], "schedule": edited(text)}
    run = emuchain.train(NETWORK, **keys)
    check_same(run, synced)
    assert (
        run.history["virtual_time_ps"][-1]
        == emuchain.simulate(NETWORK, **timing_only(keys)).virtual_time_ps
    )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["gpipe", "1f1b-as", "zero-bubble", "interleaved"])
def test_a_schedule_as_printed_takes_its_time(edited: Edited, name: str, machine: str) -> None:
    kind = schedules()[name]
    text = to_csv(kind.generate(EpochShape(3, 4, 4, 1, chunks=kind.chunks)))
    keys = {**timing_only(KEYS), **MACHINES[machine], "devices": 3}
    runs = [
        emuchain.simulate("quick-cifar", schedule=schedule, **keys)
        for schedule in (edited(text), name)
    ]
    assert runs[0].epoch_ends_ps == runs[1].epoch_ends_ps


MORE: dict[str, dict[str, Any]] = {
    "replicas": {"replicas": 2, "batch": 32},
    "checkpoints": {"checkpoint_every": 1},
    "tied weights": {
        "network": "char-gpt",
        "clip_norm": 0.5,
        "samples": 24,
        "optimizer": "adamw",
        "epochs": 1,
    },
    "clipped": {"clip_norm": 0.5},
    "recurrent": {"network": "lstm-rows", "samples": 32, "epochs": 1},
}


@pytest.mark.parametrize("machine", ["rows", "turns"])
@pytest.mark.parametrize("text", [SWAPPED, ZBV], ids=["swapped", "zbv"])
@pytest.mark.parametrize("name", MORE)
def test_what_else_a_run_may_have(edited: Edited, name: str, text: str, machine: str) -> None:
    keys = {"network": NETWORK, **KEYS, "devices": 2, **MORE[name]}
    wanted = emuchain.train(**keys, schedule="sync")
    keys |= {**MACHINES[machine], "schedule": edited(text)}
    run = emuchain.train(**keys)
    check_same(run, wanted)
    assert (
        run.history["virtual_time_ps"][-1] == emuchain.simulate(**timing_only(keys)).virtual_time_ps
    )


def test_balanced_parameters(edited: Edited, small_cluster: str) -> None:
    """Devices that store others' parameters take gradients in any order."""
    keys = {**KEYS, "devices": 5, "cluster": small_cluster, "memory": "fpdeep"}
    order = ("F1", "F0", "F2", "F3", "I1", "I0", "I2", "I3", "W3", "W1", "W0", "W2")
    text = "".join(",".join(f"{device}{cell}" for cell in order) + "\n" for device in range(5))
    plan = emuchain.plan("quick-cifar", schedule=edited(text), **keys)
    assert plan.timing.blocks
    run = emuchain.train(plan)
    check_same(run, emuchain.train("quick-cifar", schedule="sync", **keys))
    assert run.history["virtual_time_ps"][-1] == emuchain.simulate(plan).virtual_time_ps


@pytest.mark.parametrize("machine", ["rows", "turns"])
@pytest.mark.parametrize("name", ["pipedream", "2bw"])
def test_what_does_not_drain_trains_as_it_says(tmp_path: Path, name: str, machine: str) -> None:
    """Printed for all mini-batches of an epoch, it is itself; for fewer, it begins anew after
    these.
    """
    file, epoch = tmp_path / "stale.txt", EpochShape(2, 44, 16, 4)
    keys = {**KEYS, **MACHINES[machine], "devices": 2}
    wanted = emuchain.train(NETWORK, **keys, schedule=name)
    times = []
    for samples in (48, 32):
        file.write_text(
            to_text(schedules()[name].generate(dataclasses.replace(epoch, samples=samples)))
        )
        run = emuchain.train(NETWORK, **keys, schedule=str(file))
        times.append(run.history["virtual_time_ps"][-1])
        again = emuchain.simulate(NETWORK, **timing_only(keys), schedule=str(file))
        assert again.virtual_time_ps == times[-1] >= wanted.history["virtual_time_ps"][-1]
        if samples == 48:
            check_same(run, wanted)
            assert times[0] == wanted.history["virtual_time_ps"][-1]
    assert emuchain.plan(NETWORK, **keys, schedule=str(file)).stale_samples == [
        16,
        16 * (name == "2bw"),
    ]


def test_2bw_made_for_times_trains_as_2bw(tmp_path: Path) -> None:
    """The order differs from that of equal stages; versions, and so numbers, are the same."""
    file, times = tmp_path / "order.txt", "--forward 1,8,2 --backward 2,3,11 --transfer 4"
    words = f"pipeline --schedule 2bw --stages 3 --micro-batches 9 {times} -o {file}"
    assert status_of(*words.split()) == 0
    kind, epoch = schedules()["2bw"], EpochShape(3, 9, 3, 1)
    assert file.read_text() != to_text(kind.generate(epoch))
    keys = {**KEYS, **MACHINES["turns"], "devices": 3, "batch": 12, "samples": 36}
    run = emuchain.train(NETWORK, **keys, schedule=str(file))
    check_same(run, emuchain.train(NETWORK, **keys, schedule="2bw"))


def test_the_file_says_how_many_devices_there_are(edited: Edited) -> None:
    assert emuchain.plan(NETWORK, schedule=edited(ZBV), micro_batch=16).devices == 2


def test_text_trains_as_csv(tmp_path: Path, synced: Any) -> None:
    file = tmp_path / "edited.txt"
    file.write_text(to_text(parse_csv(DUALPIPE_V)))
    check_same(emuchain.train(NETWORK, schedule=str(file), **KEYS), synced)


def test_a_run_goes_on_without_the_file(edited: Edited, tmp_path: Path) -> None:
    """Results and checkpoints hold what it said."""
    file, out, checkpoint = edited(W_APART), tmp_path / "out.h5", tmp_path / "run.ckpt"
    keys = {**KEYS, "schedule": file}
    whole = emuchain.train(NETWORK, **keys)
    emuchain.train(NETWORK, **{**keys, "epochs": 1}, out=str(out), checkpoint=str(checkpoint))
    edited(SWAPPED)
    first = emuchain.retime(str(out))
    assert first.virtual_time_ps == first.own_virtual_time_ps == whole.history["virtual_time_ps"][0]
    Path(file).unlink()
    assert emuchain.retime(str(out)).virtual_time_ps == first.virtual_time_ps
    resumed = emuchain.train(resume=str(checkpoint), epochs=2)
    check_same(resumed, whole)
    assert list(resumed.history["virtual_time_ps"]) == list(whole.history["virtual_time_ps"])
    assert emuchain.evaluate(str(checkpoint)).test_loss == emuchain.evaluate(str(out)).test_loss


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "devices": (
        {"devices": 3},
        (
            "has 2 devices and 4 micro-batches in a mini-batch; this run has 3 devices and 4"
            " micro-batches in a mini-batch, as 16 samples by 4; change `devices`, `batch` or"
            " `micro_batch`, or the file"
        ),
    ),
    "micro-batches": (
        {"micro_batch": 2},
        "this run has 2 devices and 8 micro-batches in a mini-batch",
    ),
    "replicas": (
        {"replicas": 2},
        "this run has 2 devices and 2 micro-batches in a mini-batch, as 8 samples by 4",
    ),
    "chunks": ({"chunks": 2}, "has 1 stage on each device"),
    "warm-ups": ({"warm_up": "N"}, "has a fixed order"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_run_that_does_not_fit_the_file(edited: Edited, name: str) -> None:
    changed, message = REFUSED[name]
    file = edited(SWAPPED)
    for call in (emuchain.plan, emuchain.train):
        with pytest.raises(InputError) as error:
            call(NETWORK, **{**KEYS, "schedule": file, **changed})
        assert message in str(error.value) and "edited.csv" in str(error.value)
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("command", ["train", "simulate", "plan", "timeline"])
def test_commands_take_files_and_refuse_what_cannot_work(
    edited: Edited, capsys: pytest.CaptureFixture[str], one_line: Any, command: str
) -> None:
    words = [command, "quick-cifar", "--batch", "16", "--micro-batch", "4"]
    words += [] if command in ("plan", "timeline") else ["--samples", "16"]
    words += ["--test-samples", "4", "--progress", "none"] if command == "train" else []
    with pytest.raises(SystemExit) as ended:
        main([*words, "--schedule", edited(ZBV)])
    assert not ended.value.code, capsys.readouterr().err
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*words, "--schedule", edited(SWAPPED.replace("1F1,1F0", "1F0,1F1"))])
    assert ended.value.code == 2
    assert "device 1: F0v0 does not follow the order of its neighbour" in one_line(
        capsys.readouterr().err
    )


@pytest.mark.parametrize("machine", ["rows", "turns"])
def test_nothing_crosses_between_stages_of_one_board(edited: Edited, machine: str) -> None:
    """The two stages in the middle of a V: no bytes, no time, whatever the links."""
    keys = {**timing_only(KEYS), **MACHINES[machine], "schedule": edited(ZBV)}
    run = emuchain.simulate(NETWORK, **keys)
    carried = {(link.sender, link.receiver): link.path_bytes for link in run.usage.links}
    assert [ends for ends, path_bytes in carried.items() if not sum(path_bytes.values())] == [
        (1, 2),
        (2, 1),
    ]
    timing = run.plan.timing
    if machine == "rows":
        paths = [timing.path(1, stream) for stream in timing.links[1]]
        assert paths and all((path.row_ps, path.latency_ps) == (0, 0) for path in paths)
    else:
        assert [sorted(board.wires) for board in timing.action_boards()] == [[1], [0]]
