"""Inputs and targets of users: what types and shapes say, files and objects that hold them, and
what is refused.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.common.machine import Room
from emuchain.emulator.data import LazyImages, as_data, load_data
from emuchain.emulator.data.own import objects

from .array_files import WRITE, Write

OneLine = Callable[..., str]
RANDOM = np.random.default_rng(4)
N = 20
CLASSES = np.arange(N) % 4


def floats(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=(N, *shape)).astype(np.float32)


INPUTS: dict[str, tuple[np.ndarray, tuple[int, int, int], int]] = {
    "values": (floats(6), (6, 1, 1), 0),
    "a sequence": (floats(7, 5), (5, 7, 1), 0),
    "maps": (floats(3, 4, 5), (3, 4, 5), 0),
    "double precision": (floats(6).astype(np.float64), (6, 1, 1), 0),
    "symbols": (RANDOM.integers(0, 9, (N, 7)), (9, 7, 1), 9),
    "grey images": (RANDOM.integers(0, 256, (N, 8, 9), np.uint8), (1, 8, 9), 0),
    "images": (RANDOM.integers(0, 256, (N, 8, 9, 3), np.uint8), (3, 8, 9), 0),
}


@pytest.mark.parametrize("case", INPUTS)
def test_inputs_by_type_and_shape(case: str) -> None:
    inputs, shape, symbols = INPUTS[case]
    if symbols:
        inputs[0, 0] = symbols - 1
    data = as_data((inputs, CLASSES), (inputs, CLASSES)).checked()
    assert (data.shape, data.symbols, data.n_classes) == (shape, symbols, 4)
    made = np.asarray(data.train_images[np.arange(N)])
    if case == "a sequence":
        inputs = inputs.swapaxes(1, 2)
    if case == "images":
        inputs = inputs.transpose(0, 3, 1, 2)
    assert np.array_equal(made.reshape(N, -1), inputs.reshape(N, -1).astype(made.dtype))


@pytest.mark.parametrize("write", WRITE)
@pytest.mark.parametrize("case", INPUTS)
def test_files_hold_what_arrays_do(tmp_path: Path, write: Write, case: str) -> None:
    inputs, _, _ = INPUTS[case]
    arrays = {"inputs": inputs, "targets": CLASSES}
    tests = {"test_inputs": inputs[:6], "test_targets": CLASSES[:6]}
    path = write(tmp_path, {**arrays, **tests})
    data, expected = load_data(path), as_data((inputs, CLASSES), (inputs[:6], CLASSES[:6]))
    assert data.shape == expected.shape
    assert (data.symbols, data.classes) == (expected.symbols, expected.classes)
    for part in ("train", "test"):
        own, other = (getattr(of, f"{part}_images") for of in (data, expected))
        assert np.array_equal(np.asarray(own), np.asarray(other)), part
        assert np.array_equal(getattr(data, f"{part}_labels"), getattr(expected, f"{part}_labels"))


def test_a_file_trains_as_its_arrays(tmp_path: Path) -> None:
    """Read from disk, a few samples at a time, or all at once."""
    network = {
        "name": "rows",
        "input": [5, 7, 1],
        "layers": [
            {"type": "lstm", "units": 4},
            {"type": "last-step"},
            *({"type": "fc", "features": 4}, {"type": "softmax"}),
        ],
    }
    inputs = floats(7, 5)
    np.savez(tmp_path / "own.npz", inputs=inputs, targets=CLASSES)
    data = load_data(tmp_path / "own.npz")
    assert isinstance(data.train_images, LazyImages)
    keys: dict[str, Any] = {"batch": 6, "epochs": 2, "progress": "none"}
    losses = []
    for given in (tmp_path / "own.npz", (inputs, CLASSES), data):
        losses.append(emuchain.train(network, data=given, **keys).history["train_loss"].tolist())
    assert losses[0] == losses[1] == losses[2]
    assert losses[0][0] != losses[0][1]


TARGETS: dict[str, tuple[np.ndarray, np.ndarray, tuple[str, ...]]] = {
    "classes": (CLASSES, CLASSES, ("0", "1", "2", "3")),
    "in a column": (CLASSES[:, None], CLASSES, ("0", "1", "2", "3")),
    "names": (np.array(["dog", "cat"])[CLASSES % 2], 1 - CLASSES % 2, ("cat", "dog")),
    "none": (
        np.where(CLASSES > 2, -100, CLASSES),
        np.where(CLASSES > 2, -100, CLASSES),
        ("0", "1", "2"),
    ),
    "large numbers": (10**9 * CLASSES, (1e9 * CLASSES).astype(np.float32), ("0",)),
    "numbers": (CLASSES / 2, (CLASSES / 2).astype(np.float32), ("0",)),
    "truth values": (CLASSES[:, None] > [0, 1], (CLASSES[:, None] > [0, 1]) * 1.0, ("0", "1")),
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets_by_type(case: str) -> None:
    given, kept, names = TARGETS[case]
    data = as_data((floats(6), given), (floats(6), given))
    assert np.array_equal(data.train_labels, kept)
    assert data.classes == names


def test_names_of_both_parts_are_numbered_together() -> None:
    data = as_data((floats(6), np.array(["b", "c"] * 10)), (floats(6), np.array(["a", "c"] * 10)))
    assert data.classes == ("a", "b", "c")
    assert data.train_labels[:2].tolist() == [1, 2]
    assert data.test_labels[:2].tolist() == [0, 2]


def test_a_share_of_each_class_is_the_test() -> None:
    inputs = floats(6)
    data = as_data((inputs, CLASSES), test_share=0.2, split_seed=3)
    assert np.bincount(data.test_labels).tolist() == [1] * 4
    both = np.concatenate([data.train_images, data.test_images])[:, :, 0, 0]
    assert sorted(both.tolist()) == sorted(inputs.tolist())
    other = as_data((inputs, CLASSES), test_share=0.2, split_seed=4)
    assert not np.array_equal(other.test_images, data.test_images)
    numbers = as_data((inputs, floats()), test_share=0.2)
    assert (numbers.n_train, numbers.n_test) == (16, 4)


class Samples:
    """A data set with a length and items, as those of PyTorch."""

    classes = ("a", "b", "c", "d")

    def __init__(self, inputs: np.ndarray) -> None:
        self._inputs = inputs

    def __len__(self) -> int:
        return N

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return self._inputs[number], int(CLASSES[number])


class Columns:
    """A data set of columns, as those of Hugging Face."""

    def __init__(self, **columns: np.ndarray) -> None:
        self._columns = columns

    @property
    def column_names(self) -> list[str]:
        return [*self._columns]

    def __len__(self) -> int:
        return N

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name].tolist()


def test_objects_of_other_libraries() -> None:
    inputs = RANDOM.integers(0, 9, (N, 7))
    expected = as_data((inputs, CLASSES), (inputs, CLASSES))
    columns = Columns(idx=np.arange(N), input_ids=inputs, label=CLASSES)
    for given in (
        Samples(inputs),
        columns,
        {"train": columns, "test": columns},
        {"inputs": inputs, "targets": CLASSES, "test_inputs": inputs, "test_targets": CLASSES},
    ):
        test = None if isinstance(given, dict) else given
        data = as_data(given, test)
        assert np.array_equal(data.train_images, expected.train_images)
        assert np.array_equal(data.test_labels, expected.test_labels)
        assert ("left out" in data.note) == (
            "inputs" not in given if isinstance(given, dict) else given is columns
        )
    assert as_data(Samples(inputs)).classes == Samples.classes


def test_loaders_of_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, whose loaders these are, is missing")
    inputs = floats(7, 5)
    samples = torch.utils.data.TensorDataset(torch.from_numpy(inputs), torch.from_numpy(CLASSES))
    expected = as_data((inputs, CLASSES))
    loader = torch.utils.data.DataLoader(samples, batch_size=3, shuffle=True)
    for given in (samples, loader):
        data = as_data(given)
        assert np.array_equal(data.train_images, expected.train_images)
        assert np.array_equal(data.train_labels, expected.train_labels)

    def padded(batch: list[Any]) -> tuple[Any, Any]:
        rows = [x[: 4 + int(y)] for x, y in batch]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), [int(y) for _, y in batch]

    ragged = torch.utils.data.DataLoader(samples, batch_size=3, collate_fn=padded)
    assert as_data(ragged).shape == (5, 7, 1)


def test_two_sides_are_one_sequence() -> None:
    """Symbols of a source and a target: as arrays, as samples, and as a loader's batches."""
    source, target = RANDOM.integers(0, 9, (N, 7)), RANDOM.integers(0, 9, (N, 5))
    labels = RANDOM.integers(0, 9, (N, 5))
    pairs = [((source[n], target[n]), labels[n]) for n in range(N)]
    whole = as_data((np.concatenate([source, target], 1), labels))
    ways: list[Any] = [((source, target), labels), pairs, iter(pairs)]
    with contextlib.suppress(ImportError):
        import torch

        parts = map(torch.from_numpy, (source, target, labels))
        sides = torch.utils.data.TensorDataset(*parts)
        samples = [((x, y), z) for x, y, z in sides]
        ways += [samples, torch.utils.data.DataLoader(samples, batch_size=9)]
    for way in ways:
        data = as_data(way)
        assert (data.shape, data.by_targets) == ((9, 12, 1), True)
        assert np.array_equal(data.train_images, whole.train_images)
        assert np.array_equal(data.train_labels, whole.train_labels)
    with pytest.raises(InputError, match="2 samples|one shape|no array"):
        as_data(((source.astype(np.float32), target), labels))


