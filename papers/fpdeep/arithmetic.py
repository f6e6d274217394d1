"""Equations (1) to (4) of FPDeep, and EB and PG as in sections 4.3, 5.4 and 5.5, on small arrays.

The equations are written out in NumPy with 64-bit floats and compared with the kernels that train;
the measure is the largest difference over the largest value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...emulator.network import load_network
from ..claim import Measured

Array = NDArray[np.float64]

_SAMPLES, _INS, _OUTS, _ROWS, _COLUMNS, _KERNEL, _PAD = 2, 3, 4, 7, 6, 3, 1
_HOW = f"{_INS} and {_OUTS} channels of {_ROWS}x{_COLUMNS}, kernel {_KERNEL}x{_KERNEL}"


def _arrays() -> tuple[Array, Array, Array]:
    """Return random activations, parameters and output errors, exact as 32-bit floats."""
    random = np.random.default_rng(1)

    def draw(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32).astype(np.float64)

    sizes = (_ROWS, _COLUMNS)
    return (
        draw(_SAMPLES, _INS, *sizes),
        draw(_OUTS, _INS, _KERNEL, _KERNEL),
        draw(_SAMPLES, _OUTS, *sizes),
    )


def _float32(array: Array) -> NDArray[np.float32]:
    return np.ascontiguousarray(array, np.float32)


def _padded(maps: Array, pad: int) -> Array:
    return np.pad(maps, ((0, 0), (0, 0), (pad, pad), (pad, pad)))


def _convolve(one_map: Array, one_filter: Array) -> Array:
    """Convolve a map with a filter, without padding."""
    windows = np.lib.stride_tricks.sliding_window_view(one_map, one_filter.shape)
    return np.asarray(np.einsum("rcuv,uv->rc", windows, one_filter))


def _apart(kernel: NDArray[np.float32], formula: Array) -> float:
    if kernel.shape != formula.shape:
        raise ValueError(f"shapes {kernel.shape} and {formula.shape}")
    return float(np.abs(kernel - formula).max() / np.abs(formula).max())


def _pairs() -> Iterator[tuple[int, int]]:
    return ((out, into) for out in range(_OUTS) for into in range(_INS))


def equation_1() -> Measured:
    """Check A[b][l][c] = sum over p of A[b][l-1][p] * Pa[b][l][c][p]."""
    from ...kernels import conv

    a, pa, e = _arrays()
    padded, formula = _padded(a, _PAD), np.zeros_like(e)
    for b in range(_SAMPLES):
        for c, p in _pairs():
            formula[b, c] += _convolve(padded[b, p], pa[c, p])
    return Measured(
        _apart(conv.forward(_float32(a), _float32(pa), stride=(1, 1), pad=(_PAD, _PAD)), formula),
        _HOW,
    )


def _error_formula(channels: range) -> Array:
    """Return the input errors from some output channels only: parameters rotated by 180 degrees,
    with full padding.
    """
    a, pa, e = _arrays()
    padded, formula = _padded(e, _KERNEL - 1 - _PAD), np.zeros_like(a)
    for b in range(_SAMPLES):
        for p in channels:
            for c in range(_INS):
                formula[b, c] += _convolve(padded[b, p], pa[p, c, ::-1, ::-1])
    return formula


def equation_2() -> Measured:
    """Check E[b][l][c] = sum over p of E[b][l+1][p] * Pa[b][l+1][p][c], rotated."""
    return Measured(
        _apart(_kernel_error(range(_OUTS)), _error_formula(range(_OUTS))),
        f"{_HOW}; parameters of l + 1",
    )


def _kernel_error(channels: range) -> NDArray[np.float32]:
    from ...kernels import conv

    a, pa, e = _arrays()
    some = slice(channels.start, channels.stop)
    return conv.error(
        _float32(e[:, some]), _float32(pa[some]), a.shape, stride=(1, 1), pad=(_PAD, _PAD)
    )


def two_steps() -> Measured:
    """Check EB in two steps: (1) convolve each output channel's errors with its parameters; (2) sum
    the results.
    """
    summed = np.sum([_kernel_error(range(p, p + 1)) for p in range(_OUTS)], axis=0)
    return Measured(
        _apart(_kernel_error(range(_OUTS)), summed.astype(np.float64)),
        f"{_OUTS} channels one by one",
    )


def _kernel_gradient() -> NDArray[np.float32]:
    from ...kernels import conv

    a, pa, e = _arrays()
    return conv.gradient(_float32(a), _float32(e), pa.shape, stride=(1, 1), pad=(_PAD, _PAD))


def equation_3() -> Measured:
    """Check dP[b][l][p][q] = A[b][l-1][q] * E[b][l][p], summed over the samples."""
    a, pa, e = _arrays()
    padded, formula = _padded(a, _PAD), np.zeros_like(pa)
    for b in range(_SAMPLES):
        for p, q in _pairs():
            formula[p, q] += _convolve(padded[b, q], e[b, p])
    return Measured(_apart(_kernel_gradient(), formula), _HOW)


def split() -> Measured:
    """Check PG of a pair of channels as W x W convolutions of K x K: each error times the window
    under it.
    """
    a, pa, e = _arrays()
    padded, formula = _padded(a, _PAD), np.zeros_like(pa)
    for b in range(_SAMPLES):
        for r in range(_ROWS):
            for c in range(_COLUMNS):
                window = padded[b, :, r : r + _KERNEL, c : c + _KERNEL]
                formula += e[b, :, r, c][:, None, None, None] * window
    return Measured(
        _apart(_kernel_gradient(), formula), f"{_ROWS * _COLUMNS} small convolutions a pair"
    )


def equation_4() -> Measured:
    """Check Pa[b+1] = dP[b] + Pa[b]; dP includes minus the learning rate and the mean over the
    samples.
    """
    from ...kernels.optimizers import sgd

    _, pa, _ = _arrays()
    gradient, rate = _kernel_gradient(), 0.125
    value, velocity = _float32(pa), np.zeros(pa.shape, np.float32)
    sgd.update(
        value,
        gradient,
        velocity,
        count=_SAMPLES,
        learning_rate=rate,
        momentum=0.0,
        weight_decay=0.0,
    )
    return Measured(
        _apart(value, pa - rate * gradient.astype(np.float64) / _SAMPLES),
        "learning rate 1/8, no momentum",
    )


def two_layers() -> list[int]:
    """Return the sides of the maps of Fig. 11: two convolutions of 3x3 on 7x7."""
    conv = {"type": "conv", "channels": 1, "kernel": 3}
    layers = [conv, conv, {"type": "fc", "features": 1}, {"type": "softmax"}]
    first, second, *_ = load_network(
        {"name": "Fig. 11", "input": [1, 7, 7], "layers": layers}
    ).layers
    return [first.input[1], second.input[1], second.output[1]]


def error_sides(layer: int) -> Measured:
    """Measure the sides of a layer's errors in EB: in, padded, and out of the kernel."""
    from ...kernels import conv

    sides = two_layers()
    before, after = sides[layer - 1], sides[layer]
    errors, weights = np.ones((1, 1, after, after), np.float32), np.ones((1, 1, 3, 3), np.float32)
    input_errors = conv.error(errors, weights, (1, 1, before, before), stride=(1, 1), pad=(0, 0))
    # Nine products where the window lies within the errors; with full padding, one at each corner.
    assert input_errors.max() == 9 and input_errors[0, 0, 0, 0] == 1, (
        "full padding: corners take one product"
    )
    return Measured([after, input_errors.shape[2] + 3 - 1, input_errors.shape[2]])


def precision() -> Measured:
    """Return the type of the kernels' results."""
    return Measured(
        str(_kernel_gradient().dtype), "of the kernels' results; the links carry 4 bytes a value"
    )
