"""Values against PyTorch in float64, and what attention does not depend on."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.kernels.attention import Attention, backward, forward

from .helpers import CASES, Case, F

SHAPES = st.builds(
    Case,
    samples=st.integers(1, 2),
    rows=st.integers(1, 140),
    heads=st.integers(1, 3),
    size=st.integers(1, 70),
    causal=st.booleans(),
    ragged=st.booleans(),
    drops=st.booleans(),
    scale=st.sampled_from([None, 0.02, 0.2]),
)


def distances(case: Case) -> tuple[float, float]:
    """How far outputs and errors are from PyTorch's, over the largest of them."""
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    if case.causal:
        case = dataclasses.replace(case, ragged=False)
    y, _, dx = case.run()
    x = torch.tensor(case.x, dtype=torch.float64, requires_grad=True)
    q, k, v = x.reshape(case.samples, case.rows, case.heads, 3, case.size).permute(3, 0, 2, 1, 4)
    lengths = torch.tensor(case.masks.get("lengths", [case.rows] * case.samples))
    hidden = torch.arange(case.rows) >= lengths[:, None, None, None]
    if case.causal:
        hidden = torch.ones(case.rows, case.rows, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3) * case.of_scores).masked_fill(hidden, -torch.inf)
    shares = torch.softmax(scores, dim=3) * torch.tensor(case.masks.get("kept", 1.0))
    expected = (shares @ v).transpose(1, 2).reshape(y.shape)
    expected.backward(torch.tensor(case.dy, dtype=torch.float64))
    pairs = (y, expected.detach().numpy()), (dx, x.grad.numpy())
    found = [
        float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-9))
        for ours, theirs in pairs
    ]
    return found[0], found[1]


@pytest.mark.parametrize("case", CASES[1:], ids=str)
def test_values_are_those_of_pytorch(case: Case) -> None:
    of_outputs, of_errors = distances(case)
    rounded = max(
        1, case.sharp / 15
    )  # large scores are rounded, and PyTorch's float32 is then as far from float64
    assert of_outputs <= 2e-6 * rounded and of_errors <= 3e-6 * rounded


@settings(max_examples=30)
@given(SHAPES)
def test_drawn_values_are_those_of_pytorch(case: Case) -> None:
    of_outputs, of_errors = distances(case)
    assert of_outputs <= 2e-6 and of_errors <= 3e-6


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
def test_long_sequences(causal: bool) -> None:
    of_outputs, of_errors = distances(Case(1, 520, 1, 64, causal))
    assert (
        of_outputs <= 3e-6 and of_errors <= 3e-6
    )  # chains of 520, where PyTorch's float32 is 1e-6 from float64


@pytest.mark.parametrize("rate", [80.0, 300.0])
def test_large_scores_of_both_signs(rate: float) -> None:
    """Scores of +-80, and beyond: the largest takes all, the others exact zeros."""
    x = np.zeros((1, 2, 1, 3, 1), F)
    x[0, :, 0, 0], x[0, :, 0, 1], x[0, :, 0, 2] = (
        1,
        np.array([[rate], [-rate]]),
        np.array([[3], [5]]),
    )
    attention = Attention(1, 1, causal=False, scale=1.0)
    y, statistics = forward(x.reshape(1, 2, 3), attention)
    assert y.tolist() == [[[3], [3]]] and statistics.tolist() == [[[[rate, rate], [1, 1]]]]
    dx = backward(x.reshape(1, 2, 3), statistics, np.ones_like(y), attention)
    assert dx.reshape(2, 3).tolist() == [[0, 0, 2], [0, 0, 0]]


def test_a_row_alone_gives_its_value() -> None:
    case = Case(2, 1, 3, 5)
    y, statistics, dx = case.run()
    values = case.x.reshape(2, 1, 3, 3, 5)[..., 2, :]
    assert y.tobytes() == values.tobytes() and (statistics[:, :, 1] == 1).all()
    assert np.abs(dx.reshape(2, 1, 3, 3, 5)[..., :2, :]).max() == 0
    assert dx.reshape(2, 1, 3, 3, 5)[..., 2, :].tobytes() == case.dy.tobytes()


@pytest.mark.parametrize("token", [0, 1, 40, 63, 64, 99])
def test_causal_outputs_do_not_know_what_comes(token: int) -> None:
    case = Case(1, 100, 2, 24)
    x = case.x
    y, _ = forward(x, case.attention)
    x[:, token] += 1
    changed, _ = forward(x, case.attention)
    assert changed[:, :token].tobytes() == y[:, :token].tobytes()
    assert (changed[:, token:] != y[:, token:]).any(axis=(0, 2)).all()


@pytest.mark.parametrize("causal", [True, False])
def test_permuted_heads_give_permuted_outputs(causal: bool) -> None:
    case, order = Case(2, 70, 3, 20, causal), [2, 0, 1]
    by_head = case.x.reshape(2, 70, 3, 60)[:, :, order].reshape(case.x.shape)
    errors = case.dy.reshape(2, 70, 3, 20)[:, :, order].reshape(case.dy.shape)
    y, statistics, dx = case.run()
    permuted, own = forward(by_head, case.attention)
    back = backward(by_head, own, errors, case.attention)
    assert permuted.tobytes() == y.reshape(2, 70, 3, 20)[:, :, order].tobytes()
    assert own.tobytes() == statistics[:, order].tobytes()
    assert back.tobytes() == dx.reshape(2, 70, 3, 60)[:, :, order].tobytes()


@pytest.mark.parametrize("causal", [True, False])
def test_a_bias_of_all_keys_changes_nothing(causal: bool) -> None:
    case = Case(1, 100, 2, 32, causal)
    x, (y, _, _) = case.x, case.run()
    x.reshape(1, 100, 2, 3, 32)[:, :, :, 1] += np.linspace(-1, 1, 32, dtype=F)
    changed, _ = forward(x, case.attention)
    assert np.abs(changed - y).max() <= 2e-6 * np.abs(y).max()


def test_a_padded_tail_counts_for_nothing() -> None:
    case, lengths = Case(3, 70, 2, 12, causal=False), np.array([70, 33, 0])
    x, dy = case.x, case.dy
    y, statistics = forward(x, case.attention, lengths=lengths)
    dx = backward(x, statistics, dy, case.attention, lengths=lengths)
    spoilt = x.copy().reshape(3, 70, 2, 3, 12)
    spoilt[1, 33:, :, 1:], spoilt[2, :, :, 1:] = np.nan, np.inf
    spoilt = spoilt.reshape(x.shape)
    again, own = forward(spoilt, case.attention, lengths=lengths)
    back = backward(spoilt, own, dy, case.attention, lengths=lengths)
    assert (
        again.tobytes() == y.tobytes()
        and own.tobytes() == statistics.tobytes()
        and back.tobytes() == dx.tobytes()
    )
    by_part = dx.reshape(3, 70, 2, 3, 12)
    assert (by_part[1, 33:, :, 1:] == 0).all() and (by_part[1, :33] != 0).all()
    assert (y[2] == 0).all() and (dx[2] == 0).all() and (statistics[2] == 0).all()
    alone = Attention(2, 12, causal=False)
    few, _ = forward(np.ascontiguousarray(x[1:2, :33]), alone)
    assert few.tobytes() == y[1:2, :33].tobytes()


def test_importing_attention_imports_no_compiler() -> None:
    code = (
        "import sys; import emuchain.kernels.attention; print('numba' in sys.modules, 'llvmlite' in"
        " sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