def test_streams_are_read_once_in_their_order() -> None:
    """Of generators, of data sets without numbers, and of what a loader with workers has."""
    torch = pytest.importorskip("torch", reason="PyTorch, whose streams these are, is missing")
    inputs = floats(5)
    expected = as_data((inputs, CLASSES))

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        """Samples by themselves: each worker of a loader would bring all of them."""

        def __iter__(self) -> Iterator[tuple[Any, int]]:
            return zip(torch.from_numpy(inputs), CLASSES.tolist(), strict=True)

    loader = torch.utils.data.DataLoader
    batches = [(inputs[at : at + 6], CLASSES[at : at + 6]) for at in range(0, N, 6)]
    for given in (
        zip(inputs, CLASSES, strict=True),
        ({"x": x.tolist(), "label": y} for x, y in zip(inputs, CLASSES, strict=True)),
        Stream(),
        loader(Stream(), batch_size=3),
        loader(Stream(), batch_size=3, num_workers=2),
        loader(batches, batch_size=None),
    ):
        data = as_data(given)
        assert np.array_equal(data.train_images, expected.train_images)
        assert np.array_equal(data.train_labels, expected.train_labels)


def test_a_stream_without_end_ends_where_memory_does(
    monkeypatch: pytest.MonkeyPatch, one_line: OneLine
) -> None:
    monkeypatch.setattr(objects, "free_room", lambda: Room(100_000, "there are"))
    with pytest.raises(
        InputError, match=r"first 5,120 samples take .* there are .*islice"
    ) as error:
        as_data((np.zeros(4, np.float32), 0) for _ in itertools.count())
    assert one_line(error)
    assert as_data(itertools.islice(((np.zeros(4), 0) for _ in itertools.count()), 9)).n_train == 8


