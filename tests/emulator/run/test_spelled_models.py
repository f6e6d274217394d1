"""Models as people write them, exported by PyTorch's old exporter as it is by default, and each
read on its own.

They compute here what they computed there, or are refused for what they were in PyTorch.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, Normalisation
from emuchain.emulator.network import load_network
from emuchain.emulator.run import RunWeights, evaluate, read_weights

torch = pytest.importorskip("torch", reason="PyTorch, which exports the models, is not installed")
pytest.importorskip("onnx")
nn, functional = torch.nn, torch.nn.functional

SAMPLES, CLASSES = 3, 10
IMAGES, NHWC, GREY, STEPS, ROW = (3, 8, 8), (8, 8, 3), (28, 24), (7, 12), (192,)


class Written(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """Modules and parameters, and what a model's forward makes of them and its input."""

    def __init__(self, forward: Callable[[Any, Any], Any], **own: Any) -> None:
        super().__init__()
        for name, module in own.items():
            setattr(self, name, module)
        self.written = forward

    def forward(self, x: Any) -> Any:
        """Return the logits."""
        return self.written(self, x)


Make = Callable[[], Any]


def after_conv(
    forward: Callable[[Any, Any], Any], inputs: int = 8, **own: Callable[[], Any]
) -> Make:
    """What is made of maps of 8 channels of 6x6, and a classifier of what that is."""
    return lambda: Written(
        lambda self, x: self.fc(forward(self, self.conv(x))),
        conv=nn.Conv2d(3, 8, 3),
        fc=nn.Linear(inputs, CLASSES),
        **{name: make() for name, make in own.items()},
    )


def between(*modules: Callable[[], Any]) -> Make:
    """Modules between a convolution that keeps 8x8 and the classifier."""
    return lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        *(make() for make in modules),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.LazyLinear(CLASSES),
    )


def of_steps(kind: Any, pick: Callable[[Any], Any], inputs: int = 16, **keys: Any) -> Make:
    """A classifier of what is picked of a recurrent layer's results."""
    return lambda: Written(
        lambda self, x: self.fc(pick(self.rnn(x))),
        rnn=kind(12, 16, batch_first=True, **keys),
        fc=nn.Linear(inputs, CLASSES),
    )


def of_row(forward: Callable[[Any, Any], Any], **own: Callable[[], Any]) -> Make:
    """A model of rows of values."""
    return lambda: Written(forward, **{name: make() for name, make in own.items()})


def weight(*shape: int) -> Callable[[], Any]:
    """A parameter."""
    return lambda: nn.Parameter(torch.randn(*shape) * 0.1)


def copied() -> Any:
    """Two convolutions that begin alike, but are trained apart."""
    conv = nn.Conv2d(8, 8, 3, padding=1)
    return between(lambda: conv, nn.ReLU, lambda: copy.deepcopy(conv))()


