"""Softmax and cross-entropy of logits whose channels are in several places: each folds its own,
then makes its errors.

What goes from place to place is the *state* of each row: the largest logit so far, the sum of
exp(logit - largest), the label's logit, and whether that is the first largest one. Errors need the
first two alone. The order of all operations is in `llvm/vocabulary.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, Kernels, dense, in_place

STATE, SUMS = 4, 2
"""Numbers of a row's state, and how many of them errors need."""

_kernels = Kernels("llvm.vocabulary")


def begin(state: Floats) -> None:
    """Set the state (n, 4) of rows of which no channel is folded yet."""
    state[...] = -np.inf, 0, 0, 0


def fold(logits: Floats, labels: NDArray[np.integer[Any]], first: int, state: Floats) -> None:
    """Fold logits (n, c), of channels from `first` on, into `state` (n, 4), in place; labels (n,),
    of which -1 is none.

    Raise ValueError for shapes that do not fit.
    """
    _check(logits, labels, state, STATE)
    _kernels.fold(dense(logits, "logits"), _integers(labels), int(first), in_place(state, "state"))


def errors(
    logits: Floats,
    labels: NDArray[np.integer[Any]],
    first: int,
    sums: Floats,
    steps: Floats,
    out: Floats,
) -> None:
    """Write the errors of logits (n, c), of channels from `first` on, to `out`, given the first two
    numbers of states.

    A row's errors are (softmax - onehot) / steps, with `steps` (n,); where the label is -1 they
    are 0. Raise ValueError for shapes that do not fit.
    """
    _check(logits, labels, sums, SUMS)
    if out.shape != logits.shape or steps.shape != labels.shape:
        raise ValueError(
            f"errors {out.shape} and steps {steps.shape} do not fit logits {logits.shape}"
        )
    given = (
        dense(logits, "logits"),
        _integers(labels),
        int(first),
        dense(sums, "sums"),
        dense(steps, "steps"),
    )
    _kernels.errors(*given, in_place(out, "errors"))


def judged(state: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return (losses (n,), correct (n,)) of rows whose channels are all in `state` (n, 4)."""
    top, total, own, leads = state.T.astype(np.float64)
    return (np.log(total) - (own - top)).astype(np.float32), leads > 0


def warm() -> None:
    """Compile all kernels: call each once on tiny arrays, as training calls it."""
    logits, labels, state = (
        np.ones((1, 2), np.float32),
        np.zeros(1, np.int64),
        np.empty((1, STATE), np.float32),
    )
    begin(state)
    fold(logits, labels, 0, state)
    errors(
        logits,
        labels,
        0,
        np.ones((1, SUMS), np.float32),
        np.ones(1, np.float32),
        np.empty_like(logits),
    )


def _integers(labels: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    return np.require(labels, dtype=np.int64, requirements=["C", "A", "W"])


def _check(logits: Floats, labels: NDArray[np.integer[Any]], of_rows: Floats, numbers: int) -> None:
    if (
        logits.ndim != 2
        or labels.shape != logits.shape[:1]
        or of_rows.shape != (len(logits), numbers)
    ):
        raise ValueError(
            f"logits (n, c), labels (n,) and (n, {numbers}) are needed, not {logits.shape},"
            f" {labels.shape} and {of_rows.shape}"
        )
