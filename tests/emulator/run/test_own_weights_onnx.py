"""Weights of ONNX files: a model that PyTorch exported computes here what it computed there."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import load_data
from emuchain.emulator.network import load_network
from emuchain.emulator.run import RunWeights, evaluate, read_weights

torch = pytest.importorskip("torch", reason="PyTorch, which exports the models, is not installed")
pytest.importorskip("onnx")
nn = torch.nn

SETTINGS: dict[str, Any] = {"samples": 60, "test_samples": 20, "batch": 20}


def images() -> Any:
    """A model with all that a chain of convolutions has, grouped ones and batch normalisation,
    too.
    """
    model = nn.Sequential(
        nn.Conv2d(3, 12, 5, 2, 2),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(12, 20, 3, 1, 1, groups=2, bias=False),
        nn.BatchNorm2d(20),
        nn.ReLU6(),
        nn.Flatten(),
        nn.Linear(20 * 64, 10),
    )
    for norm in (model[1], model[5]):
        for array, low in (
            (norm.running_mean, -1),
            (norm.running_var, 0.5),
            (norm.weight, 0.5),
            (norm.bias, -1),
        ):
            nn.init.uniform_(array, low, 2)
    return model


class Rows(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """Both kinds of recurrent layers, one of them in both directions, and a MatMul with its bias
    apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.GRU(96, 12, batch_first=True, bidirectional=True)
        self.second = nn.LSTM(24, 8, batch_first=True)
        self.weight, self.bias = nn.Parameter(torch.randn(8, 10)), nn.Parameter(torch.randn(10))

    def forward(self, x: Any) -> Any:
        """Return the logits of images, row after row."""
        steps = x.permute(0, 2, 1, 3).reshape(-1, 32, 96)
        return self.second(self.first(steps)[0])[0][:, -1] @ self.weight + self.bias


class AllRows(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """A classifier of the states of all rows: flattened, steps come first, where maps have channels
    first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.classes = nn.LSTM(96, 6, batch_first=True), nn.Linear(32 * 6, 10)

    def forward(self, x: Any) -> Any:
        """Return the logits of images."""
        steps = x.permute(0, 2, 1, 3).reshape(-1, 32, 96)
        return self.classes(torch.relu(torch.flatten(self.lstm(steps)[0], 1)))


class RowsFirst(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """A classifier of maps whose channels come last when they are flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.maps, self.classes = nn.Conv2d(3, 5, 4, 4), nn.Linear(64 * 5, 10)

    def forward(self, x: Any) -> Any:
        """Return the logits of images."""
        return self.classes(torch.flatten(torch.relu(self.maps(x)).permute(0, 2, 3, 1), 1))


class Spelled(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """What people write in many ways: padding, norms of weights, views, and products with
    parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3))
        same = nn.Conv2d(8, 8, 5, padding="same"), nn.MaxPool2d(2, 2, ceil_mode=True)
        self.maps = nn.Sequential(nn.ZeroPad2d(1), normed, nn.ReLU(), *same)
        self.bn, self.conv = nn.BatchNorm2d(8), nn.Conv2d(8, 6, 1, dilation=2)
        self.classes, self.v = nn.Linear(14, 24, bias=False), nn.Parameter(torch.randn(10, 24))

    def forward(self, x: Any) -> Any:
        """Return the logits of images."""
        maps = self.bn(self.maps(x)).clamp(min=0)
        mean = nn.functional.adaptive_avg_pool2d(self.conv(maps), 1).squeeze(-1).squeeze(-1)
        both = torch.cat([mean, maps.flatten(2).mean(2)], 1)
        return torch.relu(self.classes(both)) @ self.v.t()


MODELS: dict[str, Callable[[], Any]] = {
    **{"images": images, "rows": Rows, "all rows": AllRows, "rows first": RowsFirst},
    **{"spelled": Spelled},
}


def export(model: Any, file: Path) -> None:
    """Write a model as docs/configuration.md says: convolutions keep their batch normalisation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.zeros(1, 3, 32, 32),),
            str(file),
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=isinstance(model, Rows | AllRows),
        )


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_what_it_did(tmp_path: Path, name: str) -> None:
    torch.manual_seed(1)
    model, file = MODELS[name]().eval(), tmp_path / "model.onnx"
    export(model, file)
    network = load_network(str(file))
    weights = read_weights(str(file), network, "here")
    tested = evaluate(RunWeights(weights, {**SETTINGS, "data": "shapes"}, network, 0)).tested
    data = load_data("shapes").first(SETTINGS["samples"]).test_first(SETTINGS["test_samples"])
    x = data.normalisation().apply(np.asarray(data.test_images))
    with torch.no_grad():
        loss = nn.functional.cross_entropy(
            model(torch.from_numpy(x)), torch.from_numpy(data.test_labels)
        ).item()
    assert tested.mean_loss == pytest.approx(loss, rel=1e-5)
    if name == "spelled":
        assert "1 array of weights are computed from others" in network.note
        return
    values = sorted(
        array.tobytes()
        for arrays in weights.values()
        for array in arrays.values()
        if array.ndim == 1
    )
    kept = {key: of.numpy() for key, of in model.state_dict().items() if of.ndim == 1}
    assert values == sorted(of.tobytes() for of in kept.values()), (
        "biases and averages, bit for bit"
    )


def test_training_begins_with_them(tmp_path: Path, one_line: Callable[[Any], str]) -> None:
    torch.manual_seed(2)
    file = str(tmp_path / "model.onnx")
    export(images().eval(), Path(file))
    found = emuchain.train(file, **SETTINGS, init=file, learning_rate=1e-30, weight_decay=0.0)
    expected = read_weights(file, load_network(file), "here")
    assert {*found.weights} == {*expected}
    assert all(
        (found.weights[name]["weight"] == expected[name]["weight"]).all() for name in expected
    )
    with pytest.raises(InputError) as error:
        emuchain.train("quick-cifar", **SETTINGS, init=file)
    assert one_line(error).startswith(f"`init` = {file!r}: lacks `weight`")
