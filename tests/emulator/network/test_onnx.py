"""Networks from ONNX files: the same as from TOML, whether the files are made here or by
PyTorch.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click.testing
import pytest

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.network import load_network

from .onnx_models import Graph, load, resnet8


def vgg(channels: list[list[int]], features: list[int]) -> Graph:
    """A VGG for 32x32 images, without its dropout."""
    graph, before = Graph(1, 3, 32, 32), 3
    for stage, block in enumerate(channels, 1):
        for number, out in enumerate(block, 1):
            graph.conv(f"conv{stage}_{number}", before, out, 3)
            graph.node("Relu")
            before = out
        graph.pool(2, 2)
    graph.node("Flatten")
    for number, out in enumerate(features, 6):
        graph.fc(f"fc{number}", before, out)
        before = out
        if number < 5 + len(features):
            graph.node("Relu")
            graph.node("Dropout", graph.last, graph.numbers(0.5))
    graph.node("Softmax", axis=1)
    return graph


def alexnet() -> Graph:
    """AlexNet without groups."""
    graph = Graph("batch", 3, 224, 224)
    graph.conv("conv1", 3, 96, 11, strides=[4, 4], pads=[2] * 4)
    for name, inputs, channels, kernel, normed, pooled in (
        ("conv2", 96, 256, 5, True, True),
        ("conv3", 256, 384, 3, True, True),
        ("conv4", 384, 384, 3, False, False),
        ("conv5", 384, 256, 3, False, False),
    ):
        graph.node("Relu")
        if normed:
            graph.node("LRN", size=5, alpha=1e-4, beta=0.75, bias=2.0)
        if pooled:
            graph.pool(3, 2)
        graph.conv(name, inputs, channels, kernel)
    graph.node("Relu")
    graph.pool(3, 2)
    graph.node("Reshape", graph.last, graph.numbers(-1, 9216))
    for name, inputs, features in (("fc6", 9216, 4096), ("fc7", 4096, 4096)):
        graph.fc(name, inputs, features)
        graph.node("Relu")
        graph.node("Dropout")
    graph.node("MatMul", graph.last, graph.weight(4096, 1000), name="fc8")
    graph.node("Add", graph.weight(1000), graph.last)
    return graph


def inception() -> Graph:
    """Two Inception modules, whose pools stand at their end, as is usual."""
    graph = Graph("n", 3, 32, 32)
    graph.conv("conv1", 3, 32, 3)
    graph.node("Relu")
    module = graph.pool(2, 2)
    for at, inputs, one, reduce3, three, reduce5, five, pool in (
        ("conv2", 32, 16, 16, 32, 8, 16, 16),
        ("conv3", 80, 32, 32, 64, 8, 32, 32),
    ):
        if at == "conv3":
            module = graph.pool(2, 2)
        graph.conv(f"{at}_1x1", inputs, one, 1, module)
        branches = [graph.node("Relu")]
        for size, reduced, out in ((3, reduce3, three), (5, reduce5, five)):
            graph.conv(f"{at}_{size}x{size}_reduce", inputs, reduced, 1, module)
            graph.node("Relu")
            graph.conv(f"{at}_{size}x{size}", reduced, out, size)
            branches.append(graph.node("Relu"))
        graph.pool(3, 1, module, pads=[1] * 4)
        graph.conv(f"{at}_pool", inputs, pool, 1)
        branches.append(graph.node("Relu"))
        graph.node("Concat", *branches, axis=1)
    graph.node("ReduceMean", axes=[2, 3], keepdims=0)
    graph.fc("fc", 160, 10)
    graph.node("LogSoftmax", axis=-1)
    return graph


TWINS = {
    "vgg11-cifar": lambda: vgg([[64], [128], [256] * 2, [512] * 2, [512] * 2], [512, 512, 10]),
    "alexnet": alexnet,
    "resnet8-cifar": resnet8,
    "inception-cifar": inception,
}


@pytest.mark.parametrize("name", TWINS)
def test_the_same_network_as_from_toml(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, TWINS[name](), name) == load_network(name)


@pytest.mark.parametrize("name", TWINS)
def test_its_toml_description_is_the_same_network(tmp_path: Path, name: str) -> None:
    network = load(tmp_path, TWINS[name](), name)
    again = tmp_path / "again.toml"
    runner = click.testing.CliRunner()
    printed = runner.invoke(commands, ["network", str(tmp_path / f"{name}.onnx"), "--toml"])
    written = runner.invoke(
        commands, ["network", str(tmp_path / f"{name}.onnx"), "--out", str(again)]
    )
    assert (printed.exit_code, written.exit_code, written.output) == (0, 0, "")
    assert printed.output == again.read_text() == network.text
    assert load_network(str(again)) == network


def test_it_can_be_planned(tmp_path: Path) -> None:
    load(tmp_path, resnet8())
    flags = ["--devices", "3", "--samples", "32", "--batch", "16", "--json"]
    runner = click.testing.CliRunner()
    of_onnx = runner.invoke(
        commands, ["simulate", "--network", str(tmp_path / "mine.onnx"), *flags]
    )
    of_toml = runner.invoke(commands, ["simulate", "--network", "resnet8-cifar", *flags])
    assert of_onnx.exit_code == of_toml.exit_code == 0
    own = str(tmp_path / "mine.onnx")
    assert of_onnx.output.replace(own, "resnet8-cifar") == of_toml.output


@pytest.mark.filterwarnings("ignore")
def test_what_pytorch_exports(tmp_path: Path) -> None:
    torch = pytest.importorskip(
        "torch", reason="PyTorch, which exports the file of this test, is not installed"
    )
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]  # torch is optional
        def __init__(self, before: int, channels: int) -> None:
            super().__init__()
            stride = channels // before
            self.first, self.first_norm = (
                nn.Conv2d(before, channels, 3, stride, 1, bias=False),
                nn.BatchNorm2d(channels),
            )
            self.second, self.second_norm = (
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
                nn.BatchNorm2d(channels),
            )
            shortcut = nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(*shortcut)

        def forward(self, x: Any) -> Any:
            short = self.shortcut(x)
            x = torch.relu(self.first_norm(self.first(x)))
            return torch.relu(self.second_norm(self.second(x)) + short)

    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
        *(Block(16, 16), Block(16, 32), Block(32, 64)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
    )
    path = tmp_path / "resnet8-cifar.onnx"
    training = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    torch.onnx.export(model, (torch.zeros(2, 3, 32, 32),), str(path), dynamo=False, **training)
    ours = load_network("resnet8-cifar")
    names = [layer.name for layer in ours.layers]
    exported = load_network(str(path))
    renamed = [
        dataclasses.replace(layer, name=name)
        for layer, name in zip(exported.layers, names, strict=True)
    ]
    assert dataclasses.replace(exported, layers=tuple(renamed)) == ours
