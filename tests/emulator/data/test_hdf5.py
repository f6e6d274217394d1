"""HDF5 files that are hostile: links, storage elsewhere, sizes that are not there, filters,
chunks.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
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
    file.create_dataset(
        "images", (4, 100_000, 100_000), np.uint8, chunks=(1, 100, 100), compression="gzip"
    )
    file["images"][0, :100, :100] = 1


def wide_chunks(file: h5py.File, folder: Path) -> None:
    file.create_dataset(
        "images", (4, 20_000, 20_000), np.uint8, chunks=(1, 20_000, 20_000), compression="gzip"
    )


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
        (group, "`images` is not an array"),
        (empty, "`images` is empty"),
        (
            unwritten,
            (
                r"`images` of shape \(4, 100000, 100000\) would take 37.* GiB, but the file, of .*"
                r" holds 0 B of it"
            ),
        ),
        (
            packed,
            (
                r"`images` of shape \(4, 100000, 100000\) would take 37.* GiB, but the file, of .*"
                r" holds .* of it"
            ),
        ),
        (wide_chunks, "`images` is in chunks of 381.* MiB, each of which is read as a whole"),
        (scaled, "`images` has filter 6; known are gzip, shuffle"),
        (
            words,
            (
                r"`images` has strings of any length, which are refused; write them as"
                r" numpy.array\(…, 'S'\)"
            ),
        ),
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


def test_what_else_is_in_a_file_is_said_in_printable_words(
    tmp_path: Path, one_line: OneLine
) -> None:
    path = tmp_path / "own.h5"
    with h5py.File(path, "w") as file:
        file["pictures\x1b[31m"] = np.zeros(3)
    with pytest.raises(
        InputError, match=r"has no `images`, but 'pictures\\x1b\[31m'; `images` and `labels`"
    ) as error:
        load_data(str(path))
    assert one_line(error).isprintable()


PACKED: dict[str, dict[str, object]] = {
    "plain": {},
    "gzip": {"compression": "gzip"},
    "lzf": {"compression": "lzf"},
    "shuffle": {"shuffle": True},
    "fletcher32": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "growing": {"compression": "gzip", "maxshape": (None,)},
}
PARTS = ("images", "labels", "test_images", "test_labels")


def half_written(path: Path, packing: str, short: str, written: int) -> None:
    """Write 20 images a part in chunks of 2 (edges of 4 where sides are 5), and of one array the
    first ones alone.
    """
    keys = dict(PACKED[packing])
    with h5py.File(path, "w") as file:
        for name in PARTS:
            values = (
                np.arange(20) % 4 if name.endswith("labels") else np.full((20, 5, 5), 7, np.uint8)
            )
            chunks = (2, 4, 4)[: values.ndim]
            if "maxshape" in keys:
                keys["maxshape"] = (None, *values.shape[1:])
            array = file.create_dataset(name, values.shape, values.dtype, chunks=chunks, **keys)
            count = written if name == short else 20
            array[:count] = values[:count]


@pytest.mark.parametrize("short", PARTS)
@pytest.mark.parametrize("packing", PACKED)
def test_chunks_that_were_not_written(
    tmp_path: Path, packing: str, short: str, one_line: OneLine
) -> None:
    """Of images, 2x5x5 in chunks of 2x4x4 are four chunks; of labels, 2 are one."""
    for written in (0, 10, 18):
        half_written(tmp_path / "own.h5", packing, short, written)
        with pytest.raises(InputError, match="was not written to its end") as error:
            load_data(str(tmp_path / "own.h5"))
        assert f"`{short}`" in one_line(error)
        if packing != "plain" and written:
            chunks = 4 if short.endswith("images") else 1
            assert f"has {written // 2 * chunks} of its {10 * chunks} chunks" in one_line(error)
    half_written(tmp_path / "own.h5", packing, short, 20)
    data = load_data(str(tmp_path / "own.h5"))
    assert (data.n_train, data.n_test, data.shape) == (20, 20, (1, 5, 5))
    assert (np.asarray(data.train_images) == 7).all()


def test_one_chunk_in_the_middle_is_missing(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "own.h5", "w") as file:
        images = file.create_dataset(
            "images", (9, 50, 50), np.uint8, chunks=(2, 32, 32), compression="gzip"
        )
        images[:4], images[6:] = 1, 1
        file["labels"] = np.arange(9) % 2
    with pytest.raises(InputError, match="`images` has 16 of its 20 chunks"):
        load_data(str(tmp_path / "own.h5"))


def test_a_file_that_is_being_written(tmp_path: Path, one_line: OneLine) -> None:
    """By a program that has it open; a file whose writer died bears a mark of that."""
    path = tmp_path / "own.h5"
    half_written(path, "gzip", "images", 20)
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="another program is writing it; wait") as error:
            load_data(str(path))
    assert str(path) in one_line(error)
    script = (
        f"import h5py, os; f = h5py.File({str(path)!r}, 'w', libver='latest'); f.swmr_mode = True;"
        " os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(
        InputError, match="another program is writing it, or ended without closing it"
    ):
        load_data(str(path))
