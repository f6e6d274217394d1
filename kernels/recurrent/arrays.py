"""Arrays at the door of recurrent layers: checked, contiguous, on cache lines; and sigmoid and tanh
of arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import Floats, Kernels, address_of, of_float32
from ..memory import new

Lengths = NDArray[np.integer[Any]]
Rows = NDArray[np.int64]

_FLOAT32 = np.dtype(np.float32)  # taken faster than the type

_kernels = Kernels("recurrent.step_parts")

NOTHING: Floats = np.empty(0, np.float32)
"""For what is not there."""


class Product(NamedTuple):
    """A product of rows and packed weights, by addresses and counts of floats (see
    `step_parts.py`).
    """

    c: int
    c_step: int
    a: int
    a_step: int
    a_k: int
    samples: int
    b: int
    lanes: int
    depth: int


class LstmForward(NamedTuple):
    """Where some units of a sample of an LSTM lie: the result goes to `y` and `h`."""

    sums: Any
    bias_w: Any
    bias_r: Any
    c: Any
    gates: Any
    t: Any
    c_before: Any
    y: Any
    h: Any


class LstmBackward(NamedTuple):
    """Where some units of a sample of an LSTM lie: errors of the sums go to `delta` and `copied`."""

    error: Any
    gates: Any
    t: Any
    c_before: Any
    dc: Any
    delta: Any
    copied: Any


class GruForward(NamedTuple):
    """Where some units of a sample of a GRU lie; `inner` is m, or q, and the result goes to `y` and `h`."""

    sums: Any
    bias_w: Any
    bias_r: Any
    h_before: Any
    gates: Any
    inner: Any
    y: Any
    h: Any


class GruBackward(NamedTuple):
    """Where some units of a sample of a GRU lie; `inner` is m, or s, and errors of the sums go to the last
    three.
    """

    error: Any
    gates: Any
    inner: Any
    h_before: Any
    carry: Any
    delta: Any
    delta_r: Any
    copied: Any


LINEAR, RESET, NEW = range(3)
"""The lines of a GRU that is linear before reset; of another one, those of r and z, and of n."""


def checked(array: Floats, shape: tuple[int | None, ...], name: str, axes: str) -> Floats:
    """Return the array, C-contiguous; None in `shape` fits any size.

    Raises:
        ValueError: its shape does not fit; `axes` says what is right.
        TypeError: it is not of float32.
    """
    ready = array.dtype == _FLOAT32 and array.flags.c_contiguous
    if ready and array.shape == shape:
        return array
    fits = len(array.shape) == len(shape) and all(
        w in (None, have) for have, w in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has shape {array.shape}; {axes} = ({wanted}) is needed")
    return array if ready else np.ascontiguousarray(of_float32(array, name))


def target(array: Floats, shape: tuple[int, ...], name: str) -> int:
    """Return the address of an array that is changed in place.

    Raises:
        ValueError: its shape does not fit, or it is not C-contiguous and writeable.
        TypeError: it is not of float32.
    """
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; {shape} is needed")
    if not of_float32(array, name).flags.carray:
        raise ValueError(
            f"{name} is changed in place: it must be C-contiguous, aligned and writeable"
        )
    return address_of(array)


def state(given: Floats | None, samples: int, width: int, name: str) -> Floats:
    """Return a copy of a given state (N, width), or zeros."""
    if given is None:
        return new(samples, width, cleared=True)
    copy = new(samples, width)
    copy[...] = checked(given, (samples, width), name, "(samples, units)")
    return copy


def rows_of(samples: int, steps: int, lengths: Lengths | None, *, reverse: bool) -> Rows:
    """Return the row, sample * steps + t, of each sample at each step [steps, samples]; -1 after
    its sequence's end.

    A reverse direction begins at each sample's own last step.

    Raises:
        ValueError: `lengths` is not one whole number from 0 to `steps` for each sample.
    """
    step = np.arange(steps, dtype=np.int64)[:, None]
    if lengths is None:
        return np.arange(0, samples * steps, steps) + (steps - 1 - step if reverse else step)
    lengths = np.asarray(lengths)
    fits = lengths.shape == (samples,) and np.issubdtype(lengths.dtype, np.integer)
    if not fits or ((lengths < 0) | (lengths > steps)).any():
        raise ValueError(
            f"lengths = {lengths}: {samples} whole numbers from 0 to {steps} are needed, one a"
            " sample"
        )
    t = lengths - 1 - step if reverse else step
    return np.ascontiguousarray(
        np.where(step < lengths, np.arange(0, samples * steps, steps) + t, -1)
    )


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)) of an array, as in layers. Raise TypeError if it is not of
    float32.
    """
    return _apply(0, x)


def tanh(x: Floats) -> Floats:
    """Return the hyperbolic tangent of an array. Raise TypeError if it is not of float32."""
    return _apply(1, x)


def _apply(is_tanh: int, x: Floats) -> Floats:
    given = np.ascontiguousarray(of_float32(x, "x"))
    y = np.empty_like(given)
    _kernels.apply(is_tanh, given.size, address_of(given), address_of(y))
    return y.reshape(x.shape)
