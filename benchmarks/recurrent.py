"""`bench recurrent`: whole training steps of LSTM and GRU layers, beside PyTorch's.

A step is the forward pass and the backward pass with all gradients: of inputs, weights and biases.
Ours is that of the slice of all units, as training runs it, from plain weights, so it includes
packing them. Each side runs on one thread; a round times ours, PyTorch's, the reading of an array
of R's size and the multiply-add peak back to back. From the last two follows a bound, which no
order of the work can beat: see `Layer.bound_s`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ..emulator.common import percent
from ..kernels.number import FP32
from . import frame
from .frame import Floats, Pace, Report, Sheet

_READ_BYTES = 1 << 26  # at a time, so that one call takes some hundred microseconds
_LEAST_READ = 1 << 10  # floats

NOTES = (
    "A training step: forward, and backward with all gradients, from plain weights. GFLOP/s count"
    " only its products. Bound: products at the multiply-add peak, but those with R at each step no"
    " faster than R can be read; both are measured together with it. Ratio: PyTorch's time over"
    " ours, one thread each, medians."
)


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of `units` units with as many inputs, and its mini-batch."""

    kind: str
    units: int
    batch: int
    steps: int

    @property
    def gates(self) -> int:
        """Number of gates of a unit."""
        return 4 if self.kind == "lstm" else 3

    @property
    def weight_bytes(self) -> int:
        """Bytes of R, which each step reads, forward and back."""
        return FP32.bytes_of(self.gates * self.units * self.units)

    def bound_s(self, flop_s: float, byte_s: float) -> float:
        """Return the least seconds of a training step, for those of an operation, and of a byte of
        R that is read.

        The products with R of a step wait for those of the step before: each takes its operations
        or the reading of R, whichever is longer. Those with W and the gradients, four of six, are
        operations alone.
        """
        product = self.flop / (6 * self.steps) * flop_s
        return self.steps * (2 * max(product, self.weight_bytes * byte_s) + 4 * product)

    @property
    def flop(self) -> int:
        """Multiplications and additions of a training step: forward, errors and gradients of both
        products.
        """
        return 3 * 2 * 2 * self.batch * self.steps * self.gates * self.units * self.units


def layers(
    kinds: Sequence[str], units: Sequence[int], batches: Sequence[int], steps: int
) -> list[Layer]:
    """Return all layers of these kinds, batches and sizes, in this order."""
    return [
        Layer(kind, size, batch, steps) for kind in kinds for batch in batches for size in units
    ]


