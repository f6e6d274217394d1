"""Gradients of replicas: rounded by chance, each by words of its own; weights in blocks, as they
lie."""

from __future__ import annotations

import numpy as np
import pytest

import emuchain
from emuchain.emulator.device.formats import MapFormats
from emuchain.emulator.device.weight_formats import SliceFormats, WeightFormats
from emuchain.emulator.mapping import Slice
from emuchain.emulator.number import precision_of
from emuchain.kernels import Arena
from emuchain.kernels.conv import DotConvolution

CHANCE = precision_of("fp8 gradients=bf16 master=bf16 rounding=stochastic")


@pytest.fixture(scope="module")
def part() -> Slice:
    network = {
        "name": "one",
        "input": [32, 4, 4],
        "layers": [
            {"type": "conv", "channels": 64, "kernel": 3, "pad": 1},
            {"type": "fc", "features": 2},
            {"type": "softmax"},
        ],
    }
    plan = emuchain.plan(network, "vc709", devices=1, samples=4, batch=4)
    return plan.mapping.devices[0][0]


def rounded(part: Slice, kind: str, values: np.ndarray, replica: int) -> np.ndarray:
    formats = WeightFormats(MapFormats(CHANCE, 7, Arena(), replica), part)
    result = values.copy()
    formats.round(kind, result, update=3)
    return result


@pytest.mark.parametrize("kind", ["weights", "master"])
def test_what_all_replicas_have_is_rounded_alike(part: Slice, kind: str) -> None:
    values = np.random.default_rng(1).normal(size=(64, 32, 3, 3)).astype(np.float32)
    assert (rounded(part, kind, values, 0) == rounded(part, kind, values, 5)).all()


def test_errors_of_gradients_are_independent(part: Slice) -> None:
    """So that of the mean of two is less by the root of 2, and does not correlate."""
    values = np.random.default_rng(1).normal(size=(64, 32, 3, 3)).astype(np.float32)
    errors = [rounded(part, "gradients", values, replica) - values for replica in (0, 1)]
    assert abs(np.corrcoef(*(error.ravel() for error in errors))[0, 1]) < 0.03
    one, both = (float(np.square(error).mean()) for error in (errors[0], sum(errors) / 2))
    assert both / one == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("precision", ["mxint8 accumulate=dot:32", "mxfp4 accumulate=dot:16"])
def test_packed_weights_are_rounded_as_weights_are(part: Slice, precision: str) -> None:
    """Blocks of 32 channels lie in packed weights if sums have blocks as long; counts are alike."""
    values = np.random.default_rng(1).normal(size=(64, 32, 3, 3)).astype(np.float32)
    values[5, 3] = 1e-9  # becomes zero
    whole, packed = (
        WeightFormats(MapFormats(precision_of(precision), 7, Arena()), part) for _ in range(2)
    )
    expected = values.copy()
    whole.round("weights", expected, update=3)
    dots = DotConvolution(
        32, 64, (4, 4), (3, 3), (1, 1), (1, 1), whole.formats.precision.dot, (True,) * 3
    )
    weights = dots.pack(values)
    out = np.full_like(weights, 7)
    SliceFormats(packed, dots).round("weights", weights, 3, out=out)
    assert np.array_equal(dots.unpack(out), expected)
    assert np.array_equal(weights, dots.pack(values))
    assert packed.formats.tally.counts() == whole.formats.tally.counts()
    assert packed.formats.tally.counts()["weights_flushed"] > 0
