"""Data sets in files of arrays: .npz, compressed or not, and HDF5, as its users write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

Arrays = dict[str, np.ndarray]
Write = Callable[[Path, Arrays], Path]


def npz(folder: Path, arrays: Arrays) -> Path:
    """Write with `numpy.savez`."""
    np.savez(folder / "own.npz", **arrays)  # type: ignore[arg-type]
    return folder / "own.npz"


def npz_compressed(folder: Path, arrays: Arrays) -> Path:
    """Write with `numpy.savez_compressed`."""
    np.savez_compressed(folder / "own.npz", **arrays)  # type: ignore[arg-type]
    return folder / "own.npz"


def hdf5(folder: Path, arrays: Arrays, packed: bool = False) -> Path:
    """Write arrays as they are; names as bytes of one length."""
    with h5py.File(folder / "own.h5", "w") as file:
        for name, values in arrays.items():
            if values.dtype.kind in "UO":
                file[name] = np.char.encode(values, "utf-8")
            else:
                packs = packed and name.endswith("images") and values.size > 0
                keys = (
                    {"compression": "gzip", "shuffle": True, "chunks": (2, *values.shape[1:])}
                    if packs
                    else {}
                )
                file.create_dataset(name, data=values, **keys)
    return folder / "own.h5"


def hdf5_packed(folder: Path, arrays: Arrays) -> Path:
    """Write images in compressed chunks of two."""
    return hdf5(folder, arrays, packed=True)


WRITE: list[Write] = [npz, npz_compressed, hdf5, hdf5_packed]


def arrays(n: int = 12, test: int = 4, shape: tuple[int, ...] = (3, 5, 4)) -> Arrays:
    """Return random images of two classes."""
    random = np.random.default_rng(2)
    parts = {"": n, "test_": test} if test else {"": n}
    found: Arrays = {}
    for part, count in parts.items():
        found[f"{part}images"] = random.integers(0, 256, (count, *shape), dtype=np.uint8)
        found[f"{part}labels"] = np.arange(count) % 2
    return found
