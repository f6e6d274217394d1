"""HDF5 files that are hostile: links, storage elsewhere, sizes that are not there, filters, chunks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data import load_data

OneLine = Callable[..., str]
Make = Callable[[h5py.File, Path], None]


def soft(file: h5py.File, folder: Path) -> None:
    file["elsewhere"] = np.zeros((4, 3, 3), np.uint8)
    file["images"] = h5py.SoftLink("/elsewhere")


def outer(file: h5py.File, folder: Path) -> None:
    with h5py.File(folder / "other.h5", "w") as other:
        other["images"] = np.zeros((4, 3, 3), np.uint8)
    file["images"] = h5py.ExternalLink(folder / "other.h5", "/images")


def external(file: h5py.File, folder: Path) -> None:
    (folder / "secret").write_bytes(bytes(36))
    file.create_dataset("images", (4, 3, 3), np.uint8, external=[(str(folder / "secret"), 0, 36)])


def virtual(file: h5py.File, folder: Path) -> None:
    layout = h5py.VirtualLayout((4, 3, 3), np.uint8)
    layout[:] = h5py.VirtualSource("/etc/passwd", "images", (4, 3, 3))
    file.create_virtual_dataset("images", layout)


def group(file: h5py.File, folder: Path) -> None:
    file.create_group("images")


def empty(file: h5py.File, folder: Path) -> None:
    file["images"] = h5py.Empty(np.uint8)


def unwritten(file: h5py.File, folder: Path) -> None:
    file.create_dataset("images", (4, 100_000, 100_000), np.uint8, chunks=(1, 100, 100))


def packed(file: h5py.File, folder: Path) -> None:
    file.create_dataset("images", (4, 100_000, 100_000), np.uint8, chunks=(1, 100, 100), compression="gzip")
    file["images"][0, :100, :100] = 1


def wide_chunks(file: h5py.File, folder: Path) -> None:
    file.create_dataset("images", (4, 20_000, 20_000), np.uint8, chunks=(1, 20_000, 20_000), compression="gzip")


def scaled(file: h5py.File, folder: Path) -> None:
    file.create_dataset("images", (4, 3, 3), np.uint8, chunks=(1, 3, 3), scaleoffset=4)


def words(file: h5py.File, folder: Path) -> None:
    file.create_dataset("images", data=["a"] * 4)


def references(file: h5py.File, folder: Path) -> None:
    file.create_dataset("images", (4,), h5py.ref_dtype)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (soft, "`images` is a link, which is refused"),
        (outer, "`images` is a link, which is refused"),
        (external, "`images` lies in other files, which is refused"),
        (virtual, "`images` lies in other files, which is refused"),
        (group, "`images` is no array"),
        (empty, "`images` is empty"),
        (
            unwritten,
            r"`images` of shape \(4, 100000, 100000\) would take 37.* GiB, but the file, of .* holds 0 B of it",
        ),
        (packed, r"`images` of shape \(4, 100000, 100000\) would take 37.* GiB, but the file, of .* holds .* of it"),
        (wide_chunks, "`images` is in chunks of 381.* MiB, each of which is read as a whole"),
        (scaled, "`images` has filter 6; known are gzip, shuffle"),
        (words, r"`images` has strings of any length, which are refused; write them as numpy.array\(…, 'S'\)"),
        (references, "`images` holds pickled objects, which are refused"),
    ],
)
def test_refused(tmp_path: Path, make: Make, expected: str, one_line: OneLine) -> None:
    path = tmp_path / "own.h5"
    with h5py.File(path, "w") as file:
        file["labels"] = np.arange(4) % 2
        make(file, tmp_path)
    with pytest.raises(InputError, match=expected) as error:
        load_data(str(path))
    assert str(path) in one_line(error)


def test_links_that_nothing_asks_for_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "own.hdf5"
    with h5py.File(path, "w") as file:
        file["images"], file["labels"] = np.zeros((4, 3, 3), np.uint8), np.arange(4) % 2
        file["more"] = h5py.ExternalLink("nowhere.h5", "/x")
    assert load_data(str(path)).shape == (1, 3, 3)


def test_what_else_is_in_a_file_is_said_in_printable_words(tmp_path: Path, one_line: OneLine) -> None:
    path = tmp_path / "own.h5"
    with h5py.File(path, "w") as file:
        file["pictures\x1b[31m"] = np.zeros(3)
    with pytest.raises(InputError, match=r"has no `images`, but 'pictures\\x1b\[31m'; `images` and `labels`") as error:
        load_data(str(path))
    assert one_line(error).isprintable()
