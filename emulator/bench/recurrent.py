"""`bench recurrent`: whole training steps of LSTM and GRU layers, beside PyTorch's.

A step is the forward pass and the backward pass with all gradients: of inputs, weights and biases. It starts from plain
weights, so ours includes packing them. Each side runs on one thread; a round times ours and PyTorch's back to back, and
ratios are taken within a round, then the median over the rounds.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .recurrent_shapes import Layer
from .stopwatch import Pace, geometric_mean, interleaved, median_ratio

_ROUNDING = 1e-4  # of the largest value: far above any effect of the order of sums, far below any mistake

Floats = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Row:
    """The training step of one layer; medians over `rounds`. PyTorch's figures are None if it was not measured."""

    kind: str
    units: int
    batch: int
    steps: int
    rounds: int
    seconds: float
    gflops: float
    torch_seconds: float | None
    ratio: float | None


@dataclasses.dataclass(frozen=True)
class Summary:
    """Layers of one kind and of some batches: ratios to PyTorch over all sizes."""

    kind: str
    batches: tuple[int, ...]
    layers: int
    ratio_geometric_mean: float
    ratio_minimum: float


def measure(measured: Sequence[Layer], pace: Pace, torch: ModuleType | None) -> Iterator[Row]:
    """Yield each row as soon as it is measured.

    Raises:
        ArithmeticError: our results differ from PyTorch's.
    """
    for layer in measured:
        arrays = _arrays(layer)
        calls = [_ours(layer, *arrays)]
        if torch is not None:
            calls.append(_theirs(torch, layer, *arrays))
            _check(layer, *(call() for call in calls))
        yield row_of(layer, *interleaved(calls, pace))


def row_of(layer: Layer, ours_s: Sequence[float], torch_s: Sequence[float] | None = None) -> Row:
    """Return a row from each round's seconds."""
    return Row(
        **dataclasses.asdict(layer),
        rounds=len(ours_s),
        seconds=statistics.median(ours_s),
        gflops=layer.flop / statistics.median(ours_s) / 1e9,
        torch_seconds=None if torch_s is None else statistics.median(torch_s),
        ratio=None if torch_s is None else median_ratio(torch_s, ours_s),
    )


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Return a summary of each kind for few samples, up to 4, and for more."""
    found = []
    for kind in dict.fromkeys(row.kind for row in rows):
        for few in (True, False):
            mine = [row for row in rows if row.kind == kind and (row.batch <= 4) == few]
            ratios = [row.ratio for row in mine if row.ratio is not None]
            if ratios:
                batches = tuple(dict.fromkeys(row.batch for row in mine))
                found.append(Summary(kind, batches, len(mine), geometric_mean(ratios), min(ratios)))
    return found


def _arrays(layer: Layer) -> tuple[Floats, Floats, list[Floats]]:
    """Return random inputs, errors of the outputs, and weights as PyTorch draws them."""
    random = np.random.Generator(np.random.Philox(key=1))
    maps = layer.batch, layer.steps, layer.units
    rows, bound = layer.gates * layer.units, layer.units**-0.5
    weights = [
        random.uniform(-bound, bound, shape).astype(np.float32)
        for shape in ((rows, layer.units), (rows, layer.units), (rows,), (rows,))
    ]
    return random.standard_normal(maps, np.float32), random.standard_normal(maps, np.float32), weights


def _ours(layer: Layer, x: Floats, dy: Floats, weights: list[Floats]) -> Callable[[], list[Floats]]:
    from ...kernels import recurrent

    def lstm() -> list[Floats]:
        y, _, _, saved = recurrent.lstm_forward(x, *weights)
        return [y, *recurrent.lstm_backward(saved, dy)[:5]]

    def gru() -> list[Floats]:
        w, r, b_w, b_r = weights
        y, _, saved = recurrent.gru_forward(x, w, r, b_w, b_r)
        return [y, *recurrent.gru_backward(saved, dy)[:5]]

    return lstm if layer.kind == "lstm" else gru


def _theirs(torch: ModuleType, layer: Layer, x: Floats, dy: Floats, weights: list[Floats]) -> Callable[[], list[Any]]:
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[layer.kind](layer.units, layer.units, batch_first=True)
    parameters = [getattr(module, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    with torch.no_grad():
        for parameter, array in zip(parameters, weights, strict=True):
            parameter.copy_(torch.from_numpy(array))
    inputs, errors = torch.from_numpy(x).requires_grad_(), torch.from_numpy(dy)

    def step() -> list[Any]:
        for leaf in (inputs, *parameters):
            leaf.grad = None
        y, _ = module(inputs)
        y.backward(errors)
        return [y.detach(), *(leaf.grad for leaf in (inputs, *parameters))]

    return step


def _check(layer: Layer, ours: list[Floats], theirs: list[Any]) -> None:
    """Raise ArithmeticError if results differ from PyTorch's: speed with wrong results means nothing."""
    for mine, other in zip(ours, (value.numpy() for value in theirs), strict=True):
        distance = float(np.abs(mine - other).max() / np.abs(other).max())
        if not distance < _ROUNDING:
            raise ArithmeticError(
                f"{layer.kind} of {layer.units} units: differs from PyTorch by {distance:.1e} of the largest value"
            )