def test_types_that_numpy_lacks() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, whose types these are, is missing")
    inputs = torch.from_numpy(floats(5)).bfloat16()
    kept = as_data((inputs, CLASSES), (inputs, CLASSES)).train_images
    assert np.array_equal(kept[:, :, 0, 0], inputs.float().numpy())


def test_columns_of_numbers_are_a_table() -> None:
    """As what `datasets` reads of a CSV file has them; a column of inputs leaves others out."""
    inputs = floats(2)
    table = Columns(a=inputs[:, 0], b=inputs[:, 1], label=CLASSES)
    data = as_data(table, table)
    assert np.array_equal(data.train_images[:, :, 0, 0], inputs)
    assert not data.note
    symbols = RANDOM.integers(0, 9, (N, 3))
    kept = as_data(Columns(input_ids=symbols, attention_mask=symbols, labels=CLASSES))
    assert "columns left out: attention_mask" in kept.note


def test_data_sets_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets", reason="Hugging Face's `datasets` is missing")
    inputs = floats(5)
    features = {"x": datasets.Sequence(datasets.Value("float32"))}
    features["label"] = datasets.ClassLabel(names=["a", "b", "c", "d"])
    columns = {"x": inputs.tolist(), "label": CLASSES.tolist()}
    data = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    for given in (
        data,
        data.with_format("torch"),
        data.to_iterable_dataset(num_shards=2),
        datasets.DatasetDict(train=data, test=data),
    ):
        test = None if isinstance(given, dict) else given
        kept = as_data(given, test)
        assert np.array_equal(kept.train_images[:, :, 0, 0], inputs)
        assert kept.classes == ("a", "b", "c", "d")
    symbols = RANDOM.integers(0, 9, (N, 3)).tolist()
    text = datasets.Dataset.from_dict({"text": ["a word"] * N, "label": CLASSES.tolist()})
    with pytest.raises(InputError, match="'text' is of <U6; .*; text becomes symbols by a token"):
        as_data(text)
    padded = text.add_column("input_ids", symbols)
    assert "columns left out: text" in as_data(padded).note


