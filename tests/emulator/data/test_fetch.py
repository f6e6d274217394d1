"""Fetching from a server on this host: whole, resumed, refused, wrong."""

import contextlib
import hashlib
import io
import os
import socket
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data import fetch_data
from emuchain.emulator.data.fetch import (
    COLLECTIONS,
    Collection,
    Limits,
    Source,
    fetch_collection,
    unpack,
)

CONTENT = bytes(range(256)) * 2000


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; `ranges` says whether it can resume, `breaks_at` after how many bytes it
    hangs up.

    `answer` names how it answers as none should.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.breaks_at, self.requests = {}, True, None, []
        self.answer, self.ended = None, threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        if self.server.answer:
            with contextlib.suppress(OSError):
                self.hostile(*self.server.answer.split(" ", 1))
            self.close_connection = True
            return
        self.server.requests.append((self.path, asked))
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = None if self.server.breaks_at is None else start + self.server.breaks_at
        self.wfile.write(content[start:end])

    def hostile(self, kind, rest=""):
        """Answer as no server should, until the other side hangs up or the test ends."""
        if kind == "redirect":
            self.send_response(302)
            self.send_header("Location", rest)
            self.end_headers()
        elif kind == "endless":
            head = (
                b"HTTP/1.1 200 OK\r\n"
                + (b"Transfer-Encoding: chunked\r\n" if rest else b"")
                + b"\r\n"
            )
            self.wfile.write(head)
            while not self.server.ended.is_set():
                self.wfile.write(b"10000\r\n" * bool(rest) + bytes(1 << 16) + b"\r\n" * bool(rest))
        elif kind == "slow":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"\r\n" * (rest == "body"))
            while not self.server.ended.wait(0.02):
                self.wfile.write(b"x")
        else:
            self.server.ended.wait()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        yield server
        server.ended.set()
        server.shutdown()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")


def one(server, content=CONTENT, **others):
    server.files["a.gz"] = content
    return Collection(
        "one", (server.url,), (Source("a.gz", sha256(CONTENT), len(CONTENT)),), "one", **others
    )


def test_whole(tmp_path, server):
    seen = []
    folder = fetch_collection(
        one(server), tmp_path / "new", progress=lambda *step: seen.append(step)
    )
    assert folder == tmp_path / "new" / "one"
    assert (folder / "a.gz").read_bytes() == CONTENT
    assert [path.name for path in folder.iterdir()] == ["a.gz"]
    assert seen[-1] == ("a.gz", len(CONTENT), len(CONTENT))


def test_already_there(tmp_path, server):
    fetch_collection(one(server), tmp_path)
    fetch_collection(one(server), tmp_path)
    assert len(server.requests) == 1


def test_another_file_already_there(tmp_path, server):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.gz").write_bytes(b"mine")
    with pytest.raises(
        InputError,
        match=r"a.gz: exists, but its SHA-256 checksum is not .*; remove it and fetch again",
    ):
        fetch_collection(one(server), tmp_path)
    assert (tmp_path / "one" / "a.gz").read_bytes() == b"mine"


@pytest.mark.parametrize("ranges", [True, False])
def test_goes_on_where_a_connection_broke_off(tmp_path, server, ranges):
    server.ranges, server.breaks_at = ranges, 48 * 4096
    if not ranges:  # from the start each time, so it never gets there
        with pytest.raises(
            InputError, match=r"broke off.*; run the command again, or put a.gz into .*one by hand"
        ):
            fetch_collection(one(server), tmp_path)
        assert not any(tmp_path.iterdir())
        assert len(server.requests) == 5
        return
    fetch_collection(one(server), tmp_path)
    assert (tmp_path / "one" / "a.gz").read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [
        None,
        f"bytes={48 * 4096}-",
        f"bytes={96 * 4096}-",
    ]


def test_wrong_checksum(tmp_path, server):
    with pytest.raises(
        InputError, match=f"its checksum is not {sha256(CONTENT)}, so it was deleted; run"
    ):
        fetch_collection(one(server, CONTENT[:-1] + b"x"), tmp_path)
    assert not any(tmp_path.iterdir())
    fetch_collection(one(server), tmp_path)
    assert (tmp_path / "one" / "a.gz").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"", b"short", CONTENT + b"x"])
