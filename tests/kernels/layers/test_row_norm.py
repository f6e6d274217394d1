"""Layer and RMS normalisation: bit for bit in the stated order, and against PyTorch in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.kernels.layers.row_norm import (
    layer_norm_forward,
    rms_norm_forward,
    row_norm_error,
    row_norm_gradient,
)

F = np.float32
Maps = np.ndarray
CHANNELS = [1, 2, 15, 16, 17, 96, 100]


def both_ways(x: Maps, dy: Maps, scale: Maps, shift: Maps | None) -> tuple[Maps, ...]:
    """Outputs, errors of the inputs, and gradients of scale and shift; without a shift, of RMS."""
    y, dx, statistics = np.empty_like(dy), np.empty_like(dy), np.empty((*x.shape[:3], 2), F)
    dscale, dshift = np.empty_like(scale), None if shift is None else np.empty_like(shift)
    if shift is None:
        rms_norm_forward(x, y, statistics, scale, epsilon=1e-5)
    else:
        layer_norm_forward(x, y, statistics, scale, shift, epsilon=1e-5)
    row_norm_error(x, statistics, scale, dy, dx, centred=shift is not None)
    row_norm_gradient(x, statistics, dy, dscale, dshift, fresh=True)
    return (y, dx, dscale) if dshift is None else (y, dx, dscale, dshift)


def numbers(seed: int, channels: int, rows: int = 6) -> tuple[Maps, Maps, Maps, Maps]:
    """Inputs, errors of the outputs, scale and shift."""
    random = np.random.default_rng(seed)
    x, dy = (random.standard_normal((2, rows, 1, channels), F) for _ in range(2))
    scale, shift = (random.standard_normal(channels, F) for _ in range(2))
    return F(3) * x + F(1), dy, scale, shift


def total(terms: Maps) -> F:
    """The sum of some numbers in the stated order."""
    parts = np.zeros(16, F)
    for c, term in enumerate(terms):
        parts[c % 16] += term
    while len(parts) > 1:
        half = len(parts) // 2
        parts = parts[:half] + parts[half:]
    return parts[0]


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("channels", CHANNELS)
def test_every_number_is_summed_in_the_stated_order(channels: int, shifted: bool) -> None:
    x, dy, scale, shift = numbers(1, channels)
    count, rows = F(channels), []
    dscale, dshift = np.zeros(channels, F), np.zeros(channels, F)
    for row, error in zip(x.reshape(-1, channels), dy.reshape(-1, channels), strict=True):
        centred = row - (total(row) / count if shifted else F(0))
        inverse = F(1) / np.sqrt(total(centred * centred) / count + F(1e-5))
        normal, g = centred * inverse, error * scale
        common = total(g) / count if shifted else F(0)
        dx = ((g - common) - normal * (total(g * normal) / count)) * inverse
        rows.append((normal * scale + shift if shifted else normal * scale, dx))
        dscale, dshift = dscale + error * normal, dshift + error
    expected = [
        *(np.array(part).reshape(x.shape) for part in zip(*rows, strict=True)),
        dscale,
        dshift,
    ][: 3 + shifted]
    found = both_ways(x, dy, scale, shift if shifted else None)
    assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]


@pytest.mark.parametrize("shifted", [True, False])
@pytest.mark.parametrize("channels", [8, 17, 96, 768])
def test_values_are_those_of_pytorch(channels: int, shifted: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    x, dy, scale, shift = numbers(2, channels)
    leaves = [
        torch.tensor(array.astype(np.float64), requires_grad=True) for array in (x, scale, shift)
    ]
    if shifted:
        y = torch.nn.functional.layer_norm(leaves[0], (channels,), *leaves[1:], 1e-5)
    else:
        y = torch.nn.functional.rms_norm(leaves[0], (channels,), leaves[1], 1e-5)
    y.backward(torch.tensor(dy.astype(np.float64)))
    expected = [
        y.detach().numpy(),
        *(leaf.grad.numpy() for leaf in leaves if leaf.grad is not None),
    ]
    found = both_ways(x, dy, scale, shift if shifted else None)
    for ours, theirs, limit in zip(
        found, expected, (2e-6, 3e-6, 3e-6, 3e-6)[: 3 + shifted], strict=True
    ):
        assert np.abs(ours - theirs).max() <= limit * np.abs(theirs).max()


@given(st.integers(0, 1000), st.sampled_from(CHANNELS), st.integers(0, 6), st.booleans())
def test_micro_batches_and_slices_give_the_same_bits(
    seed: int, channels: int, cut: int, shifted: bool
) -> None:
    x, dy, scale, shift = numbers(seed, channels)
    given_shift = shift if shifted else None
    whole = both_ways(x, dy, scale, given_shift)
    wider = np.full((2, 6, 1, channels + 3), np.nan, F)
    wider[..., 1 : channels + 1] = x
    assert [
        a.tobytes() for a in both_ways(wider[..., 1 : channels + 1], dy, scale, given_shift)
    ] == [a.tobytes() for a in whole]
    dscale, dshift = np.empty_like(scale), np.empty_like(shift) if shifted else None
    for number, (part, errors) in enumerate(zip(np.split(x, [1]), np.split(dy, [1]), strict=True)):
        parts = both_ways(part[:, :cut], errors[:, :cut], scale, given_shift) if cut else ()
        for mine, all_rows in zip(parts[:2], whole, strict=False):
            assert mine.tobytes() == all_rows[number : number + 1, :cut].tobytes()
        statistics, y = np.empty((1, 6, 1, 2), F), np.empty_like(part)
        if shifted:
            layer_norm_forward(part, y, statistics, scale, shift, epsilon=1e-5)
        else:
            rms_norm_forward(part, y, statistics, scale, epsilon=1e-5)
        row_norm_gradient(part, statistics, errors, dscale, dshift, fresh=number == 0)
    assert dscale.tobytes() == whole[2].tobytes() and (
        dshift is None or dshift.tobytes() == whole[3].tobytes()
    )


def test_errors_may_overwrite_those_of_the_outputs() -> None:
    x, dy, scale, shift = numbers(3, 20)
    _, dx, *_ = both_ways(x, dy, scale, shift)
    statistics = np.empty((2, 6, 1, 2), F)
    layer_norm_forward(x, np.empty_like(x), statistics, scale, shift, epsilon=1e-5)
    row_norm_error(x, statistics, scale, dy, dy, centred=True)
    assert dy.tobytes() == dx.tobytes()


def test_shapes_must_agree() -> None:
    x, dy, scale, shift = numbers(4, 5)
    statistics = np.empty((2, 6, 1, 2), F)
    with pytest.raises(ValueError, match="inputs and outputs must have one shape"):
        layer_norm_forward(x, dy[:1], statistics, scale, shift, epsilon=1e-5)
    with pytest.raises(ValueError, match="statistics has shape"):
        rms_norm_forward(x, dy, statistics[:1], scale, epsilon=1e-5)
    with pytest.raises(ValueError, match="a scale and a shift of shape"):
        layer_norm_forward(x, dy, statistics, scale, shift[:4], epsilon=1e-5)
