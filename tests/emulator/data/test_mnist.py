"""MNIST in every spelling, whole and damaged."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.data import describe_data, load_data

PARTS = [("train", 20), ("t10k", 10)]


def images(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 28, 28), dtype=np.uint8)


def idx(array, magic=None):
    magic = magic or 0x800 | array.ndim
    return (
        struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.astype(np.uint8).tobytes()
    )


def write(folder, packed=False, dot=False, parts=PARTS):
    folder.mkdir(exist_ok=True)
    for part, n in parts:
        for stem, array in ((f"{part}-images", images(n)), (f"{part}-labels", np.arange(n) % 10)):
            name = f"{stem}{'.' if dot else '-'}idx{array.ndim}-ubyte"
            content = gzip.compress(idx(array)) if packed else idx(array)
            (folder / f"{name}{'.gz' if packed else ''}").write_bytes(content)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", [False, True])
@pytest.mark.parametrize("below", ["", "mnist"])
def test_round_trip(tmp_path, packed, dot, below):
    write(tmp_path / below, packed, dot)
    data = load_data(str(tmp_path))
    assert data.name == "mnist"
    assert data.note == ""
    assert data.classes == tuple("0123456789")
    np.testing.assert_array_equal(data.train_images[:, 0], images(20))
    np.testing.assert_array_equal(data.test_images[:, 0], images(10))
    np.testing.assert_array_equal(data.train_labels, np.arange(20) % 10)
    np.testing.assert_array_equal(data.test_labels, np.arange(10))
    assert data.train_images.flags.c_contiguous
    assert data.train_images.flags.writeable
    assert data.train_labels.dtype == np.int64
    assert describe_data(str(tmp_path))[:4] == (20, 10, (1, 28, 28), 10)
    assert (data.n_train, data.n_test, data.shape, data.n_classes) == (20, 10, (1, 28, 28), 10)


def test_t10k_alone_is_split(tmp_path):
    write(tmp_path, packed=True, parts=[("t10k", 25)])
    data = load_data(str(tmp_path))
    assert (data.n_train, data.n_test) == (20, 5)
    assert describe_data(str(tmp_path))[:4] == (20, 5, (1, 28, 28), 10)
    assert data.name == "mnist-t10k"
    assert "t10k" in data.note
    np.testing.assert_array_equal(data.test_images[:, 0], images(25)[4::5])
    together = np.concatenate([data.train_images, data.test_images])[:, 0]
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(images(25), axis=0))


def test_too_few_to_split(tmp_path):
    write(tmp_path, parts=[("t10k", 4)])
    with pytest.raises(InputError, match="4 images found, at least 5 needed"):
        load_data(str(tmp_path))


@pytest.mark.parametrize("stem", ["train-images", "train-labels", "t10k-images", "t10k-labels"])
def test_missing_file(tmp_path, stem):
    write(tmp_path)
    next(tmp_path.glob(f"{stem}*")).unlink()
    with pytest.raises(InputError, match=f"{stem}-idx.-ubyte: missing"):
        load_data(str(tmp_path))


LABELS, IMAGES = "train-labels-idx1-ubyte", "train-images-idx3-ubyte"
GOOD = idx(images(20))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            IMAGES,
            GOOD[:-1],
            "cut off: 15695 bytes found, 15696 expected for the 20x28x28 its header names",
        ),
        (IMAGES, GOOD + b"x", "too long: more bytes found, 15696 expected"),
        (IMAGES, GOOD[:10], "cut off: 10 bytes found, an idx header of 16 expected"),
        (IMAGES, b"", "cut off: 0 bytes found"),
        (
            IMAGES,
            idx(images(20), 0x801),
            r"magic number 0x00000801 found, 0x00000803 expected \(unsigned bytes in 3 d",
        ),
        (IMAGES, struct.pack(">4I", 0x803, *[0xFFFFFFFF] * 3) + b"abc", "cut off: 19 bytes found"),
        (IMAGES, struct.pack(">4I", 0x803, 0, 28, 28), "is empty: its header names 0x28x28 values"),
        (IMAGES, idx(images(20)[:, :27]), "training images are 27x28 and test images 28x28"),
        (LABELS, idx(np.full(20, 10)), "label 10 found at place 0, 0 to 9 expected"),
        (LABELS, idx(np.zeros(19)), "19 labels found, 20 expected"),
        (LABELS, idx(images(20)), "magic number 0x00000803 found, 0x00000801 expected"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged(tmp_path, name, content, says, packed):
    write(tmp_path, packed)
    (tmp_path / f"{name}{'.gz' if packed else ''}").write_bytes(
        gzip.compress(content) if packed else content
    )
    with pytest.raises(InputError, match=says) as error:
        load_data(str(tmp_path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "says"), [(GOOD[:-1], "cut off: 15695 bytes"), (GOOD + b"x", "too long: more")]
)
@pytest.mark.parametrize("part", ["train", "t10k"])
def test_sizes_are_checked_without_reading(tmp_path, content, says, part):
    write(tmp_path)
    (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(InputError, match=f"{part}-images-idx3-ubyte: {says}"):
        describe_data(str(tmp_path))


PACKED = gzip.compress(GOOD)


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        PACKED[:-5],
        PACKED[: len(PACKED) // 2],
        PACKED[:3],
        PACKED[:-8] + b"\0" * 8,
        PACKED[:10] + b"\xff" * 20 + PACKED[30:],
    ],
)
def test_damaged_gzip(tmp_path, content):
    write(tmp_path, packed=True)
    (tmp_path / f"{IMAGES}.gz").write_bytes(content)
    with pytest.raises(
        InputError, match=r"train-images-idx3-ubyte.gz: not a whole gzip file"
    ) as error:
        load_data(str(tmp_path))
    assert "\n" not in str(error.value)


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.binary(max_size=60),
    st.sampled_from([b"", b"\0\0\x08\x03", b"\0\0\x08\x01", b"\x1f\x8b"]),
    st.booleans(),
)
def test_random_bytes(tmp_path, content, head, packed):
    for part, _ in PARTS:
        for kind in ("images-idx3", "labels-idx1"):
            (tmp_path / f"{part}-{kind}-ubyte{'.gz' if packed else ''}").write_bytes(head + content)
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path))
    assert "\n" not in str(error.value)
    for path in tmp_path.iterdir():
        path.unlink()
