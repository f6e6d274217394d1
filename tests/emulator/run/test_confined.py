"""Results files that are made to harm: refused in one line, whatever the library that reads them
would do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from emuchain.emulator.commands.show import show_results
from emuchain.emulator.common import InputError
from emuchain.emulator.common.confined import confined
from emuchain.emulator.run import read_results, write_results

from .test_results import results, unseal


def crash() -> dict[str, np.ndarray]:
    """End as a library that crashes."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def compute() -> dict[str, np.ndarray]:
    """Compute for ever."""
    while True:
        pass


def hang() -> dict[str, np.ndarray]:
    """Never end."""
    time.sleep(1000)
    return {}


def eat() -> dict[str, np.ndarray]:
    """Take more memory than there should be."""
    try:
        return {"much": np.ones(2**28)}
    except MemoryError:
        raise InputError("no memory") from None


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (crash, "crashes the library"),
        (compute, "takes more than 1 s of processor time to read; it is damaged or malicious"),
        (hang, "s of processor time; the disk or the machine is too busy: try again"),
        (eat, "no memory"),
    ],
)
def test_readers_that_end_badly(
    one_line: Any, read: Callable[[], dict[str, np.ndarray]], said: str
) -> None:
    with pytest.raises(InputError) as error:
        confined(read, "run.h5", most_bytes=2**28, seconds=1, patience=2)
    assert said in one_line(error)


def test_what_is_read_comes_back() -> None:
    sent = {"a/b": np.arange(6).reshape(2, 3), "text": np.array(["é", ""]), "one": np.array(True)}
    found = confined(lambda: sent, "run.h5", most_bytes=2**28, seconds=10)
    assert sent.keys() == found.keys()
    assert all(
        (sent[name] == found[name]).all() and sent[name].dtype == found[name].dtype for name in sent
    )


def test_a_busy_machine_damages_no_file() -> None:
    def wait() -> dict[str, np.ndarray]:
        time.sleep(1.5)
        return {"one": np.array(1)}

    assert confined(wait, "run.h5", most_bytes=2**28, seconds=1)["one"] == 1


def external_storage(file: Any) -> None:
    del file["weights/conv1/bias"]
    file["weights/conv1"].create_dataset("bias", (2,), "f4", external=[("secret", 0, 8)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((2,), "f4")
    layout[:] = h5py.VirtualSource("secret", "data", shape=(2,))
    file["weights/conv1"].create_virtual_dataset("made", layout)


def external_link(file: Any) -> None:
    file["weights/elsewhere"] = h5py.ExternalLink("secret", "/")


def soft_link(file: Any) -> None:
    file["weights/again"] = h5py.SoftLink("/weights")


def many_rows(file: Any) -> None:
    file.create_dataset("messages/width", (10**9, 4), "i8", chunks=(1000, 4), compression="gzip")[
        0
    ] = 1


def no_content(file: Any) -> None:
    file.create_dataset("messages/width", (10**12,), "i8")


def references(file: Any) -> None:
    file["weights/conv1"].create_dataset("made", (2,), h5py.ref_dtype)


def strings_of_any_length(file: Any) -> None:
    file["weights/conv1"].create_dataset("made", (2,), h5py.string_dtype())


def records(file: Any) -> None:
    file["weights/conv1"].create_dataset("made", data=np.zeros(2, [("a", "i4"), ("b", "f8")]))


def columns_of_several_lengths(file: Any) -> None:
    del file["history/train_loss"]
    file["history/train_loss"] = np.zeros(7)


def deep_groups(file: Any) -> None:
    file.create_group("weights/" + "a/" * 3000)


HOSTILE = [
    external_storage, virtual, external_link, soft_link, many_rows, no_content, references, strings_of_any_length,
    records, columns_of_several_lengths, deep_groups,
]  # fmt: skip


@pytest.mark.parametrize("harm", HOSTILE)
def test_what_results_never_hold(
    tmp_path: Path, one_line: Any, harm: Callable[[Any], None]
) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    (tmp_path / "secret").write_bytes(bytes(8))
    with h5py.File(path, "r+") as file:
        harm(file)
        unseal(file)
    with pytest.raises(InputError) as error:
        read_results(path)
    assert "not a readable results file" in one_line(error)


def test_a_circle_of_groups(tmp_path: Path, one_line: Any) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    with h5py.File(path, "r+") as file:
        file["weights/again"] = file["weights"]
        unseal(file)
    with pytest.raises(InputError) as error:
        read_results(path)
    assert "not a readable results file" in one_line(error)


def test_what_a_terminal_would_obey(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    with h5py.File(path, "r+") as file:
        file["config"].attrs["network"] = "\x1b]0;title\x07"
        file["versions"].attrs["mpi"] = "\x9b2J"
        file.move("weights/conv1", "weights/\x1b[2J")
        unseal(file)
    show_results(read_results(path), full=True)
    shown = capsys.readouterr().out
    assert "\\x1b]0;title" in shown
    assert all(each.isprintable() or each == "\n" for each in shown)


@pytest.mark.parametrize("key", ["network", "devices", "samples", "schedule"])
@pytest.mark.parametrize("value", [None, "text", -1, np.nan])
def test_settings_that_are_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: Any
) -> None:
    path = tmp_path / "run.h5"
    write_results(path, results())
    with h5py.File(path, "r+") as file:
        del file["config"].attrs[key]
        if value is not None:
            file["config"].attrs[key] = value
        unseal(file)
    try:
        show_results(read_results(path), full=True)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert capsys.readouterr().out
