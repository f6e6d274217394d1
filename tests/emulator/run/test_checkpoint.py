"""Checkpoints: a run that is stopped resumes from its file, bit for bit and picosecond for
picosecond.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.common import InputError, WholeFile
from emuchain.emulator.config import load_config
from emuchain.emulator.faults import BoardFault, Faults, FlipFault, LinkFault
from emuchain.emulator.network import load_network
from emuchain.emulator.plan import ChainPlan, make_plan, training_data
from emuchain.emulator.run import (
    EpochRecord,
    Keeping,
    Leader,
    RunCheckpoints,
    StepResult,
    Weights,
    simulate,
    train,
)
from emuchain.emulator.run.state.checkpoint_file import CheckpointReader
from emuchain.launch import SingleProcess

from ..counted import COUNTED

# All that a device keeps from one mini-batch to the next: weights, biases, scales and shifts with
# their velocities, and moving averages. Dropout depends on the samples' numbers since the start of
# training.
NORMALISED = {
    "name": "normalised",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 18, "kernel": 5, "stride": 2, "pad": 2},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "max-pool", "kernel": 2},
        {"type": "conv", "channels": 20, "kernel": 3, "pad": 1, "bias": False},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "dropout", "rate": 0.3},
        {"type": "average-pool", "kernel": 4},
        {"type": "fc", "features": 16},
        {"type": "relu"},
        {"type": "dropout", "rate": 0.5},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
RECURRENT = {
    "name": "recurrent",
    "input": [3, 32, 32],
    "layers": [
        {"type": "sequence"},
        {"type": "gru", "units": 12, "bidirectional": True},
        {"type": "lstm", "units": 20},
        {"type": "last-step"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
SLOW = Faults(
    (BoardFault(board=1, factor=3, from_sample=10, to_sample=60),),
    (LinkFault(link=0, factor=2, loss=0.2, from_us=1, to_us=400),),
)
FLIPS = Faults(
    flips=tuple(
        FlipFault(of=of, rate=1e-5, highest_bit=22) for of in ("weights", "activations", "messages")
    )
)
GRADIENTS = Faults(
    flips=(FlipFault(of="gradients", rate=1e-5), FlipFault(of="weights", rate=1e-5, highest_bit=22))
)
SAMPLES = 42  # the last mini-batch is shorter

Keys = dict[str, Any]
RUNS: dict[str, Keys] = {
    "fpdeep": {"schedule": "fpdeep", "devices": 4},
    "sync": {"schedule": "sync", "devices": 4},
    "normalised, fpdeep": {"network": NORMALISED, "schedule": "fpdeep", "devices": 3},
    "normalised, sync": {"network": NORMALISED, "schedule": "sync", "devices": 3},
    "balanced, fpdeep": {
        "cluster": "small",
        "schedule": "fpdeep",
        "devices": 5,
        "memory": "fpdeep",
    },
    "balanced, sync": {"cluster": "small", "schedule": "sync", "devices": 5, "memory": "fpdeep"},
    "replicas, fpdeep": {
        "schedule": "fpdeep",
        "devices": 3,
        "replicas": 2,
        "compress": "inceptionn:-10",
    },
    "replicas, sync": {"schedule": "sync", "devices": 3, "replicas": 2, "compress": "truncate:16"},
    "aggregator": {
        "devices": 2,
        "replicas": 2,
        "exchange": "aggregator",
        "compress": "inceptionn:-8",
    },
    "groups": {
        "devices": 1,
        "replicas": 6,
        "groups": 2,
        "exchange": "aggregator",
        "compress": "inceptionn:-10",
    },
    "recurrent, sync": {"network": RECURRENT, "schedule": "sync", "devices": 5},
    "recurrent, fpdeep": {"network": RECURRENT, "schedule": "fpdeep", "devices": 3},
    "recurrent, pipedream": {"network": RECURRENT, "schedule": "pipedream", "devices": 5},
    "recurrent, replicas": {
        "network": RECURRENT,
        "devices": 4,
        "schedule": "sync",
        "replicas": 2,
        "compress": "truncate:16",
    },
    "turns": {"schedule": "1f1b-so", "devices": 3, "engines": "turns"},
    "interleaved": {
        "schedule": "interleaved",
        "devices": 2,
        "engines": "turns",
        "transport": "hidden",
    },
    "2bw on engines of their own": {
        "schedule": "2bw",
        "devices": 3,
        "engines": "split",
        "transport": "stored",
    },
    "narrow, by chance": {
        "network": NORMALISED,
        "schedule": "fpdeep",
        "devices": 3,
        "optimizer": "adam",
        "precision": (
            "mxfp8 master=bf16 states=q2.12 gradients=bf16 rounding=stochastic loss_scale=64"
        ),
    },
    "narrow, balanced": {
        "cluster": "small",
        "schedule": "sync",
        "devices": 5,
        "memory": "fpdeep",
        "balancing": "none",  # and some chosen blocks
        "precision": "mxfp4 master=q2.10",
    },
    "adam": {
        "network": NORMALISED,
        "schedule": "fpdeep",
        "devices": 3,
        "optimizer": "adam",
        "lr_schedule": "cosine",
        "lr_warm_up": 6,
        "label_smoothing": 0.1,
    },
    "adamw, balanced": {
        "network": NORMALISED,
        "cluster": "small",
        "balancing": "none",  # and some chosen blocks
        "schedule": "sync",
        "devices": 4,
        "optimizer": "adamw",
    },
    "slow boards and links": {"schedule": "fpdeep", "devices": 3, "faults": SLOW},
    "slow boards that take turns": {
        "schedule": "1f1b-so",
        "devices": 3,
        "engines": "turns",
        "faults": SLOW,
    },
    "bits flip": {"schedule": "sync", "devices": 3, "faults": FLIPS},
    "bits flip in replicas": {
        "devices": 2,
        "replicas": 2,
        "compress": "inceptionn:-10",
        "changes": COUNTED,
        "faults": GRADIENTS,
    },
    "error feedback": {
        "schedule": "data-parallel-ring",
        "devices": 4,
        "groups": 2,
        "compress": "topk:0.05",
        "error_feedback": True,
    },
    "error feedback of chains": {
        "devices": 2,
        "replicas": 2,
        "exchange": "aggregator",
        "compress": "truncate:24",
        "error_feedback": True,
        "momentum": 0,
    },
    "all at once": {
        "network": NORMALISED,
        "cluster": "small",
        "balancing": "none",  # and some chosen blocks
        "schedule": "fpdeep",
        "devices": 4,
        "replicas": 2,
        "compress": "inceptionn:-10",
        "compress_weights": "truncate:22",
        "lr_schedule": "steps:at=1",
    },
}


MakePlan = Callable[[Keys], ChainPlan]
SETTINGS = {
    "samples": SAMPLES,
    "test_samples": 7,
    "batch": 12,
    "micro_batch": 5,
    "epochs": 2,
    "checkpoint_every": 2,
}
# So an epoch has four mini-batches, the last of 6 samples, in two legs; checkpoints come at (epoch,
# mini-batch) (0, 2), (1, 0), (1, 2), (2, 0).


@dataclasses.dataclass
class Run:
    """What a run, or the part of one, has given."""

    history: list[EpochRecord]
    steps: list[StepResult]
    weights: Weights


@pytest.fixture
def planned(small_cifar: Path, small_cluster: str, many_blocks: Any, with_blocks: Any) -> MakePlan:
    """Makes the plan of a run."""

    def make(keys: Keys) -> ChainPlan:
        chosen = {key: value for key, value in keys.items() if key not in ("network", "faults")}
        if keys.get("cluster") == "small":
            chosen["cluster"] = small_cluster
        network = load_network(keys.get("network", "quick-cifar"))
        settings = {**SETTINGS, "data": str(small_cifar), "seed": 3, **chosen}
        plan = make_plan(load_config(None, settings), network=network)
        plan = dataclasses.replace(plan, faults=keys.get("faults", Faults()))
        return with_blocks(plan, many_blocks(plan)) if keys.get("balancing") == "none" else plan

    return make


class AskedAt(SingleProcess):
    """A process that is asked to end before the checkpoint of some number."""

    def __init__(self, number: int | None) -> None:
        super().__init__()
        self._left = number

    def end_wanted(self) -> int:
        """See `SingleProcess`."""
        self._left = None if self._left is None else self._left - 1
        return signal.SIGTERM if self._left == 0 else 0


def run(
    plan: ChainPlan,
    start: Path | None = None,
    target: Path | None = None,
    last: int | None = None,
    *,
    same: bool = True,
) -> Run:
    """Train from a checkpoint or from the begin, up to the checkpoint number `last`."""
    found, ranks = Run([], [], {}), AskedAt(last)

    def on_epoch(result: EpochRecord, weights: Weights) -> None:
        found.weights = weights

    reader = None if start is None else CheckpointReader(start)
    leader = Leader(
        reader,
        None if target is None else WholeFile(target),
        {},
    )
    keeping = Keeping(start is not None, target is not None, same, bool(plan.faults.flips))
    checkpoints = RunCheckpoints(plan.network, ranks, keeping, leader)
    found.history = train(
        plan,
        training_data(plan),
        ranks,
        found.steps.append,
        on_epoch,
        gather_weights=True,
        checkpoints=checkpoints,
    )
    return found


def comparable(result: EpochRecord) -> dict[str, Any]:
    """All of a result but the host's time, and the usage, which a checkpoint leaves out."""
    fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    del fields["host_time_s"], fields["usage"]
    exchanged = fields.pop("exchanged")
    fields["sizes"] = {source: sizes.tolist() for source, sizes in result.sizes.items()}
    return {
        **fields,
        "exchanged": (exchanged.traffic, exchanged.spent_ps, exchanged.histogram.tolist()),
    }


