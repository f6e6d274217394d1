"""Finding a data set by name or directory."""

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data import describe_data, load_data


@pytest.mark.parametrize("read", [load_data, describe_data])
def test_no_data_set(tmp_path, read):
    with pytest.raises(
        InputError, match="nowhere: no such directory; give `shapes`, `text`, or a directory"
    ):
        read(str(tmp_path / "nowhere"))
    with pytest.raises(
        InputError, match=r"is empty; known layouts: CIFAR-10 binary .* CIFAR-10 pickled .* MNIST"
    ):
        read(str(tmp_path))
    (tmp_path / "notes.md").write_text("nothing")
    with pytest.raises(InputError, match="holds no known data set; known layouts: CIFAR-10 binary"):
        read(str(tmp_path))
    with pytest.raises(
        InputError, match=r"notes.md: is a file; give the directory it is in, or a text"
    ):
        read(str(tmp_path / "notes.md"))


@pytest.mark.parametrize(
    "where",
    [
        "a" * 5000,
        "a\0b",
        "/dev/null/x",
        "a" * 5000 + ".txt",
        "a\0b.txt",
        "/dev/null/x.txt",
        "a" * 5000 + ".npz",
        "a\0b.h5",
    ],
)
def test_impossible_names(where):
    with pytest.raises(InputError):
        load_data(where)


def test_two_data_sets(tmp_path):
    for name in ("cifar-10-batches-bin/test_batch.bin", "mnist/t10k-images-idx3-ubyte"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    with pytest.raises(
        InputError,
        match=r"holds CIFAR-10 \(.*bin\) and MNIST \(.*mnist\); give the directory of one",
    ):
        load_data(str(tmp_path))


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "data_batch_1.bin").mkdir()
    with pytest.raises(
        InputError, match=r"data_batch_1.bin: cannot be read \(is a folder; give a file\)"
    ):
        load_data(str(tmp_path))


def test_no_more_is_drawn_than_enough():
    all_ = load_data("shapes")
    for enough, counts in (
        ((7, 3), (7, 3)),
        ((None, 1), (10_000, 1)),
        ((20_000, None), (10_000, 2_000)),
    ):
        data = load_data("shapes", enough=enough)
        assert (data.n_train, data.n_test) == counts
        assert np.array_equal(data.train_images, all_.train_images[: counts[0]])
        assert np.array_equal(data.train_labels, all_.train_labels[: counts[0]])
        assert np.array_equal(data.test_images, all_.test_images[: counts[1]])
        assert np.array_equal(data.test_labels, all_.test_labels[: counts[1]])
