"""`zero`: replicas share out what updates keep (ZeRO): the bits of the unsharded run, times alike
in simulation and training, memory by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.comm import Served
from emuchain.comm.collective import as_text
from emuchain.comm.collective.rings import Ring
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import OffChip, Slice, WeightBanks, stored_bytes, update_bytes
from emuchain.emulator.network import load_network
from emuchain.emulator.number import Sharing, Storage, precision_of
from emuchain.emulator.plan import exchange_times
from emuchain.emulator.timing import exchange_name
from emuchain.kernels import withdraw
from emuchain.kernels.number import FP32
from emuchain.kernels.optimizers.adam import Adam

from .gpt import gpt

NETWORK = {
    "name": "small",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "channels": 9, "kernel": 5, "stride": 3},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "conv", "channels": 12, "kernel": 3, "stride": 2},
        {"type": "relu"},
        {"type": "fc", "features": 10},
        {"type": "softmax"},
    ],
}
KEYS: dict[str, Any] = {
    "network": NETWORK,
    "devices": 1,
    "replicas": 4,
    "batch": 16,
    "samples": 40,  # so that the last mini-batch of an epoch is shared unevenly
    "test_samples": 4,
    "schedule": "sync",
    "epochs": 2,
    "seed": 1,
    "progress": "none",
}
PARAMETERS = 9 * 3 * 25 + 9 + 2 * 9 + 12 * 9 * 9 + 12 + 10 * 12 * 16 + 10


def bits_of(weights: Any) -> dict[str, bytes]:
    """The bits of all weights."""
    return {
        f"{layer}/{name}": np.asarray(array).tobytes()
        for layer, arrays in weights.items()
        for name, array in arrays.items()
    }


def trained(**keys: Any) -> tuple[dict[str, bytes], int]:
    """The bits of the weights, and the virtual time."""
    results = emuchain.train(**{**KEYS, **keys})
    return bits_of(results.weights), results.virtual_time_ps


def simulated(**keys: Any) -> int:
    """The virtual time without numbers."""
    given = {**KEYS, **keys}
    wanted = {key: value for key, value in given.items() if key not in ("test_samples", "progress")}
    return emuchain.simulate(**wanted).virtual_time_ps


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"optimizer": "nesterov", "clip_norm": 0.3, "devices": 2},
        {"optimizer": "adam", "clip_norm": 0.01, "replicas": 2},
        {"optimizer": "adamw", "replicas": 3, "batch": 15, "samples": 30},
        {"optimizer": "adam", "exchange": "halving-doubling"},
        {"optimizer": "adam", "freeze": ("conv1",), "devices": 2, "replicas": 2},
        {"optimizer": "adam", "engines": "turns", "devices": 2, "replicas": 2},
        {"optimizer": "adam", "schedule": "data-parallel-ring", "devices": 4, "replicas": 1},
        {
            "optimizer": "adam",
            "precision": {
                "format": "bf16",
                "master": "fp16",
                "states": "bf16",
                "rounding": "stochastic",
            },
        },
        {"network": "lstm-rows", "optimizer": "adam", "devices": 2, "replicas": 2, "epochs": 1},
        {"network": gpt(12, 1, 3, 16), "optimizer": "adam", "devices": 2, "epochs": 1},
        {"precision": {"format": "bf16", "master": "bf16", "loss_scale": 8}, "optimizer": "adam"},
    ],
    ids=str,
)
def test_weights_have_the_bits_of_the_unsharded_run(keys: dict[str, Any]) -> None:
    bits, time_ps = trained(**keys)
    shared, of_shared_ps = trained(**keys, zero=1)
    assert shared == bits
    assert of_shared_ps == simulated(**keys, zero=1)
    # An update of a share takes no longer, and both halves as long as the whole; but for the norm.
    assert of_shared_ps <= time_ps or "clip_norm" in keys


def test_without_a_pipeline_that_drains_times_are_those_of_simulation() -> None:
    keys = {"schedule": "fpdeep", "replicas": 2, "devices": 3, "optimizer": "adam", "zero": 2}
    assert trained(**keys)[1] == simulated(**keys)


class Counting(Adam):
    """Adam that notes how many values each of its updates changes, and its states have."""

    name: ClassVar[str] = "counting"
    seen: ClassVar[list[tuple[int, int]]] = []

    def update(self, value: Any, gradient: Any, states: Any, **keys: Any) -> None:
        self.seen.append((value.size, sum(state.size for state in states.values())))
        super().update(value, gradient, states, **keys)


@pytest.fixture
def counting() -> Iterator[list[tuple[int, int]]]:
    """What its updates change."""
    emuchain.register(Counting)
    Counting.seen.clear()
    yield Counting.seen
    withdraw(Counting)


def test_each_replica_updates_its_share_alone(counting: list[tuple[int, int]]) -> None:
    """In all an update changes each parameter once, where replicas else change all of them each."""
    steps, replicas = 3, KEYS["replicas"]
    trained(optimizer="counting", epochs=1)
    assert sum(values for values, _ in counting) >= steps * replicas * PARAMETERS
    counting.clear()
    trained(optimizer="counting", epochs=1, zero=1)
    assert sum(values for values, _ in counting) == steps * PARAMETERS
    assert all(states == 2 * values for values, states in counting)


@pytest.mark.parametrize(
    ("keys", "arrays"),
    [
        # LPRAM, then LGB: gradients, and Adam's two moments.
        ({"optimizer": "adam"}, 1 + 2),
        ({"optimizer": "adam", "zero": 1}, 1 + 2 / 2),
        ({"optimizer": "adam", "zero": 2}, 1 / 2 + 2 / 2),
        ({"optimizer": "nesterov", "zero": 1}, 1 + 1 / 2),
        # SGD's velocity takes no room beside the sum of gradients.
        ({"zero": 1}, 1),
        ({"zero": 2}, 1 / 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("engines", ["split", "turns"])
def test_memory_by_hand(keys: dict[str, Any], arrays: float, engines: str) -> None:
    """quick-cifar's arrays, of 4 bytes a value, all have a multiple of 2 values."""
    counts = [32 * 27 + 32, 64 * 32 * 9 + 64, 128 * 64 * 9 + 128, 128 * 2048 + 128, 1280 + 10]
    given = {"replicas": 2, "devices": 1, "schedule": "sync", "memory": "ignored", **keys}
    plan = emuchain.plan("quick-cifar", engines=engines, **given)
    usage = emuchain.simulate("quick-cifar", samples=128, engines=engines, **given).usage
    [device] = usage.devices
    assert device.memory.lpram == 4 * sum(counts)
    assert device.memory.lgb == 4 * sum(counts) * arrays
    if engines == "split":
        [laid] = plan.layout().devices
        assert sum(held.memory.lgb.bytes for held in laid.slices) == 4 * sum(counts) * arrays