@pytest.mark.parametrize("name", RUNS)
def test_a_stopped_run_goes_on_bit_for_bit(
    planned: MakePlan, bits: Any, tmp_path: Path, name: str
) -> None:
    plan, file = planned(RUNS[name]), tmp_path / "run.ckpt"
    assert bool(plan.timing.blocks) == ("cluster" in RUNS[name])
    whole = run(plan)
    expected = [comparable(result) for result in whole.history]
    ends = simulate(plan, SAMPLES)
    assert plan.data_parallel.codec.compresses or [*ends.epoch_ends_ps] == [
        each.virtual_time_ps for each in whole.history
    ]
    for last, steps_done in ((1, 2), (2, 4), (3, 6)):
        before = run(plan, target=file, last=last)
        assert before.steps == whole.steps[: steps_done * plan.data_parallel.replicas]
        after = run(plan, start=file)
        assert [*before.steps, *after.steps] == whole.steps
        assert [comparable(result) for result in after.history] == expected
        assert after.history[-1].usage == whole.history[-1].usage
        assert bits(after.weights) == bits(whole.weights)
    if plan.data_parallel.replicas > 1:
        assert (
            after.history[-1].exchanged.traffic.value_bytes
            > after.history[-1].exchanged.traffic.compressed_bytes
        )


