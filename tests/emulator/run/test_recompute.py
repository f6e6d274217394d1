"""Recomputed layers: the bits of a run that keeps all, the same time in both clocks, less
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import emuchain
from emuchain import InputError
from emuchain.emulator.network import load_network

from ..networks import CONV, GROUPED, of_images
from .test_edited import check_same, timing_only

NETWORK = of_images(
    "recomputed",
    CONV,
    {"type": "batch-norm"},
    {"type": "relu"},
    GROUPED,
    {"type": "dropout", "rate": 0.3},
)
KEYS: dict[str, Any] = {
    "samples": 32,
    "test_samples": 8,
    "batch": 16,
    "micro_batch": 4,
    "epochs": 2,
    "engines": "turns",
    "schedule": "sync",
}
RUNS: dict[str, dict[str, Any]] = {
    "one board": {"devices": 1},
    "batch norm and dropout": {"devices": 2, "schedule": "zero-bubble"},
    "more boards than layers": {"devices": 5, "schedule": "1f1b-sno"},
    "a V": {"devices": 2, "schedule": "interleaved", "transport": "hidden"},
    "old weights": {"devices": 2, "schedule": "pipedream"},
    "shared engines": {"devices": 2, "schedule": "fbp-as", "engines": "shared"},
    "shortcuts": {"network": "resnet8-cifar", "devices": 3, "epochs": 1},
    "tied weights": {"network": "char-gpt", "devices": 2, "samples": 16, "epochs": 1},
    "adapters": {
        "network": "char-gpt",
        "devices": 2,
        "samples": 16,
        "epochs": 1,
        "lora": "r=4,alpha=8,on=qkv*",
    },
    "recurrent": {"network": "lstm-rows", "devices": 3},
    "recurrent, drawn roundings": {
        "network": "gru-rows",
        "devices": 2,
        "schedule": "zero-bubble",
        "precision": {"format": "bf16", "rounding": "stochastic"},
    },
    "replicas": {"devices": 2, "replicas": 2, "batch": 32},
    "shared weights": {"devices": 2, "replicas": 2, "batch": 32, "zero": 3},
    "shared weights, W apart": {
        "devices": 2,
        "replicas": 2,
        "batch": 32,
        "zero": 3,
        "optimizer": "adam",
        "schedule": "zero-bubble",
    },
    "drawn roundings": {
        "devices": 2,
        "precision": {
            **dict.fromkeys(("activations", "weights", "errors"), "fp16"),
            "rounding": {"activations": "stochastic", "errors": "stochastic"},
        },
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_bits_are_those_of_a_run_that_keeps_all(name: str) -> None:
    keys = {"network": NETWORK, **KEYS, **RUNS[name]}
    plain, again = (emuchain.train(**keys, recompute=layers) for layers in ("none", "all"))
    check_same(again, plain)
    times = [run.history["virtual_time_ps"][-1] for run in (plain, again)]
    assert times[0] < times[1]
    timing = timing_only(keys)
    assert emuchain.simulate(**timing, recompute="all").virtual_time_ps == times[1]


def test_some_layers() -> None:
    """Each takes its own F again, one after the other or apart."""
    names = [layer.name for layer in load_network("resnet8-cifar").layers]
    keys: dict[str, Any] = {**KEYS, "network": "resnet8-cifar", "devices": 2, "epochs": 1}
    plain, timing = emuchain.train(**keys), timing_only(keys)
    times = [emuchain.simulate(**timing).virtual_time_ps]
    for count in (1, 2, 5):
        chosen = ",".join([*names[1:count], names[-1]])
        run = emuchain.train(**keys, recompute=chosen)
        check_same(run, plain)
        times.append(run.history["virtual_time_ps"][-1])
        assert times[-1] == emuchain.simulate(**timing, recompute=chosen).virtual_time_ps
    assert times == sorted({*times})


def test_b_takes_f_again_on_one_board() -> None:
    keys = {"devices": 1, "engines": "turns", "schedule": "sync", "batch": 8, "micro_batch": 8}
    costs = []
    for recompute in ("none", "all"):
        stages = emuchain.plan("vgg16-cifar", recompute=recompute, **keys).stages
        assert stages is not None
        costs.append(stages.costs(0, 8))
    kept, again = costs
    assert again.forward_ps == kept.forward_ps and again.pg_ps == kept.pg_ps
    assert again.backward_ps == kept.backward_ps + kept.forward_ps
    # Of all layers only the images are kept, 3 x 32 x 32 numbers of four bytes.
    assert again.feature_bytes == 8 * 4 * 3 * 32 * 32 < kept.feature_bytes


def test_more_micro_batches_have_room() -> None:
    """GPipe keeps all of a mini-batch: with all layers recomputed, what arrives, and one's
    features.
    """
    keys: dict[str, Any] = {"devices": 1, "engines": "turns", "schedule": "gpipe", "micro_batch": 4}
    kept, again = (
        [
            emuchain.plan("vgg16-cifar", recompute=layers, batch=batch, **keys).memory_bytes[0]
            for batch in (4, 64)
        ]
        for layers in ("none", "all")
    )
    image, features = 4 * 3 * 32 * 32, (kept[1] - kept[0]) // 60
    assert again[1] - again[0] == 60 * image < 60 * features
    assert again[0] - kept[0] == 4 * image


def fitting(off_chip_gbytes: float, recompute: str) -> Any:
    return emuchain.plan(
        "vgg16-cifar",
        devices=1,
        engines="turns",
        schedule="gpipe",
        batch=64,
        micro_batch=4,
        recompute=recompute,
        changes={"board.off_chip_memory_gbytes": off_chip_gbytes},
    )


def test_auto_recomputes_as_few_as_make_data_fit(one_line: Callable[..., str]) -> None:
    ample = fitting(8, "auto")
    assert ample.stages.recomputed == frozenset()
    needed, least = (max(plan.off_chip_bytes) * 1e-9 for plan in (ample, fitting(8, "all")))
    sizes = [0]
    for part in (0.7, 0.1):
        gbytes = least + part * (needed - least)
        with pytest.raises(InputError) as error:
            fitting(gbytes, "none")
        assert "stage" in one_line(error)
        plan = fitting(gbytes, "auto")
        assert max(plan.off_chip_bytes) <= gbytes * 1e9
        sizes.append(len(plan.stages.recomputed))
    assert sizes == sorted({*sizes})
    with pytest.raises(InputError) as error:
        fitting(0.001, "auto")
    assert "stage" in one_line(error)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "name": (
        {"recompute": "conv"},
        "`recompute` = 'conv': quick-cifar has no layer 'conv'; did you mean ",
    ),
    "rows": ({"engines": None}, "`recompute` = 'all': boards that stream rows keep what B needs"),
    "weights": ({"schedule": "fpdeep"}, "`schedule` = 'fpdeep' has F and B of a sample use"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, one_line: Callable[..., str]) -> None:
    keys, message = BAD[name]
    usual = {"devices": 2, "engines": "turns", "schedule": "sync", "recompute": "all"}
    with pytest.raises(InputError) as error:
        emuchain.plan(**{"network": "quick-cifar", **usual, **keys})
    assert message in one_line(error)
