"""Arrays in the one form that compiled code is made for: float32, C-contiguous, aligned, writeable.

Numba compiles a function anew for every other layout, and for read-only arrays; one form means one
compilation, which the cache on disk then holds.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def of_float32(array: Floats, name: str) -> Floats:
    """Return the array. Raise TypeError if it is not of float32."""
    if array.dtype != np.float32:
        raise TypeError(f"{name} must be float32, not {array.dtype}")
    return array


def dense(array: Floats, name: str) -> Floats:
    """Return the array, or a copy where its layout is another. Raise TypeError if it is not of float32."""
    return np.require(of_float32(array, name), requirements=["C", "A", "W"])


def in_place(array: Floats, name: str) -> Floats:
    """Return the array itself, which is to be changed. Raise TypeError or ValueError where that cannot be."""
    of_float32(array, name)
    if not (array.flags.c_contiguous and array.flags.writeable and array.flags.aligned):
        raise ValueError(f"{name} is changed in place: it must be C-contiguous, aligned and writeable")
    return array


def same_shape(a: Floats, b: Floats, names: str) -> None:
    """Raise ValueError if the two arrays differ in shape; `names` says what they are."""
    if a.shape != b.shape:
        raise ValueError(f"{names} must have one shape, not {a.shape} and {b.shape}")