SHAPE = "should be (N, values), (N, steps, values)"
REFUSED: dict[str, tuple[Any, str]] = {
    "no data": (3, "`data`: is 3; should be (inputs, targets)"),
    "one array": (floats(6), "`data`: is"),
    "numbers alone": ([1, 2], "its first sample is 1; should be (input, target)"),
    "a sample of five axes": ((floats(2, 2, 2, 2), CLASSES), SHAPE),
    "a number each": ((floats(), CLASSES), SHAPE),
    "too few targets": ((floats(6), CLASSES[:5]), "`targets` has shape (5,); should be (20, …)"),
    "names as inputs": ((np.array([["a"]] * N), CLASSES), "`inputs` is of <U1; should be of"),
    "objects": ((np.array([[None]] * N), CLASSES), "`inputs` are of object; should be numbers"),
    "ragged": (([[1.0], [1.0, 2.0]], [0, 1]), "all samples should have one shape"),
    "not finite": ((np.where(floats(6) > 2, np.nan, np.nan), CLASSES), "sample 0 has a value that"),
    "negative symbols": ((CLASSES[:, None] - 1, CLASSES), "whole numbers (N, steps) are symbols"),
    "infinite": ((floats(6), np.full(N, np.inf)), "infinite in single precision"),
    "lists of one": (([[1.0]], [[0], [1]]), "`targets` has shape (2, 1); should be (1, …)"),
    "complex": ((floats(6), np.full(N, 1j)), "`targets` are of complex128"),
    "three arrays": ((floats(6), CLASSES, CLASSES), "`data`: has 3 arrays; should be (inputs, tar"),
    "only targets": ({"label": CLASSES}, "`data`: has no column of inputs, but label; call one"),
    "no columns": ({"a": floats(6)}, "has no column of targets, but a; call it `targets`"),
    "one sample": ((floats(6)[:1], [0]), "has one sample, and none for the test"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(one_line: OneLine, case: str) -> None:
    given, said = REFUSED[case]
    with pytest.raises(InputError) as error:
        as_data(given)
    assert said in one_line(error)


def test_parts_that_differ_are_refused(one_line: OneLine) -> None:
    with pytest.raises(InputError, match="samples of one shape") as error:
        as_data((floats(6), CLASSES), (floats(5), CLASSES))
    assert one_line(error)
    with pytest.raises(InputError, match="should be of one type") as error:
        as_data((floats(6), CLASSES), (floats(6), floats(2)))
    assert one_line(error)


@pytest.mark.parametrize("write", WRITE)
def test_files_that_are_refused(tmp_path: Path, one_line: OneLine, write: Write) -> None:
    path = write(tmp_path, {"inputs": floats(6)})
    with pytest.raises(InputError, match="has `inputs`, but no `targets`") as error:
        load_data(path)
    assert one_line(error)
    path = write(tmp_path, {"inputs": floats(6), "targets": CLASSES})
    with pytest.raises(InputError, match="`resize` is for images, and inputs are taken") as error:
        emuchain.train(data=path, resize=8)
    assert one_line(error)