def test_another_size_is_offered(tmp_path, server, content):
    with pytest.raises(
        InputError, match=f"{len(content):,} bytes are offered, {len(CONTENT):,} expected"
    ):
        fetch_collection(one(server, content), tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("answer", ["endless", "endless chunks"])
def test_an_endless_answer_is_ended_after_the_size(tmp_path, server, answer):
    server.answer = answer
    with pytest.raises(InputError, match=f"more than the {len(CONTENT):,} bytes of a.gz came"):
        fetch_collection(one(server), tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("answer", ["silent", "slow header", "slow body"])
def test_a_server_that_takes_for_ever(tmp_path, server, answer):
    server.answer = answer
    with pytest.raises(InputError, match="no answer in time, or too slow a one"):
        fetch_collection(one(server), tmp_path, limits=Limits(silent_s=0.3))
    assert not any(tmp_path.iterdir())


def test_a_transfer_that_is_too_slow_in_all(tmp_path, server):
    with pytest.raises(InputError, match="no answer in time, or too slow a one"):
        fetch_collection(one(server), tmp_path, limits=Limits(start_s=0, least_bytes_per_s=1e12))


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/a.gz", "gopher://x/"])
def test_redirections_lead_to_http_alone(tmp_path, server, target):
    server.answer = f"redirect {target}"
    with pytest.raises(InputError, match="not an address"):
        fetch_collection(one(server), tmp_path)
    assert not any(tmp_path.iterdir())


def test_links_are_not_written_through(tmp_path, server):
    """Neither one where a partial file may lie, nor one in place of the file."""
    (tmp_path / "one").mkdir()
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "one" / "a.gz.part").symlink_to(tmp_path / "victim")
    fetch_collection(one(server), tmp_path)
    assert (tmp_path / "victim").read_bytes() == b"mine"
    (tmp_path / "one" / "a.gz").unlink()
    (tmp_path / "one" / "a.gz").symlink_to(tmp_path / "new")
    with pytest.raises(InputError, match=r"a.gz: is a link to nowhere; remove it and fetch again"):
        fetch_collection(one(server), tmp_path)
    assert not (tmp_path / "new").exists()


def test_a_pipe_in_place_of_the_file(tmp_path, server):
    (tmp_path / "one").mkdir()
    os.mkfifo(tmp_path / "one" / "a.gz")
    with pytest.raises(InputError, match=r"a.gz: cannot be written \(is a pipe"):
        fetch_collection(one(server), tmp_path)


def test_not_found(tmp_path, server):
    with pytest.raises(
        InputError, match=r"/b/a.gz: the server answers 404 Not Found; run .* by hand"
    ):
        fetch_collection(one(server), tmp_path, mirrors=[f"{server.url}b"])


def test_next_mirror(tmp_path, server):
    fetch_collection(one(server), tmp_path, mirrors=[f"{server.url}b/", server.url])
    assert (tmp_path / "one" / "a.gz").read_bytes() == CONTENT


def test_connection_refused(tmp_path, server):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(
            InputError, match=r"a.gz: no connection, or it broke off; run .* by hand"
        ) as error:
            fetch_collection(
                one(server), tmp_path, mirrors=[f"http://127.0.0.1:{free.getsockname()[1]}"]
            )
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "mirror", ["nonsense", "ftp://host/", "http://", "http://[::1", "file:///etc"]
)
def test_no_address(tmp_path, server, mirror):
    with pytest.raises(InputError, match="not an address"):
        fetch_collection(one(server), tmp_path, mirrors=[mirror])


def test_no_place(tmp_path, server):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file.*: cannot be written"):
        fetch_collection(one(server), tmp_path / "file")


def test_unknown_name(tmp_path):
    with pytest.raises(
        InputError, match="imagenet: not a data set that can be fetched; choose from cifar10, mnist"
    ):
        fetch_data("imagenet", tmp_path)