def test_what_the_codec_dropped_is_that_of_as_many_replicas(
    planned: MakePlan, tmp_path: Path
) -> None:
    file, fed = tmp_path / "run.ckpt", RUNS["error feedback"]
    run(planned(fed), target=file, last=1)
    with pytest.raises(InputError, match="residuals"):
        run(planned({**fed, "devices": 6}), start=file, same=False)


def test_a_run_may_stop_again_and_again(planned: MakePlan, bits: Any, tmp_path: Path) -> None:
    plan, file = planned(RUNS["all at once"]), tmp_path / "run.ckpt"
    whole = run(plan)
    parts = [run(plan, target=file, last=1)]
    while len(parts) < 4:
        parts.append(run(plan, start=file, target=file, last=1))
    assert bits(parts[-1].weights) == bits(whole.weights)
    assert [step for part in parts for step in part.steps] == whole.steps
    nothing_left = run(plan, start=file)
    assert not nothing_left.steps
    assert [comparable(each) for each in nothing_left.history] == [
        comparable(each) for each in whole.history
    ]
    assert nothing_left.history[-1].usage == whole.history[-1].usage


@pytest.mark.parametrize(
    "network", ["quick-cifar", NORMALISED, RECURRENT], ids=["quick", "normalised", "recurrent"]
)
def test_under_sync_other_devices_go_on(
    planned: MakePlan, bits: Any, tmp_path: Path, network: Any
) -> None:
    keys, file = {"network": network, "schedule": "sync", "memory": "fpdeep"}, tmp_path / "run.ckpt"
    whole = run(planned({**keys, "devices": 1}))
    before = run(planned({**keys, "devices": 5}), target=file, last=3)
    after = run(planned({**keys, "devices": 2, "micro_batch": 3}), start=file, same=False)
    assert bits(after.weights) == bits(whole.weights)
    assert [*before.steps, *after.steps][-1].virtual_time_ps > before.steps[-1].virtual_time_ps
    said = [(step.epoch, step.step, step.tally.loss) for step in (*before.steps, *after.steps)]
    assert said == [(step.epoch, step.step, step.tally.loss) for step in whole.steps]


