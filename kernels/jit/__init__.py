"""Compiled kernels: compile a function to machine code, keep it on disk, and call it without
Numba.
"""

from .arrays import (
    FLOAT_BYTES,
    Bytes,
    Floats,
    address_of,
    byte_maps,
    dense,
    in_place,
    of_float32,
    same_shape,
    source,
    target,
)
from .compiled import Kernel, Kernels, announced, compiled

__all__ = [
    "FLOAT_BYTES",
    "Bytes",
    "Floats",
    "Kernel",
    "Kernels",
    "address_of",
    "announced",
    "byte_maps",
    "compiled",
    "dense",
    "in_place",
    "of_float32",
    "same_shape",
    "source",
    "target",
]
