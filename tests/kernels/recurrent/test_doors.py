"""Sequences of several lengths, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from emuchain.kernels import recurrent

from .helpers import Case, F, same_bits

LSTM, GRU = Case(4, 3, 5, 4, 6), Case(3, 3, 5, 4, 6)


@pytest.mark.parametrize("reverse", [False, True])
def test_what_lies_after_the_end_of_a_sample_counts_for_nothing(reverse: bool) -> None:
    x, h0, c0, dy, *_ = LSTM.data
    lengths = np.array([2, 5, 0])
    spoilt, spoilt_dy = x.copy(), dy.copy()
    for n, length in enumerate(lengths):
        spoilt[n, length:], spoilt_dy[n, length:] = np.nan, np.inf
    results = []
    for inputs, errors in ((x, dy), (spoilt, spoilt_dy)):
        y, h, c, saved = recurrent.lstm_forward(
            inputs, *LSTM.weights, h0, c0, lengths=lengths, reverse=reverse
        )
        results.append([y, h, c, *recurrent.lstm_backward(saved, errors)[:-1]])
    assert same_bits(*results)
    y, h, c, dx, *_, dh0, dc0 = results[0]
    assert (y[0, 2:] == 0).all() and (dx[0, 2:] == 0).all() and (y[0, :2] != 0).all()
    assert (
        (h[2] == h0[2]).all()
        and (c[2] == c0[2]).all()
        and (dh0[2] == 0).all()
        and (dc0[2] == 0).all()
    )


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths_are_pytorchs_packed_sequences(bidirectional: bool) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    torch.manual_seed(1)
    lengths = [5, 3, 2]
    layer = torch.nn.GRU(4, 6, batch_first=True, bidirectional=bidirectional)
    x = torch.randn(3, 5, 4, requires_grad=True)
    given = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    y, h = layer(given)
    y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
    dy = torch.randn(y.shape)
    (y * dy).sum().backward()
    dx = np.zeros(x.shape, F)
    for way in range(1 + bidirectional):
        names = [
            f"{name}_l0" + "_reverse" * way
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        weights, own = [getattr(layer, name) for name in names], slice(6 * way, 6 * way + 6)
        arrays = [value.detach().numpy() for value in (x, *weights)]
        ours, last, saved = recurrent.gru_forward(
            *arrays, lengths=np.array(lengths), reverse=bool(way)
        )
        found = recurrent.gru_backward(saved, np.ascontiguousarray(dy[..., own].numpy()))
        assert np.abs(ours - y[..., own].detach().numpy()).max() <= 2e-6
        assert np.abs(last - h[way].detach().numpy()).max() <= 2e-6
        for mine, weight in zip(found[1:5], weights, strict=True):
            assert (
                np.abs(mine - weight.grad.numpy()).max() <= 1e-5 * np.abs(weight.grad.numpy()).max()
            )
        dx += found.dx
    assert np.abs(dx - x.grad.numpy()).max() <= 1e-5 * np.abs(x.grad.numpy()).max()


def test_arrays_need_not_be_contiguous() -> None:
    x, h0, c0, *_ = LSTM.data
    w, r, b_w, b_r = LSTM.weights
    straight = recurrent.lstm_forward(x, w, r, b_w, b_r, h0, c0)
    turned = [np.asfortranarray(array) for array in (x, w, r, b_w, b_r, h0, c0)]
    for array in turned:
        array.flags.writeable = False
    assert same_bits(list(straight[:3]), list(recurrent.lstm_forward(*turned)[:3]))


def replaced(case: Case, number: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    arrays = [case.data[0], *case.weights, *case.data[1 : 2 + (case.gates == 4)]]
    arrays[number] = np.zeros(shape, F)
    return arrays


@pytest.mark.parametrize(
    ("number", "shape", "words"),
    [
        (0, (3, 5, 3), ["x has shape (3, 5, 3)", "(any, any, 4)"]),
        (0, (5, 4), ["x has shape (5, 4)", "samples, steps, inputs"]),
        (0, (0, 5, 4), ["at least one sample"]),
        (1, (23, 4), ["w has shape (23, 4)", "units, inputs"]),
        (2, (24, 5), ["r has shape (24, 5)", "(24, 6)"]),
        (3, (6,), ["b_w has shape (6,)", "(24)"]),
        (4, (25,), ["b_r has shape (25,)", "(24)"]),
        (5, (3, 5), ["h0 has shape (3, 5)", "(3, 6)"]),
        (6, (2, 6), ["c0 has shape (2, 6)", "(3, 6)"]),
    ],
)
def test_shapes_that_do_not_fit(number: int, shape: tuple[int, ...], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        recurrent.lstm_forward(*replaced(LSTM, number, shape))
    assert all(word in str(error.value) for word in words)


def test_other_things_that_do_not_fit() -> None:
    x, h0, c0, dy, *_ = LSTM.data
    with pytest.raises(ValueError, match=r"w has shape \(18, 4\); \(4 \* units"):
        recurrent.lstm_forward(x, *GRU.weights)
    with pytest.raises(ValueError, match=r"p has shape \(3, 5\)"):
        recurrent.lstm_forward(x, *Case(4, 3, 5, 4, 6, outputs=3).weights, p=np.zeros((3, 5), F))
    with pytest.raises(TypeError, match="float32"):
        recurrent.lstm_forward(x.astype(np.float64), *LSTM.weights)
    for lengths in (
        np.array([1, 2]),
        np.array([1, 2, 6]),
        np.array([1, -1, 2]),
        np.array([1.0, 2.0, 3.0]),
    ):
        with pytest.raises(ValueError, match=r"lengths = .*: 3 whole numbers from 0 to 5"):
            recurrent.lstm_forward(x, *LSTM.weights, lengths=lengths)
    *_, saved = recurrent.lstm_forward(x, *LSTM.weights, h0, c0)
    with pytest.raises(ValueError, match=r"dy has shape \(3, 4, 6\)"):
        recurrent.lstm_backward(saved, dy[:, :4])
    with pytest.raises(ValueError, match=r"dh has shape"):
        recurrent.lstm_backward(saved, dy, dh=h0[:2])
    with pytest.raises(TypeError, match="GRU"):
        recurrent.gru_backward(saved, dy)


def test_slices_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="units 3 to 3"):
        recurrent.LstmSlice(4, 6, 3, 3)
    with pytest.raises(ValueError, match="not cut"):
        recurrent.GruSlice(4, 6, 0, 3, linear_before_reset=False)
    with pytest.raises(ValueError, match="projection"):
        recurrent.LstmSlice(4, 6, 0, 3, outputs=2)
    half = recurrent.GruSlice(4, 6, 0, 3)
    weights = [array[:9] for array in GRU.weights]
    packed = half.pack(*weights)
    tape = half.tape(half.input_products(packed, GRU.data[0]))
    with pytest.raises(ValueError, match="one step a call"):
        half.forward(packed, tape, GRU.data[1], (0, 2))
    with pytest.raises(ValueError, match="steps"):
        half.forward(packed, tape, GRU.data[1], (5, 6))
    with pytest.raises(ValueError, match=r"h has shape \(3, 3\)"):
        half.forward(packed, tape, np.zeros((3, 3), F), (0, 1))
