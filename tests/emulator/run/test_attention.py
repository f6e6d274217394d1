"""Transformers on chains: times by hand, the same bits on any mapping, and PyTorch's losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import emuchain
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import Slice
from emuchain.emulator.network import load_network
from emuchain.emulator.run import Weights, simulate

from ...kernels.every_form import printed_in_every_form
from ..counted import COUNTED
from .gpt import Table, conv, gpt, trained_beside_pytorch, vit, written

KEYS: Table = {
    "schedule": "sync",
    "batch": 16,
    "samples": 32,
    "test_samples": 4,
    "learning_rate": 0.01,
}
TEXT: Table = {"data": "text", "network": "gpt"}


def toy(*, causal: bool) -> Table:
    attention = {"type": "attention", "heads": 2, "causal": causal}
    return {
        "name": "toy",
        "input": [1, 3, 1],
        "layers": [conv(6, "qkv", bias=False), attention, {"type": "softmax"}],
    }


BOARDS: Table = {
    "name": "toy",
    "boards": [
        {
            "name": f"b{dsp}",
            "clock_mhz": 100,
            "dsp": dsp,
            "dsp_share": 1,
            "on_chip_memory_kbit": 4000,
        }
        for dsp in (13, 7)
    ],
    "links": {"bandwidth_gbps": 6.4, "latency_ns": 100},
}


@pytest.mark.parametrize(
    ("causal", "samples", "time_ns"),
    [(True, 1, 460), (True, 2, 520), (False, 1, 600), (False, 2, 690)],
)
def test_times_by_hand(causal: bool, samples: int, time_ns: int) -> None:
    """docs/time-model.md: two heads on two devices; causal rows follow one another, full ones wait
    for the last.
    """
    plan = emuchain.plan(
        toy(causal=causal), BOARDS, devices=2, samples=samples, batch=samples, schedule="sync"
    )
    assert [str(part) for slices in plan.mapping.devices for part in slices] == [
        "qkv[0:6] OCP",
        "attention1[0:1] OCP",
        "attention1[1:2] OCP",
    ]
    assert simulate(plan, samples).virtual_time_ps == time_ns * 1000


@pytest.mark.parametrize("sharing", [1, 2])
def test_bytes_by_hand(sharing: int) -> None:
    """Before head 2 of 3, of 4 channels each: path 1 and 4 carry 3 * 4 channels, 2 and 3 the 8 of
    two heads.

    With groups of two heads that share k and v these are 4 * 4 and 16. Act-RAM holds two numbers
    for each head, too.
    """
    heads = {"heads": 3 * sharing, **({"kv_heads": 3} if sharing > 1 else {})}
    own = [conv(12 * (sharing + 2), "qkv"), {"type": "attention", **heads}]
    layers = [*own, {"type": "fc", "features": 3}, {"type": "softmax"}]
    boards = {**BOARDS, "boards": [{**BOARDS["boards"][0], "dsp": 40}]}
    network = {"name": "n", "input": [5, 7, 1], "layers": layers}
    plan = emuchain.plan(network, boards, devices=6, batch=1, samples=1, schedule="sync")
    cuts = [
        {stream.path.value: stream.row_bytes for stream in plan.timing.links[device]}
        for device, slices in enumerate(plan.mapping.devices[:-1])
        if (slices[-1].layer.name, slices[-1].end) == ("attention1", 2)
    ]
    before, beyond = 4 * 4 * (sharing + 2), 4 * 8 * sharing
    assert cuts == [{1: before, 2: beyond, 3: beyond, 4: before}]
    attention = plan.network.layers[1]
    part = Slice(attention, 0, 2)
    assert (len(part.in_channels), part.kept_values) == (2 * 4 * (sharing + 2), 2 * 7 * 2 * sharing)
    assert part.macs == 2 * sharing * 7 * (2 * 4 * 7) and part.eb_macs == 2 * sharing * 7 * (
        5 * 4 * 7
    )


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Table], str]:
    folder = tmp_path_factory.mktemp("networks")

    def to_file(network: Table) -> str:
        return written(folder / f"{len(list(folder.iterdir()))}.toml", network)

    return to_file


NETWORKS: dict[str, tuple[Table, Table]] = {
    "gpt": (gpt(24, 2, 3, 16), {"data": "text"}),
    "gpt like Llama": (
        gpt(24, 1, 6, 9, "rms-norm", kv_heads=3, dropout=0.2, scale=1.0),
        {"data": "text", "optimizer": "adamw"},
    ),
    "vit": (vit(36, 1, 3, dropout=0.3), {}),
}


@pytest.fixture(scope="module")
def files(write: Callable[[Table], str]) -> dict[str, Table]:
    return {
        name: {**KEYS, **keys, "network": write(network)}
        for name, (network, keys) in NETWORKS.items()
    }


@pytest.fixture(scope="module")
def references(files: dict[str, Table], plan_of: Any, trained: Any) -> dict[str, Weights]:
    return {
        name: trained(plan_of(**keys, devices=1, micro_batch=16)).weights
        for name, keys in files.items()
    }


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "keys",
    [
        {"devices": 2, "micro_batch": 4},
        {"devices": 3, "micro_batch": 1},
        {"devices": 5, "micro_batch": 16},
        {"devices": 8, "micro_batch": 4},
        {"devices": 3, "schedule": "gpipe", "engines": "turns"},
        {"devices": 2, "schedule": "1f1b-as"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_bits_do_not_depend_on_the_mapping(
    files: dict[str, Table],
    references: dict[str, Weights],
    plan_of: Any,
    trained: Any,
    bits: Any,
    name: str,
    keys: Table,
) -> None:
    assert bits(trained(plan_of(**{**files[name], **keys})).weights) == bits(references[name])


@pytest.mark.parametrize("name", ["gpt", "gpt like Llama"])
def test_a_layer_is_cut_within_its_heads(files: dict[str, Table], plan_of: Any, name: str) -> None:
    """Three heads, or groups of them, over two devices, or three: the cuts that the test of bits
    has.
    """
    cuts = set()
    for devices in (2, 3, 5, 8):
        for slices in plan_of(**files[name], devices=devices, changes=COUNTED).mapping.devices:
            cuts |= {
                (part.begin, part.end)
                for part in slices
                if part.layer.operation.type == "attention"
            }
    assert {(0, 3)} < cuts and any(end - begin < 3 for begin, end in cuts)


@pytest.mark.parametrize("interleaved", [False, True])
def test_heads_that_are_turned_in_part_have_the_same_bits_on_any_boards(
    write: Callable[[Table], str], plan_of: Any, trained: Any, bits: Any, interleaved: bool
) -> None:
    """4 of a head's 8 channels; attention cut by heads, and what makes these within one."""
    network = gpt(24, 1, 3, 9, kv_heads=3)
    layers = [
        {**layer, "turned": 4, "interleaved": interleaved} if layer["type"] == "rotary" else layer
        for layer in network["layers"]
    ]
    keys = {**KEYS, "data": "text", "network": write({**network, "layers": layers})}
    whole = bits(trained(plan_of(**keys, devices=1, micro_batch=16)).weights)
    for cut in (
        "wte qkv0 attention0[:1] | attention0[1:] project0:head",
        "wte qkv0 attention0[:1] | attention0[1:2] | attention0[2:] project0:head",
        "wte qkv0[:20] | qkv0[20:] attention0[:2] | attention0[2:] project0:head",
    ):
        plan = plan_of(**keys, cut=cut, devices=cut.count("|") + 1, micro_batch=4)
        assert bits(trained(plan).weights) == whole, cut
    other = plan_of(**{**keys, "network": write(network)}, devices=1, micro_batch=16)
    assert bits(trained(other).weights) != whole


