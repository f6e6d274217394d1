"""Arrays in the layouts for which kernels are compiled.

Numba compiles a function again for each other layout, and for read-only arrays; a single layout
means one compilation, which the cache on disk then holds. So kernels take flat arrays: float32,
C-contiguous, aligned, writeable.

Maps are channels last, (n, rows, columns, channels), with the channels side by side. The step from
pixel to pixel, the *pitch*, is constant: the number of channels, or more where the maps are a slice
of the channels of wider ones. It counts floats. Kernels take maps as a flat array that starts at
the first float, and their *extent*: shape and pitch.
"""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 4

_in_buffer: Any = ctypes.c_char.from_buffer

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Extent = tuple[int, int, int, int, int]  # n, rows, columns, channels, pitch


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the array's first number."""
    try:
        return ctypes.addressof(_in_buffer(array))  # the fastest way
    except (TypeError, ValueError, BufferError):  # empty, read-only or not contiguous
        return int(array.ctypes.data)


def of_float32(array: Floats, name: str) -> Floats:
    """Return the array. Raise TypeError if it is not of float32."""
    if array.dtype != np.float32:
        raise TypeError(f"{name} must be float32, not {array.dtype}")
    return array


def dense(array: Floats, name: str) -> Floats:
    """Return the array, or a copy where its layout differs. Raise TypeError if it is not of
    float32.
    """
    plain = of_float32(array, name)
    return plain if plain.flags.carray else np.require(plain, requirements=["C", "A", "W"])


def in_place(array: Floats, name: str) -> Floats:
    """Return the array itself, to be changed. Raise TypeError if it is not of float32, ValueError
    for other layouts.
    """
    if not of_float32(array, name).flags.carray:
        raise ValueError(
            f"{name} is changed in place: it must be C-contiguous, aligned and writeable"
        )
    return array


def source(maps: Floats, name: str) -> tuple[Floats, Extent]:
    """Return maps that are only read as (flat, extent); flat is a copy where the layout differs.

    Raise ValueError if they are not 4-d, TypeError if they are not of float32.
    """
    return _flat(maps, name) or _whole(dense(maps, name))


def target(maps: Floats, name: str) -> tuple[Floats, Extent]:
    """Return maps that are written as (flat, extent); flat is a view of them.

    Raise ValueError if they are not 4-d or have another layout, TypeError if they are not of
    float32.
    """
    flattened = _flat(maps, name)
    if flattened is None:
        raise ValueError(
            f"{name} is written in place: it must be aligned, writeable, and channels last, or some"
            f" channels of such maps; not of shape {maps.shape} and strides {maps.strides}"
        )
    return flattened


def pitch(maps: Floats) -> int:
    """Return the floats from pixel to pixel of maps (n, rows, columns, channels); 0 where this step
    is not constant.
    """
    (n, rows, columns, channels), (by_sample, by_row, by_column, by_channel) = (
        maps.shape,
        maps.strides,
    )
    if columns > 1:
        step = by_column
    elif rows > 1:
        step = by_row
    else:
        step = by_sample if n > 1 else maps.itemsize * channels
    regular = (
        (channels == 1 or by_channel == maps.itemsize)
        and (rows == 1 or by_row == columns * step)
        and (n == 1 or by_sample == rows * columns * step)
    )
    return (
        step // maps.itemsize
        if regular and step >= maps.itemsize * channels and step % maps.itemsize == 0
        else 0
    )


def byte_maps(array: Bytes, maps: Floats, name: str) -> tuple[Bytes, Extent]:
    """Return an array with a byte for each number of `maps`, as (flat, extent); flat is a view.

    Raise ValueError if it is not of uint8, of the maps' shape, C-contiguous and writeable.
    """
    if array.shape != maps.shape or array.dtype != np.uint8 or not array.flags.carray:
        raise ValueError(
            f"{name} must be uint8 {maps.shape}, C-contiguous and writeable, "
            f"not {array.dtype} {array.shape} of strides {array.strides}"
        )
    n, rows, columns, channels = maps.shape
    return array.reshape(-1), (n, rows, columns, channels, channels)


def same_shape(a: Floats, b: Floats, names: str) -> None:
    """Raise ValueError if the two arrays differ in shape; `names` describes them in the message."""
    if a.shape != b.shape:
        raise ValueError(f"{names} must have one shape, not {a.shape} and {b.shape}")


def _flat(maps: Floats, name: str) -> tuple[Floats, Extent] | None:
    """Return the maps as (flat, extent) without a copy, or None where that is not possible."""
    if of_float32(maps, name).ndim != 4:
        raise ValueError(f"{name} must be maps (n, rows, columns, channels), not {maps.shape}")
    flags = maps.flags
    if flags.carray:
        return _whole(maps)
    step = pitch(maps)
    if not step or not flags.behaved:
        return None
    n, rows, columns, channels = maps.shape
    floats = (n * rows * columns - 1) * step + channels
    return np.lib.stride_tricks.as_strided(maps, (floats,), (maps.itemsize,)), (
        n,
        rows,
        columns,
        channels,
        step,
    )


def _whole(maps: Floats) -> tuple[Floats, Extent]:
    n, rows, columns, channels = maps.shape
    return maps.reshape(-1), (n, rows, columns, channels, channels)
