"""Whole files: what is there before a write that fails is there after it, and a file has one writer
at a time.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError, WholeFile, write_whole

Refused = Callable[[str | Path], str]


@pytest.fixture
def refused(one_line: Any) -> Refused:
    """Returns the line with which a path is refused, at the start of writing."""

    def start(path: str | Path) -> str:
        with pytest.raises(InputError) as error:
            WholeFile(path)
        line: str = one_line(error)
        assert line.startswith("`out` = ") and len(line) < 1000
        return line

    return start


def names(folder: Path) -> list[str]:
    """The names of all files in a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def writer(code: str, *arguments: Path) -> subprocess.Popen[str]:
    """Another process that runs `code`, which has a WholeFile `file` for the first argument, up to
    a line it prints.
    """
    setup = (
        "import sys\nfrom emuchain.emulator.common import WholeFile\nfile ="
        " WholeFile(sys.argv[1])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", setup + code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_new_and_again(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with WholeFile(path) as file:
        assert not path.exists()
        for content in (b"one", b"two", b""):
            file.write(content)
            assert path.read_bytes() == content
    assert names(tmp_path) == ["run.h5"]
    write_whole(path, "é\n")
    assert path.read_bytes() == b"\xc3\xa9\n"
    with WholeFile(path) as file:
        assert os.fspath(file) == str(path)
        write_whole(file, "by the file\n")
    assert path.read_text() == "by the file\n"
    assert names(tmp_path) == ["run.h5"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failure_while_building_leaves_what_was_there(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with WholeFile(path) as file, pytest.raises(failure), file.building() as part:
        part.write(b"half")
        raise failure
    assert path.read_text() == "old"
    assert names(tmp_path) == ["run.json"]


def test_a_full_disk(tmp_path: Path, one_line: Any) -> None:
    """A limit on sizes of files stands for a full disk: writing fails in the middle."""
    path = tmp_path / "run.h5"
    path.write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with WholeFile(path) as file, pytest.raises(InputError) as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            file.write(bytes(200_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot be written: File too large; it holds what it held before" in one_line(error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["run.h5"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
def test_modes_are_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run.h5"
    path.touch()
    path.chmod(mode)
    write_whole(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_whole(tmp_path / "run.h5", b"new")
    assert (tmp_path / "run.h5").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    path.touch()
    os.chown(path, 1234, 1235)
    write_whole(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "run.h5"
    link.symlink_to("real/first.h5")
    for content in (b"new", b"again"):
        write_whole(link, content)
        assert link.is_symlink() and (tmp_path / "real" / "first.h5").read_bytes() == content
    assert names(tmp_path / "real") == ["first.h5"]


def test_what_is_no_file(tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "into").symlink_to("none/run.h5")
    (tmp_path / "file").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        assert "is a pipe" in refused(tmp_path / "pipe")
        assert "is a pipe" in refused(tmp_path / "to-pipe")
        assert "is a socket" in refused(tmp_path / "socket")
    assert "is a folder" in refused(tmp_path)
    assert "is a folder" in refused("")
    assert "symbolic links" in refused(tmp_path / "round")
    assert "does not exist" in refused(tmp_path / "into")
    assert "does not exist" in refused(tmp_path / "none" / "run.h5")
    assert "does not exist" in refused(tmp_path / "file" / "run.h5")
    assert names(tmp_path) == ["file", "into", "pipe", "round", "socket", "to-pipe"]


@pytest.mark.parametrize("device", ["/dev/null", "/dev/full", "/dev/zero"])
def test_devices_stay(device: str, refused: Refused) -> None:
    """Also where root could rename a file over them."""
    assert "is a device" in refused(device)
    assert stat.S_ISCHR(os.stat(device).st_mode)


def test_a_device_that_comes_during_a_run_stays(tmp_path: Path, one_line: Any) -> None:
    path = tmp_path / "run.h5"
    with WholeFile(path) as file:
        os.mkfifo(path)
        with pytest.raises(InputError) as error:
            file.write(b"new")
    assert "is a pipe" in one_line(error)
    assert names(tmp_path) == ["run.h5"]


@pytest.mark.parametrize("name", ["a" * 300, "a" * 5000, "a/" * 2500, "a\0b", "\ud800"])
def test_names_that_no_file_can_have(tmp_path: Path, refused: Refused, name: str) -> None:
    refused(tmp_path / name)
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "[*]?\n", "-", "\udcff"])
def test_names_that_a_file_can_have(tmp_path: Path, name: str) -> None:
    write_whole(tmp_path / name, b"new")
    assert names(tmp_path) == [name]


def test_the_commands_own_output(tmp_path: Path) -> None:
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            "from emuchain.emulator.common import WholeFile\nWholeFile('/dev/stdout')",
        ],
        stdout=(tmp_path / "out").open("w"),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "takes the output of this command already" in process.stderr
    assert names(tmp_path) == ["out"]


def test_a_second_writer_is_refused_at_its_start(tmp_path: Path, refused: Refused) -> None:
    path, link = tmp_path / "run.h5", tmp_path / "link.h5"
    link.symlink_to("run.h5")
    other = writer("file.write(b'first')\nprint('ready', flush=True)\nsys.stdin.read()", path)
    assert f"another run (process {other.pid} on {socket.gethostname()}) writes it" in refused(path)
    assert "another run" in refused(link)
    write_whole(tmp_path / "other.h5", b"not this one")
    other.communicate()
    write_whole(path, b"second")
    assert path.read_bytes() == b"second"


def test_two_files_of_a_run_are_two_files(tmp_path: Path, refused: Refused) -> None:
    with WholeFile(tmp_path / "run.h5"):
        assert "this run writes another file there" in refused(tmp_path / "run.h5")


def test_a_killed_writer(tmp_path: Path) -> None:
    """Its lock goes with it; its partial file goes when the next run starts, and no other file
    does.
    """
    path = tmp_path / "run.h5"
    path.write_text("old")
    for left in (".other.h5.0123abcd.partial", ".run.h5.partial", ".run.h5.0123abcd.partial.h5"):
        (tmp_path / left).touch()
    before = names(tmp_path)
    code = (
        "with file.building() as part:\n part.write(bytes(10**6))\n print('ready', flush=True)\n"
        " sys.stdin.read()"
    )
    other = writer(code, path)
    assert len(names(tmp_path)) == len(before) + 2  # the lock and the partial file
    with pytest.raises(InputError):
        WholeFile(path)
    assert len(names(tmp_path)) == len(before) + 2
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert path.read_text() == "old"
    with WholeFile(path):
        assert names(tmp_path) == sorted([*before, ".run.h5.lock"])
    assert names(tmp_path) == before


LOCK = ".run.h5.lock"


@pytest.mark.parametrize(
    "content", ["a year's work\n", "process 1 on a\nprocess 2 on b\n", "process 1 on a"]
)
@pytest.mark.parametrize("is_linked", [False, True])
def test_a_file_in_the_locks_place_is_left_alone(
    tmp_path: Path, refused: Refused, content: str, is_linked: bool
) -> None:
    lock = tmp_path / LOCK
    lock.write_text(content)
    if is_linked:
        (tmp_path / "mine").hardlink_to(lock)
    assert f"{lock} should be the lock's file, but is another file" in refused(tmp_path / "run.h5")
    assert lock.read_text() == content
    assert names(tmp_path) == ([LOCK, "mine"] if is_linked else [LOCK])


def test_a_lock_with_another_link_is_left_alone(tmp_path: Path, refused: Refused) -> None:
    """Even one that looks as those of killed runs do, and one that is empty."""
    for content in ("process 1 on host\n", ""):
        mine, lock = tmp_path / "mine", tmp_path / LOCK
        mine.write_text(content)
        lock.hardlink_to(mine)
        assert "should be the lock's file" in refused(tmp_path / "run.h5")
        assert mine.read_text() == content and mine.stat().st_nlink == 2
        lock.unlink()


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "socket"])
def test_what_is_no_file_in_the_locks_place(tmp_path: Path, refused: Refused, kind: str) -> None:
    lock, mine = tmp_path / LOCK, tmp_path / "mine"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "link":
            mine.write_text("process 1 on host\n")
            lock.symlink_to("mine")
        elif kind == "dangling":
            lock.symlink_to("mine")
        elif kind == "folder":
            lock.mkdir()
        elif kind == "pipe":
            os.mkfifo(lock)
        else:
            listening.bind(str(lock))
        assert "should be the lock's file" in refused(tmp_path / "run.h5")
        assert names(tmp_path) == ([LOCK, "mine"] if kind == "link" else [LOCK])
        assert kind != "link" or mine.read_text() == "process 1 on host\n"


@pytest.mark.parametrize("content", ["process 1 on host\n", ""])
def test_the_lock_of_a_killed_writer_makes_room_for_a_new_file(
    tmp_path: Path, content: str
) -> None:
    lock = tmp_path / LOCK
    lock.write_text(content)
    with lock.open() as old, WholeFile(tmp_path / "run.h5"):
        assert lock.read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"
        assert old.read() == content and os.fstat(old.fileno()).st_nlink == 0
    assert names(tmp_path) == []


def test_what_took_the_locks_place_meanwhile_stays(tmp_path: Path) -> None:
    with WholeFile(tmp_path / "run.h5"):
        (tmp_path / LOCK).unlink()
        (tmp_path / LOCK).write_text("mine")
    assert (tmp_path / LOCK).read_text() == "mine"


def test_a_full_disk_has_the_lock_all_the_same(tmp_path: Path, refused: Refused) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, hard))
    try:
        with WholeFile(tmp_path / "run.h5"):
            assert (tmp_path / LOCK).read_bytes() == b""
            assert "another run writes it" in refused(tmp_path / "run.h5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []
