"""ONNX files of recurrent networks: those that PyTorch exports, both ways, and what is refused."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.network import Network, load_network

torch = pytest.importorskip(
    "torch", reason="PyTorch, which exports the files of these tests, is not installed"
)
onnx = pytest.importorskip(
    "onnx", reason="onnx, which reads the files of these tests, is not installed"
)
nn = torch.nn

STEPS, VALUES, UNITS, CLASSES = 7, 6, 5, 3


class Recurrent(nn.Module):
    """Recurrent layers, and a classifier on what `pick` takes of their outputs and last states."""

    def __init__(self, kind: str, pick: Callable[[Any, Any], Any], **keys: Any) -> None:
        super().__init__()
        self.layers = getattr(nn, kind)(VALUES, UNITS, **keys)
        self.classifier = nn.Linear(UNITS * (1 + keys.get("bidirectional", False)), CLASSES)
        self.pick = pick

    def forward(self, x: Any) -> Any:
        y, state = self.layers(x)
        return self.classifier(self.pick(y, state[0] if isinstance(state, tuple) else state))


class Lines(nn.Module):
    """A network that reads images by rows, as `lstm-rows` does."""

    def __init__(self, shape: tuple[int, int, int], how: Callable[[Any], Any]) -> None:
        super().__init__()
        self.layers = nn.LSTM(shape[0] * shape[2], UNITS, batch_first=True)
        self.classifier, self.how = nn.Linear(UNITS, CLASSES), how

    def forward(self, x: Any) -> Any:
        return self.classifier(self.layers(self.how(x))[0][:, -1])


class Characters(nn.Module):
    """A language model, as `char-lstm` is."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols, self.layers = (
            nn.Embedding(9, VALUES),
            nn.LSTM(VALUES, UNITS, batch_first=True),
        )
        self.classifier = nn.Linear(UNITS, 9)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.layers(self.symbols(x))[0])


def exported(model: Any, x: Any, how: str) -> bytes:
    """Return the ONNX file of a model, by one of PyTorch's exporters; `open` leaves the number of
    samples open.
    """
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        place = 0 if x.ndim != 3 or getattr(model, "layers", model).batch_first else 1
        if how.startswith("dynamo"):
            pytest.importorskip(
                "onnxscript", reason="onnxscript, which PyTorch's new exporter needs, is missing"
            )
            open_samples = ({place: torch.export.Dim("n")},) if how.endswith("open") else None
            program = torch.onnx.export(
                model, (x,), dynamo=True, verbose=False, dynamic_shapes=open_samples
            )
            return program.model_proto.SerializeToString()
        open_axes = {"x": {place: "n"}} if how.endswith("open") else None
        torch.onnx.export(
            model, (x,), made, dynamo=False, input_names=["x"], dynamic_axes=open_axes
        )
    return made.getvalue()


def imported(folder: Path, content: bytes) -> Network:
    """Return the network of an ONNX file; its description, written and read, is the same one."""
    path = folder / "mine.onnx"
    path.write_bytes(content)
    network = load_network(str(path))
    (folder / "again.toml").write_text(network.text, encoding="utf-8")
    assert load_network(str(folder / "again.toml")) == network
    return network


def layers_of(network: Network) -> list[dict[str, Any]]:
    """Return the operations of a network as their keys."""
    return [
        {"type": operation.type, **vars(operation)}
        for layer in network.layers
        for operation in (layer.operation, *(step.operation for step in layer.sfu))
    ]


def recurrent(kind: str, **keys: Any) -> dict[str, Any]:
    """Return the keys of a layer."""
    reset = {"reset": "after"} if kind == "GRU" else {}
    return {
        "type": kind.lower(),
        "units": UNITS,
        "projection": None,
        "bidirectional": False,
        **reset,
        **keys,
    }


LAST = {"type": "last-step"}
FC = {"type": "fc", "features": CLASSES, "bias": True}
EACH = {
    "type": "conv",
    "channels": CLASSES,
    "kernel": (1, 1),
    "stride": (1, 1),
    "pad": (0, 0),
    "dilation": (1, 1),
    "groups": 1,
    "tied": None,
    "cut": None,
    "bias": True,
}