@pytest.mark.parametrize("faults", [Faults(), SLOW], ids=["unhurt", "slow"])
@pytest.mark.parametrize("engines", ["split", "turns", "shared"])
def test_what_other_devices_have_begun_goes_on_once_more(
    planned: MakePlan, bits: Any, tmp_path: Path, engines: str, faults: Faults
) -> None:
    """Their clocks began anew, but spans of faults and virtual time are those of the whole run."""
    file, again = tmp_path / "first.ckpt", tmp_path / "second.ckpt"
    keys: Keys = {"schedule": "sync", "engines": engines, "faults": faults}
    before = run(planned({**keys, "devices": 4}), target=file, last=1)
    after = run(planned({**keys, "devices": 3}), start=file, same=False)
    run(planned({**keys, "devices": 3}), start=file, target=again, last=2, same=False)
    rest = run(planned({**keys, "devices": 3}), start=again)
    assert [epoch.virtual_time_ps for epoch in rest.history] == [
        epoch.virtual_time_ps for epoch in after.history
    ]
    assert bits(rest.weights) == bits(after.weights)
    assert rest.steps == after.steps[-len(rest.steps) :]
    if faults and engines == "split":  # sample 60 of the straggler's span is in the second epoch
        done = run(planned({**keys, "devices": 3, "faults": Faults()}), start=file, same=False)
        own_ps = [epoch.virtual_time_ps for epoch in done.history]
        assert [
            late.virtual_time_ps > own for late, own in zip(after.history, own_ps, strict=True)
        ] == [True, True]
    assert before.steps


def test_balanced_parameters_may_be_stored_elsewhere(
    planned: MakePlan, bits: Any, tmp_path: Path
) -> None:
    """Velocities of stored blocks come from where they are stored, and go where they are then."""
    keys, file = {"schedule": "sync", "memory": "fpdeep"}, tmp_path / "run.ckpt"
    stored = planned({**keys, "cluster": "small", "devices": 5})
    assert stored.timing.blocks
    whole = run(planned({**keys, "devices": 5}))
    run(stored, target=file, last=2)
    assert bits(run(planned({**keys, "devices": 3}), start=file, same=False).weights) == bits(
        whole.weights
    )
    run(planned({**keys, "devices": 3}), target=file, last=2)
    assert bits(run(stored, start=file, same=False).weights) == bits(whole.weights)


def test_draining_is_part_of_the_schedule(planned: MakePlan, bits: Any) -> None:
    """Where weights are updated while samples are in flight, a chain that drains sees newer ones;
    otherwise not.
    """
    for schedule, same in (("fpdeep", False), ("sync", True)):
        drains = run(planned({"schedule": schedule, "devices": 4}))
        goes_on = run(planned({"schedule": schedule, "devices": 4, "checkpoint_every": 4}))
        assert (bits(drains.weights) == bits(goes_on.weights)) == same, schedule
        assert (
            drains.history[-1].virtual_time_ps == goes_on.history[-1].virtual_time_ps
        ) == same, schedule


