"""MobileNetV2 and ResNet-18 as torchvision has them, exported by either of PyTorch's exporters.

The structure of torchvision's models, without the package; `docs/configuration.md` says how to
export.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch, which exports the files of these tests, is not installed"
)
nn = torch.nn

STAGES = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]
"""Of MobileNetV2: factor of the channels within a block, channels, blocks, stride of the first."""


def normalised(
    before: int, channels: int, kernel: int, stride: int = 1, groups: int = 1, act: Any = None
) -> list[Any]:
    """A convolution, its batch normalisation, and an activation if there is one."""
    of = nn.Conv2d(before, channels, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [of, nn.BatchNorm2d(channels), *([] if act is None else [act])]


class Inverted(nn.Module):  # type: ignore[misc, name-defined]  # torch is optional
    """An inverted residual."""

    def __init__(self, before: int, channels: int, stride: int, factor: int) -> None:
        super().__init__()
        wide, self.adds = before * factor, stride == 1 and before == channels
        widen = [] if factor == 1 else normalised(before, wide, 1, act=nn.ReLU6(inplace=True))
        depthwise = normalised(wide, wide, 3, stride, wide, nn.ReLU6(inplace=True))
        self.conv = nn.Sequential(*widen, *depthwise, *normalised(wide, channels, 1))

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.adds else self.conv(x)


class Basic(nn.Module):  # type: ignore[misc, name-defined]
    """A block of two convolutions and a shortcut."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        second = normalised(channels, channels, 3)
        self.conv = nn.Sequential(
            *normalised(before, channels, 3, stride, act=nn.ReLU(inplace=True)), *second
        )
        same = stride == 1 and before == channels
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(*normalised(before, channels, 1, stride))
        )

    def forward(self, x: Any) -> Any:
        return torch.relu(self.conv(x) + self.shortcut(x))


def mobilenet_v2(classes: int, dropout: float) -> Any:
    layers, before = normalised(3, 32, 3, 2, act=nn.ReLU6(inplace=True)), 32
    for factor, channels, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Inverted(before, channels, 1 if block else stride, factor))
            before = channels
    layers += normalised(before, 1280, 1, act=nn.ReLU6(inplace=True))
    ends = [
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(1280, classes),
    ]
    return nn.Sequential(*layers, *ends)


def resnet18(classes: int, dropout: float) -> Any:
    """It has no dropout, whatever the rate."""
    stem = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    blocks = [Basic(*shape) for shape in ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1))]
    blocks += [
        Basic(*shape) for shape in ((128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1))
    ]
    return nn.Sequential(
        *stem, *blocks, nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(512, classes)
    )


MODELS = {"mobilenetv2": mobilenet_v2, "resnet18": resnet18}

EXPORTERS = ["script", pytest.param("dynamo", marks=pytest.mark.slow)]


def exported(model: Any, size: int, exporter: str, *, folds: bool = False) -> bytes:
    """Return the ONNX file of a model for images of 3 x size x size, as the documentation says, or
    as it `folds`.
    """
    made, images = io.BytesIO(), (torch.zeros(1, 3, size, size),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "dynamo":
            pytest.importorskip(
                "onnxscript", reason="onnxscript, which PyTorch's new exporter needs, is missing"
            )
            program = torch.onnx.export(
                model.train(), images, dynamo=True, optimize=folds, verbose=False
            )
            return program.model_proto.SerializeToString()
        keys = (
            {}
            if folds
            else {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
        )
        torch.onnx.export(model.train(not folds), images, made, dynamo=False, **keys)
    return made.getvalue()
