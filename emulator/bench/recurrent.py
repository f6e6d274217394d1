"""`bench recurrent`: whole training steps of LSTM and GRU layers, beside PyTorch's.

A step is the forward pass and the backward pass with all gradients: of inputs, weights and biases. Ours is that of the
slice of all units, as training runs it, from plain weights, so it includes packing them. Each side runs on one thread;
a round times ours, PyTorch's, the multiply-add peak and the reading of an array of R's size back to back. Ratios are
taken within a round, then the median over the rounds. From the last two follows a bound, which no order of the work can
beat: see `Layer.bound_s`.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.number import FP32
from ..common import percent
from .figures import Pace, Sheet, as_ratio, geometric_mean, interleaved, median_ratio
from .shapes import Layer

_PEAK_ROUNDS = 200_000
_READ_BYTES = 1 << 26  # at a time, so that one call takes some hundred microseconds
_LEAST_READ = 1 << 10  # floats
_ROUNDING = 1e-4  # of the largest value: far above any effect of the order of sums, far below any mistake

Floats = NDArray[np.float32]

RECURRENT_NOTES = (
    "A training step: forward, and backward with all gradients, from plain weights. GFLOP/s count only its products."
    " Bound: products at the multiply-add peak, but those with R at each step no faster than R can be read; both are"
    " measured together with it. Ratio: PyTorch's time over ours, one thread each, medians."
)


@dataclasses.dataclass(frozen=True)
class Row:
    """The training step of one layer; medians over `rounds`. PyTorch's figures are None if it was not measured.

    `bound_share` is the bound over our time, `bound_ratio` PyTorch's time over the bound; `read_gbps` is the rate, in
    gigabytes a second, at which an array of R's size is read.
    """

    kind: str
    units: int
    batch: int
    steps: int
    rounds: int
    seconds: float
    gflops: float
    peak_gflops: float
    read_gbps: float
    bound_seconds: float
    bound_share: float
    torch_seconds: float | None
    ratio: float | None
    bound_ratio: float | None


@dataclasses.dataclass(frozen=True)
class Summary:
    """Layers of one kind and of some batches: ratios to PyTorch over all sizes."""

    kind: str
    batches: tuple[int, ...]
    layers: int
    ratio_geometric_mean: float
    ratio_minimum: float
    bound_ratio_geometric_mean: float


def measure(measured: Sequence[Layer], pace: Pace, torch: ModuleType | None) -> Iterator[Row]:
    """Yield each row as soon as it is measured.

    Raises:
        ArithmeticError: our results differ from PyTorch's.
    """
    from ...kernels import in_huge_pages
    from ...kernels.llvm import FLOP_OF_ROUND, multiply_add, read

    for layer in measured:
        arrays = _arrays(layer)
        sides = [_ours(layer, *arrays)]
        if torch is not None:
            sides.append(_theirs(torch, layer, *arrays))
            _check(layer, *(call() for call in sides))
        count = max(FP32.values_in(layer.weight_bytes), _LEAST_READ)
        size = FP32.bytes_of(count)
        numbers, times = in_huge_pages(size).view(np.float32), -(-_READ_BYTES // size)
        numbers.fill(1)
        bounds = functools.partial(multiply_add, _PEAK_ROUNDS), functools.partial(read, numbers, times)
        *ours_and_theirs, peak_s, read_s = interleaved([*sides, *bounds], pace)
        flop_s = [seconds / (_PEAK_ROUNDS * FLOP_OF_ROUND) for seconds in peak_s]
        byte_s = [seconds / (size * times) for seconds in read_s]
        yield row_of(layer, flop_s, byte_s, *ours_and_theirs)


def row_of(
    layer: Layer,
    flop_s: Sequence[float],
    byte_s: Sequence[float],
    ours_s: Sequence[float],
    torch_s: Sequence[float] | None = None,
) -> Row:
    """Return a row from each round's seconds: of an operation at the peak, of a byte read, and of a training step."""
    bound_s = [layer.bound_s(*seconds) for seconds in zip(flop_s, byte_s, strict=True)]
    return Row(
        **dataclasses.asdict(layer),
        rounds=len(ours_s),
        seconds=statistics.median(ours_s),
        gflops=layer.flop / statistics.median(ours_s) / 1e9,
        peak_gflops=1 / statistics.median(flop_s) / 1e9,
        read_gbps=1 / statistics.median(byte_s) / 1e9,
        bound_seconds=statistics.median(bound_s),
        bound_share=median_ratio(bound_s, ours_s),
        torch_seconds=None if torch_s is None else statistics.median(torch_s),
        ratio=None if torch_s is None else median_ratio(torch_s, ours_s),
        bound_ratio=None if torch_s is None else median_ratio(torch_s, bound_s),
    )


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """Return a summary of each kind for few samples, up to 4, and for more."""
    summaries = []
    for kind in dict.fromkeys(row.kind for row in rows):
        for few in (True, False):
            mine = [row for row in rows if row.kind == kind and (row.batch <= 4) == few]
            ratios = [row.ratio for row in mine if row.ratio is not None]
            bounds = [row.bound_ratio for row in mine if row.bound_ratio is not None]
            if ratios:
                batches = tuple(dict.fromkeys(row.batch for row in mine))
                means = geometric_mean(ratios), min(ratios), geometric_mean(bounds)
                summaries.append(Summary(kind, batches, len(mine), *means))
    return summaries


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
    from ...kernels.recurrent import GruSlice, LstmSlice, by_unit
    from ..device import all_backward, all_forward

    kernel = (LstmSlice if layer.kind == "lstm" else GruSlice)(layer.units, layer.units)
    own = [by_unit(array, layer.gates) for array in weights]

    def step() -> list[Floats]:
        packed = kernel.pack(*own)
        tape = kernel.tape(kernel.input_products(packed, x))
        y = all_forward(kernel, packed, tape)
        all_backward(kernel, packed, tape, dy)
        gradients = [np.empty_like(array) for array in own]
        kernel.gradients(tape, x, *gradients, fresh=True)
        return [y, kernel.input_errors(packed, tape.delta), *gradients]

    return step


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
    from ...kernels.recurrent import by_unit

    y, dx, *gradients = (value.numpy() for value in theirs)
    for mine, other in zip(ours, [y, dx, *(by_unit(array, layer.gates) for array in gradients)], strict=True):
        distance = float(np.abs(mine - other).max() / np.abs(other).max())
        if not distance < _ROUNDING:
            raise ArithmeticError(
                f"{layer.kind} of {layer.units} units: differs from PyTorch by {distance:.1e} of the largest value"
            )


def recurrent_answer(summaries: Sequence[Summary], rows: Sequence[Row]) -> list[str]:
    """Return how fast the layers are beside PyTorch's, or else our speed alone."""
    if not summaries:
        fastest = max(rows, key=lambda row: row.gflops)
        return [f"layers measured: {len(rows)}; up to {fastest.gflops:.1f} GFLOP/s, {_layer(fastest)}"]
    return [
        f"{summary.kind.upper()}, batch {_batches(summary)}: {as_ratio(summary.ratio_geometric_mean)} times as"
        f" fast as PyTorch, the geometric mean; least {as_ratio(summary.ratio_minimum)}; a step at this machine's bound"
        f" would have {as_ratio(summary.bound_ratio_geometric_mean)}"
        for summary in summaries
    ]


def recurrent_sheet(kind: str, rows: Sequence[Row]) -> Sheet:
    """Return the table of one kind's layers."""
    cells = tuple(
        (
            str(row.batch),
            str(row.units),
            f"{1e3 * row.seconds:.2f} ms",
            f"{row.gflops:.1f}",
            f"{1e3 * row.bound_seconds:.2f} ms",
            percent(row.bound_share),
            "-" if row.torch_seconds is None else f"{1e3 * row.torch_seconds:.2f} ms",
            as_ratio(row.ratio),
        )
        for row in rows
    )
    title = f"{kind.upper()}: training steps of {rows[0].steps} time steps, one thread"
    return Sheet(title, ("batch", "units", "time", "GFLOP/s", "bound", "of bound", "PyTorch", "ratio"), cells, 0)


def _layer(row: Row) -> str:
    return f"{row.kind.upper()} of {row.units} units, batch {row.batch}"


def _batches(summary: Summary) -> str:
    first, last = min(summary.batches), max(summary.batches)
    return str(first) if first == last else f"{first} to {last}"
