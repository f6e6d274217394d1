"""Images and labels from .npz and HDF5: what comes back, and what both refuse."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data import Reading, describe_data, load_data

from .array_files import WRITE, Write, arrays

OneLine = Callable[..., str]
pytestmark = pytest.mark.parametrize("write", WRITE)


def test_round_trip(tmp_path: Path, write: Write) -> None:
    made = arrays()
    where = str(write(tmp_path, made))
    data = load_data(where)
    assert (data.name, data.shape, data.classes) == ("own", (3, 5, 4), ("0", "1"))
    for images, labels, part in (
        (data.train_images, data.train_labels, ""),
        (data.test_images, data.test_labels, "test_"),
    ):
        assert np.asarray(images).tobytes() == made[f"{part}images"].tobytes()
        assert labels.dtype == np.int64
        assert labels.tolist() == made[f"{part}labels"].tolist()
        again = pickle.loads(pickle.dumps(images))
        assert again[3].tobytes() == made[f"{part}images"][3].tobytes()
    assert describe_data(where)[:4] == (12, 4, (3, 5, 4), 2)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((28, 20), (1, 28, 20)),
        ((28, 20, 1), (1, 28, 20)),
        ((28, 20, 3), (3, 28, 20)),
        ((3, 28, 20), (3, 28, 20)),
        ((1, 3, 4), (1, 3, 4)),
        ((4, 1, 3), (3, 4, 1)),
    ],
)
def test_shapes(
    tmp_path: Path, write: Write, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    made = arrays(shape=shape)
    data = load_data(str(write(tmp_path, made)))
    assert data.shape == expected
    image = made["images"][5]
    if image.ndim == 2:
        image = image[None]
    elif shape != expected:
        image = image.transpose(2, 0, 1)
    assert np.array_equal(data.train_images[5], image)


@pytest.mark.parametrize("shape", [(8, 8, 4), (4, 8, 8), (12, 28, 20), (3, 28, 3), (1, 28, 1)])
def test_where_channels_are_is_said(
    tmp_path: Path, write: Write, shape: tuple[int, ...], one_line: OneLine
) -> None:
    """Neither that RGBA's four channels are columns nor that columns are channels is guessed."""
    made = arrays(shape=shape)
    where, (a, b, c) = str(write(tmp_path, made)), shape
    with pytest.raises(InputError) as error:
        load_data(where)
    said = (
        f"channels may come first, {a} of {b}x{c}, or last, {c} of {a}x{b}; say which by `channels`"
    )
    assert said in one_line(error)
    assert load_data(where, reading=Reading(channels="first")).shape == shape
    last = load_data(where, reading=Reading(channels="last"))
    assert last.shape == (c, a, b)
    for images, part in ((last.train_images, "images"), (last.test_images, "test_images")):
        assert np.array_equal(np.asarray(images), made[part].transpose(0, 3, 1, 2))


def test_orders_and_types_of_others(tmp_path: Path, write: Write) -> None:
    made = arrays()
    made["labels"] = made["labels"].astype(">u2")[:, None]
    made["images"] = np.asfortranarray(made["images"])
    data = load_data(str(write(tmp_path, made)))
    assert data.train_labels.tolist() == [0, 1] * 6
    assert np.array_equal(np.asarray(data.train_images), made["images"])


def test_a_split(tmp_path: Path, write: Write) -> None:
    made = arrays(20, 0)
    where = str(write(tmp_path, made))
    data = load_data(where, reading=Reading(test_share=0.3))
    assert (data.n_train, data.n_test, data.test_labels.sum()) == (14, 6, 3)
    whole = [*np.asarray(data.train_images), *np.asarray(data.test_images)]
    assert {image.tobytes() for image in whole} == {image.tobytes() for image in made["images"]}
    others = [load_data(where, reading=Reading(split_seed=seed)).test_images for seed in range(5)]
    assert len({np.asarray(images).tobytes() for images in others}) > 2


def test_names_of_classes(tmp_path: Path, write: Write) -> None:
    made = {**arrays(), "classes": np.array(["cat", "d\x1bg", "none so far"])}
    assert load_data(str(write(tmp_path, made))).classes == ("cat", r"'d\x1bg'", "none so far")


def test_resizing(tmp_path: Path, write: Write) -> None:
    data = load_data(
        str(write(tmp_path, arrays(shape=(3, 10, 20)))), reading=Reading(resize=(5,), crop=(4,))
    )
    assert data.shape == (3, 4, 4)
    assert np.asarray(data.test_images).shape == (4, 3, 4, 4)


