"""Batch normalisation's moving averages are PyTorch's, and a mini-batch of one value is refused, as
there.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset
from emuchain.emulator.device.rules import Rule
from emuchain.emulator.device.sfu import Sfu
from emuchain.emulator.network import Layer, SfuStep, Tensor, Training
from emuchain.emulator.network.operations.conv import Conv
from emuchain.emulator.network.operations.normalisation import BatchNorm
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena
from emuchain.kernels.optimizers import Sgd

STEPS = 10
RULE = Rule(Sgd(learning_rate=0.1, weight_decay=0, momentum=0))


@pytest.mark.parametrize(
    ("samples", "size", "cut"), [(2, 1, 1), (3, 1, 2), (12, 2, 5), (48, 1, 48), (64, 8, 63)]
)
@pytest.mark.parametrize("momentum", [0.1, 1.0])
def test_moving_averages_are_those_of_pytorch(
    samples: int, size: int, cut: int, momentum: float
) -> None:
    """To 1e-6 over ten mini-batches of 2 to 4,096 values, whose means are not 0, in two spans
    each.
    """
    torch = pytest.importorskip("torch")
    images, before, after = (Tensor(n, (3, size, size)) for n in range(3))
    norm = SfuStep(BatchNorm(momentum=momentum), (before,), after)
    conv = Conv(channels=3, kernel=(1, 1), bias=False)
    sfu = Sfu(Layer(0, "a", images, before, (), (after,), conv, (norm,)), 1, Arena())
    peer = torch.nn.BatchNorm2d(3, momentum=momentum, dtype=torch.float64)
    rng = np.random.default_rng(samples)
    for step in range(STEPS):
        x = (rng.standard_normal((samples, size, size, 3)) * 2 + [0.5, -3, 10]).astype(np.float32)
        peer(torch.tensor(x.transpose(0, 3, 1, 2), dtype=torch.float64))
        mini_batch = MicroBatch(step, step, 0, samples)
        for begin, end in ((0, cut), (cut, samples)):
            if begin < end:
                own = x[begin:end]
                span = SampleSpan(mini_batch, begin, end)
                sfu.forward(span, {1: own}, 0, Training(step, np.arange(begin, end)))
                sfu.backward(span, {2: np.zeros_like(own)}, 0)
        sfu.gradient(mini_batch.whole)
        sfu.update(samples, RULE, keeps=False)
        sfu.begin_epoch()
    mean, variance = peer.running_mean.numpy(), peer.running_var.numpy()
    assert sfu.held["mean"].newest == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert sfu.held["variance"].newest == pytest.approx(variance, rel=1e-6)


def network(size: int) -> dict[str, Any]:
    """A network that normalises maps of `size` by `size`."""
    layers = [
        {"type": "conv", "channels": 4, "kernel": 1},
        {"type": "batch-norm"},
        {"type": "fc", "features": 10},
    ]
    return {"name": "norm", "input": [3, size, size], "layers": [*layers, {"type": "softmax"}]}


@pytest.mark.parametrize(
    ("size", "keys", "said"),
    [
        (
            1,
            {"batch": 1, "samples": 4},
            "`batch` = 1: leaves a mini-batch with one sample, and so one value for each",
        ),
        (1, {"batch": 4, "samples": 9}, "`samples` = 9: leaves a mini-batch with one sample"),
        (
            1,
            {"batch": 2, "samples": 8, "replicas": 2},
            "`batch` = 2: leaves a mini-batch of a replica with one sample",
        ),
        (
            1,
            {"batch": 4, "samples": 11, "replicas": 2},
            "`samples` = 11: leaves a mini-batch of a replica",
        ),
        (1, {"batch": 4, "samples": 10, "replicas": 1}, None),
        (1, {"batch": 4, "samples": 12, "replicas": 2}, None),
        (2, {"batch": 1, "samples": 4}, None),
        (1, {"batch": 1, "samples": 4, "freeze": ["conv1"]}, None),
    ],
)
def test_a_mini_batch_of_one_value_is_refused(
    size: int, keys: dict[str, Any], said: str | None
) -> None:
    rng = np.random.default_rng(1)
    images, labels = rng.integers(0, 256, (20, 3, size, size), np.uint8), rng.integers(0, 10, 20)
    data = Dataset("drawn", images, labels, images, labels, tuple("0123456789"))
    if said is None:
        emuchain.train(network(size), data=data, **keys)
        return
    with pytest.raises(InputError, match=re.escape(said)):
        emuchain.train(network(size), data=data, **keys)
