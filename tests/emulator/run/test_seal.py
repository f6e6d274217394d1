"""The seal of results files: no change of what they hold stays unseen, be it one that HDF5's
checksums see or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain import InputError
from emuchain.emulator.run import Results, read_results, write_results

from .test_results import results


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A results file."""
    write_results(tmp_path / "run.h5", results())
    return tmp_path / "run.h5"


def content(found: Results) -> list[bytes]:
    """All that results hold, as bytes."""
    tables = (found.history, found.devices, found.links, found.messages, *found.weights.values())
    texts = (
        repr(sorted(each.items())) for each in (found.config, found.descriptions, found.versions)
    )
    return [
        *(np.asarray(table[name]).tobytes() for table in tables for name in sorted(table)),
        *map(str.encode, texts),
    ]


def data_sets(file: h5py.File) -> list[h5py.Dataset]:
    """All data sets of a file."""
    found: list[h5py.Dataset] = []
    file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Dataset) else None)
    return found


def test_a_flipped_bit_of_any_data_set_is_seen(path: Path) -> None:
    """Wherever h5py says that a data set's bytes are, of which a checksum is part where they are in
    a chunk.
    """
    whole = path.read_bytes()
    with h5py.File(path) as file:
        chunked = [data for data in data_sets(file) if data.chunks]
        places = [(data.name, data.id.get_chunk_info(0).byte_offset) for data in chunked]
        plain = [
            (data.name, data.id.get_offset())
            for data in data_sets(file)
            if not data.chunks and data.nbytes
        ]
        assert all(data.fletcher32 for data in chunked)
        assert len(places) + len(plain) == sum(data.nbytes > 0 for data in data_sets(file))
    for name, offset in (
        *places,
        *((name, offset) for name, offset in plain if offset is not None),
    ):
        flipped = bytearray(whole)
        flipped[offset] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(InputError, match="possibly damaged"):
            read_results(path)
            pytest.fail(name)


def test_any_flipped_bit_is_seen_or_changes_nothing(path: Path) -> None:
    whole, before, chance, refused = (
        path.read_bytes(),
        content(read_results(path)),
        random.Random(5),
        0,
    )
    for _ in range(100):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        try:
            assert content(read_results(path)) == before
        except InputError:
            refused += 1
    assert refused > 50


def a_setting(file: Any) -> None:
    file["config"].attrs["seed"] = file["config"].attrs["seed"] + 1


def no_setting(file: Any) -> None:
    del file["config"].attrs["seed"]


def a_version(file: Any) -> None:
    file["versions"].attrs["mpi"] = "another"


def a_weight(file: Any) -> None:
    file["weights/conv1/weight"][0, 0, 0, 0] += 1


def a_figure(file: Any) -> None:
    file["history/test_accuracy"][0] = 0.75


def a_text(file: Any) -> None:
    del file["descriptions/network"]
    file["descriptions/network"] = np.bytes_(b"name = 'e'\n")


def two_columns(file: Any) -> None:
    file.move("history/train_loss", "history/aside")
    file.move("history/test_loss", "history/train_loss")
    file.move("history/aside", "history/test_loss")


def a_layer(file: Any) -> None:
    file.move("weights/conv1", "weights/conv2")


def a_shape(file: Any) -> None:
    values = file["weights/conv1/weight"][()]
    del file["weights/conv1/weight"]
    file["weights/conv1/weight"] = values.reshape(1, 2, 3, 3)


def one_more(file: Any) -> None:
    file["weights/conv1/more"] = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    "change",
    [
        a_setting,
        no_setting,
        a_version,
        a_weight,
        a_figure,
        a_text,
        two_columns,
        a_layer,
        a_shape,
        one_more,
    ],
)
def test_what_checksums_of_hdf5_do_not_see(
    path: Path, one_line: Any, change: Callable[[Any], None]
) -> None:
    """h5py writes right checksums of all that it changes."""
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(InputError) as error:
        read_results(path)
    assert "its content is not what was written, by its digest" in one_line(error)
