"""`zero` = 3: replicas share weights out, too, and gather each layer's for each use: bits, times
and bytes by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

import emuchain
from emuchain.comm import Served
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.timing import exchange_name
from emuchain.kernels import withdraw

from . import test_zero
from .gpt import gpt
from .test_zero import NETWORK, RingAgain, bits_of

KEYS: dict[str, Any] = {**test_zero.KEYS, "engines": "turns", "replicas": 2}
LAYERS = (9 * 3 * 25 + 9 + 2 * 9, 12 * 9 * 9 + 12, 10 * 12 * 16 + 10)
"""Parameters of each layer; that of images has no EB."""


def trained(**keys: Any) -> tuple[dict[str, bytes], int]:
    """The bits of the weights, and the virtual time."""
    results = emuchain.train(**{**KEYS, **keys})
    return bits_of(results.weights), results.virtual_time_ps


def simulated(**keys: Any) -> Any:
    """The run without numbers."""
    given = {**KEYS, **keys}
    wanted = {key: value for key, value in given.items() if key not in ("test_samples", "progress")}
    return emuchain.simulate(**wanted)


@functools.cache
def of_ring(**keys: Any) -> dict[str, bytes]:
    """The bits of weights that four replicas share out."""
    return trained(replicas=4, **keys)[0]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"optimizer": "adam", "clip_norm": 0.01, "devices": 2, "micro_batch": 3},
        {"optimizer": "nesterov", "schedule": "data-parallel-ring", "devices": 2, "replicas": 1},
        {"replicas": 4, "exchange": "halving-doubling"},
        {"replicas": 4, "devices": 3, "stages": "layers"},
        {"freeze": ("conv1",), "schedule": "zero-bubble", "devices": 2},
        {"schedule": "2bw", "devices": 2},
        {"schedule": "interleaved", "devices": 2, "chunks": 2, "batch": 20, "micro_batch": 5},
        {"precision": {"format": "bf16", "rounding": "stochastic"}, "optimizer": "adam"},
        {"network": gpt(12, 1, 3, 16), "optimizer": "adam", "devices": 2, "epochs": 1},
    ],
    ids=str,
)
def test_weights_have_the_bits_of_the_unsharded_run(keys: dict[str, Any]) -> None:
    """Where rows, or what is done with their pieces, form each sum in the same order."""
    shared, time_ps = trained(**keys, zero=3)
    assert shared == trained(**keys)[0]
    assert time_ps == simulated(**keys, zero=3).virtual_time_ps


@pytest.mark.parametrize("keys", [{"devices": 2}, {"devices": 3}], ids=str)
def test_bits_depend_on_layers_alone(keys: dict[str, Any]) -> None:
    """Of four in a ring, whose pieces say in which order sums are formed: a layer is a row,
    wherever the chain is cut between layers.
    """
    assert of_ring(**keys, stages="layers", zero=3) == of_ring(zero=3)
    assert of_ring(devices=3, stages="layers") == of_ring(zero=3) != of_ring()


@pytest.mark.parametrize("recompute", ["none", "all", "conv2"])
@pytest.mark.parametrize("replicas", [2, 4])
def test_time_by_hand(replicas: int, recompute: str) -> None:
    """A layer is gathered before its FP, where that is done again, too, and its EB in R - 1 steps,
    of an R-th of it each, and its gradients are summed up in as many.
    """
    parameters = 8 * 27 + 8, 4 * 8 * 9 + 4, 8 * 36 + 8
    layers = [
        {"type": "conv", "channels": 8, "kernel": 3, "stride": 4},
        {"type": "conv", "channels": 4, "kernel": 3, "stride": 2},
        {"type": "fc", "features": 8},
        {"type": "softmax"},
    ]
    network = {"name": "even", "input": [3, 32, 32], "layers": layers}
    keys = {"network": network, "micro_batch": 1, "epochs": 1, "recompute": recompute}
    again = {"none": (), "all": parameters, "conv2": parameters[1:2]}[recompute]
    own, all_samples = {"batch": 2, "samples": 2}, {"batch": 2 * replicas, "samples": 2 * replicas}
    alone = simulated(**keys, **own, replicas=1)
    ring = {"replicas": replicas, "changes": {"network.topology": "ring"}}
    found = simulated(**keys, **all_samples, **ring, zero=3)
    over = found.plan.interconnect

    def steps_ps(values: int) -> int:
        return (replicas - 1) * int(over.transfer_ps(4 * values // replicas) + over.latency_ps)

    gathers_ps = sum(map(steps_ps, (*parameters, *again, *parameters[1:])))
    sums_ps = (replicas - 1) * sum(int(over.sum_ps(4 * at // replicas)) for at in parameters)
    assert found.exchange_ps == 2 * gathers_ps + sum(map(steps_ps, parameters)) + sums_ps
    assert found.virtual_time_ps - alone.virtual_time_ps == found.exchange_ps


@pytest.mark.parametrize(
    ("keys", "arrays"),
    [
        ({}, 1 / 2),
        ({"optimizer": "adam"}, 1 / 2 + 2 / 2),
        ({"optimizer": "nesterov"}, 1 / 2 + 1 / 2),
    ],
    ids=str,
)
def test_memory_by_hand(keys: dict[str, Any], arrays: float) -> None:
    """The weights of quick-cifar over 2, and its largest layer; gradients and states as at 2."""
    counts = [32 * 27 + 32, 64 * 32 * 9 + 64, 128 * 64 * 9 + 128, 128 * 2048 + 128, 1280 + 10]
    given = {"replicas": 2, "devices": 1, "schedule": "sync", "memory": "ignored", **keys}
    run = emuchain.simulate("quick-cifar", samples=128, engines="turns", zero=3, **given)
    [device] = run.usage.devices
    assert device.memory.lpram == 4 * sum(counts) / 2 + 4 * max(counts)
    assert device.memory.lgb == 4 * sum(counts) * arrays


def test_bytes_by_hand() -> None:
    """Each of R replicas sends R - 1 blocks: of gradients for each mini-batch, of weights for F and
    for B of each micro-batch. Where a layer of images has no EB, its weights are needed once.
    """
    steps, micro_batches, replicas = 3, 2 + 2 + 1, 4
    keys = {"replicas": replicas, "micro_batch": 2, "epochs": 1}
    exchange = emuchain.train(**{**KEYS, **keys}, zero=3).exchange
    sent = (replicas - 1) * 4
    assert exchange["value_bytes"].tolist() == [sent * steps * sum(LAYERS)]
    weights = sum(LAYERS) + sum(LAYERS[1:])
    assert exchange["weight_bytes"].tolist() == [sent * micro_batches * weights]
    assert "weight_bytes" not in emuchain.train(**{**KEYS, **keys}, zero=2).exchange


@pytest.mark.parametrize(
    "keys",
    [
        {"changes": {"network.topology": "ring", "network.blocking": True}, "replicas": 3},
        {"changes": {"network.topology": "switch", "network.start_us": 3, "network.send_ns": 400}},
        {"compress": "fp16", "clip_norm": 0.1, "devices": 2},
    ],
    ids=str,
)
def test_steps_and_closed_form_take_the_same_time(keys: dict[str, Any]) -> None:
    keys = {"batch": 12, "samples": 36, **keys, "zero": 3}
    emuchain.register(RingAgain)
    try:
        again = trained(**keys, exchange="ring-again")
        assert again == trained(**keys)
        assert again[1] == simulated(**keys, exchange="ring-again").virtual_time_ps
        assert again[1] == simulated(**keys).virtual_time_ps
    finally:
        withdraw(RingAgain)


@pytest.mark.parametrize(("before", "after"), [({"zero": 3}, {"zero": 0}), ({}, {"zero": 3})])
def test_a_checkpoint_has_whole_arrays(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    file, keys = str(tmp_path / "run.ckpt"), {"optimizer": "adam", "devices": 2}
    emuchain.train(**{**KEYS, **keys, "epochs": 1, **before}, checkpoint=file)
    results = emuchain.train(resume=file, epochs=2, progress="none", **after)
    assert bits_of(results.weights) == trained(**keys)[0]


def test_a_stopped_run_goes_on_in_numbers_and_time(tmp_path: Path) -> None:
    file, keys = str(tmp_path / "run.ckpt"), {"optimizer": "adam", "clip_norm": 0.1, "zero": 3}
    emuchain.train(**{**KEYS, **keys, "epochs": 1}, checkpoint=file)
    results = emuchain.train(resume=file, epochs=2, progress="none")
    assert (bits_of(results.weights), results.virtual_time_ps) == trained(**keys)


def test_all_wait_for_a_slow_replica_before_each_layer(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text("[[faults.boards]]\nboard = 1\nfactor = 1.5\n")
    keys = {"faults": str(path), "zero": 3}
    bits, time_ps = trained(**keys)
    assert bits == trained()[0]
    assert time_ps == simulated(**keys).virtual_time_ps > simulated(zero=3).virtual_time_ps


@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_ranks_give_the_same_bits(mpiexec: Any, tmp_path: Path) -> None:
    keys = {key: value for key, value in KEYS.items() if key != "network"}
    keys |= {"optimizer": "adam", "clip_norm": 0.1, "epochs": 1, "zero": 3, "replicas": 4}
    path, out = tmp_path / "small.toml", tmp_path / "run.h5"
    path.write_text(load_network(NETWORK).text)
    flags = []
    for key, value in {**keys, "out": out}.items():
        flags += [f"--{key.replace('_', '-')}", str(value)]
    mpiexec(2, ["-m", "emuchain", "train", str(path), *flags], timeout=300)
    with h5py.File(out) as file:
        weights = {
            layer: {name: array[()] for name, array in arrays.items()}
            for layer, arrays in file["weights"].items()
        }
    found = bits_of(weights), emuchain.results(str(out)).virtual_time_ps
    assert found == trained(**keys)


def test_each_gather_is_a_span() -> None:
    """Of a mini-batch of one micro-batch: three layers for F, two for B, and three of gradients."""
    spans = []

    def observer(served: Served) -> None:
        if served.resource == exchange_name(0):
            spans.append((int(served.ready_ps[0, 0]), int(served.left_ps[0, 0])))

    keys = {"batch": 8, "samples": 8, "micro_batch": 4, "epochs": 1, "zero": 3}
    run = simulated(**keys, observer=observer)
    assert len(spans) == 3 + 2 + 3
    assert sum(end - begin for begin, end in spans) == run.exchange_ps
    assert spans[-1][1] == run.virtual_time_ps
    assert all(begin >= end for (begin, _), (_, end) in zip(spans[1:], spans, strict=False))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"engines": "split"}, "`zero` = 3: engines that are split work on several layers"),
        ({"engines": "split", "transport": "stored"}, "or `engines` = 'turns'"),
        ({"schedule": "fpdeep"}, "`schedule` = 'fpdeep' splits micro-batches"),
        ({"compress": "topk:0.1", "error_feedback": True}, "`error_feedback` keeps what a codec"),
        ({"replicas": 1}, "add `replicas`, such as 2"),
        ({"exchange": "tree"}, "should be by 'ring' or 'halving-doubling', without groups"),
        (
            {"samples": 21, "micro_batch": 2},
            "leaves 1 micro-batch for some of 2 in the last mini-batch and 2 for others; try 20",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_shared_out_is_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], keys: dict[str, Any], message: str
) -> None:
    given = {key: value for key, value in KEYS.items() if key != "progress"}
    with pytest.raises(InputError) as error:
        emuchain.plan(**{**given, "zero": 3, **keys})
    assert message in one_line(error)


def test_samples_of_a_data_set_leave_all_replicas_as_many_micro_batches(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
) -> None:
    """`shapes` has 10,000 samples, and 4 are left for the last mini-batch."""
    keys = {"data": "shapes", "replicas": 3, "batch": 12, "micro_batch": 1, "samples": None}
    with pytest.raises(InputError) as error:
        simulated(**keys, zero=3)
    assert "and 2 for others; try 9999" in one_line(error)


def test_a_profile_is_refused(one_line: Callable[[pytest.ExceptionInfo[Exception]], str]) -> None:
    from emuchain.emulator.plan.zero import check_gathers

    plan = emuchain.plan(NETWORK, replicas=2, engines="turns", schedule="sync", zero=3)
    assert plan.stages is not None
    with pytest.raises(InputError) as error:
        check_gathers(plan.config, plan.stages.machine, profiled=True)
    assert "`--profile` has times of layers on boards that hold their weights" in one_line(error)