def test_official_sources():
    for collection in COLLECTIONS:
        assert all(
            mirror.startswith("https://") and mirror.endswith("/") for mirror in collection.mirrors
        )
        assert all(len(bytes.fromhex(source.sha256)) == 32 for source in collection.files)
        assert all(source.size_bytes > 1000 for source in collection.files)


def archive(entries, packing="w:gz"):
    """A tar archive of (name, content), where content may be a TarInfo field to set instead: type
    and link name.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=packing) as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
            else:
                entry.type, entry.linkname = content
                tar.addfile(entry)
    return buffer.getvalue()


def packed(server, content):
    server.files["a.tar.gz"] = content
    return Collection(
        "two",
        (server.url,),
        (Source("a.tar.gz", sha256(content), len(content)),),
        "two",
        members=("x.bin", "y.bin"),
    )


WHOLE = [
    ("two", (tarfile.DIRTYPE, "")),
    ("two/x.bin", b"x"),
    ("two/readme.html", b"r"),
    ("two/y.bin", b"y"),
]


@pytest.mark.parametrize("prefix", ["", "./"])
def test_unpacked(tmp_path, server, prefix):
    collection = packed(server, archive([(prefix + name, content) for name, content in WHOLE]))
    folder = fetch_collection(collection, tmp_path)
    assert folder == tmp_path / "two"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "x.bin": b"x",
        "y.bin": b"y",
        "readme.html": b"r",
    }
    assert fetch_collection(collection, tmp_path) == folder
    assert len(server.requests) == 1
    (folder / "y.bin").unlink()
    with pytest.raises(
        InputError, match=r"two: exists, but lacks y.bin; remove it and fetch again"
    ):
        fetch_collection(collection, tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        ("two/../../evil", b"e"),
        ("/tmp/evil", b"e"),
        ("evil", b"e"),
        ("two/evil", b"e"),
        ("two/sub/x.bin", b"e"),
        ("two/x.bin", (tarfile.SYMTYPE, "/etc/passwd")),
        ("two/x.bin", (tarfile.LNKTYPE, "two/readme.html")),
        ("two/x.bin", (tarfile.FIFOTYPE, "")),
        ("two/x.bin", (tarfile.CHRTYPE, "")),
        ("other", (tarfile.DIRTYPE, "")),
        ("two/e\nvil", b"e"),
    ],
)
def test_hostile_archive(tmp_path, server, entry):
    with pytest.raises(
        InputError, match=r"a.tar.gz: refused: it holds .*, which does not belong there"
    ) as error:
        fetch_collection(packed(server, archive([*WHOLE, entry])), tmp_path / "to")
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.rglob("*")] == ["to", "a.tar.gz"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (archive(WHOLE[:3]), "y.bin is not in it; remove it and fetch again"),
        (b"no archive", "not a whole archive"),
        (archive(WHOLE)[:-30], "not a whole archive"),
        (archive([*WHOLE[:3], ("two/y.bin", bytes(9000))], "w")[:4000], "not a whole archive"),
    ],
)
def test_damaged_archive(tmp_path, server, content, says):
    with pytest.raises(InputError, match=says):
        fetch_collection(packed(server, content), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_an_archive_that_unpacks_to_much_more(tmp_path):
    """A gigabyte of zeros in a megabyte, as a member or as the header of one."""
    (tmp_path / "a.tar.gz").write_bytes(archive([*WHOLE[:3], ("two/y.bin", bytes(10_000_000))]))
    assert (tmp_path / "a.tar.gz").stat().st_size < 20_000
    with pytest.raises(
        InputError, match=r"a.tar.gz: not a whole archive \(it unpacks to more than 1.00 MiB\)"
    ):
        unpack(tmp_path / "a.tar.gz", tmp_path / "two", ["x.bin", "y.bin"], 1 << 20)
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar.gz"]


def test_links_where_an_archive_is_unpacked_are_not_followed(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(archive(WHOLE))
    (tmp_path / "victim").mkdir()
    (tmp_path / "two.part").symlink_to(tmp_path / "victim")
    unpack(tmp_path / "a.tar.gz", tmp_path / "two", ["x.bin", "y.bin"])
    assert not any((tmp_path / "victim").iterdir())
    assert (tmp_path / "two" / "x.bin").read_bytes() == b"x"
