"""LoRA: the first mini-batch is that of the model without adapters, gradients are PyTorch's, bits
are the same on any chain, frozen layers cost no PG, and merged weights compute what both did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network, parse_lora, with_lora

from ..networks import Table, of_images, of_table

Keys = dict[str, Any]
Bits = Callable[[Any], dict[str, bytes]]

TOKENS: Table = {
    "name": "tokens",
    "input": [3, 32, 32],
    "start": "normal",
    "layers": [
        {"type": "conv", "name": "x", "channels": 12, "kernel": 8, "stride": 8},
        {"type": "sequence"},
        {"type": "layer-norm"},
        {"type": "conv", "channels": 36, "kernel": 1},
        {"type": "attention", "name": "att", "heads": 3, "dropout": 0.1},
        {"type": "conv", "name": "p", "channels": 12, "kernel": 1},
        {"type": "relu"},
        {"type": "conv", "name": "m", "channels": 12, "kernel": 1},
        {"type": "fc", "name": "head", "features": 10},
        {"type": "softmax"},
    ],
}
MAPS = of_images(
    "maps",
    {"type": "conv", "channels": 12, "kernel": 5, "stride": 4, "pad": 2, "name": "first"},
    *({"type": "batch-norm"}, {"type": "relu", "name": "kept"}),
    {"type": "conv", "channels": 20, "kernel": 3, "pad": 1, "name": "wide"},
    *({"type": "relu"}, {"type": "conv", "channels": 12, "kernel": 1, "name": "narrow"}),
    *({"type": "add", "from": ["narrow", "kept"]}, {"type": "max-pool", "kernel": 2}),
    {"type": "fc", "features": 16, "name": "hidden"},
    {"type": "relu"},
)
KEYS: Keys = {
    **{"samples": 24, "test_samples": 10, "batch": 8, "micro_batch": 8, "schedule": "sync"},
    **{"learning_rate": 0.05, "progress": "none"},
}
RUNS: dict[str, tuple[Table, str]] = {
    "tokens": (TOKENS, "r=3,alpha=6,on=conv*"),
    "tokens, with the head": (TOKENS, "r=2,alpha=3,on=conv*,p,train=head"),
    "maps": (MAPS, "r=4,on=wide,narrow,hidden"),
    "the images": (MAPS, "r=4,alpha=1,on=first"),
}


@pytest.fixture(scope="module", params=RUNS)
def alone(request: Any) -> tuple[Table, str, Any]:
    """A network, its adapters, and their training on one board."""
    network, lora = RUNS[request.param]
    return network, lora, emuchain.train(network, lora=lora, **KEYS)


@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 2, "micro_batch": 3},
        {"devices": 5, "micro_batch": 1},
        {"devices": 8},
        {"devices": 3, "schedule": "1f1b-so"},
    ],
    ids=str,
)
def test_no_mapping_changes_a_bit(alone: Any, bits: Bits, keys: Keys) -> None:
    """And the time is that of a simulation."""
    network, lora, reference = alone
    run = emuchain.train(network, lora=lora, **{**KEYS, **keys})
    assert bits(run.weights) == bits(reference.weights)
    own = {key: KEYS[key] for key in ("samples", "batch", "schedule", "micro_batch")}
    found = emuchain.simulate(network, lora=lora, **{**own, **keys})
    assert found.virtual_time_ps == run.virtual_time_ps


def test_only_adapters_learn(alone: Any) -> None:
    """They begin as PEFT's: A uniform within 1 / √fan-in, B at 0."""
    network, lora, run = alone
    still = {**KEYS, "learning_rate": 1e-30, "weight_decay": 0.0}
    start = emuchain.train(network, lora=lora, **still).weights
    base = emuchain.train(network, **{**still, "epochs": 1}).weights
    made = with_lora(load_network(network), parse_lora(lora))
    for layer in made.layers:
        first = start[layer.name]
        for name, array in run.weights[layer.name].items():
            assert (array.tobytes() == first[name].tobytes()) == layer.frozen
        if layer.adapts is None and layer.has_weights:
            assert first["weight"].tobytes() == base[layer.name]["weight"].tobytes()
            assert layer.frozen == (layer.name != "head" or "head" not in lora)
        elif layer.name.endswith("_a"):
            bound = np.prod(layer.weight_shape[1:]) ** -0.5
            assert 0.8 * bound < np.abs(first["weight"]).max() <= bound
        elif layer.has_weights:
            assert np.abs(first["weight"]).max() <= 1e-25


