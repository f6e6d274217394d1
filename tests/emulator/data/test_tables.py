"""Tables as text: which columns are targets, what these are, and what is refused."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, Reading, load_data

OneLine = Callable[..., str]
ROWS = [(0.5 * number, -number, number % 3, number % 2) for number in range(12)]


def written(folder: Path, head: str, rows: list[tuple[object, ...]], separator: str = ",") -> Path:
    lines = [head] if head else []
    lines += [separator.join(map(str, row)) for row in rows]
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return path


def all_of(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of both parts, sorted by the first input."""
    inputs = np.concatenate([data.train_images, data.test_images])[:, :, 0, 0]
    order = np.argsort(inputs[:, 0])
    return inputs[order], np.concatenate([data.train_labels, data.test_labels])[order]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize(
    ("head", "targets", "places"),
    [
        ("", (), [3]),
        ("a,b,c,d", (), [3]),
        ("a,label,c,d", (), [1]),
        ("a,b,Target,d", (), [2]),
        ("a,b,c,d", ("c",), [2]),
        ("a,b,c,d", ("d", "b"), [3, 1]),
    ],
)
def test_columns(
    tmp_path: Path, separator: str, head: str, targets: tuple[str, ...], places: list[int]
) -> None:
    path = written(tmp_path, head.replace(",", separator), ROWS, separator)
    inputs, labels = all_of(load_data(path, reading=Reading(target_columns=targets)))
    rows = np.array(ROWS, np.float32)
    others = [place for place in range(4) if place not in places]
    assert np.array_equal(inputs, rows[:, others])
    expected = rows[:, places]
    assert np.array_equal(labels.reshape(12, -1), expected)
    assert labels.dtype == (np.int64 if len(places) == 1 else np.float32)


class Column(list[object]):
    """A column of pyarrow's table."""

    def to_pylist(self) -> list[object]:
        return self


class OneFile:
    """What is asked of pyarrow's file, of the table `ROWS` with names, yes and no, and a gap."""

    def __init__(self, path: Path) -> None:
        if not path.stat().st_size:
            raise ValueError("Parquet file size is 0 bytes")
        self.metadata = types.SimpleNamespace(num_rows=len(ROWS), num_columns=3)
        self.column_names = ["a", "b", "label"]
        a, b, _, label = (Column(column) for column in zip(*ROWS, strict=True))
        self.columns = [a, Column(number > -6 for number in b), Column([None, *label[1:]])]

    def read(self) -> OneFile:
        return self


def test_parquet_by_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = types.ModuleType("pyarrow")
    own.parquet = types.SimpleNamespace(ParquetFile=OneFile)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", own)
    path = tmp_path / "table.parquet"
    path.write_text("PAR1")
    inputs, labels = all_of(load_data(path))
    rows = np.array(ROWS, np.float32)
    assert np.array_equal(inputs, np.stack([rows[:, 0], rows[:, 1] > -6], axis=1))
    assert np.isnan(labels[0])
    assert np.array_equal(labels[1:], rows[1:, 3])
    path.write_text("")
    with pytest.raises(InputError, match="not a readable Parquet file: Parquet file size is 0"):
        load_data(path)


def test_lists_in_parquet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: OneLine
) -> None:
    """They are inputs and targets, as columns of a data set in Python."""
    columns = {
        "input_ids": [[number, 1, 2] for number in range(12)],
        "label": [number % 2 for number in range(12)],
    }
    path = tmp_path / "table.parquet"
    try:
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(columns), path)
    except ImportError:
        own, table = types.ModuleType("pyarrow"), OneFile.__new__(OneFile)
        table.metadata = types.SimpleNamespace(num_rows=12, num_columns=2)
        table.column_names, table.columns = [*columns], [Column(its) for its in columns.values()]
        own.parquet = types.SimpleNamespace(ParquetFile=lambda _: table)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "pyarrow", own)
        path.write_text("PAR1")
    data = load_data(path)
    assert (data.shape, data.symbols, data.classes) == ((12, 3, 1), 12, ("0", "1"))
    symbols = np.concatenate([data.train_images, data.test_images])[:, 0, :, 0]
    assert sorted(symbols.tolist()) == columns["input_ids"]
    for targets, said in (
        (("x",), "has no column of x, but input_ids"),
        (("label", "x"), "beside"),
    ):
        with pytest.raises(InputError, match=said) as error:
            load_data(path, reading=Reading(target_columns=targets))
        one_line(error)