@dataclasses.dataclass(frozen=True)
class Row:
    """The training step of one layer; medians over `rounds`. PyTorch's figures are None if it was
    not measured.

    `bound_share` is the bound over our time, `bound_ratio` PyTorch's time over the bound;
    `read_gbps` is the rate, in gigabytes a second, at which an array of R's size is read.
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


def report(measured: Sequence[Layer], pace: Pace, torch: ModuleType | None) -> Report:
    """Measure training steps of these layers."""
    rows = frame.reported(
        measure(measured, pace, torch),
        lambda row: f"measured {row.kind} of {row.units} units, batch {row.batch}",
    )
    summaries = summarise(rows)
    sheets = [
        sheet(kind, list(group))
        for kind, group in itertools.groupby(rows, key=lambda row: row.kind)
    ]
    said = {"answer": answer(summaries, rows), "sheets": sheets, "notes": NOTES}
    return frame.report_of_layers(pace, torch, rows, summaries, **said)


def measure(measured: Sequence[Layer], pace: Pace, torch: ModuleType | None) -> Iterator[Row]:
    """Yield each row as soon as it is measured.

    Raises:
        ArithmeticError: our results differ from PyTorch's.
    """
    from ..kernels import in_huge_pages
    from ..kernels.llvm import read

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
        flop_s, *sides_s, read_s = frame.beside_peak(
            [*sides, functools.partial(read, numbers, times)], pace
        )
        yield row_of(layer, flop_s, [seconds / (size * times) for seconds in read_s], *sides_s)


def row_of(
    layer: Layer,
    flop_s: Sequence[float],
    byte_s: Sequence[float],
    ours_s: Sequence[float],
    torch_s: Sequence[float] | None = None,
) -> Row:
    """Return a row from each round's seconds: of an operation at the peak, of a byte read, and of a
    training step.
    """
    bound_s = [layer.bound_s(*seconds) for seconds in zip(flop_s, byte_s, strict=True)]
    return Row(
        **dataclasses.asdict(layer),
        read_gbps=1 / statistics.median(byte_s) / 1e9,
        bound_seconds=statistics.median(bound_s),
        bound_share=frame.median_ratio(bound_s, ours_s),
        bound_ratio=None if torch_s is None else frame.median_ratio(torch_s, bound_s),
        **frame.speeds(layer.flop, flop_s, ours_s, torch_s),
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
                means = (
                    statistics.geometric_mean(ratios),
                    min(ratios),
                    statistics.geometric_mean(bounds),
                )
                summaries.append(Summary(kind, batches, len(mine), *means))
    return summaries


def _arrays(layer: Layer) -> tuple[Floats, Floats, list[Floats]]:
    """Return random inputs, errors of the outputs, and weights as PyTorch draws them."""
    random = frame.random_numbers()
    maps = layer.batch, layer.steps, layer.units
    rows, bound = layer.gates * layer.units, layer.units**-0.5
    weights = [
        random.uniform(-bound, bound, shape).astype(np.float32)
        for shape in ((rows, layer.units), (rows, layer.units), (rows,), (rows,))
    ]
    return (
        random.standard_normal(maps, np.float32),
        random.standard_normal(maps, np.float32),
        weights,
    )


def _ours(layer: Layer, x: Floats, dy: Floats, weights: list[Floats]) -> Callable[[], list[Floats]]:
    from ..emulator.device import all_backward, all_forward
    from ..kernels.recurrent import GruSlice, LstmSlice, by_unit

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


def _theirs(
    torch: ModuleType, layer: Layer, x: Floats, dy: Floats, weights: list[Floats]
) -> Callable[[], list[Any]]:
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[layer.kind](
        layer.units, layer.units, batch_first=True
    )
    parameters = [
        getattr(module, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
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
    from ..kernels.recurrent import by_unit

    y, dx, *gradients = (value.numpy() for value in theirs)
    expected = [y, dx, *(by_unit(array, layer.gates) for array in gradients)]
    frame.check_agreement(f"{layer.kind} of {layer.units} units", ours, expected)


def answer(summaries: Sequence[Summary], rows: Sequence[Row]) -> list[str]:
    """Return how fast the layers are beside PyTorch's, or else our speed alone."""
    if not summaries:
        fastest = max(rows, key=lambda row: row.gflops)
        layer = f"{fastest.kind.upper()} of {fastest.units} units, batch {fastest.batch}"
        return [f"layers measured: {len(rows)}; up to {fastest.gflops:.1f} GFLOP/s, {layer}"]
    lines = []
    for summary in summaries:
        mean, least = (
            frame.as_ratio(summary.ratio_geometric_mean),
            frame.as_ratio(summary.ratio_minimum),
        )
        lines.append(
            f"{summary.kind.upper()}, batch {_batches(summary)}: {mean} times as fast as PyTorch,"
            f" the geometric mean; least {least}; a step at this machine's bound would have"
            f" {frame.as_ratio(summary.bound_ratio_geometric_mean)}"
        )
    return lines


def sheet(kind: str, rows: Sequence[Row]) -> Sheet:
    """Return the table of one kind's layers."""
    return frame.sheet_of(
        f"{kind.upper()}: training steps of {rows[0].steps} time steps, one thread",
        0,
        rows,
        ("batch", lambda row: str(row.batch)),
        ("units", lambda row: str(row.units)),
        ("time", lambda row: frame.as_ms(row.seconds)),
        ("GFLOP/s", lambda row: f"{row.gflops:.1f}"),
        ("bound", lambda row: frame.as_ms(row.bound_seconds)),
        ("of bound", lambda row: percent(row.bound_share)),
        ("PyTorch", lambda row: frame.as_ms(row.torch_seconds)),
        ("ratio", lambda row: frame.as_ratio(row.ratio)),
    )


def _batches(summary: Summary) -> str:
    first, last = min(summary.batches), max(summary.batches)
    return str(first) if first == last else f"{first} to {last}"