def test_the_first_forward_is_that_of_the_model_alone(alone: Any) -> None:
    network, lora, _ = alone
    keys = {**KEYS, "samples": 8}
    found = emuchain.train(network, lora=lora, devices=3, **keys)
    expected = emuchain.train(network, devices=2, **keys)
    assert found.history["train_loss"][0] == expected.history["train_loss"][0]
    assert found.steps["loss"][0] == expected.steps["loss"][0]


def test_frozen_layers_cost_no_pg_and_send_no_gradients() -> None:
    """By hand: two fully connected layers, of which one has adapters of rank 2."""
    network = of_images("small", {"type": "fc", "features": 6, "name": "hidden"})
    keys: Keys = {"samples": 8, "batch": 4, "lora": "r=2,on=hidden"}
    plan = emuchain.plan(network, **keys)
    inputs = 3 * 32 * 32
    macs = [layer.macs for layer in plan.network.layers]
    # a: 3,072 to 2; b: 2 to 6; hidden: 3,072 to 6; out: 6 to 10.
    assert macs == [2 * inputs, 2 * 6, 6 * inputs, 6 * 10]
    assert [layer.pg_macs for layer in plan.network.layers] == [2 * inputs, 12, 0, 0]
    # Errors go back from `out` to `b`, and from there to `a`, whose inputs are images.
    assert [layer.has_eb for layer in plan.network.layers] == [False, True, False, True]
    learnt = 2 * inputs + 2 * 6
    [board] = plan.layout().devices
    for part, own in zip(board.slices, macs, strict=True):
        layer, memory, engines = part.part.layer, part.memory, part.engines
        assert (engines.eb is not None, engines.pg is not None) == (layer.has_eb, layer.has_pg)
        cycles = math.ceil(own / engines.fp.multipliers)
        assert engines.fp.row_ps == cycles * board.board.period_ps
        # Gradients, and inputs that wait for PG, are those of adapters alone.
        weights = math.prod(layer.weight_shape)
        assert memory.lgb.bytes == 4 * weights * (layer.adapts is not None)
        waiting = board.in_flight * 4 * math.prod(layer.input) * (layer.adapts is not None)
        assert memory.act_ram.bytes == waiting
    slowest = max(part.engines.fp.row_ps for part in board.slices)
    assert plan.timing.interval_ps == slowest
    run = emuchain.train(network, **{**keys, "test_samples": 4}, replicas=2, devices=2)
    # A ring of two sends each half twice: 4 bytes a parameter and replica, in 2 mini-batches.
    assert run.exchange["value_bytes"].tolist() == [2 * 2 * 4 * learnt]


def test_time_and_bytes_are_those_of_the_layers_that_are_added() -> None:
    """A network that has them in its file, with the others frozen, is the same."""
    network, lora = TOKENS, "r=3,alpha=6,on=p"
    before, after = TOKENS["layers"][:5], TOKENS["layers"][6:]
    by_hand = [
        *before,
        {"type": "conv", "name": "a", "channels": 3, "kernel": 1, "bias": False, "from": "att"},
        {"type": "conv", "name": "b", "channels": 12, "kernel": 1, "bias": False},
        {"type": "affine", "factor": 2.0, "name": "added"},
        {**TOKENS["layers"][5], "from": "att"},
        {"type": "add", "from": ["p", "added"]},
        *after,
    ]
    freeze = ["x", "conv1", "att", "p", "m", "head"]
    by_hand[3] = {**by_hand[3], "name": "conv1"}
    for devices, keys in ((1, {}), (3, {}), (4, {"replicas": 2, "schedule": "gpipe"})):
        own = {"devices": devices, "samples": 24, "batch": 8, **keys}
        found = emuchain.simulate(network, lora=lora, **own)
        expected = emuchain.simulate({**TOKENS, "layers": by_hand}, freeze=freeze, **own)
        assert found.virtual_time_ps == expected.virtual_time_ps
        pairs = zip(found.plan.network.layers, expected.plan.network.layers, strict=True)
        assert all(one.training_macs == other.training_macs for one, other in pairs)


