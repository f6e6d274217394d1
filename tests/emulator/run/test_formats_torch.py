"""PyTorch is the peer of runs in narrow formats: fake quantisation at the same points, by roundings
of its own.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.data import Dataset, load_data
from emuchain.emulator.device import epoch_order
from emuchain.emulator.device.memories import initial_weights
from emuchain.emulator.mapping import Cut
from emuchain.emulator.mapping.slices import cut_of
from emuchain.emulator.network import load_network
from emuchain.emulator.network.operations.activations import Relu
from emuchain.emulator.network.operations.pool import MaxPool
from emuchain.emulator.run import StepResult, Weights, train
from emuchain.launch import SingleProcess

torch = pytest.importorskip("torch", reason="PyTorch, the peer of these tests, is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="comes with the extra `onnx`")

BATCH, STEPS, RATE, MOMENTUM, DECAY = 8, 3, 0.01, 0.9, 0.0005


def bf16(values: np.ndarray, axis: int) -> np.ndarray:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def e4m3(values: np.ndarray, axis: int) -> np.ndarray:
    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def mxfp8(values: np.ndarray, axis: int) -> np.ndarray:
    """In blocks of 32 along an axis, whose scale is the least under which none saturates."""
    lines = np.moveaxis(values, axis, -1).astype(np.float64)
    result = np.empty_like(lines)
    for begin in range(0, lines.shape[-1], 32):
        block = lines[..., begin : begin + 32]
        most = np.abs(block).max(axis=-1, keepdims=True)
        scale = 2.0 ** np.maximum(np.ceil(np.log2(np.maximum(most, 1e-45) / 448)), -127)
        result[..., begin : begin + 32] = e4m3((block / scale).astype(np.float32), 0) * scale
    return np.moveaxis(result, -1, axis).astype(np.float32)


ROUNDINGS = {"bf16": bf16, "fp8": e4m3, "mxfp8": mxfp8}


def peer(name: str, data: Dataset, seed: int) -> tuple[list[float], Weights]:
    """Losses and weights, as FP reads them, after three steps of PyTorch."""
    rounding = ROUNDINGS[name]

    def whole(values: Any, axis: int = 1) -> Any:
        return torch.from_numpy(rounding(values.detach().numpy(), axis))

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return whole(x)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return whole(dy)

    class OfWeights(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, weight: Any, cut: Cut) -> Any:
            if cut is Cut.ICP:
                return whole(weight, 0)
            return whole(weight.reshape(len(weight), -1)).reshape(weight.shape)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy, None

    network, f = load_network("quick-cifar"), torch.nn.functional
    masters, biases = {}, {}
    for layer in network.layers:
        oc, ic, *_ = layer.weight_shape
        start = initial_weights(layer, network.start, seed, range(ic), range(oc))
        masters[layer.name] = torch.tensor(start, requires_grad=True)
        biases[layer.name] = torch.zeros(oc, requires_grad=True)
    optimiser = torch.optim.SGD(
        [*masters.values(), *biases.values()], lr=RATE, momentum=MOMENTUM, weight_decay=DECAY
    )
    order, normalisation, losses = epoch_order(seed, 0, data.n_train), data.normalisation(), []
    for first in range(0, data.n_train, BATCH):
        chosen = order[first : first + BATCH]
        x = Forward.apply(torch.from_numpy(normalisation.apply(data.train_images[chosen])))
        for layer in network.layers:
            if layer.index:
                x = Backward.apply(x)
            weight = OfWeights.apply(masters[layer.name], cut_of(layer))
            window = layer.window
            y = f.conv2d(x, weight, biases[layer.name], stride=window.stride, padding=window.pad)
            x = Backward.apply(y)
            for step in layer.sfu:
                operation = step.operation
                assert isinstance(operation, Relu | MaxPool), operation
                x = (
                    f.relu(x)
                    if isinstance(operation, Relu)
                    else f.max_pool2d(x, operation.kernel, operation.step)
                )
            if layer is not network.layers[-1]:
                x = Forward.apply(x)
        # Errors are those of each sample's loss, not of their mean.
        loss = f.cross_entropy(
            x.flatten(1), torch.from_numpy(data.train_labels[chosen]), reduction="sum"
        )
        optimiser.zero_grad()
        loss.backward()
        for parameter in (*masters.values(), *biases.values()):
            parameter.grad /= BATCH
        optimiser.step()
        losses.append(loss.item() / BATCH)
    weights = {
        layer.name: {
            "weight": OfWeights.apply(masters[layer.name], cut_of(layer)).detach().numpy(),
            "bias": biases[layer.name].detach().numpy(),
        }
        for layer in network.layers
    }
    return losses, weights


@pytest.mark.parametrize("name", ROUNDINGS)
def test_three_steps(plan_of: Any, small_cifar: Path, name: str) -> None:
    """Sums in another order may fall to the other side of a tie: a weight in a thousand is a step
    of its format off.
    """
    data = load_data(str(small_cifar)).first(BATCH * STEPS).test_first(1)
    keys = {
        "network": "quick-cifar",
        "batch": BATCH,
        "micro_batch": 3,
        "devices": 4,
        "seed": 5,
        "precision": name,
    }
    keys |= {"schedule": "sync", "learning_rate": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    losses: list[float] = []
    weights: Weights = {}

    def on_step(result: StepResult) -> None:
        losses.append(result.tally.mean_loss)

    train(
        plan_of(**keys),
        data,
        SingleProcess(),
        on_step,
        lambda _, made: weights.update(made),
        gather_weights=True,
    )
    expected_losses, expected = peer(name, data, seed=5)
    assert losses == pytest.approx(expected_losses, rel=1e-3)
    assert not math.isclose(losses[-1], losses[0], rel_tol=1e-3)
    other, _ = peer("bf16" if name != "bf16" else "fp8", data, seed=5)
    assert losses != pytest.approx(other, rel=1e-3)
    for layer, arrays in expected.items():
        for kind, array in arrays.items():
            off = np.linalg.norm(weights[layer][kind] - array) / np.linalg.norm(array)
            assert off < (1e-3 if kind == "weight" else 3e-3), f"{layer}/{kind}: {off}"
