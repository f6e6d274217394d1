"""Losses of numbers: their values by formula, their errors by differences, and targets that are
none.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.layers import loss

NUMBERS = st.floats(-30, 30, width=32)
SHARES = st.floats(0, 1, width=32)


def of_one(kernel: str, output: float, target: float) -> tuple[float, float]:
    """Loss and error of one number."""
    arrays = np.array([[output]], np.float32), np.array([[target]], np.float32)
    losses, errors = getattr(loss, kernel)(*arrays)
    return float(losses[0, 0]), float(errors[0, 0])


@given(NUMBERS, NUMBERS)
def test_squared_error(output: float, target: float) -> None:
    value, error = of_one("squared_error", output, target)
    assert value == pytest.approx((output - target) ** 2, rel=1e-6)
    assert error == pytest.approx(2 * (output - target), rel=1e-6)


@given(NUMBERS, SHARES)
def test_binary_cross_entropy_of_logits(output: float, target: float) -> None:
    value, error = of_one("binary_cross_entropy", output, target)
    share = 1 / (1 + math.exp(-output))
    rest = 1 / (1 + math.exp(output))
    formula = -(target * math.log(share) + (1 - target) * math.log(rest))
    assert value == pytest.approx(formula, rel=1e-6, abs=1e-12)
    assert error == pytest.approx(share - target, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("probabilities", [False, True])
def test_weights_of_classes_are_those_of_labels_of_yes(probabilities: bool) -> None:
    outputs = np.array([[0.3, 0.6, 0.2, 0.9]], np.float32)
    yes, weights = np.ones((1, 4), np.float32), np.array([3.0, 0.5])
    keys = {"probabilities": probabilities}
    for targets, factors in ((yes, np.tile(weights, 2)), (0 * yes, np.ones(4))):
        plain = loss.binary_cross_entropy(outputs, targets, **keys)
        weighted = loss.binary_cross_entropy(outputs, targets, **keys, weights=weights)
        for own, expected in zip(weighted, plain, strict=True):
            assert own == pytest.approx(expected * factors, rel=1e-6)
    with pytest.raises(ValueError, match="weights of 3 classes"):
        loss.binary_cross_entropy(outputs, yes, weights=np.ones(3))


@given(st.floats(1 / 64, 63 / 64, width=32), SHARES)
def test_binary_cross_entropy_of_probabilities_is_that_of_their_logits(
    probability: float, target: float
) -> None:
    """The error is that of the logit, over the slope of the sigmoid."""
    arrays = np.array([[probability]], np.float32), np.array([[target]], np.float32)
    losses, errors = loss.binary_cross_entropy(*arrays, probabilities=True)
    logit = math.log(probability / (1 - probability))
    value, error = of_one("binary_cross_entropy", logit, target)
    assert losses[0, 0] == pytest.approx(value, rel=1e-5, abs=1e-6)
    slope = probability * (1 - probability)
    assert errors[0, 0] * slope == pytest.approx(error, rel=1e-4, abs=1e-6)


def test_certain_probabilities_that_are_wrong_have_a_loss_of_100() -> None:
    """As PyTorch's BCELoss, whose logarithms end at -100."""
    outputs, targets = np.array([[0, 1, 0, 1]], np.float32), np.array([[1, 0, 0, 1]], np.float32)
    losses, errors = loss.binary_cross_entropy(outputs, targets, probabilities=True)
    assert losses.tolist() == [[100, 100, 0, 0]]
    assert np.isfinite(errors).all()


@pytest.mark.parametrize("kernel", ["squared_error", "binary_cross_entropy"])
def test_a_target_that_is_nan_is_none(kernel: str) -> None:
    assert of_one(kernel, 3.0, math.nan) == (0, 0)
    assert of_one(kernel, 3.0, 0.5) != (0, 0)


@pytest.mark.parametrize("kernel", ["squared_error", "binary_cross_entropy"])
def test_shapes_that_differ_are_refused(kernel: str) -> None:
    ones = np.ones((2, 3), np.float32)
    with pytest.raises(ValueError, match=r"targets \(2, 2\) do not fit outputs \(2, 3\)"):
        getattr(loss, kernel)(ones, ones[:, :2])