def exported(network: Table, lora: str, out: Path, **how: Any) -> Any:
    """Results of a run with adapters, which are written to a file."""
    run = emuchain.train(network, lora=lora, **KEYS)
    emuchain.export(run, out, **how)
    return run


def test_files_have_the_merged_network(tmp_path: Path) -> None:
    """Which has the test of the run, in both kinds of files, to rounding."""
    pytest.importorskip("onnx")
    pytest.importorskip("safetensors")
    run = exported(MAPS, "r=2,on=wide,hidden", tmp_path / "merged.onnx")
    emuchain.export(run, tmp_path / "merged.safetensors")
    # Averages of the first layer's normalisation rest, as they did beside adapters.
    still = {**KEYS, "learning_rate": 1e-30, "weight_decay": 0.0, "freeze": ["first"]}
    for network, file in ((tmp_path / "merged.onnx",) * 2, (MAPS, tmp_path / "merged.safetensors")):
        again = emuchain.train(network, init=file, **still)
        assert not [name for name in again.weights if "lora" in name]
        found, expected = again.history["test_loss"][-1], run.history["test_loss"][-1]
        assert found == pytest.approx(expected, rel=1e-5)


def test_adapters_alone_have_the_names_of_peft(tmp_path: Path) -> None:
    of_numpy = pytest.importorskip("safetensors.numpy")
    run = exported(MAPS, "r=2,on=wide,hidden", tmp_path / "adapter.safetensors", adapter=True)
    found = of_numpy.load_file(tmp_path / "adapter.safetensors")
    expected = {}
    for layer, is_flat in (("wide", False), ("hidden", True)):
        for end in "ab":
            array = run.weights[f"{layer}_lora_{end}"]["weight"]
            key = f"base_model.model.{layer}.lora_{end.upper()}.weight"
            expected[key] = array.reshape(len(array), -1) if is_flat else array
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        assert found[key].shape == array.shape
        assert found[key].tobytes() == array.tobytes()


def test_only_runs_with_adapters_have_some(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    run, out = emuchain.train(MAPS, **KEYS), tmp_path / "adapter.safetensors"
    with pytest.raises(InputError, match="the run trained no adapters"):
        emuchain.export(run, out, adapter=True)
    with pytest.raises(InputError, match="go into a file such as adapter.safetensors"):
        emuchain.export(run, tmp_path / "adapter.onnx", adapter=True)


REFUSED = {
    "r=0,on=p": "`r` = 0: should be at least 1",
    "r=2,on=p,alpha=-1": "`alpha` = -1: should be above 0, such as 4",
    "8": "'8' of `8` should be KEY=VALUE, with one of r, on, alpha, train",
    "r=8": "`r=8` needs `on`: write `r=8,on=...`",
    "r=8 on p": "`r` of `r=8 on p` should be a whole number",
    "r=2,on=kvq*": "`on` = 'kvq*': tokens has no layer of such a name",
    "r=2,on=convs*": "did you mean `conv*`",
    "r=2,on=p,train=haed": "`train` = 'haed': tokens has no layer of such a name; did you mean `head`",
    "r=2,on=att*": "`on` = 'att*': att is of type attention; only fc and conv",
}


@pytest.mark.parametrize("lora", REFUSED)
def test_what_is_wrong_is_one_line(one_line: Any, lora: str) -> None:
    with pytest.raises(InputError) as error:
        emuchain.plan(TOKENS, lora=lora, samples=8, batch=8)
    assert REFUSED[lora] in one_line(error)


def test_a_tied_head_has_no_adapter() -> None:
    """A pattern that fits others passes it over."""
    network = of_table("tied", 20, 8, {"type": "conv", "channels": 8, "kernel": 1, "name": "inner"})
    made = with_lora(load_network(network), parse_lora("r=1,on=*"))
    assert [layer.adapts for layer in made.layers] == [None, "inner", "inner", None, None]
    with pytest.raises(InputError, match="`on` = 'head': head has the weights of table"):
        with_lora(load_network(network), parse_lora("r=1,on=head"))
    with pytest.raises(InputError, match="`train` = 'head': .* name both or none"):
        with_lora(load_network(network), parse_lora("r=1,on=inner,train=head"))
