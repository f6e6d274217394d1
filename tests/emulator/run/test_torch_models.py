"""MobileNetV2 and ResNet-18 from PyTorch: imported, planned, timed and trained; forward and a step
agree.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.commands.network import show_network
from emuchain.emulator.data import Dataset
from emuchain.emulator.device import SliceNumerics, epoch_order
from emuchain.emulator.device.ends import SoftmaxHead
from emuchain.emulator.network import load_network
from emuchain.emulator.run import ChainTrainer, simulate
from emuchain.launch import SingleProcess

from ..counted import COUNTED
from .torch_models import EXPORTERS, MODELS, exported, nn, normalised, torch

SIZE, CLASSES, SAMPLES, RATE = 64, 10, 3, 0.01


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("name", MODELS)
def test_it_is_that_of_the_zoo(tmp_path: Path, plan_of: Any, name: str, exporter: str) -> None:
    """Of the size of ImageNet's images: the same layers, all batch normalisation, and the same
    times.
    """
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(exported(MODELS[name](1000, 0.2), 224, exporter))
    ours, found = load_network(name), load_network(str(path))
    if name == "mobilenetv2":  # in the other, shortcuts stand before the blocks
        names = [layer.name for layer in ours.layers]
        renamed = [
            dataclasses.replace(layer, name=as_ours)
            for layer, as_ours in zip(found.layers, names, strict=True)
        ]
        assert dataclasses.replace(found, layers=tuple(renamed)) == ours
    assert (found.macs, found.parameters) == (ours.macs, ours.parameters)
    assert [step.operation.type for layer in found.layers for step in layer.sfu].count(
        "batch-norm"
    ) == (52 if name == "mobilenetv2" else 20)
    assert simulate(plan_of(network=str(path), devices=16), 64).usage.virtual_time_ps > 0


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_folded_batch_normalisation_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exporter: str
) -> None:
    """Without the words of the documentation, both fold; a convolution's own bias is none of it."""
    path = tmp_path / "mine.onnx"
    model = nn.Sequential(
        *normalised(3, 4, 3),
        *normalised(4, 4, 1),
        nn.Conv2d(4, 4, 3),
        nn.Flatten(),
        nn.Linear(144, 10),
    )
    path.write_bytes(exported(model, 8, exporter))
    assert load_network(str(path)).note == ""
    path.write_bytes(exported(model, 8, exporter, folds=True))
    assert "batch normalisation into 2 convolutions" in load_network(str(path)).note
    show_network(str(path), load_network(str(path)))
    assert "note: its export folded batch normalisation into 2" in capsys.readouterr().out


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> tuple[str, Any]:
    """A model by name, without dropout, with other averages and scales than those that it begins
    with.
    """
    torch.manual_seed(4)
    made = MODELS[request.param](CLASSES, 0.0)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values, low, high in (
                *((module.running_mean, -0.3, 0.3), (module.running_var, 0.5, 1.5)),
                *((module.weight.data, 0.5, 1.5), (module.bias.data, -0.3, 0.3)),
            ):
                values.uniform_(low, high)
    return request.param, made


def in_order(model: Any, images: Any) -> list[Any]:
    """The modules with parameters, in the order in which they run."""
    found: list[Any] = []
    kinds = nn.Conv2d, nn.BatchNorm2d, nn.Linear
    hooks = [
        module.register_forward_hook(lambda module, *_: found.append(module))
        for module in model.modules()
        if isinstance(module, kinds)
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    return found


def given(modules: list[Any]) -> list[dict[str, Any]]:
    """For each layer its arrays in PyTorch by our names; tensors are not copied."""
    found: list[dict[str, Any]] = []
    for module in modules:
        if isinstance(module, nn.BatchNorm2d):
            found[-1].update(scale=module.weight, shift=module.bias)
            found[-1].update(mean=module.running_mean, variance=module.running_var)
        else:
            found.append(
                {"weight": module.weight} | ({} if module.bias is None else {"bias": module.bias})
            )
    return found


def copy_to(of: SliceNumerics, arrays: dict[str, Any]) -> None:
    """Set the weights of a slice, and all arrays of its SFU."""
    part = of.part
    weight = arrays["weight"].detach().numpy().reshape(part.layer.weight_shape)
    own = weight[part.out_channels.start : part.out_channels.stop][:, [*part.weight_inputs]]
    of.take_balanced(part.begin, part.end, np.ascontiguousarray(own))
    for name, array in of.arrays().items():
        array[...] = arrays[name].detach().numpy()


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize("devices", [1, 7])
def test_forward_and_a_step_are_those_of_pytorch(
    model: tuple[str, Any],
    tmp_path: Path,
    plan_of: Any,
    monkeypatch: pytest.MonkeyPatch,
    exporter: str,
    devices: int,
) -> None:
    """In PyTorch's evaluation mode, where averages are constants, as in our training."""
    name, peer = model
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(exported(peer, SIZE, exporter))
    peer.eval()
    random = np.random.default_rng(7)
    images = random.integers(0, 256, (SAMPLES, 3, SIZE, SIZE), np.uint8)
    labels = random.integers(0, CLASSES, SAMPLES)
    data = Dataset("random", images, labels, images, labels, tuple(map(str, range(CLASSES))))
    keys: dict[str, Any] = {
        "batch": SAMPLES,
        "micro_batch": 2,
        "schedule": "sync",
        "momentum": 0.0,
        "weight_decay": 0.0,
    }
    keys["memory"] = "ignored"  # so that planning is quick
    keys["changes"] = COUNTED  # so that MobileNetV2 has its tiles on one board
    plan = plan_of(network=str(path), devices=devices, learning_rate=RATE, **keys)
    trainer = ChainTrainer.of(plan, data, SingleProcess())
    x = torch.from_numpy(data.normalisation().apply(images))
    arrays = given(in_order(peer, x))
    held = [of for device in trainer.replicas.chains[0].devices for of in device.numerics.slices]
    for of in held:
        copy_to(of, arrays[of.part.layer.index])

    outputs: list[Any] = []
    forward = SoftmaxHead.forward

    def noting(head: SoftmaxHead, span: Any, y: Any) -> None:
        outputs.append(y.reshape(len(y), -1).copy())
        forward(head, span, y)

    monkeypatch.setattr(SoftmaxHead, "forward", noting)
    result = trainer.epoch(0)
    assert result is not None
    moved = trainer.weights()
    trainer.close()

    order = epoch_order(plan.config.seed, 0, SAMPLES)
    logits = peer(x)
    expected = logits.detach().numpy()[order]
    assert np.abs(np.concatenate(outputs) - expected).max() <= 1e-4 * np.abs(expected).max()
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels))
    peer.zero_grad()
    loss.backward()
    assert result.train.mean_loss == pytest.approx(loss.item(), rel=1e-4)
    for layer, of_layer in zip(plan.network.layers, arrays, strict=True):
        for kind in {"weight", "bias", "scale", "shift"} & of_layer.keys():
            before, gradient = (t.detach().numpy() for t in (of_layer[kind], of_layer[kind].grad))
            step = RATE * gradient.reshape(moved[layer.name][kind].shape)
            here = before.reshape(step.shape) - moved[layer.name][kind]
            assert np.abs(step).max() > 0
            # numbers near 1 have steps of 1e-7, to which what they move by is rounded
            assert np.abs(here - step).max() <= 2e-3 * np.abs(step).max() + 2e-7, (
                f"{layer.name}/{kind}"
            )