SPELLED: dict[str, tuple[Make, tuple[int, ...]]] = {
    "NHWC before the classifier": (
        after_conv(lambda self, maps: maps.permute(0, 2, 3, 1).reshape(maps.shape[0], -1), 288),
        IMAGES,
    ),
    "tokens": (
        after_conv(lambda self, maps: maps.flatten(2).transpose(1, 2).flatten(1), 288),
        IMAGES,
    ),
    "images with channels last": (
        lambda: Written(lambda self, x: self.net(x.permute(0, 3, 1, 2)), net=between(nn.ReLU)()),
        NHWC,
    ),
    "images without an axis for their channel": (
        lambda: Written(
            lambda self, x: self.fc(self.conv(x.unsqueeze(1)).flatten(1)),
            conv=nn.Conv2d(1, 4, 5, 2),
            fc=nn.Linear(4 * 12 * 10, CLASSES),
        ),
        GREY,
    ),
    "pixels": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(28 * 24, CLASSES)), GREY),
    "view of pixels": (
        of_row(
            lambda self, x: self.fc(x.view(-1, 28 * 24)), fc=lambda: nn.Linear(28 * 24, CLASSES)
        ),
        GREY,
    ),
    "flattened rows": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES)), ROW),
    "squeeze twice": (
        after_conv(
            lambda self, maps: functional.adaptive_avg_pool2d(maps, 1).squeeze(-1).squeeze(-1)
        ),
        IMAGES,
    ),
    "flatten and mean": (after_conv(lambda self, maps: maps.flatten(2).mean(2)), IMAGES),
    "view and mean": (
        after_conv(lambda self, maps: maps.view(maps.size(0), 8, -1).mean(-1)),
        IMAGES,
    ),
    "view by size": (after_conv(lambda self, maps: maps.view(maps.size(0), -1), 288), IMAGES),
    "mean of rows": (after_conv(lambda self, maps: maps.mean(2).flatten(1), 48), IMAGES),
    "largest of maps": (after_conv(lambda self, maps: maps.flatten(2).max(2).values), IMAGES),
    "only pixel": (
        after_conv(lambda self, maps: functional.avg_pool2d(maps, 6)[:, :, 0, 0]),
        IMAGES,
    ),
    "average and maximum": (
        after_conv(lambda self, maps: torch.cat([maps.mean((2, 3)), maps.amax((2, 3))], 1), 16),
        IMAGES,
    ),
    "padding same": (between(lambda: nn.Conv2d(8, 8, 5, padding="same"), nn.ReLU), IMAGES),
    "padding of even windows": (
        between(
            lambda: nn.Conv2d(8, 8, 4, padding="same"),
            lambda: nn.ZeroPad2d((0, 1, 0, 1)),
            lambda: nn.Conv2d(8, 8, 3, 2),
        ),
        IMAGES,
    ),
    "transposed convolutions": (
        between(
            lambda: nn.ConvTranspose2d(8, 6, 3, 2, 1, output_padding=1, groups=2),
            lambda: nn.ConvTranspose2d(6, 4, (2, 1)),
        ),
        IMAGES,
    ),
    "rounded up": (between(lambda: nn.MaxPool2d(3, 2, ceil_mode=True)), IMAGES),
    "averages rounded up": (
        between(lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True)),
        IMAGES,
    ),
    "rounded up to the same": (between(lambda: nn.MaxPool2d(2, 2, ceil_mode=True)), IMAGES),
    "dilation of one place": (between(lambda: nn.Conv2d(8, 6, 1, dilation=3)), IMAGES),
    "dilation": (between(lambda: nn.Conv2d(8, 6, 3, 2, 2, dilation=(2, 3), groups=2)), IMAGES),
    "clamp": (after_conv(lambda self, maps: maps.clamp(min=0).mean((2, 3))), IMAGES),
    "other activations": (
        between(lambda: nn.Mish(), lambda: nn.ELU(0.5), lambda: nn.Hardtanh(-0.3, 0.4)),
        IMAGES,
    ),
    "maximum": (
        after_conv(lambda self, maps: torch.max(maps, torch.zeros_like(maps)).mean((2, 3))),
        IMAGES,
    ),
    "limited ReLU": (
        after_conv(lambda self, maps: torch.relu(maps).clamp(max=6).mean((2, 3))),
        IMAGES,
    ),
    "adaptive maximum": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)
        ),
        IMAGES,
    ),
    "zeros around a convolution": (
        between(lambda: nn.ZeroPad2d(1), lambda: nn.Conv2d(8, 8, 5, padding=1)),
        IMAGES,
    ),
    "zeros that no window reaches": (
        between(lambda: nn.ZeroPad2d((1, 0, 1, 0)), lambda: nn.Conv2d(8, 8, 3, 2)),
        IMAGES,
    ),
    "equal arrays of several modules": (copied, IMAGES),
    "LSTM": (of_steps(nn.LSTM, lambda made: made[0][:, -1], num_layers=2), STEPS),
    "LSTM both ways": (
        of_steps(nn.LSTM, lambda made: made[0][:, -1], 32, bidirectional=True),
        STEPS,
    ),
    "GRU": (of_steps(nn.GRU, lambda made: made[1][-1], num_layers=2), STEPS),
    "GRU on average": (of_steps(nn.GRU, lambda made: made[0].mean(1)), STEPS),
    "all states of a GRU": (of_steps(nn.GRU, lambda made: made[0].flatten(1), 7 * 16), STEPS),
    "convolutions over time": (
        of_row(
            lambda self, x: self.fc(self.pool(self.conv(x.transpose(1, 2))).mean(-1)),
            conv=lambda: nn.Conv1d(12, 8, 3, padding=1),
            pool=lambda: nn.MaxPool1d(3, 2),
            fc=lambda: nn.Linear(8, CLASSES),
        ),
        STEPS,
    ),
    "a layer before an LSTM": (
        of_row(
            lambda self, x: self.fc(self.rnn(torch.relu(self.hidden(x)))[0][:, -1]),
            hidden=lambda: nn.Linear(12, 9),
            rnn=lambda: nn.LSTM(9, 8, batch_first=True),
            fc=lambda: nn.Linear(8, CLASSES),
        ),
        STEPS,
    ),
    "transposed weights": (
        of_row(
            lambda self, x: torch.relu(x @ self.v.T) @ self.w.t(),
            v=weight(32, 192),
            w=weight(CLASSES, 32),
        ),
        ROW,
    ),
    "batch normalisation of a row": (
        of_row(
            lambda self, x: self.fc(self.norm(self.hidden(x))),
            hidden=lambda: nn.Linear(192, 16),
            norm=lambda: nn.BatchNorm1d(16),
            fc=lambda: nn.Linear(16, CLASSES),
        ),
        ROW,
    ),
}


