"""CIFAR-10 in both layouts: what is written comes back, and what is wrong is named in one line."""

import contextlib
import pickle
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.data import describe_data, load_data

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
NAMES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
COUNTS = [3, 1, 4, 2, 5, 6]
ANY_FILES = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def records():
    random = np.random.default_rng(1)
    batches = [random.integers(0, 256, (n, 3073), dtype=np.uint8) for n in COUNTS]
    for batch in batches:
        batch[:, 0] %= 10
    return batches


def write_binary(folder, records):
    folder.mkdir(exist_ok=True)
    for name, batch in zip(NAMES, records, strict=True):
        (folder / f"{name}.bin").write_bytes(batch.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CLASSES) + "\n\n")


def write_pickled(folder, records, protocol=2, key=str.encode):
    folder.mkdir(exist_ok=True)
    for name, batch in zip(NAMES, records, strict=True):
        content = {
            "batch_label": name,
            "labels": batch[:, 0].tolist(),
            "data": batch[:, 1:],
            "filenames": [b"a.png"],
        }
        (folder / name).write_bytes(pickle.dumps({key(k): v for k, v in content.items()}, protocol))
    meta = {
        "num_cases_per_batch": 10000,
        "label_names": [key(name) for name in CLASSES],
        "num_vis": 3072,
    }
    (folder / "batches.meta").write_bytes(
        pickle.dumps({key(k): v for k, v in meta.items()}, protocol)
    )


def check(data, records):
    train = np.concatenate(records[:5])
    assert data.shape == (3, 32, 32)
    assert data.name == "cifar10"
    assert data.classes == CLASSES
    assert (data.n_train, data.n_test) == (15, 6)
    np.testing.assert_array_equal(data.train_images.reshape(15, -1), train[:, 1:])
    np.testing.assert_array_equal(data.train_labels, train[:, 0])
    np.testing.assert_array_equal(data.test_images.reshape(6, -1), records[5][:, 1:])
    np.testing.assert_array_equal(data.test_labels, records[5][:, 0])
    for images in (data.train_images, data.test_images):
        assert images.dtype == np.uint8
        assert images.flags.c_contiguous
        assert images.flags.writeable
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64


@pytest.mark.parametrize("below", ["", "cifar-10-batches-bin"])
def test_binary_round_trip(tmp_path, records, below):
    write_binary(tmp_path / below, records)
    check(load_data(str(tmp_path)), records)
    assert describe_data(str(tmp_path))[:4] == (15, 6, (3, 32, 32), 10)


@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("key", [str, str.encode])
def test_pickled_round_trip(tmp_path, records, below, protocol, key):
    write_pickled(tmp_path / below, records, protocol, key)
    check(load_data(str(tmp_path)), records)
    assert describe_data(str(tmp_path))[:4] == (15, 6, (3, 32, 32), 10)


def test_pickles_of_python_2(tmp_path, records):
    """Byte for byte what cPickle wrote: short strings as keys, the array's bytes as a string, the
    names in text.
    """

    def short(text):
        return b"U" + bytes([len(text)]) + text

    for name, batch in zip(NAMES, records, strict=True):
        n = len(batch)
        array = b"".join((
            b"cnumpy.core.multiarray\n_reconstruct\nq\x04cnumpy\nndarray\nq\x05K\x00\x85U\x01b\x87Rq\x06(K\x01",
            b"K" + bytes([n]) + b"M\x00\x0c\x86",
            b"cnumpy\ndtype\nq\x07U\x02u1K\x00K\x01\x87Rq\x08(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
            b"\x89T" + struct.pack("<i", n * 3072) + batch[:, 1:].tobytes() + b"tb",
        ))  # fmt: skip
        labels = b"]q\x02(" + b"".join(b"K" + bytes([label]) for label in batch[:, 0]) + b"e"
        items = (
            short(b"labels")
            + labels
            + short(b"data")
            + array
            + short(b"batch_label")
            + short(name.encode())
        )
        (tmp_path / name).write_bytes(b"\x80\x02}q\x01(" + items + b"u.")
    names = "a".join(f"S'{name}'\np{i + 5}\n" for i, name in enumerate(CLASSES))
    (tmp_path / "batches.meta").write_text(
        f"(dp1\nS'num_cases_per_batch'\np2\nI10000\nsS'label_names'\np3\n(lp4\n{names}asS'num_vis'\np15\nI3072\ns."
    )
    check(load_data(str(tmp_path)), records)


def test_fortran_order(tmp_path, records):
    write_pickled(tmp_path, [np.asfortranarray(batch) for batch in records])
    check(load_data(str(tmp_path)), records)


def test_names_of_classes_may_be_missing(tmp_path, records):
    write_binary(tmp_path, records)
    (tmp_path / "batches.meta.txt").unlink()
    check(load_data(str(tmp_path)), records)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("write", "suffix"), [(write_binary, ".bin"), (write_pickled, "")])
def test_missing_file(tmp_path, records, write, suffix, name):
    write(tmp_path, records)
    (tmp_path / f"{name}{suffix}").unlink()
    for read in (load_data, describe_data):
        with pytest.raises(InputError, match=f"{name}{suffix}: missing"):
            read(str(tmp_path))


