"""Archives that are hostile: pickles, sizes that are not there, other compression, members that lie
elsewhere.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.common import InputError, Room
from emuchain.emulator.data import load_data

OneLine = Callable[..., str]


def header(shape: object, dtype: str = "|u1", version: tuple[int, int] = (1, 0)) -> bytes:
    """Return an array's header that says what it is given."""
    said = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return (
        b"\x93NUMPY"
        + bytes(version)
        + struct.pack("<H" if version == (1, 0) else "<I", len(said))
        + said
    )


def archive(folder: Path, compression: int = zipfile.ZIP_STORED, **members: bytes) -> str:
    """Write an archive with these members and two good labels."""
    labels = io.BytesIO()
    np.save(labels, np.array([0, 0, 1, 1]))
    path = folder / "own.npz"
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in {"labels": labels.getvalue(), **members}.items():
            file.writestr(f"{name}.npy", content)
    return str(path)


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("name", ["images", "labels", "classes"])
def test_pickles_are_refused_and_never_run(tmp_path: Path, name: str, one_line: OneLine) -> None:
    made = {"images": np.zeros((4, 3, 3), np.uint8), "labels": np.arange(4) % 2}
    made[name] = np.array([Runs(tmp_path / "was-run")] * 4, object)
    np.savez(tmp_path / "own.npz", **made)  # type: ignore[arg-type]
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path / "own.npz"))
    assert f"`{name}` holds pickled objects, which are refused" in one_line(error)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_stands_twice(tmp_path: Path, one_line: OneLine) -> None:
    np.savez(tmp_path / "own.npz", images=np.zeros((4, 3, 3), np.uint8), labels=np.arange(4) % 2)
    with zipfile.ZipFile(tmp_path / "own.npz", "a") as file:
        file.writestr("labels.npy", file.read("labels.npy"))
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path / "own.npz"))
    assert "two of its arrays have one name" in one_line(error)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", ["(4, 100000, 100000)", "(4, 3, 2)", "(4, 3, 4)"])
def test_a_size_that_is_not_there(
    tmp_path: Path, compression: int, shape: str, one_line: OneLine
) -> None:
    where = archive(tmp_path, compression, images=header(shape) + bytes(4 * 3 * 3))
    with pytest.raises(
        InputError,
        match=r"`images` of shape \(4, .*\) would take .*B, but the archive, of .* holds",
    ) as e:
        load_data(where)
    assert one_line(e).isprintable()


def test_more_than_there_is_memory_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = archive(tmp_path, zipfile.ZIP_DEFLATED, images=header("(4, 3, 3)") + bytes(36))
    monkeypatch.setattr(
        "emuchain.emulator.data.arrays.free_room", lambda: Room(35, "this machine has")
    )
    with pytest.raises(
        InputError,
        match=(
            r"`images` would take 36 B of memory, and this machine has 35 B; save it with"
            r" numpy.savez"
        ),
    ):
        load_data(where)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00\x00\x00",
        header("(4, -3, 3)") + bytes(36),
        header("(4, 3.0, 3)") + bytes(36),
        header("__import__('os').mkdir('x')") + bytes(36),
        header("(4, 3, 3)", "|V1") + bytes(36),
        header("(4,) + (3,) * 10**9") + bytes(36),
        header("(" * 5000) + bytes(36),
        header(f"(4, 3, 3{' ' * 20_000})", version=(2, 0)) + bytes(36),
    ],
)
def test_headers(tmp_path: Path, content: bytes, one_line: OneLine) -> None:
    with pytest.raises(InputError) as error:
        load_data(archive(tmp_path, images=content))
    assert "own.npz" in one_line(error)


def test_compression_that_numpy_does_not_use(tmp_path: Path) -> None:
    where = archive(tmp_path, zipfile.ZIP_LZMA, images=header("(4, 3, 3)") + bytes(36))
    with pytest.raises(InputError, match="compressed in a way that NumPy does not use"):
        load_data(where)


def test_images_that_are_not_compressed_stay_in_the_file(tmp_path: Path) -> None:
    """And one of them is read alone; what the file no longer has is named."""
    np.savez(
        tmp_path / "own.npz", images=np.zeros((300, 50, 50), np.uint8), labels=np.arange(300) % 2
    )
    images = load_data(str(tmp_path / "own.npz")).train_images
    with open(tmp_path / "own.npz", "r+b") as file:
        file.truncate(400_000)
    assert not images[0].any()
    with pytest.raises(InputError, match=r"own.npz: has been cut off since the start"):
        images[len(images) - 1]


def test_wrong_bytes_of_a_compressed_archive(tmp_path: Path) -> None:
    made = np.random.default_rng(1).integers(0, 256, (40, 9, 9), dtype=np.uint8)
    np.savez_compressed(tmp_path / "own.npz", images=made, labels=np.arange(40) % 2)
    content = bytearray((tmp_path / "own.npz").read_bytes())
    content[2000] ^= 1
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"own.npz: not a whole archive of NumPy \(Bad CRC-32"):
        load_data(str(tmp_path / "own.npz"))


def test_a_piece_of_stored_images_that_was_never_written(tmp_path: Path, one_line: OneLine) -> None:
    """As a copy leaves it that broke off: sizes and directory are right, and a part is zeros."""
    made = np.random.default_rng(1).integers(1, 256, (40, 30, 30), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", images=made, labels=np.arange(40) % 2)
    content = bytearray((tmp_path / "own.npz").read_bytes())
    content[20_000:28_192] = bytes(8192)
    (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(
        InputError, match=r"own.npz: not a whole archive of NumPy \(Bad CRC-32"
    ) as error:
        load_data(str(tmp_path / "own.npz"))
    assert "images.npy" in one_line(error)
