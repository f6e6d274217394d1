"""Rotary positions: against Llama's formula and complex numbers in PyTorch, and the way back."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels.layers.rotary import rotate, turns

F = np.float32
SAMPLES, ROWS, BASE = 2, 37, 500.0


def turned(
    x: np.ndarray, size: int, parts: int, rotated: int, *, interleaved: bool, back: bool = False
) -> np.ndarray:
    y, (cosines, sines) = np.full_like(x, np.nan), turns(x.shape[1], size, BASE)
    rotate(
        x,
        y,
        cosines,
        -sines if back else sines,
        parts=parts,
        rotated=rotated,
        interleaved=interleaved,
    )
    return y


def drawn(seed: int, groups: int, parts: int, size: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((SAMPLES, ROWS, 1, groups * parts * size), F)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(
    ("groups", "parts", "rotated", "size"), [(1, 3, 2, 2), (3, 3, 2, 8), (2, 6, 5, 18)]
)
def test_pytorch(groups: int, parts: int, rotated: int, size: int, interleaved: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    x, dy = (drawn(seed, groups, parts, size) for seed in (1, 2))
    leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    whole = leaf.view(SAMPLES, ROWS, groups, parts, size)
    rates = BASE ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.outer(torch.arange(ROWS, dtype=torch.float64), rates)[:, None, None]
    own = whole[:, :, :, :rotated]
    if interleaved:
        numbers = torch.view_as_complex(own.unflatten(4, (-1, 2)).contiguous())
        made = torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(4)
    else:
        twice = torch.cat([angles, angles], -1)
        half = torch.cat([-own[..., size // 2 :], own[..., : size // 2]], -1)
        made = own * twice.cos() + half * twice.sin()
    y = torch.cat([made, whole[:, :, :, rotated:]], 3).reshape(x.shape)
    y.backward(torch.tensor(dy, dtype=torch.float64))
    ours = (
        turned(array, size, parts, rotated, interleaved=interleaved, back=array is dy)
        for array in (x, dy)
    )
    for found, expected in zip(ours, (y.detach().numpy(), leaf.grad.numpy()), strict=True):
        assert np.abs(found - expected).max() <= 2e-7 * np.abs(expected).max()


def test_order_in_place_and_in_wider_maps() -> None:
    """Each number is two products, rounded, and their sum or difference."""
    x, (cosines, sines) = drawn(3, 2, 3, 6), turns(ROWS, 6, BASE)
    parts = x.reshape(SAMPLES, ROWS, 2, 3, 2, 3)
    a, b, c, s = parts[..., 0, :], parts[..., 1, :], cosines[:, None, None], sines[:, None, None]
    expected = np.stack([a * c - b * s, b * c + a * s], axis=4)
    expected[:, :, :, 2] = parts[:, :, :, 2]
    y = turned(x, 6, 3, 2, interleaved=False)
    assert y.tobytes() == expected.tobytes()
    assert y[:, 0].tobytes() == x[:, 0].tobytes()  # row 0
    wide = np.full((SAMPLES, ROWS, 1, 40), 7, F)
    wide[..., 1:37] = x
    rotate(wide[..., 1:37], wide[..., 1:37], cosines, sines, parts=3, rotated=2, interleaved=False)
    assert wide[..., 1:37].tobytes() == y.tobytes() and (wide[..., [0, 37, 38, 39]] == 7).all()


@pytest.mark.parametrize("interleaved", [False, True])
def test_channels_behind_those_that_are_turned_stay(interleaved: bool) -> None:
    x, y = drawn(3, 2, 3, 10), np.empty((SAMPLES, ROWS, 1, 60), F)
    keys = {"parts": 3, "rotated": 2, "interleaved": interleaved}
    rotate(x, y, *turns(ROWS, 6, BASE), **keys, size=10)  # type: ignore[arg-type]
    own, made = (maps.reshape(SAMPLES, ROWS, 1, 2, 3, 10) for maps in (x, y))
    assert made[..., 6:].tobytes() == own[..., 6:].tobytes()
    front = np.ascontiguousarray(own[..., :6]).reshape(SAMPLES, ROWS, 1, 36)
    alone = turned(front, 6, 3, 2, interleaved=interleaved)
    assert np.ascontiguousarray(made[..., :6]).tobytes() == alone.tobytes()


def test_scores_depend_on_distances_alone() -> None:
    """The product of two turned rows of the same numbers is that of other rows as far apart."""
    x = drawn(4, 1, 3, 8)[:, :1].repeat(ROWS, axis=1)
    y = turned(x, 8, 3, 2, interleaved=False)[:, :, 0].astype(np.float64)
    scores = np.einsum("nqc,nkc->nqk", y[..., :8], y[..., 8:16])
    assert np.allclose(scores[:, 5:, 5:], scores[:, :-5, :-5], atol=1e-5)


@pytest.mark.parametrize(
    ("parts", "tables", "said"),
    [
        (3, turns(4, 2, BASE), r"both should be \(37, pairs\)"),
        (3, turns(ROWS, 0, BASE), "no groups of 3 parts of 0"),
        (4, turns(ROWS, 6, BASE), "18 channels are no groups of 4 parts of 6"),
    ],
)
def test_what_does_not_fit(parts: int, tables: tuple[np.ndarray, np.ndarray], said: str) -> None:
    x = drawn(1, 1, 3, 6)
    with pytest.raises(ValueError, match=said):
        rotate(x, x, *tables, parts=parts, rotated=2, interleaved=False)