def test_banks_and_off_chip_bytes_by_hand() -> None:
    """4,096 inputs of VGG-16's fc7: 100 of them have 409,600 weights, on 4 replicas 102,400
    each.
    """
    fc7 = next(layer for layer in load_network("vgg16").layers if layer.name == "fc7")
    part, whole = Slice(fc7, 0, 100), Storage.all_in(FP32, 4)
    one, two = (whole.shared_out(Sharing(zero, 4)) for zero in (1, 2))
    assert [kept.shares for kept in (whole, one, two)] == [(), (1, 1, 4, 4), (1, 4, 4, 4)]
    banks = [WeightBanks.of(part, kept).of_channels(100) for kept in (whole, one, two)]
    # A bank has 512 words: 800 of all weights, 200 of a share.
    assert banks == [4 * 800, 2 * 800 + 2 * 200, 800 + 3 * 200]
    off = OffChip(channels=100)
    sizes = [stored_bytes(part, off, 1, kept) for kept in (whole, one, two)]
    assert sizes == [4 * 1_638_400, 2 * 1_638_400 + 2 * 409_600, 1_638_400 + 3 * 409_600]
    moved = [update_bytes(part, off, kept) for kept in (whole, one, two)]
    assert moved == [2 * 2 * 1_638_400, 2 * 2 * 409_600, 2 * 2 * 409_600]


def test_a_master_copy_is_shared_out_as_states_are() -> None:
    """bf16 with fp32: 2 + 4 bytes, and 4 + 2 x 4 of master copy and moments; biases have none."""
    storage = precision_of({"format": "bf16"}).storage(2)
    shared = storage.shared_out(Sharing(1, 2))
    assert [number.name for number, _ in shared.kept] == ["bf16", *["fp32"] * 4]
    assert [shares for _, shares in shared.kept] == [1, 1, 2, 2, 2]
    assert shared.bias_shares == (1, 1, 2, 2)
    assert shared.bias_bytes(10) == 40 + 40 + 20 + 20
    fed = shared.with_residuals(1)
    assert (fed.kept[-1], fed.bias_shares) == ((FP32, 1), (1, 1, 2, 2, 1))
    assert storage.shared_out(Sharing(0, 2)) == storage
    single = precision_of("fp32").storage(2)
    rooms = []
    for zero in range(3):
        kept = single.shared_out(Sharing(zero, 4)).with_residuals(1).kept
        rooms.append(sum(1 / shares for _, shares in kept))
    assert rooms == [5, 3.5, 2.75]


