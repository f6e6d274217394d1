"""FARNN's equations (1) to (3) and those of sections 3, 4.3 and 5.2, in float64, against the
kernels.
"""

from __future__ import annotations

import numpy as np

from ...kernels.recurrent import lstm_backward, lstm_forward, sigmoid, tanh
from ..claim import Measured
from ..constants import kept

_SAMPLES, _INPUTS, _CELLS, _SEED = 2, 5, 4, 1
_GATES = ("i", "f", "c'", "o")
"""In PyTorch's order."""

Arrays = dict[str, np.ndarray]


def given(steps: int) -> Arrays:
    """Return random inputs, weights, states and errors, as float32."""
    random = np.random.default_rng(_SEED)
    gates = 4 * _CELLS
    shapes = {
        "x": (_SAMPLES, steps, _INPUTS),
        "w": (gates, _INPUTS),
        "r": (gates, _CELLS),
        "b_w": (gates,),
        "b_r": (gates,),
        "h0": (_SAMPLES, _CELLS),
        "c0": (_SAMPLES, _CELLS),
        "dy": (_SAMPLES, steps, _CELLS),
        "dh": (_SAMPLES, _CELLS),
        "dc": (_SAMPLES, _CELLS),
    }
    return {name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes.items()}


def _sigma(x: np.ndarray) -> np.ndarray:
    # As printed: in float64 exp overflows only beyond 709.
    return np.exp(x) / (np.exp(x) + 1)


def _tanh(x: np.ndarray) -> np.ndarray:
    return (np.exp(2 * x) - 1) / (np.exp(2 * x) + 1)


def published(arrays: Arrays) -> Arrays:
    """Return what the paper's equations give in float64: outputs, states, and all errors and
    gradients.
    """
    exact = {name: value.astype(np.float64) for name, value in arrays.items()}
    steps, h, c = exact["x"].shape[1], exact["h0"], exact["c0"]
    saved, outputs = [], []
    for t in range(steps):
        sums = exact["x"][:, t] @ exact["w"].T + h @ exact["r"].T + exact["b_w"] + exact["b_r"]
        i, f, new, o = np.split(sums, 4, axis=1)
        i, f, new, o = _sigma(i), _sigma(f), _tanh(new), _sigma(o)
        saved.append((i, f, new, o, c, h))
        c = f * c + i * new
        h = o * _tanh(c)
        outputs.append(h)
    results = {"y": np.stack(outputs, 1), "h": h, "c": c}
    results |= {
        "dx": np.zeros_like(exact["x"]),
        "dw": np.zeros_like(exact["w"]),
        "dr": np.zeros_like(exact["r"]),
    }
    results["gates"] = np.zeros(4 * _CELLS)
    dh, dc = exact["dh"], exact["dc"]
    for t in reversed(range(steps)):
        i, f, new, o, before, h_before = saved[t]
        state = f * before + i * new
        d_output = dh + exact["dy"][:, t]
        d_cell = dc + (1 - _tanh(state) ** 2) * o * d_output
        d_o = o * (1 - o) * _tanh(state) * d_output
        d_new = (1 - new**2) * i * d_cell
        d_i = i * (1 - i) * new * d_cell
        d_f = f * (1 - f) * before * d_cell
        errors = np.concatenate((d_i, d_f, d_new, d_o), axis=1)
        dc = f * d_cell
        parts = zip(np.split(errors, 4, axis=1), np.split(exact["r"], 4), strict=True)
        dh = np.sum([error @ part for error, part in parts], axis=0)
        results["dx"][:, t] = errors @ exact["w"]
        results["dw"] += errors.T @ exact["x"][:, t]
        results["dr"] += errors.T @ h_before
        results["gates"] += errors.sum(0)
    return {**results, "dh0": dh, "dc0": dc}


def computed(arrays: Arrays) -> Arrays:
    """Return the same from the kernels."""
    keys = ("x", "w", "r", "b_w", "b_r", "h0", "c0")
    y, h, c, saved = lstm_forward(*(arrays[key] for key in keys))
    back = lstm_backward(saved, arrays["dy"], dh=arrays["dh"], dc=arrays["dc"])
    results = {
        "y": y,
        "h": h,
        "c": c,
        "dx": back.dx,
        "dw": back.dw,
        "dr": back.dr,
        "gates": back.db_w,
    }
    return {**results, "dh0": back.dh0, "dc0": back.dc0}


@kept
def deviations(steps: int) -> dict[str, float]:
    """Return the largest deviation of each array, as a share of its largest value; of gates'
    errors, of each gate.
    """
    arrays = given(steps)
    theirs, ours = published(arrays), computed(arrays)
    for place, gate in enumerate(_GATES):
        rows = slice(place * _CELLS, (place + 1) * _CELLS)
        theirs[gate], ours[gate] = theirs["gates"][rows], ours["gates"][rows]
    return {
        name: float(np.abs(ours[name] - theirs[name]).max() / np.abs(theirs[name]).max())
        for name in theirs
    }


def deviation(steps: int, *names: str) -> Measured:
    """Measure the largest deviation of some arrays after a number of steps."""
    shares = deviations(steps)
    said = "one step" if steps == 1 else f"{steps} steps"
    return Measured(
        max(shares[name] for name in names), f"kernels against float64, {said}: {', '.join(names)}"
    )


def sum_of_errors() -> Measured:
    """Give the error of h to y instead: nothing may change."""
    arrays = given(1)
    moved = {
        **arrays,
        "dy": arrays["dy"] + arrays["dh"][:, None],
        "dh": np.zeros_like(arrays["dh"]),
    }
    before, after = computed(arrays), computed(moved)
    names = ("dx", "dw", "dr", "dh0", "dc0")
    return Measured(
        float(max(np.abs(before[name] - after[name]).max() for name in names)),
        "errors of h given as errors of y",
    )


def activations() -> Measured:
    """Measure the largest difference of the kernels' activations from the formulas."""
    x = np.linspace(-80, 80, 3201, dtype=np.float32)
    exact = x.astype(np.float64)
    apart = np.abs(sigmoid(x) - _sigma(exact)).max(), np.abs(tanh(x) - _tanh(exact)).max()
    return Measured(
        float(max(apart)),
        "kernels against the formulas in float64, -80 to 80; beyond, they are clamped",
    )


def derivatives() -> Measured:
    """Measure the formulas of derivatives against differences."""
    x, width = np.linspace(-4, 4, 81), 1e-5
    differences = []
    for function, slope in ((_sigma, _sigma(x) * (1 - _sigma(x))), (_tanh, 1 - _tanh(x) ** 2)):
        differences.append(
            np.abs((function(x + width) - function(x - width)) / (2 * width) - slope).max()
        )
    return Measured(float(max(differences)), "formulas against central differences")


def single_precision() -> Measured:
    """Measure the largest deviation of any array after three steps."""
    shares = deviations(3)
    return Measured(
        max(shares.values()), "float32 kernels against float64: all outputs, errors and gradients"
    )