def test_replicas(files: dict[str, Table], plan_of: Any, trained: Any, bits: Any) -> None:
    two = bits(trained(plan_of(**files["gpt"], devices=2, replicas=2)).weights)
    assert two == bits(
        trained(plan_of(**files["gpt"], devices=4, replicas=2, micro_batch=2)).weights
    )


@pytest.mark.parametrize("schedule", ["sync", "fpdeep"])
def test_training_takes_the_time_of_its_simulation(
    files: dict[str, Table], plan_of: Any, trained: Any, schedule: str
) -> None:
    plan = plan_of(**{**files["gpt"], "devices": 4, "schedule": schedule})
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 32).epoch_ends_ps]


def test_json_and_results_hold_no_weights_of_attention(
    files: dict[str, Table], plan_of: Any, trained: Any
) -> None:
    weights = trained(plan_of(**files["gpt"], devices=3)).weights
    assert "weight" not in weights["attention0"] and "weight" in weights["qkv0"]
    done = CliRunner().invoke(
        commands, ["plan", files["gpt"]["network"], "--devices", "3", "--json"]
    )
    tiles = {
        part["layer"]: part["tiles"]
        for device in json.loads(done.output)["devices"]
        for part in device["slices"]
    }
    assert {*tiles["attention0"]} == {"fp", "eb"} and {*tiles["qkv0"]} == {"fp", "eb", "pg"}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_losses_of_pytorch(write: Callable[[Table], str], plan_of: Any, optimizer: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    keys = {
        **KEYS,
        "network": write(gpt(32, 2, 4, 16)),
        "data": "text",
        "seed": 3,
        "batch": 4,
        "micro_batch": 2,
    }
    keys |= {"samples": 80, "learning_rate": 0.002, "weight_decay": 0.01, "optimizer": optimizer}

    def peer(arrays: list[Any]) -> Any:
        if optimizer == "sgd":
            return torch.optim.SGD(arrays, lr=0.002, momentum=0.9, weight_decay=0.01)
        return torch.optim.AdamW(arrays, lr=0.002, weight_decay=0.01)

    made = trained_beside_pytorch(plan_of, keys, peer)
    assert len(made.losses) == 20 and made.losses[0] == pytest.approx(made.expected[0], rel=1e-6)
    assert made.losses == pytest.approx(made.expected, rel=1e-5)
    for name, array in made.twin.arrays.items():
        layer, key = name.split("/")
        if optimizer == "adamw" and layer.startswith("qkv") and key == "bias":
            continue  # exactly, K's bias has no gradient, and AdamW enlarges what roundings leave
        own = made.weights[layer][key].reshape(-1)
        assert np.allclose(own, array.detach().numpy().reshape(-1), atol=2e-3), name


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            {"type": "attention", "heads": 4},
            "`heads` = 4: 18 channels do not divide into q, k and v of that many heads",
        ),
        ({"type": "attention", "heads": 0}, "heads"),
        ({"type": "attention", "heads": 3, "scale": 0}, "scale"),
        (
            {"type": "attention", "heads": 4, "kv_heads": 3},
            "`kv_heads` = 3 should divide `heads` = 4",
        ),
        (
            {"type": "attention", "heads": 6, "kv_heads": 2},
            (
                "18 channels do not divide into q, k and v of that many heads, 3 to a k and v;"
                " should be a multiple of 10"
            ),
        ),
        ({"type": "rotary", "heads": 2}, "should be a multiple of 12"),
        ({"type": "rotary", "heads": 3, "base": 0}, "base"),
    ],
)
def test_heads_that_do_not_fit(network: Table, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_network(
            {
                "name": "n",
                "input": [3, 5, 1],
                "layers": [conv(18, "qkv"), network, {"type": "softmax"}],
            }
        )
    assert said in str(error.value)


def test_maps_are_no_sequence() -> None:
    layers = [conv(6, "qkv"), {"type": "attention", "heads": 1}, {"type": "softmax"}]
    with pytest.raises(InputError, match="attention takes a sequence: one row a token"):
        load_network({"name": "n", "input": [3, 5, 5], "layers": layers})


@pytest.mark.parametrize(
    ("key", "usual", "other"),
    [("dropout", 0.0, 0.1), ("scale", 8**-0.5, 1.0)],
    ids=["no dropout is a rate of 0", "another scale"],
)
def test_what_is_usual_may_be_said(
    write: Callable[[Table], str],
    references: dict[str, Weights],
    plan_of: Any,
    trained: Any,
    bits: Any,
    key: str,
    usual: float,
    other: float,
) -> None:
    """It has the bits of what is not said; another value has others, and takes the same time."""
    keys = {**KEYS, "data": "text", "micro_batch": 16}
    without, some = (
        trained(plan_of(**keys, network=write(gpt(24, 2, 3, 16, **{key: value}))))
        for value in (usual, other)
    )
    assert bits(without.weights) == bits(references["gpt"]) != bits(some.weights)
    assert without.history[0].virtual_time_ps == some.history[0].virtual_time_ps


def test_resume(files: dict[str, Table], tmp_path: Path, bits: Any) -> None:
    saved = str(tmp_path / "run.ckpt")
    emuchain.train(**files["gpt like Llama"], devices=2, epochs=1, checkpoint=saved)
    others = {key: value for key, value in files["gpt like Llama"].items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(
        emuchain.train(**files["gpt like Llama"], devices=1, epochs=2).weights
    )


@pytest.mark.sampled(1)
def test_ranks(
    files: dict[str, Table], references: dict[str, Weights], mpiexec: Any, tmp_path: Path, bits: Any
) -> None:
    own = {key: value for key, value in files["vit"].items() if key != "network"}
    flags = [
        word for key, value in own.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    out = tmp_path / "run.h5"
    words = [
        "-m",
        "emuchain",
        "train",
        files["vit"]["network"],
        *flags,
        "--devices",
        "5",
        "--out",
        str(out),
    ]
    mpiexec(4, words, timeout=300)
    assert bits(emuchain.results(out).weights) == bits(references["vit"])


_TRAINED = """
import hashlib
import emuchain

digest = hashlib.sha256()
for network, data, samples in (("char-gpt", "text", 20), ("vit-tiny-cifar", "shapes", 8)):
    keys = {"data": data, "samples": samples, "test_samples": 2, "batch": 4, "optimizer": "adamw"}
    weights = emuchain.train(network=network, devices=2, schedule="sync", **keys).weights
    for arrays in weights.values():
        for array in arrays.values():
            digest.update(array.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.exhaustive
def test_every_form_trains_the_same_bits() -> None:
    assert len({*printed_in_every_form(_TRAINED).values()}) == 1