def test_an_update_takes_a_share_of_its_time() -> None:
    """Of conv3's banks of 128 words 64 are on each of 2 replicas; halves take as long as the
    whole.
    """
    keys = {"network": "quick-cifar", "replicas": 2, "batch": 32, "samples": 32, "epochs": 1}
    keys |= {"memory": "ignored", "optimizer": "adam"}
    given = {key: keys[key] for key in ("replicas", "memory", "batch")}
    whole, shared = (
        emuchain.plan("quick-cifar", devices=1, schedule="sync", **given, zero=zero)
        for zero in (0, 1)
    )
    cycle_ps = whole.cluster.board(0).period_ps
    assert simulated(**keys) - simulated(**keys, zero=1) == (128 - 64) * cycle_ps
    [alone] = exchange_times(whole.timing, whole.data_parallel)
    assert exchange_times(shared.timing, shared.data_parallel) == [alone + 64 * cycle_ps]


class RingAgain(Ring):
    """INCEPTIONN's ring under another name, so that simulation plays its steps."""

    name: ClassVar[str] = "ring-again"


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"clip_norm": 0.1, "devices": 2},
        {"changes": {"network.topology": "ring", "network.blocking": True}},
        {"changes": {"network.topology": "switch", "network.start_us": 3, "network.send_ns": 400}},
        {"compress": "fp16"},
        {"compress": "topk:0.1", "error_feedback": True},
    ],
    ids=str,
)
def test_steps_and_closed_form_take_the_same_time(keys: dict[str, Any]) -> None:
    emuchain.register(RingAgain)
    try:
        again = trained(**keys, zero=1, exchange="ring-again")
        assert again == trained(**keys, zero=1)
        assert again[1] == simulated(**keys, zero=1, exchange="ring-again")
        assert again[1] == simulated(**keys, zero=1)
    finally:
        withdraw(RingAgain)


