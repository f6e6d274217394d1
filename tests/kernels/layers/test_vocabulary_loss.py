"""Softmax and cross-entropy in parts: the same bits wherever channels are cut, in every form, and
PyTorch's numbers.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emuchain.kernels.layers import loss, vocabulary_loss

from ..every_form import printed_in_every_form

F = np.float32
Arrays = tuple[np.ndarray, np.ndarray]


def in_parts(
    logits: np.ndarray, labels: np.ndarray, *cuts: int, steps: np.ndarray | None = None
) -> Arrays:
    """The states of all rows, and the errors, with the channels cut there."""
    parts = [slice(*ends) for ends in itertools.pairwise((0, *cuts, logits.shape[1]))]
    state, out = np.empty((len(logits), vocabulary_loss.STATE), F), []
    vocabulary_loss.begin(state)
    for part in parts:
        vocabulary_loss.fold(logits[:, part], labels, part.start, state)
    divisors = np.ones(len(logits), F) if steps is None else steps
    for part in parts:
        own = np.full_like(logits[:, part], np.nan, order="C")
        vocabulary_loss.errors(logits[:, part], labels, part.start, state[:, :2], divisors, own)
        out.append(own)
    return state, np.concatenate(out, axis=1)


def drawn(rows: int, channels: int, scale: float = 3) -> Arrays:
    random = np.random.default_rng(rows * channels)
    return (scale * random.standard_normal((rows, channels))).astype(F), random.integers(
        0, channels, rows
    )


@pytest.mark.parametrize(("rows", "channels"), [(1, 2), (5, 7), (16, 64), (33, 200), (3, 1000)])
def test_cuts_change_no_bit(rows: int, channels: int) -> None:
    logits, labels = drawn(rows, channels)
    state, errors = in_parts(logits, labels)
    for cuts in (
        (1,),
        (channels - 1,),
        (channels // 3, channels // 2),
        (*range(1, min(channels, 40)),),
    ):
        ascending = sorted({cut for cut in cuts if 0 < cut < channels})
        others = in_parts(logits, labels, *ascending)
        assert others[0].tobytes() == state.tobytes() and others[1].tobytes() == errors.tobytes()
    for row in range(rows):  # nor does what else is in a block
        alone = in_parts(logits[row : row + 1], labels[row : row + 1])
        assert (
            alone[0].tobytes() == state[row].tobytes()
            and alone[1].tobytes() == errors[row].tobytes()
        )


@pytest.mark.parametrize("scale", [0.1, 3, 80])
@pytest.mark.parametrize("channels", [10, 65, 2000])
def test_numbers_are_those_of_pytorch(channels: int, scale: float) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is what the values are compared with")
    logits, labels = drawn(40, channels, scale)
    x = torch.tensor(logits.astype(np.float64), requires_grad=True)
    expected = torch.nn.functional.cross_entropy(x, torch.tensor(labels), reduction="none")
    expected.sum().backward()
    state, errors = in_parts(logits, labels, channels // 2)
    losses, correct = vocabulary_loss.judged(state)
    assert losses == pytest.approx(expected.detach().numpy(), rel=1e-6, abs=1e-6)
    assert np.abs(errors - x.grad.numpy()).max() <= 2e-6
    whole = loss.softmax_cross_entropy(logits, labels)
    assert np.abs(whole[1] - errors).max() <= 2e-6
    assert correct.tolist() == whole[2].tolist() == (logits.argmax(1) == labels).tolist()


def test_the_first_of_equal_logits_leads() -> None:
    logits = np.array([[1, 3, 3, 0]] * 4, F)
    for cuts in ((), (1,), (2,), (1, 2, 3)):
        state, _ = in_parts(logits, np.arange(4), *cuts)
        assert vocabulary_loss.judged(state)[1].tolist() == [False, True, False, False]


def test_rows_without_a_label_have_no_errors() -> None:
    logits, labels = drawn(6, 9)
    labels[[0, 3]] = -1
    _, errors = in_parts(logits, labels, 4)
    assert not errors[[0, 3]].any() and not np.signbit(errors[[0, 3]]).any()
    assert (np.abs(errors[[1, 2, 4, 5]].sum(1)) < 1e-6).all()


def test_errors_are_divided_by_steps() -> None:
    logits, labels = drawn(6, 9)
    steps = np.array([1, 2, 3, 3, 3, 7], F)
    errors = in_parts(logits, labels)[1]
    assert (
        in_parts(logits, labels, 5, steps=steps)[1].tobytes() == (errors / steps[:, None]).tobytes()
    )


def test_a_nan_stays_a_nan() -> None:
    logits, labels = drawn(2, 20)
    logits[0, 7] = np.nan
    state, errors = in_parts(logits, labels, 5)
    assert np.isnan(vocabulary_loss.judged(state)[0]).tolist() == [True, False]
    assert np.isnan(errors[0]).all() and np.isfinite(errors[1]).all()


@pytest.mark.parametrize(("labels", "numbers"), [(3, 4), (2, 3)])
def test_shapes_that_do_not_fit(labels: int, numbers: int) -> None:
    with pytest.raises(ValueError, match="are needed"):
        vocabulary_loss.fold(
            np.ones((2, 5), F), np.zeros(labels, np.int64), 0, np.ones((2, numbers), F)
        )
    with pytest.raises(ValueError, match="do not fit"):
        vocabulary_loss.errors(
            np.ones((2, 5), F),
            np.zeros(2, np.int64),
            0,
            np.ones((2, 2), F),
            np.ones(2, F),
            np.ones((2, 4), F),
        )


_DIGEST = """
import hashlib
import numpy as np
from emuchain.kernels.layers import vocabulary_loss
random, bits = np.random.default_rng(1), hashlib.sha256()
for rows, channels in ((3, 5), (37, 301)):
    logits, labels = random.standard_normal((rows, channels)).astype(np.float32), random.integers(0, channels, rows)
    state, out = np.empty((rows, 4), np.float32), np.empty_like(logits)
    vocabulary_loss.begin(state)
    vocabulary_loss.fold(logits, labels, 0, state)
    vocabulary_loss.errors(logits, labels, 0, state[:, :2], np.ones(rows, np.float32), out)
    bits.update(state.tobytes() + out.tobytes())
print(bits.hexdigest())
"""


@pytest.mark.slow
def test_every_form_gives_the_same_bits() -> None:
    assert len({*printed_in_every_form(_DIGEST).values()}) == 1