WAYS = [
    *("script", "script-open"),
    *(pytest.param(way, marks=pytest.mark.slow) for way in ("dynamo", "dynamo-open")),
]
"""PyTorch's exporters; without the mark `open`, the number of samples is fixed."""


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_the_last_step(tmp_path: Path, kind: str, both: bool, layers: int, how: str) -> None:
    model = Recurrent(
        kind, lambda y, h: y[:, -1], num_layers=layers, bidirectional=both, batch_first=True
    )
    network = imported(tmp_path, exported(model, torch.zeros(2, STEPS, VALUES), how))
    assert network.input == (VALUES, STEPS, 1)
    assert layers_of(network) == [recurrent(kind, bidirectional=both)] * layers + [LAST, FC]
    assert network.parameters == sum(values.numel() for values in model.parameters())


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_each_step(tmp_path: Path, both: bool, batch_first: bool, how: str) -> None:
    model = Recurrent("LSTM", lambda y, h: y, bidirectional=both, batch_first=batch_first)
    x = torch.zeros(2, STEPS, VALUES) if batch_first else torch.zeros(STEPS, 2, VALUES)
    network = imported(tmp_path, exported(model, x, how))
    assert network.input == (VALUES, STEPS, 1)
    assert layers_of(network) == [recurrent("LSTM", bidirectional=both), EACH]
    assert network.parameters == sum(values.numel() for values in model.parameters())


PICKS: dict[str, Callable[[Any, Any], Any]] = {
    "the last state": lambda y, h: h[-1],
    "a slice": lambda y, h: y[:, -1:].squeeze(1),
    "a slice as it is": lambda y, h: y[:, -1:, :],
    "all steps at once": lambda y, h: y.reshape(-1, UNITS),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("pick", PICKS)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_what_may_be_picked(tmp_path: Path, kind: str, pick: str, layers: int, how: str) -> None:
    model = Recurrent(kind, PICKS[pick], num_layers=layers, batch_first=True)
    network = imported(tmp_path, exported(model, torch.zeros(2, STEPS, VALUES), how))
    after = [EACH] if pick == "all steps at once" else [LAST, FC]
    assert layers_of(network) == [recurrent(kind)] * layers + after


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_layers_alone_with_their_states(
    tmp_path: Path, kind: str, layers: int, both: bool, how: str
) -> None:
    model = getattr(nn, kind)(VALUES, UNITS, layers, bidirectional=both)
    network = imported(tmp_path, exported(model, torch.zeros(STEPS, 2, VALUES), how))
    assert layers_of(network) == [recurrent(kind, bidirectional=both)] * layers
    assert network.classes == UNITS * (1 + both)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((3, STEPS, 4), lambda x: x.permute(0, 2, 1, 3).flatten(2)),
        ((1, STEPS, VALUES), lambda x: x.squeeze(1)),
        ((1, STEPS, VALUES), lambda x: x.view(-1, STEPS, VALUES)),
    ],
)
def test_rows_of_images(
    tmp_path: Path, shape: tuple[int, int, int], rows: Callable[[Any], Any], how: str
) -> None:
    network = imported(tmp_path, exported(Lines(shape, rows), torch.zeros(2, *shape), how))
    assert network.input == shape
    assert network.entry == (shape[0] * shape[2], STEPS, 1)
    assert layers_of(network) == [recurrent("LSTM"), LAST, FC]


@pytest.mark.parametrize("how", WAYS)
def test_symbols(tmp_path: Path, how: str) -> None:
    network = imported(
        tmp_path, exported(Characters(), torch.zeros(2, STEPS, dtype=torch.int64), how)
    )
    assert network.input == (9, STEPS, 1)
    assert network.result_steps == STEPS
    expected = [
        {"type": "embedding", "features": VALUES},
        recurrent("LSTM"),
        {**EACH, "channels": 9},
    ]
    assert layers_of(network) == expected
