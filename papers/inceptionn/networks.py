"""INCEPTIONN's networks (section VII-A) and the mathematics of distributed training (section II-A)."""

from __future__ import annotations

import numpy as np

from ...kernels.number import FP32
from ..claim import Measure, Measured
from .evidence import WORKERS, network

MIB = 2**20


def _model_size(name: str) -> Measured:
    loaded = network(name)
    size_mib = FP32.bytes_of(loaded.parameters) / MIB
    return Measured(size_mib, f"MiB, {loaded.parameters / 1e6:.2f} M parameters of 4 bytes")


def _layers(name: str) -> Measured:
    """Count convolutions and fully connected layers, without the convolutions of shortcuts."""
    held = network(name).layers
    shortcuts = sum(layer.name.startswith("shortcut") for layer in held)
    fc = sum(not layer.convolves for layer in held)
    return Measured([len(held) - fc - shortcuts, fc], f"and {shortcuts} convolutions of shortcuts" if shortcuts else "")


def _hdc() -> Measured:
    held = network("hdc").layers
    return Measured([len(held), max(layer.channels for layer in held)], "784-500-500-500-500-10")


def _update() -> Measured:
    """Compare the training kernel with w - eta g: the largest difference over the largest value."""
    from ...kernels.optimizers import sgd

    random = np.random.default_rng(1)
    weights, gradient = random.standard_normal((2, 64, 32)).astype(np.float32)
    value = weights.copy()
    sgd.update(value, gradient, np.zeros_like(value), count=1, learning_rate=0.125, momentum=0.0, weight_decay=0.0)
    formula = weights.astype(np.float64) - 0.125 * gradient.astype(np.float64)
    return Measured(float(np.abs(value - formula).max() / np.abs(formula).max()), "learning rate 1/8, no momentum")


def _sum_of_workers() -> Measured:
    """Compare the gradient of a mini-batch with the sum of the gradients of the workers' parts."""
    from ...kernels import conv

    random = np.random.default_rng(1)
    maps = random.standard_normal((2 * WORKERS, 3, 7, 6)).astype(np.float32)
    errors = random.standard_normal((2 * WORKERS, 4, 7, 6)).astype(np.float32)

    def gradient(part: slice) -> np.ndarray:
        operands = (np.ascontiguousarray(maps[part]), np.ascontiguousarray(errors[part]))
        return conv.gradient(*operands, (4, 3, 3, 3), stride=(1, 1), pad=(1, 1)).astype(np.float64)

    whole = gradient(slice(None))
    parts = sum(gradient(slice(2 * worker, 2 * worker + 2)) for worker in range(WORKERS))
    return Measured(float(np.abs(whole - parts).max() / np.abs(whole).max()), "a convolution, 4 workers of 2 samples")


FUNCTIONS = {"model_size": _model_size, "layers": _layers}
MEASURES: dict[str, Measure] = {
    "inceptionn-net-hdc": _hdc,
    "inceptionn-eq-sgd": _update,
    "inceptionn-alg1-update": _update,
    "inceptionn-eq-dist-sgd": _sum_of_workers,
}
