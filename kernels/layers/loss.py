"""Losses at the end of a network: softmax and cross-entropy in one; squared error; and binary
cross-entropy of logits, or of probabilities.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, compiled, dense


def softmax_cross_entropy(
    logits: Floats, labels: NDArray[np.integer[Any]], smoothing: float = 0.0
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return (losses (n,), dlogits (n, c), correct (n,)) for logits (n, c) and labels (n,).

    dlogits is the error of each sample's own loss, p - target, not divided by n. The target is
    one-hot, or, with `smoothing`, (1 - smoothing) * onehot + smoothing / c, as PyTorch's. correct
    says whether the first largest logit is the label's. Raise ValueError for shapes, labels or a
    smoothing that do not fit.
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits (n, c) and labels (n,) are needed, not {logits.shape} and {labels.shape}"
        )
    targets = np.require(labels, dtype=np.int64, requirements=["C", "A", "W"])
    if targets.size and not 0 <= targets.min() <= targets.max() < logits.shape[1]:
        raise ValueError(
            f"labels from {targets.min()} to {targets.max()} do not fit {logits.shape[1]} classes"
        )
    if not 0 <= smoothing < 1:
        raise ValueError(f"a label's smoothing is at least 0 and below 1, not {smoothing}")
    losses, errors = np.empty(len(logits), np.float32), np.empty(logits.shape, np.float32)
    correct = np.empty(len(logits), np.bool_)
    if smoothing:
        _smoothed(dense(logits, "logits"), targets, float(smoothing), losses, errors, correct)
    else:
        _softmax_cross_entropy(dense(logits, "logits"), targets, losses, errors, correct)
    return losses, errors, correct


def squared_error(outputs: Floats, targets: Floats) -> tuple[Floats, Floats]:
    """Return (losses, errors) of outputs and targets of one shape: (y - t)², and 2 (y - t).

    A target that is NaN is none: its loss and its error are 0. Raise ValueError for shapes that
    differ.
    """
    return _of_numbers(_squared_error, outputs, targets)


def binary_cross_entropy(
    outputs: Floats,
    targets: Floats,
    *,
    probabilities: bool = False,
    weights: NDArray[np.float64] | None = None,
) -> tuple[Floats, Floats]:
    """Return (losses, errors) of logits and targets from 0 to 1, of one shape: as PyTorch's
    BCEWithLogitsLoss.

    With `probabilities`, outputs are behind a sigmoid, as for PyTorch's BCELoss, whose logarithms
    are at least -100. A target that is NaN is none: its loss and its error are 0. `weights`
    (classes,) are factors of what a target of 1 costs, PyTorch's `pos_weight`, by the class of an
    output, of which the last axis has all, once or more. Raise ValueError for shapes that differ.
    """
    positive = np.ones(1) if weights is None else np.ascontiguousarray(weights, np.float64)
    if outputs.shape[-1] % len(positive):
        raise ValueError(f"weights of {len(positive)} classes do not fit outputs {outputs.shape}")
    kernel = _binary_of_probabilities if probabilities else _binary
    return _of_numbers(kernel, outputs, targets, positive)


def _of_numbers(
    kernel: Any, outputs: Floats, targets: Floats, *more: NDArray[Any]
) -> tuple[Floats, Floats]:
    if outputs.shape != targets.shape:
        raise ValueError(f"targets {targets.shape} do not fit outputs {outputs.shape}")
    losses, errors = np.empty(outputs.shape, np.float32), np.empty(outputs.shape, np.float32)
    flat = dense(outputs, "outputs").reshape(-1), dense(targets, "targets").reshape(-1)
    kernel(*flat, *more, losses.reshape(-1), errors.reshape(-1))
    return losses, errors


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    ones = np.ones((1, 2), np.float32)
    for smoothing in (0.0, 0.1):
        softmax_cross_entropy(ones, np.zeros(1, np.int64), smoothing)
    squared_error(ones, ones)
    for probabilities in (False, True):
        binary_cross_entropy(ones, ones, probabilities=probabilities)


# In double precision, and rounded once.


@compiled
def _squared_error(outputs: Any, targets: Any, losses: Any, errors: Any) -> None:
    for i in range(len(outputs)):
        if np.isnan(targets[i]):
            losses[i], errors[i] = 0.0, 0.0
            continue
        apart = np.float64(outputs[i]) - np.float64(targets[i])
        losses[i], errors[i] = apart * apart, 2.0 * apart


@compiled
def _binary(outputs: Any, targets: Any, positive: Any, losses: Any, errors: Any) -> None:
    for i in range(len(outputs)):
        if np.isnan(targets[i]):
            losses[i], errors[i] = 0.0, 0.0
            continue
        x, t = np.float64(outputs[i]), np.float64(targets[i])
        # No power of a positive number: it would overflow.
        power = np.exp(-abs(x))
        more = (positive[i % len(positive)] - 1.0) * t
        low = np.log1p(power)
        losses[i] = max(x, 0.0) - x * t + low + more * (max(-x, 0.0) + low)
        rest = (power if x >= 0.0 else 1.0) / (1.0 + power)
        errors[i] = (1.0 if x >= 0.0 else power) / (1.0 + power) - t - more * rest


@compiled
def _binary_of_probabilities(
    outputs: Any, targets: Any, positive: Any, losses: Any, errors: Any
) -> None:
    for i in range(len(outputs)):
        if np.isnan(targets[i]):
            losses[i], errors[i] = 0.0, 0.0
            continue
        p, t = np.float64(outputs[i]), np.float64(targets[i])
        own = max(np.log(p), -100.0) if p > 0.0 else -100.0
        other = max(np.log1p(-p), -100.0) if p < 1.0 else -100.0
        more = (positive[i % len(positive)] - 1.0) * t
        losses[i] = -(t * own + (1.0 - t) * other + more * own)
        errors[i] = (p - t) / max((1.0 - p) * p, 1e-12) - more / max(p, 1e-12)


@compiled
def _softmax_cross_entropy(
    logits: Any, labels: Any, losses: Any, errors: Any, correct: Any
) -> None:
    n, classes = logits.shape
    powers = np.empty(classes, np.float64)
    for sample in range(n):
        best = 0
        for c in range(1, classes):
            if logits[sample, c] > logits[sample, best]:
                best = c
        # In double precision; less the largest logit no power overflows, and one of them is 1.
        top, total = np.float64(logits[sample, best]), 0.0
        for c in range(classes):
            powers[c] = np.exp(logits[sample, c] - top)
            total += powers[c]
        for c in range(classes):
            errors[sample, c] = powers[c] / total - (1.0 if c == labels[sample] else 0.0)
        losses[sample] = np.log(total) - (logits[sample, labels[sample]] - top)
        correct[sample] = best == labels[sample]


@compiled
def _smoothed(
    logits: Any, labels: Any, smoothing: Any, losses: Any, errors: Any, correct: Any
) -> None:
    n, classes = logits.shape
    powers, share = np.empty(classes, np.float64), smoothing / classes
    for sample in range(n):
        best = 0
        for c in range(1, classes):
            if logits[sample, c] > logits[sample, best]:
                best = c
        top, total, below = np.float64(logits[sample, best]), 0.0, 0.0
        for c in range(classes):
            powers[c] = np.exp(logits[sample, c] - top)
            total += powers[c]
            below += logits[sample, c] - top
        for c in range(classes):
            errors[sample, c] = powers[c] / total - (
                (1.0 - smoothing) * (c == labels[sample]) + share
            )
        own = logits[sample, labels[sample]] - top
        losses[sample] = np.log(total) - ((1.0 - smoothing) * own + share * below)
        correct[sample] = best == labels[sample]
