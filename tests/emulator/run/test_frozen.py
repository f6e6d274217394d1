"""Frozen layers: what rests and what trains, to the same bits on any chain; new layers beside given
weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import DataPath
from emuchain.emulator.network import load_network, with_frozen
from emuchain.emulator.plan import ChainPlan
from emuchain.emulator.run import simulate

from ..networks import Table, of_rows, of_table

Keys = dict[str, Any]

BRANCHES: Table = {
    "name": "branches",
    "input": [3, 32, 32],
    "layers": [
        {"type": "conv", "name": "a", "channels": 18, "kernel": 5, "stride": 4, "pad": 2},
        {"type": "batch-norm"},
        {"type": "relu", "name": "first"},
        {"type": "conv", "name": "b", "channels": 18, "kernel": 3, "pad": 1},
        {"type": "relu", "name": "second"},
        {"type": "conv", "name": "c", "channels": 18, "kernel": 3, "pad": 1},
        {"type": "batch-norm"},
        {"type": "dropout", "rate": 0.2, "name": "dropped"},
        {"type": "add", "name": "joined", "from": ["dropped", "first"]},
        {"type": "conv", "name": "d", "channels": 18, "kernel": 1},
        {"type": "add", "from": ["d", "second"]},
        {"type": "max-pool", "kernel": 4},
        {"type": "fc", "name": "e", "features": 10},
        {"type": "softmax"},
    ],
}
KINDS = ["lstm", "gru"] * 2
STEPS = of_rows(
    "steps",
    *({"type": kind, "name": name, "units": 12} for kind, name in zip(KINDS, "abcd", strict=True)),
)
TOKENS: Table = {
    "name": "tokens",
    "input": [3, 32, 32],
    "start": "normal",
    "layers": [
        {"type": "sequence"},
        {"type": "conv", "name": "x", "channels": 12, "kernel": 1},
        {"type": "conv", "name": "qkv", "channels": 36, "kernel": 1},
        {"type": "attention", "name": "att", "heads": 3, "dropout": 0.1},
        {"type": "layer-norm"},
        {"type": "conv", "name": "p", "channels": 12, "kernel": 1},
        {"type": "add", "from": ["p", "x"]},
        {"type": "layer-norm"},
        {"type": "conv", "name": "m", "channels": 12, "kernel": 1},
        {"type": "fc", "name": "e", "features": 10},
        {"type": "softmax"},
    ],
}
SETTINGS: Keys = {
    "samples": 36,
    "test_samples": 7,
    "batch": 12,
    "micro_batch": 5,
    "epochs": 2,
    "schedule": "sync",
}
NARROW = "mxfp8 master=bf16 gradients=bf16 rounding=stochastic loss_scale=64"
RUNS: dict[str, tuple[Table | str, list[str], Keys]] = {
    "first layers": ("quick-cifar", ["conv1:conv2"], {}),
    "all but the last": ("quick-cifar", ["conv1:fc1"], {}),
    "in the middle": ("quick-cifar", ["conv2", "fc1"], {}),
    "the last": ("quick-cifar", ["fc2"], {}),
    "before and behind shortcuts": (BRANCHES, ["a", "b"], {}),
    "beside one that trains": (BRANCHES, ["a", "c", "e"], {}),
    "first steps": (STEPS, ["a", "b"], {}),
    "inner steps": (STEPS, ["a", "c"], {}),
    "tokens": (TOKENS, ["x:qkv"], {}),
    "tokens with their norm": (TOKENS, ["x:att"], {}),
    "tokens, in the middle": (TOKENS, ["qkv", "p"], {}),
    "adam, clipped": ("quick-cifar", ["conv1"], {"optimizer": "adam", "clip_norm": 0.5}),
    "narrow": ("quick-cifar", ["conv1:conv2"], {"precision": NARROW}),
}


def plan(network: Table | str, **keys: Any) -> ChainPlan:
    """The plan of a run."""
    made = emuchain.plan(network, **{**SETTINGS, **keys})
    assert isinstance(made, ChainPlan)
    return made


def named(network: Table | str, freeze: list[str]) -> set[str]:
    """The names of the layers that rest."""
    return {
        layer.name for layer in with_frozen(load_network(network), freeze).layers if layer.frozen
    }


@pytest.mark.parametrize("name", RUNS)
def test_frozen_layers_rest_and_others_train(trained: Any, bits: Any, name: str) -> None:
    """To the same bits on one device and on several, and in the time that a simulation gives."""
    network, freeze, keys = RUNS[name]
    start = trained(
        plan(
            network,
            **{**keys, "freeze": freeze, "epochs": 1, "learning_rate": 1e-30, "weight_decay": 0.0},
        )
    )
    alone = trained(plan(network, freeze=freeze, **keys))
    rests = named(network, freeze)
    for layer, arrays in alone.weights.items():
        for kind, array in arrays.items():
            same = array.tobytes() == start.weights[layer][kind].tobytes()
            assert same == (layer in rests), f"{layer}/{kind}"
    for devices in (2, 3, 4):
        several = plan(network, freeze=freeze, devices=devices, **keys)
        found = trained(several)
        assert bits(found.weights) == bits(alone.weights), devices
        assert [each.virtual_time_ps for each in found.history] == [
            *simulate(several, 36).epoch_ends_ps
        ]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b-as", "1f1b-so", "zero-bubble"])
def test_other_schedules_that_drain_give_the_same_bits(
    trained: Any, bits: Any, schedule: str
) -> None:
    keys: Keys = {"freeze": ["a", "c"], "batch": 12, "micro_batch": 4}
    expected = trained(plan(BRANCHES, **keys))
    assert bits(trained(plan(BRANCHES, **keys, schedule=schedule, devices=3)).weights) == bits(
        expected.weights
    )


@pytest.mark.parametrize(
    "keys", [{"schedule": "fpdeep"}, {"schedule": "pipedream"}, {"schedule": "2bw"}], ids=str
)
def test_with_old_weights_frozen_layers_rest_too(trained: Any, keys: Keys) -> None:
    found = trained(plan("quick-cifar", freeze=["conv1:conv2"], devices=4, **keys))
    start = trained(plan("quick-cifar", learning_rate=1e-30, weight_decay=0.0, epochs=1))
    for layer in ("conv1", "conv2"):
        assert found.weights[layer]["weight"].tobytes() == start.weights[layer]["weight"].tobytes()
    assert found.weights["fc1"]["weight"].tobytes() != start.weights["fc1"]["weight"].tobytes()


@pytest.mark.parametrize(
    "keys",
    [
        {"schedule": "data-parallel-ring", "devices": 3},
        {"replicas": 2, "devices": 3, "exchange": "aggregator"},
        {"replicas": 2, "devices": 3, "compress": "topk:0.1", "error_feedback": True},
    ],
    ids=str,
)
def test_replicas_exchange_what_trains(trained: Any, keys: Keys) -> None:
    frozen = plan("quick-cifar", freeze=["conv1:conv3"], **keys)
    found, whole = trained(frozen), plan("quick-cifar", **keys)
    assert [each.virtual_time_ps for each in found.history] == [*simulate(frozen, 36).epoch_ends_ps]
    values = [
        sum(each.timing.streams(n).gradient_values for n in range(each.stage_count))
        for each in (frozen, whole)
    ]
    resting = sum(
        layer.parameters
        for layer in whole.network.layers
        if layer.name in ("conv1", "conv2", "conv3")
    )
    assert values[0] == values[1] - resting


def test_a_checkpoint_goes_on_bit_for_bit(trained: Any, bits: Any, tmp_path: Path) -> None:
    keys: Keys = {**SETTINGS, "freeze": ["a", "c"], "optimizer": "adam", "devices": 3}
    whole = emuchain.train(BRANCHES, **keys)
    emuchain.train(BRANCHES, **{**keys, "epochs": 1}, checkpoint=str(tmp_path / "run.ckpt"))
    found = emuchain.train(resume=str(tmp_path / "run.ckpt"), epochs=2)
    assert bits(found.weights) == bits(whole.weights)
    assert repr(found) == repr(whole)  # with the virtual time


def test_what_rests_takes_no_time_no_memory_and_no_traffic() -> None:
    whole, frozen = (
        plan("quick-cifar", devices=3),
        plan("quick-cifar", devices=3, freeze=["conv1:conv2"]),
    )
    held = {part.layer.name: (part, engines) for device, of_device in enumerate(frozen.timing.engines)
            for part, engines in zip(frozen.mapping.devices[device], of_device, strict=True)}  # fmt: skip
    for name in ("conv1", "conv2"):
        assert held[name][1].eb is None and held[name][1].pg is None
    assert held["conv3"][1].eb is None and held["conv3"][1].pg is not None
    assert frozen.timing.interval_ps < whole.timing.interval_ps
    fixed = {tensor.number for tensor in frozen.network.tensors if tensor.fixed}
    back = (DataPath.OUTPUT_ERRORS, DataPath.INPUT_ERRORS)
    for link, streams in enumerate(frozen.timing.links):
        for stream in (stream for stream in streams if stream.path in back):
            assert (stream.sample_bytes == 0) == (stream.number in fixed), (link, stream)
    one, other = (emuchain.simulate(each).usage.devices[0].memory for each in (whole, frozen))
    assert other.lgb < one.lgb


@pytest.mark.parametrize("memory", ["modelled", "ignored", "fpdeep"])
def test_frozen_parameters_stay_on_their_board(
    trained: Any, bits: Any, small_cluster: str, memory: str
) -> None:
    """Others are stored elsewhere."""
    keys: Keys = {
        "freeze": ["conv2", "fc1"],
        "batch": 12,
        "cluster": small_cluster,
        "memory": memory,
    }
    expected = bits(trained(plan("quick-cifar", **keys)).weights)
    for devices in (4, 6):
        several = plan("quick-cifar", **keys, devices=devices)
        assert not [block for block in several.timing.blocks if block.layer.frozen]
        assert bits(trained(several).weights) == expected


def test_a_frozen_head_still_sends_errors_back() -> None:
    made = plan("quick-cifar", freeze=["fc2"])
    *_, last = made.timing.engines[0]
    assert last.eb is not None and last.pg is None


@pytest.mark.parametrize(
    ("freeze", "said"),
    [
        (["conv9"], "`freeze` = 'conv9': quick-cifar has no layer 'conv9'; did you mean `conv3`?"),
        (
            ["conv2:conv1"],
            (
                "`freeze` = 'conv2:conv1': conv1 comes before conv2; should be FIRST:LAST in the"
                " order of the network"
            ),
        ),
        (["conv1:fc2"], "`freeze`: no parameters of quick-cifar are left to train"),
    ],
)
def test_what_cannot_be_frozen_is_reported_in_a_line(
    freeze: list[str], said: str, one_line: Any
) -> None:
    with pytest.raises(InputError) as error:
        plan("quick-cifar", freeze=freeze)
    assert said in one_line(error)


def test_tied_weights_rest_together() -> None:
    network = of_table(
        "tied", 11, 8, {"type": "conv", "name": "mid", "channels": 8, "kernel": 1}, steps=6
    )
    with pytest.raises(
        InputError, match="head has the weights of table, so they train or rest together"
    ):
        with_frozen(load_network(network), ["table"])
    rests = with_frozen(load_network(network), ["table", "head"])
    assert [layer.name for layer in rests.layers if layer.learns] == ["mid"]
    shared, apart = (
        plan(network, devices=3, freeze=freeze).timing.tied for freeze in ([], ["table", "head"])
    )
    assert shared and not apart


def wider(features: int) -> Table:
    """quick-cifar's kin with a head for another number of classes, or the same."""
    layers = [
        {"type": "conv", "name": "a", "channels": 8, "kernel": 5, "stride": 4},
        {"type": "batch-norm"},
        {"type": "relu"},
        {"type": "fc", "name": "head", "features": features},
        {"type": "softmax"},
    ]
    return {"name": "kin", "input": [3, 32, 32], "layers": layers}


def four_classes(folder: Path) -> Path:
    """Images of four classes."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 32, 32, 3), np.uint8)
    np.savez(folder / "four.npz", images=images, labels=np.arange(60) % 4)
    return folder / "four.npz"


@pytest.mark.parametrize("devices", [1, 2])
def test_a_new_head_is_drawn_and_the_rest_is_given(bits: Any, tmp_path: Path, devices: int) -> None:
    """Also where its shape is another one."""
    file = str(tmp_path / "before.h5")
    before = emuchain.train(wider(4), **SETTINGS, out=file, data=str(four_classes(tmp_path)))
    still: Keys = {
        **SETTINGS,
        "learning_rate": 1e-30,
        "weight_decay": 0.0,
        "epochs": 1,
        "devices": devices,
    }
    with pytest.raises(InputError, match="`weight` of layer head of kin is 4x"):
        emuchain.train(wider(10), **still, init=file)
    found = emuchain.train(wider(10), **still, init=file, new_layers=["head"], freeze=["a"])
    drawn = emuchain.train(wider(10), **still)
    assert bits({"a": found.weights["a"]}) == bits({"a": before.weights["a"]})
    assert np.array_equal(found.weights["head"]["weight"], drawn.weights["head"]["weight"])


def test_new_layers_need_given_ones(one_line: Any) -> None:
    with pytest.raises(InputError) as error:
        plan("quick-cifar", new_layers=["fc2"])
    assert "`new_layers` = 'fc2': without `init`, the seed draws all layers" in one_line(error)