WRONG = {
    "no labels": (
        {"labels": None},
        "own.*: has no `labels`, but images, test_images, test_labels; `images` and",
    ),
    "half a test": ({"test_labels": None}, "own.*: has no `test_labels`, but"),
    "float images": (
        {"images": np.zeros((12, 3, 5, 4), np.float32)},
        "`images` is of float32; should be uint8",
    ),
    "float labels": (
        {"labels": np.zeros(12)},
        "`labels` is of float64; should be of whole numbers",
    ),
    "flat images": (
        {"images": np.zeros((12, 60), np.uint8)},
        r"`images` has shape \(12, 60\); should be \(N, rows",
    ),
    "no images": (
        {"images": np.zeros((0, 3, 5, 4), np.uint8)},
        r"`images` has shape \(0, 3, 5, 4\)",
    ),
    "too few labels": (
        {"labels": np.zeros(11, int)},
        r"`labels` has shape \(11,\); should be \(12,\), one an image",
    ),
    "negative": (
        {"labels": np.arange(12) - 1},
        "`labels`: label -1 found at place 0; should be 0 to",
    ),
    "from 1": (
        {"labels": np.arange(12) % 2 + 1},
        "label 2 found at place 1; should be 0 to 1 without gaps",
    ),
    "large": (
        {"labels": np.full(12, 10**12)},
        "label 1000000000000 found at place 0; should be 0 to 0",
    ),
    "huge": (
        {"labels": np.full(12, 2**63, np.uint64)},
        "`labels` has a label of 9223372036854775808",
    ),
    "unknown in test": (
        {"test_labels": np.full(4, 2)},
        "`test_labels`: label 2 found at place 0; should be 0 to 1",
    ),
    "another size": (
        {"test_images": np.zeros((4, 3, 5, 5), np.uint8)},
        "`images` are 3x5x4 and `test_images` 3x5x5",
    ),
    "unnamed": (
        {"classes": np.array(["cat"])},
        "`labels`: label 1 found at place 1; should be 0 to 0",
    ),
    "numbers as names": ({"classes": np.array([1, 2])}, "`classes` is of int64; should be of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(tmp_path: Path, write: Write, name: str, one_line: OneLine) -> None:
    changed, words = WRONG[name]
    made = {key: values for key, values in {**arrays(), **changed}.items() if values is not None}
    with pytest.raises(InputError, match=words) as error:
        load_data(str(write(tmp_path, made)))
    assert one_line(error).isprintable()


def test_single_images_of_each_class_cannot_be_split(tmp_path: Path, write: Write) -> None:
    with pytest.raises(
        InputError, match="no class has two images, one for training and one for testing"
    ):
        load_data(str(write(tmp_path, arrays(2, 0))))


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.99])
def test_a_file_that_is_cut_off(
    tmp_path: Path, write: Write, kept: float, one_line: OneLine
) -> None:
    path = write(tmp_path, arrays())
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(InputError) as error:
        load_data(str(path))
    assert str(path) in one_line(error)


def test_a_folder_a_pipe_and_nothing_at_all(
    tmp_path: Path, write: Write, one_line: OneLine
) -> None:
    suffix = write(tmp_path, arrays()).suffix
    os.mkfifo(tmp_path / f"pipe{suffix}")
    (tmp_path / f"link{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"empty{suffix}").touch()
    for name in ("pipe", "link", "empty", "missing"):
        with pytest.raises(InputError) as error:
            load_data(str(tmp_path / f"{name}{suffix}"))
        assert name in one_line(error)


def test_bytes_at_random_change_nothing_or_are_named(tmp_path: Path, write: Write) -> None:
    """No other exception, whatever is in the file."""
    path = write(tmp_path, arrays())
    whole, random = path.read_bytes(), np.random.default_rng(1)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        for place in random.integers(0, len(whole), 4):
            damaged[place] = random.integers(0, 256)
        path.write_bytes(damaged)
        try:
            data = load_data(str(path))
            np.asarray(data.train_images), np.asarray(data.test_images)
        except InputError as error:
            assert str(error).isprintable()
            refused += 1
    assert refused


def test_the_first_images_are_those_of_the_file(tmp_path: Path, write: Write) -> None:
    made = arrays()
    data = load_data(str(write(tmp_path, made))).first(5)
    assert np.asarray(data.train_images).tobytes() == made["images"][:5].tobytes()
    assert data.n_test == 4