def test_velocities_matter(planned: MakePlan, bits: Any, tmp_path: Path) -> None:
    """Without them training goes on otherwise, so the tests above do compare them."""
    plan, file = planned(RUNS["sync"]), tmp_path / "run.ckpt"
    whole = run(plan)
    run(plan, target=file, last=2)
    other = tmp_path / "other.ckpt"
    cleared = 0
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(other, "w") as copy:
        for member in source.namelist():
            content = source.read(member)
            if member.endswith("velocity.npy"):
                assert any(content[128:])
                content, cleared = content[:128] + bytes(len(content) - 128), cleared + 1
            copy.writestr(member, content)
    assert cleared > 0
    assert bits(run(plan, start=other).weights) != bits(whole.weights)


def test_arrays_open_in_numpy(planned: MakePlan, tmp_path: Path) -> None:
    plan, file = planned(RUNS["normalised, sync"]), tmp_path / "run.ckpt"
    trained = run(plan, target=file, last=2)
    with np.load(file) as arrays:
        assert {name for name in arrays if name.startswith("layers/0/")} == {
            *(
                f"layers/0/{name}/{kind}"
                for name in ("weight", "bias", "scale", "shift")
                for kind in ("value", "velocity")
            ),
            *(f"layers/0/{name}/value" for name in ("mean", "variance")),
        }
        name = plan.network.layers[0].name
        assert np.array_equal(arrays["layers/0/weight/value"], trained.weights[name]["weight"])


def rewritten(file: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint with a changed text."""
    with zipfile.ZipFile(file) as source:
        members = {name: source.read(name) for name in source.namelist()}
    text = json.loads(members["checkpoint.json"])
    change(text)
    members["checkpoint.json"] = json.dumps(text).encode()
    with zipfile.ZipFile(file, "w") as copy:
        for name, content in members.items():
            copy.writestr(name, content)
    return file


def doubled(file: Path) -> None:
    """Add an array once more."""
    with zipfile.ZipFile(file, "a") as archive:
        name = next(name for name in archive.namelist() if name.endswith(".npy"))
        archive.writestr(name, archive.read(name))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "not a checkpoint": lambda file: file.write_bytes(b"PNG" * 100),
    "its first half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "a changed byte": lambda file: file.write_bytes(
        (content := file.read_bytes())[:5000] + bytes([content[5000] ^ 1]) + content[5001:]
    ),
    "another format": lambda file: rewritten(file, lambda text: text.update(format=99)),
    "no clocks": lambda file: rewritten(file, lambda text: text.pop("clocks")),
    "no history": lambda file: rewritten(file, lambda text: text.pop("history")),
    "a strange position": lambda file: rewritten(file, lambda text: text.update(position="x")),
    "an array that stands twice": doubled,
    "a layer is missing": (
        lambda file: zipfile.ZipFile(file, "w").writestr("checkpoint.json", '{"format": 1}')
    ),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_line(planned: MakePlan, tmp_path: Path, damage: str) -> None:
    plan, file = planned(RUNS["sync"]), tmp_path / "run.ckpt"
    run(plan, target=file, last=2)
    DAMAGE[damage](file)
    with pytest.raises(
        InputError, match=r"^`resume` = '.*run\.ckpt': not a readable checkpoint, [^\n]*$"
    ):
        run(plan, start=file)


def test_the_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        CheckpointReader(tmp_path / "none.ckpt")


@pytest.mark.parametrize(
    "header", ["{'descr': '<f4', 'shape': (", "1\n  2\n 3", "[" * 900, "\udcff", "(1, 2)", ""]
)
def test_headers_that_cannot_be_parsed(planned: MakePlan, tmp_path: Path, header: str) -> None:
    """NumPy's parser of headers ends on them in several ways."""
    file, bad = tmp_path / "run.ckpt", tmp_path / "bad.ckpt"
    run(planned(RUNS["sync"]), target=file, last=1)
    said = header.encode("utf-8", "surrogateescape")
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(bad, "w") as copy:
        copy.writestr("checkpoint.json", source.read("checkpoint.json"))
        copy.writestr("x.npy", b"\x93NUMPY\1\0" + len(said).to_bytes(2, "little") + said)
    with (
        CheckpointReader(bad) as reader,
        pytest.raises(InputError, match="damaged or truncated") as refused,
    ):
        reader.array("x", np.float32, (4,))
    assert len(str(refused.value).splitlines()) == 1