def exported(make: Make, shape: tuple[int, ...], file: Path) -> tuple[Any, Any]:
    """Write a model, whose averages are not as they begin; return it and samples that it takes."""
    torch.manual_seed(3)
    images = np.random.default_rng(3).integers(0, 256, (SAMPLES, *shape), np.uint8)
    x = (torch.from_numpy(images.astype(np.float32)) - 127) / 64
    model = make()
    model.train()(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), (x[:2],), str(file), dynamo=False)
    return model, images


@pytest.mark.parametrize("name", SPELLED)
def test_the_first_loss_is_that_of_pytorch(tmp_path: Path, name: str) -> None:
    file, (make, shape) = tmp_path / "model.onnx", SPELLED[name]
    model, images = exported(make, shape, file)
    labels = np.arange(SAMPLES)
    with torch.no_grad():
        logits = model((torch.from_numpy(images.astype(np.float32)) - 127) / 64)
        expected = functional.cross_entropy(logits, torch.from_numpy(labels)).item()
    network = load_network(str(file))
    assert ("2 uses of arrays that the export merged" in network.note) == (
        name == "equal arrays of several modules"
    )
    places = {
        IMAGES: (0, 1, 2, 3),
        NHWC: (0, 3, 1, 2),
        GREY: (0, 1, 2),
        STEPS: (0, 2, 1),
        ROW: (0, 1),
    }[shape]
    images = np.ascontiguousarray(images.transpose(places)).reshape(SAMPLES, *network.input)
    channels = network.input[0]
    scaled = Normalisation(np.full(channels, 127, np.float32), np.full(channels, 64, np.float32))
    data = Dataset(
        "own", images, labels, images, labels, tuple(map(str, range(CLASSES))), given=scaled
    )
    settings = {"samples": SAMPLES, "test_samples": SAMPLES, "batch": SAMPLES}
    weights = read_weights(str(file), network, "here")
    assert evaluate(RunWeights(weights, settings, network, 0), data).test_loss == pytest.approx(
        expected, rel=1e-5
    )


def tied() -> Any:
    """Two layers of one parameter."""
    model = between(lambda: nn.Conv2d(8, 8, 1), nn.ReLU, lambda: nn.Conv2d(8, 8, 1))()
    model[3].weight = model[1].weight
    return model


REFUSED: dict[str, tuple[Make, str]] = {
    "one parameter twice": (
        tied,
        "PyTorch's Conv2d '3': shares its weights '1.weight' with another node",
    ),
    "LayerNorm": (between(lambda: nn.LayerNorm([8, 8])), "PyTorch's LayerNorm '1': "),
    "Upsample": (
        between(lambda: nn.Upsample(scale_factor=2, mode="bicubic")),
        "PyTorch's Upsample '1': ",
    ),
    "dilation": (
        between(lambda: nn.MaxPool2d(2, dilation=2)),
        "PyTorch's MaxPool2d '1': `dilations` = [2, 2]",
    ),
    "another activation": (between(lambda: nn.Sequential(nn.SELU())), "PyTorch's SELU '1.0': "),
    "attention": (
        after_conv(
            lambda self, maps: self.attention(*[maps.flatten(2).transpose(1, 2)] * 3)[0].mean(1),
            attention=lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        ),
        "PyTorch's MultiheadAttention 'attention': ",
    ),
    "maps times their transpose": (
        after_conv(lambda self, maps: (torch.sigmoid(maps) * maps.transpose(2, 3)).flatten(1), 288),
        "PyTorch's product: joins values with other axes than",
    ),
    "rows in two orders": (
        after_conv(lambda self, maps: maps.flatten(1) + maps.permute(0, 2, 3, 1).flatten(1), 288),
        "PyTorch's sum: adds rows of values that lie in different orders",
    ),
    "rows that are interleaved": (
        after_conv(lambda self, maps: torch.cat([maps.permute(0, 2, 3, 1).flatten(1)] * 2, 1), 576),
        "PyTorch's cat: joins rows of values in which those of a channel do not lie side by side",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_as_in_pytorch(
    tmp_path: Path, name: str, one_line: Callable[..., str]
) -> None:
    make, message = REFUSED[name]
    exported(make, IMAGES, tmp_path / "model.onnx")
    with pytest.raises(InputError) as error:
        load_network(str(tmp_path / "model.onnx"))
    assert message in one_line(error)
