"""Data as other libraries lay them out: read where the content is known, else with what to give in
their place.
"""

from __future__ import annotations

import gzip
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from emuchain.emulator.common import InputError, read_toml
from emuchain.emulator.data import load_data

OneLine = Callable[..., str]


def write_mnist(folder: Path, *, packed: bool) -> None:
    """Write 20 and 10 images with labels as torchvision keeps them."""
    folder.mkdir(parents=True)
    for part, count in (("train", 20), ("t10k", 10)):
        images, labels = (
            np.full((count, 28, 28), 7, np.uint8),
            np.arange(count, dtype=np.uint8) % 10,
        )
        for name, array in (
            (f"{part}-images-idx3-ubyte", images),
            (f"{part}-labels-idx1-ubyte", labels),
        ):
            content = (
                struct.pack(f">{1 + array.ndim}I", 0x800 | array.ndim, *array.shape)
                + array.tobytes()
            )
            (folder / name).write_bytes(content)
            if packed:  # torchvision keeps what it fetched beside what it unpacked
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))


@pytest.mark.parametrize("given", ["data", "data/MNIST", "data/MNIST/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_torchvision_keeps_mnist_two_folders_below(
    tmp_path: Path, given: str, packed: bool
) -> None:
    write_mnist(tmp_path / "data" / "MNIST" / "raw", packed=packed)
    data = load_data(str(tmp_path / given))
    assert (data.name, data.n_train, data.n_test, data.shape) == ("mnist", 20, 10, (1, 28, 28))


def test_torchvision_keeps_several_sets_in_one_folder(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw", packed=False)
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").touch()
    with pytest.raises(
        InputError, match=r"holds CIFAR-10 \(.*py\) and MNIST \(.*raw\); give the directory of one"
    ):
        load_data(str(tmp_path))


def npz(path: Path) -> None:
    """Write an archive under any name."""
    with path.open("wb") as file:
        np.savez(file, images=np.zeros((4, 5, 5), np.uint8), labels=np.arange(4) % 2)


def hdf5(path: Path) -> None:
    """Write an HDF5 file under any name."""
    with h5py.File(path, "w") as file:
        file["images"], file["labels"] = np.zeros((4, 5, 5), np.uint8), np.arange(4) % 2


WRITTEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "archive": (npz, "but a NumPy archive; give it a name that ends in .npz"),
    "hdf5": (hdf5, "but an HDF5 file with images and labels; give it a name that ends in .h5"),
    "pickle": (lambda path: path.write_bytes(pickle.dumps([1])), "but a pickle; it may run code"),
    "picture": (
        lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        "but a picture; give another file",
    ),
    "packed": (
        lambda path: path.write_bytes(gzip.compress(b"abc")),
        "but a compressed file; unpack it first",
    ),
    "bytes": (
        lambda path: path.write_bytes(bytes(range(256))),
        "but a file of a kind that emuchain does not know",
    ),
}


@pytest.mark.parametrize("ending", ["", ".dat", ".txt", ".npz", ".h5"])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_under_another_name(
    tmp_path: Path, one_line: OneLine, name: str, ending: str
) -> None:
    """It is described, and not to be saved as text."""
    write, said = WRITTEN[name]
    path = tmp_path / f"own{ending}"
    write(path)
    if {"archive": ".npz", "hdf5": ".h5"}.get(name) == ending:
        load_data(str(path))
        return
    with pytest.raises(InputError) as error:
        load_data(str(path))
    assert said in one_line(error)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_no_toml_file_is_reported_by_its_kind(
    tmp_path: Path, one_line: OneLine, name: str
) -> None:
    path = tmp_path / "own.toml"
    WRITTEN[name][0](path)
    with pytest.raises(InputError) as error:
        read_toml(path)
    assert re.search("not a TOML file, but an? ", one_line(error))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            ["cifar-100-python/train", "cifar-100-python/test", "cifar-100-python/meta"],
            "is CIFAR-100, which is not read",
        ),
        (["train", "test", "meta", "file.txt~"], "is CIFAR-100, which is not read"),
        (
            ["train.bin", "test.bin", "fine_label_names.txt", "coarse_label_names.txt"],
            "is CIFAR-100, which is not read",
        ),
        (
            ["cifar-100-binary/train.bin", "cifar-100-binary/test.bin"],
            "cifar-100-binary is CIFAR-100, which is not read",
        ),
        (
            ["MNIST/processed/training.pt", "MNIST/processed/test.pt"],
            "MNIST as pickles of PyTorch; give the folder `raw`",
        ),
        (
            ["images.npy", "labels.npy"],
            "holds images.npy, a single array of NumPy; put arrays together: numpy.savez",
        ),
        (
            ["data/train-00000-of-00001.parquet", "README.md"],
            "holds train-00000-of-00001.parquet, a table; give the file itself",
        ),
        (
            ["train/dataset_info.json", "train/data-0.arrow", "dataset_dict.json"],
            "is a data set of Hugging Face",
        ),
        (
            ["cifar-10-python.tar.gz"],
            "holds cifar-10-python.tar.gz, an archive; unpack it, and give the folder",
        ),
        (["a/x.tfrecord"], "holds x.tfrecord, a container of records"),
        (
            ["train_32x32.mat", "test_32x32.mat"],
            "holds test_32x32.mat, a file of MATLAB; read it with scipy.io.loadmat",
        ),
        (
            ["train.csv", "test.csv"],
            "holds test.csv, a table; give the file itself",
        ),
        (["own.npz"], "holds own.npz; give"),
        (
            ["1.png", "2.png"],
            (
                "has images (1.png), but no folder for each class; put each into the folder of its"
                " class"
            ),
        ),
    ],
)
def test_folders_that_are_not_read(
    tmp_path: Path, files: list[str], message: str, one_line: OneLine
) -> None:
    for name in files:
        (tmp_path / "it" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "it" / name).touch()
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path / "it"))
    assert message in one_line(error)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "one.png",
            "is a single image; give the folder that has a folder of images for each class",
        ),
        ("cifar-10-python.tar.gz", "is an archive; unpack it, and give the folder"),
        ("pictures.ZIP", "is an archive; unpack it"),
        (
            "ILSVRC2012_img_val.tar",
            "is ImageNet's validation images, without their classes; unpack them into a folder",
        ),
        ("images.npy", "is a single array of NumPy; put arrays together"),
        ("train.arrow", "is a table of Hugging Face or Arrow"),
        ("data.pt", "is a pickle, which could run code"),
        ("train-images-idx3-ubyte.gz", "is one file of a data set; give its folder"),
        ("data_batch_1.bin", "is one file of a data set; give its folder"),
        ("data_batch_1", "is one file of a data set; give its folder"),
    ],
)
def test_files_that_are_not_read(
    tmp_path: Path, name: str, message: str, one_line: OneLine
) -> None:
    (tmp_path / name).touch()
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path / name))
    assert message in one_line(error)


@pytest.mark.parametrize("given", ["train", "meta"])
def test_files_of_cifar_100_are_reported_as_their_folder_is(
    tmp_path: Path, given: str, one_line: OneLine
) -> None:
    for name in ("train", "test", "meta"):
        (tmp_path / name).write_bytes(b"\x80\x02")
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path / given))
    assert "is CIFAR-100, which is not read, but CIFAR-10 is; read `data`" in one_line(error)


def test_images_beside_tables_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(2):
            (tmp_path / "train" / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(tmp_path / "train" / name / f"{number}.png")
    for name in ("labels.csv", "dump.parquet", "old.zip"):
        (tmp_path / name).touch()
    assert load_data(str(tmp_path)).note.startswith("3 files left out: 1 .csv, 1 .parquet, 1 .zip")