def test_binary_cut_off(tmp_path, records):
    write_binary(tmp_path, records)
    (tmp_path / "data_batch_3.bin").write_bytes(records[2].tobytes()[:-1])
    for read in (load_data, describe_data):
        with pytest.raises(
            InputError, match=r"data_batch_3.bin: cut off: 12291 bytes found, a multiple of 3073"
        ):
            read(str(tmp_path))


@pytest.mark.parametrize("write", [write_binary, write_pickled])
def test_one_short_file_of_the_official_set(tmp_path, records, write):
    """A copy that broke off just after a record: 4,000 of 10,000 images."""
    whole = np.tile(records[0][:1], (10_000, 1))
    write(tmp_path, [whole, whole, whole[:4000], whole, whole, whole])
    for read in (load_data, describe_data):
        with pytest.raises(
            InputError, match=r"data_batch_3.*: cut off: 4,000 images found, 10,000 expected, as in"
        ):
            read(str(tmp_path))


def test_a_smaller_set_is_reported(tmp_path, records):
    write_binary(tmp_path, records)
    assert (
        "its files hold 3, 1, 4, 2, 5, 6 images, in place of 10,000 each"
        in load_data(str(tmp_path)).note
    )
    whole = np.tile(records[0][:1], (10_000, 1))
    write_binary(tmp_path, [whole] * 6)
    assert load_data(str(tmp_path)).note == ""


def test_binary_label_out_of_range(tmp_path, records):
    records[1][0, 0] = 10
    write_binary(tmp_path, records)
    with pytest.raises(
        InputError, match=r"data_batch_2.bin: label 10 found in record 0, 0 to 9 expected"
    ):
        load_data(str(tmp_path))


@pytest.mark.parametrize("names", ["", "cat\n" * 9, "cat\n" * 9 + "do\x1bg\n"])
def test_wrong_names_of_classes(tmp_path, records, names):
    write_binary(tmp_path, records)
    (tmp_path / "batches.meta.txt").write_text(names)
    with pytest.raises(InputError, match=r"batches.meta.txt: the names of 10 classes expected"):
        load_data(str(tmp_path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "`data`: no array found"),
        (
            {"data": np.zeros((2, 3071), np.uint8), "labels": [1, 2]},
            r"`data`: uint8 of shape \(2, 3071\) found",
        ),
        ({"data": np.zeros((0, 3072), np.uint8), "labels": []}, ""),
        ({"data": np.zeros(3072, np.uint8), "labels": [1]}, "`data`: uint8 of shape"),
        ({"data": np.zeros((2, 3072), np.int64), "labels": [1, 2]}, "refused: .*dtype"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "`labels`: a list of 2 whole numbers"),
        (
            {"data": np.zeros((2, 3072), np.uint8), "labels": [1]},
            "`labels`: a list of 2 whole numbers",
        ),
        (
            {"data": np.zeros((2, 3072), np.uint8), "labels": [1, "2"]},
            "`labels`: a list of 2 whole numbers",
        ),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 10]}, "label 10 found in record 1"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [-1, 1]}, "label -1 found in record 0"),
        (
            {"data": np.zeros((2, 3072), np.uint8), "labels": [1 << 900, 1]},
            "label .* found in record 0",
        ),
        ([1, 2], "no dictionary"),
        ({1: 2}, "no dictionary"),
    ],
)
def test_pickled_of_wrong_content(tmp_path, records, content, says):
    write_pickled(tmp_path, records)
    (tmp_path / "data_batch_4").write_bytes(pickle.dumps(content, 2))
    with pytest.raises(InputError, match=f"data_batch_4: .*{says}") as error:
        load_data(str(tmp_path))
    assert "\n" not in str(error.value)


@ANY_FILES
@given(st.binary(max_size=200))
def test_random_bytes(tmp_path, content):
    for folder in (tmp_path / "bin", tmp_path / "py"):
        folder.mkdir(exist_ok=True)
        for name in [*NAMES, "batches.meta"]:
            (folder / name).with_suffix(".bin" if folder.name == "bin" else "").write_bytes(content)
        with pytest.raises(InputError) as error:
            load_data(str(folder))
        assert "\n" not in str(error.value)


@ANY_FILES
@given(st.data())
def test_damaged_pickles(tmp_path, data):
    """A whole file with a few bytes changed, or cut anywhere, loads or is an InputError."""
    rows = np.zeros((1, 3073), np.uint8)
    write_pickled(tmp_path, [rows] * 6, protocol=data.draw(st.sampled_from([0, 2, 4])))
    content = bytearray((tmp_path / "data_batch_1").read_bytes())
    heads = st.one_of(st.integers(0, 300), st.integers(len(content) - 100, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(heads)] = data.draw(st.integers(0, 255))
    (tmp_path / "data_batch_1").write_bytes(
        content[: data.draw(st.one_of(st.none(), st.integers(0, len(content))))]
    )
    with contextlib.suppress(InputError):
        assert load_data(str(tmp_path)).n_train == 5