def test_parquet(tmp_path: Path, one_line: OneLine) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow reads Parquet, and is not installed")
    from pyarrow import parquet

    columns = {name: [row[place] for row in ROWS] for place, name in enumerate("abcd")}
    parquet.write_table(arrow.table(columns), tmp_path / "table.parquet")
    inputs, labels = all_of(load_data(tmp_path / "table.parquet"))
    expected = all_of(load_data(written(tmp_path, "a,b,c,d", ROWS)))
    assert np.array_equal(inputs, expected[0])
    assert np.array_equal(labels, expected[1])
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not a readable Parquet file") as error:
        load_data(tmp_path / "table.parquet")
    one_line(error)


def test_parquet_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_line: OneLine
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        InputError, match=r"needs pyarrow: pip install 'emuchain\[parquet\]'"
    ) as error:
        load_data(tmp_path / "table.parquet")
    one_line(error)


def test_words_are_classes_and_empty_cells_no_targets(tmp_path: Path) -> None:
    words = [(row[0], ("b", "a")[row[3]]) for row in ROWS]
    _, labels = all_of(data := load_data(written(tmp_path, "x,kind", words)))
    assert data.classes == ("a", "b")
    assert labels.tolist() == [1 - row[3] for row in ROWS]
    numbers = [(row[0], "" if row[3] else 0.5) for row in ROWS]
    _, labels = all_of(load_data(written(tmp_path, "x,y", numbers)))
    assert np.isnan(labels).tolist() == [bool(row[3]) for row in ROWS]


def test_a_table_trains(tmp_path: Path) -> None:
    """Whole numbers as classes, and as numbers, which may be negative."""
    path = written(tmp_path, "a,b,c,d", ROWS)
    layers = [{"type": "fc", "features": 2}, {"type": "softmax"}]
    network = {"name": "table", "input": [3, 1, 1], "layers": layers}
    run = emuchain.train(network, data=path, batch=4, progress="none")
    assert run.config["data"] == str(path)
    one = {**network, "layers": [{"type": "fc", "features": 1}, {"type": "mse"}]}
    keys = {"batch": 4, "progress": "none", "learning_rate": 1e-30}
    run = emuchain.train(one, data=path, target_columns="b", test_share=0.4, **keys)
    data = load_data(path, reading=Reading(target_columns=("b",), test_share=0.4))
    made = emuchain.predict(run, np.asarray(data.test_images))
    own = ((made[:, 0] - data.test_labels) ** 2).mean()
    assert data.test_labels.min() < 0
    assert run.history["test_loss"][0] == pytest.approx(own, rel=1e-5)


REFUSED: dict[str, tuple[str, str]] = {
    "empty": ("", "empty; a table has a row for each sample"),
    "a word": ("a,b\n1,2\nx,3\n", "row 2, column 'a' holds 'x', which is no number"),
    "a missing input": ("a,b\n1,2\n,3\n", "row 2, column 'a' holds nothing"),
    "a short row": ("a,b\n1,2\n3\n", "row 2 has 1 cell; should be 2"),
    "a name twice": ("a,a\n1,2\n", "two columns are called 'a'"),
    "one column": ("a\n1\n2\n", "has no columns of inputs"),
    "a missing class": ("a,b\n1,x\n2,\n", "row 2 has no b, a class by its name"),
    "no text": ("a,b\n1,\x002\n", "row 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(tmp_path: Path, one_line: OneLine, case: str) -> None:
    content, said = REFUSED[case]
    (tmp_path / "own.csv").write_text(content)
    with pytest.raises(InputError) as error:
        load_data(tmp_path / "own.csv")
    if case != "no text":
        assert said in str(error.value)
    assert one_line(error)


def test_columns_that_are_not_there(tmp_path: Path, one_line: OneLine) -> None:
    path = written(tmp_path, "a,b,c,d", ROWS)
    with pytest.raises(InputError, match="no column 'price'; columns: a, b, c, d") as error:
        load_data(path, reading=Reading(target_columns=("price",)))
    assert one_line(error)
    words = [(row[0], row[1], "x") for row in ROWS]
    with pytest.raises(InputError, match="several targets are numbers") as error:
        load_data(written(tmp_path, "a,b,c", words), reading=Reading(target_columns=("b", "c")))
    assert one_line(error)


def test_frames_of_pandas_are_tables(tmp_path: Path, one_line: OneLine) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas, whose frames these are, is missing")
    path = written(tmp_path, "a,label,c,d", ROWS)
    frame = pandas.read_csv(path, encoding="utf-8-sig")
    for one, other in zip(all_of(emuchain.as_data(frame)), all_of(load_data(path)), strict=True):
        assert np.array_equal(one, other)
    frame["label"] = ["b", "a"] * 6
    assert emuchain.as_data(frame).classes == ("a", "b")
    for wrong in (frame[["a"]], frame.assign(c="x")):
        with pytest.raises(InputError) as error:
            emuchain.as_data(wrong)
        assert one_line(error)
