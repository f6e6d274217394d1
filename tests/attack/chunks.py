"""HDF5 files of images of which some chunks were never written, of all forms; and whether they are
taken for whole.
"""

from __future__ import annotations

import io
import itertools
import pathlib
import random

import h5py
import numpy as np

_PACKINGS = (
    {},
    {"compression": "gzip"},
    {"compression": "lzf"},
    {"shuffle": True},
    {"fletcher32": True},
    {"compression": "gzip", "shuffle": True, "fletcher32": True},
)
_PARTS = ("images", "labels", "test_images", "test_labels")
_MARK = "chunks missing"


def example() -> bytes:
    """Return a whole file."""
    return made(random.Random(0), 0)


def half_written(_: bytes, chance: random.Random, __: object) -> bytes:
    """Return a file of random form, of which about two in three lack chunks."""
    return made(chance, chance.choice((0, 1, chance.randint(2, 40))))


def made(chance: random.Random, missing: int) -> bytes:
    """Return a file without `missing` of its chunks, or as many as it has."""
    file = io.BytesIO()
    classes, size = (
        chance.randint(2, 4),
        [chance.randint(1, 9) for _ in range(chance.choice((2, 3)))],
    )
    with h5py.File(file, "w", libver=chance.choice(("earliest", "latest"))) as into:
        arrays, chunks = {}, []
        for name in _PARTS if chance.randrange(2) else _PARTS[:2]:
            count = (
                classes * chance.randint(2, 9)
                if name.endswith("images")
                else len(arrays[name[:-6] + "images"])
            )
            shape = (count, *size) if name.endswith("images") else (count,)
            sides = tuple(chance.randint(1, side) for side in shape)
            most = (
                tuple(chance.choice((None, side)) for side in shape)
                if chance.randrange(2)
                else None
            )
            dtype = np.uint8 if name.endswith("images") else np.int64
            packing = chance.choice(_PACKINGS)
            arrays[name] = into.create_dataset(
                name, shape, dtype, chunks=sides, maxshape=most, **packing
            )
            spans = (
                [slice(at, at + by) for at in range(0, side, by)]
                for side, by in zip(shape, sides, strict=True)
            )
            chunks += [(name, place) for place in itertools.product(*spans)]
        left = chance.sample(range(len(chunks)), max(1, len(chunks) - missing))
        for name, place in (chunks[number] for number in left):
            values = (
                np.arange(len(arrays[name])) % classes
                if arrays[name].ndim == 1
                else np.full(arrays[name].shape, 7)
            )
            arrays[name][place] = values[place]
        into.attrs[_MARK] = len(chunks) - len(left)
    return file.getvalue()


def read(path: pathlib.Path) -> None:
    """Load a file as data.

    Raises:
        InputError: chunks are missing.
        AssertionError: a file without all its chunks was taken, or a whole one was not.
    """
    from emuchain.emulator.common import InputError
    from emuchain.emulator.data import Reading, load_data

    with h5py.File(path, "r") as file:
        missing = file.attrs[_MARK]
    try:
        load_data(str(path), reading=Reading(channels="last"))
    except InputError as error:
        assert missing, f"refused: {error}"
        raise
    assert not missing, f"{missing} chunks are missing"
