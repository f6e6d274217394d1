"""Clipping by the norm of all gradients: PyTorch's losses, the same bits on any mapping, and a time
by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.device import LIMBS
from emuchain.emulator.device.sideband import of_limbs, to_limbs
from emuchain.emulator.run import Weights, simulate
from emuchain.kernels.optimizers import NOT_FINITE

from .gpt import MAPPINGS, Table, conv, gpt, trained_beside_pytorch, written
from .test_tied import TOY_BOARDS

KEYS: Table = {
    "data": "text",
    "schedule": "sync",
    "batch": 16,
    "samples": 32,
    "test_samples": 4,
    "optimizer": "adamw",
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Table:
    network = written(
        tmp_path_factory.mktemp("networks") / "gpt.toml", gpt(12, 1, 3, 16, tied=True)
    )
    return {**KEYS, "network": network, "clip_norm": 0.3}


@pytest.fixture(scope="module")
def reference(keys: Table, plan_of: Any, trained: Any) -> Weights:
    return trained(plan_of(**keys, devices=1, micro_batch=16)).weights


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda keys: " ".join(map(str, keys.values())))
def test_bits_and_times(
    keys: Table, reference: Weights, plan_of: Any, trained: Any, bits: Any, mapping: Table
) -> None:
    plan = plan_of(**{**keys, **mapping})
    made = trained(plan)
    assert bits(made.weights) == bits(reference)
    [result] = made.history
    assert [result.virtual_time_ps] == [*simulate(plan, 32).epoch_ends_ps]


def test_it_changes_what_is_longer_alone(
    keys: Table, reference: Weights, plan_of: Any, trained: Any, bits: Any
) -> None:
    without, never, clipped = (
        bits(trained(plan_of(**{**keys, "clip_norm": norm}, devices=2)).weights)
        for norm in (None, 1e30, 0.3)
    )
    assert without == never != clipped == bits(reference)


def test_balanced_weights(
    plan_of: Any, trained: Any, bits: Any, with_blocks: Any, many_blocks: Any
) -> None:
    keys = {
        "network": "quick-cifar",
        "samples": 32,
        "batch": 16,
        "schedule": "sync",
        "clip_norm": 0.1,
        "data": "shapes",
    }
    plan = plan_of(**keys, devices=4, test_samples=4)
    balanced = with_blocks(plan, many_blocks(plan))
    assert balanced.timing.blocks
    assert bits(trained(balanced).weights) == bits(
        trained(plan_of(**keys, devices=1, test_samples=4)).weights
    )


def test_replicas(keys: Table, plan_of: Any, trained: Any, bits: Any) -> None:
    two = bits(trained(plan_of(**keys, devices=1, replicas=2)).weights)
    assert two == bits(trained(plan_of(**keys, devices=4, replicas=2, micro_batch=2)).weights)


FORMATS = ["mxfp8 loss_scale=64", "bf16 gradients=mxfp4 rounding=stochastic loss_scale=16"]


@pytest.mark.parametrize("precision", FORMATS)
def test_formats(tmp_path: Path, plan_of: Any, trained: Any, bits: Any, precision: str) -> None:
    """The norm is that of gradients before they are rounded, and not of what a loss scale makes of
    them.
    """
    network = written(tmp_path / "gpt.toml", gpt(24, 1, 3, 16))
    own = {**KEYS, "network": network, "precision": precision, "clip_norm": 0.3}
    expected = bits(trained(plan_of(**own, devices=1, micro_batch=16)).weights)
    for mapping in MAPPINGS[:4]:
        assert bits(trained(plan_of(**{**own, **mapping})).weights) == expected
    without, never = (
        bits(trained(plan_of(**{**own, "clip_norm": norm}, devices=2)).weights)
        for norm in (None, 1e30)
    )
    assert without == never != expected
    two = bits(trained(plan_of(**own, devices=1, replicas=2)).weights)
    assert two == bits(trained(plan_of(**own, devices=4, replicas=2, micro_batch=2)).weights)


def test_a_loss_scale_changes_no_norm(
    keys: Table, plan_of: Any, trained: Any, bits: Any, tmp_path: Path
) -> None:
    own = {**keys, "network": written(tmp_path / "gpt.toml", gpt(12, 1, 3, 16))}
    made = [
        bits(trained(plan_of(**own, devices=2, precision={"loss_scale": scale})).weights)
        for scale in (1, 1024)
    ]
    assert made[0] == made[1]


def test_resume(keys: Table, tmp_path: Path, bits: Any) -> None:
    saved = str(tmp_path / "run.ckpt")
    emuchain.train(**keys, devices=2, epochs=1, checkpoint=saved)
    others = {key: value for key, value in keys.items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(emuchain.train(**keys, devices=1, epochs=2).weights)


@pytest.mark.parametrize("schedule", ["sync", "gpipe"])
def test_time_by_hand(schedule: str) -> None:
    """Device 0 has its gradients last; its sum takes 10 + 100 ns to the head's device, and the
    total as long back.
    """

    def time_ps(**clips: float) -> int:
        layers = [
            {"type": "embedding", "features": 4},
            {"type": "gru", "units": 4},
            conv(3, "head"),
            {"type": "softmax"},
        ]
        network = {"name": "toy", "input": [3, 5, 1], "layers": layers}
        plan = emuchain.plan(
            network, TOY_BOARDS, devices=2, samples=2, batch=2, schedule=schedule, **clips
        )
        assert [part.layer.name for part in plan.mapping.devices[1]] == ["head"]
        return simulate(plan, 2).virtual_time_ps

    assert time_ps(clip_norm=1.0) - time_ps() == 220_000


def test_sums_survive_messages() -> None:
    for squares in (0, 1, 2**598 - 1, 12345678901234567890, NOT_FINITE):
        assert (
            to_limbs(squares).shape == (1, 1, 1, LIMBS) and of_limbs(to_limbs(squares)) == squares
        )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"schedule": "fpdeep"},
            "each update waits for the gradients of all devices, and `schedule` = 'fpdeep'",
        ),
    ],
)
def test_what_is_refused(keys: Table, plan_of: Any, other: Table, said: str) -> None:
    with pytest.raises(InputError) as error:
        plan_of(**{**keys, **other}, devices=2)
    assert said in str(error.value)


def test_losses_of_pytorch(tmp_path: Path, plan_of: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    network, norms = written(tmp_path / "gpt.toml", gpt(32, 1, 4, 16, tied=True)), list[float]()
    keys = {
        **KEYS,
        "network": network,
        "seed": 3,
        "batch": 4,
        "micro_batch": 2,
        "weight_decay": 0.01,
    }
    keys |= {"clip_norm": 0.5, "optimizer": "sgd", "samples": 80, "learning_rate": 0.05}
    made = trained_beside_pytorch(
        plan_of,
        keys,
        lambda arrays: torch.optim.SGD(arrays, lr=0.05, momentum=0.9, weight_decay=0.01),
        lambda arrays: norms.append(float(torch.nn.utils.clip_grad_norm_(arrays, 0.5))),
    )
    assert len(norms) == 20 and np.max(norms) > 0.5
    assert made.losses == pytest.approx(made.expected, rel=1e-5)


@pytest.mark.sampled(1)
def test_ranks(keys: Table, reference: Weights, mpiexec: Any, tmp_path: Path, bits: Any) -> None:
    others = {key: value for key, value in keys.items() if key != "network"}
    flags = [
        word for key, value in others.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    out = tmp_path / "run.h5"
    mpiexec(
        4,
        ["-m", "emuchain", "train", keys["network"], *flags, "--devices", "5", "--out", str(out)],
        timeout=300,
    )
    assert bits(emuchain.results(out).weights) == bits(reference)