@pytest.mark.parametrize(
    ("before", "after"), [({"zero": 1}, {"zero": 2}), ({"zero": 2}, {"zero": 0}), ({}, {"zero": 1})]
)
def test_a_checkpoint_has_whole_arrays(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The run goes on with another stage, and has the bits of one that was never stopped."""
    file, keys = str(tmp_path / "run.ckpt"), {"optimizer": "adam", "devices": 2, "replicas": 2}
    whole, _ = trained(**keys)
    emuchain.train(**{**KEYS, **keys, "epochs": 1, **before}, checkpoint=file)
    results = emuchain.train(resume=file, epochs=2, progress="none", **after)
    assert bits_of(results.weights) == whole


def test_a_stopped_run_goes_on_in_numbers_and_time(tmp_path: Path) -> None:
    file, keys = str(tmp_path / "run.ckpt"), {"optimizer": "adam", "clip_norm": 0.1, "zero": 1}
    emuchain.train(**{**KEYS, **keys, "epochs": 1}, checkpoint=file)
    results = emuchain.train(resume=file, epochs=2, progress="none")
    assert (bits_of(results.weights), results.virtual_time_ps) == trained(**keys)


def test_replicas_that_are_not_ready_at_once_take_the_time_of_simulation(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text("[[faults.boards]]\nboard = 1\nfactor = 1.5\n")
    keys = {"faults": str(path), "zero": 1, "clip_norm": 0.1}
    bits, time_ps = trained(**keys)
    assert bits == trained(clip_norm=0.1)[0]
    assert time_ps == simulated(**keys) > simulated(clip_norm=0.1, zero=1)


def test_a_codec_keeps_the_stage(tmp_path: Path) -> None:
    file = str(tmp_path / "run.ckpt")
    emuchain.train(**{**KEYS, "epochs": 1, "zero": 1, "compress": "fp16"}, checkpoint=file)
    with pytest.raises(InputError, match=r"`zero` = 0: .* `compress` = fp16 depend on it"):
        emuchain.train(resume=file, epochs=2, zero=0)


@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_same_bits(mpiexec: Any, tmp_path: Path, ranks: int) -> None:
    keys = {key: value for key, value in KEYS.items() if key != "network"}
    keys |= {"optimizer": "adam", "clip_norm": 0.1, "epochs": 1, "zero": 2}
    path, out = tmp_path / "small.toml", tmp_path / "run.h5"
    path.write_text(load_network(NETWORK).text)
    bits, time_ps = trained(**keys)
    flags = []
    for key, value in {**keys, "out": out}.items():
        flags += [f"--{key.replace('_', '-')}", str(value)]
    mpiexec(ranks, ["-m", "emuchain", "train", str(path), *flags], timeout=300)
    with h5py.File(out) as file:
        weights = {
            layer: {name: array[()] for name, array in arrays.items()}
            for layer, arrays in file["weights"].items()
        }
    assert bits_of(weights) == bits
    assert emuchain.results(str(out)).virtual_time_ps == time_ps


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"zero": 4}, "`zero` = 4"),
        ({"replicas": 1}, "add `replicas`, such as 2"),
        ({"exchange": "tree"}, "should be by 'ring' or 'halving-doubling', without groups"),
        ({"exchange": "aggregator"}, "exchange by aggregator: its steps do not leave each of 4"),
        ({"groups": 2}, "exchange by ring in 2 groups: its steps do not leave"),
        (
            {"schedule": "data-parallel-aggregator", "devices": 4, "replicas": 1},
            "exchange by aggregator: its steps do not leave each of 4",
        ),
        ({"compress_weights": "truncate:16"}, "`compress_weights` = 'truncate:16' is of whole"),
        ({"precision": {"format": "mxfp8"}}, "blocks of mxfp8 lie across the shares of replicas"),
        ({"precision": {"states": "mxfp8"}}, "such as `precision.states` = 'bf16'"),
    ],
    ids=str,
)
def test_what_cannot_be_shared_out_is_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], keys: dict[str, Any], message: str
) -> None:
    given = {key: value for key, value in KEYS.items() if key != "progress"}
    with pytest.raises(InputError) as error:
        emuchain.plan(**{**given, "zero": 1, **keys})
    assert message in one_line(error)


def test_faults_that_flip_bits_are_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], tmp_path: Path
) -> None:
    path = tmp_path / "faults.toml"
    path.write_text('[[faults.flips]]\nof = "weights"\nrate = 1e-6\n')
    given = {key: value for key, value in KEYS.items() if key != "progress"}
    with pytest.raises(InputError) as error:
        emuchain.plan(**given, zero=1, faults=str(path))
    assert "`faults.flips`: where bits flip replicas differ" in one_line(error)


def test_weights_of_others_are_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
) -> None:
    """Those that a head shares with an embedding, and those that boards store for others."""
    for network, keys, message in (
        (gpt(12, 1, 3, 16, tied=True), {}, "whose gradients are added up after the exchange"),
        ("vgg16-cifar", {"devices": 32, "memory": "fpdeep"}, "add `balancing` = 'none'"),
    ):
        with pytest.raises(InputError) as error:
            emuchain.plan(network, **{"devices": 2, "replicas": 2, "zero": 1, **keys})
        assert message in one_line(error)


def test_steps_from_a_file_are_shared_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.txt"
    path.write_text(as_text(Ring().phases(4)))
    keys = {"changes": {"network.topology": "switch"}, "zero": 1}
    assert trained(**keys, exchange=str(path)) == trained(**keys)


@pytest.mark.parametrize("keys", [{}, {"clip_norm": 0.1}], ids=str)
def test_an_exchange_is_one_span_for_each_mini_batch(keys: dict[str, Any]) -> None:
    """From the sums to the weights, with the update in it."""
    given = {key: value for key, value in KEYS.items() if key not in ("test_samples", "progress")}
    spans = []

    def observer(served: Served) -> None:
        if served.resource == exchange_name(0):
            spans.append((int(served.ready_ps[0, 0]), int(served.left_ps[0, 0])))

    run = emuchain.simulate(**given, **keys, zero=1, observer=observer)
    ends = [end for _, end in spans]
    assert len(spans) == 2 * 3
    assert all(begin >= end for (begin, _), end in zip(spans[1:], ends, strict=False))
    assert ends[-1] == run.virtual_time_ps
    assert sum(end - begin for begin, end in spans) > run.exchange_ps
