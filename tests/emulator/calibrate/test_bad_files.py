"""Files that cannot be used: one line each, which says where and why; the command exits with
status 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from emuchain.emulator.calibrate import calibrate_board, calibrate_link
from emuchain.emulator.commands.cli import main
from emuchain.emulator.common import InputError

from .synthetic import SIZES, Link

TRUTH = Link()
HEADER = "message_bytes,message_ns"


def link_csv(
    changes: dict[int, str] | None = None, header: str = HEADER, scale: float = 1e9
) -> str:
    """Messages of one run, some of whose lines, counted from 1 behind the header, are others."""
    lines = [f"{size},{TRUTH.message_s(size) * scale!r}" for size in SIZES]
    for number, line in (changes or {}).items():
        lines[number - 1] = line
    return "\n".join([header, *lines, ""])


def messages(sizes: Sequence[int]) -> str:
    """Exact messages of some sizes."""
    rows = [f"{size},{TRUTH.message_s(size) * 1e9!r}" for size in sizes]
    return "\n".join(["message_bytes,message_ns", *rows, ""])


def hpcc(table: str) -> str:
    return f"MPI Ranks                     1\nMatrix Size                   1024\n{table}\n"


B_EFF = "          MSize        looplength          transfer               B/s\n"

LINKS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "is empty"),
    "blank": ("\n\n  \n", "is empty"),
    "header alone": ("message_bytes,message_ns\n", "has a header and no row"),
    "other columns": ("size,time\n1,2\n", "is of no known kind"),
    "misspelt": ("mesage_bytes,message_ns\n1,2\n", "did you mean `message_bytes`?"),
    "no unit": (
        "message_bytes,time\n1,2\n",
        "needs a column with its unit beside it: message_s or",
    ),
    "two units": (
        link_csv(header="message_bytes,message_ns,message_us").replace("\n", ",1\n"),
        "cells, the header",
    ),
    "mixed columns": ("message_bytes,message_ns,message_us\n1,700,0.7\n", "one unit to a file"),
    "mixed rows": (link_csv({9: f"256,{TRUTH.message_s(256) * 1e6!r}"}), "mixed units"),
    "mixed runs": (link_csv() + link_csv(scale=1e6).partition("\n")[2], "mixed units"),
    "mixed loop": ("message_bytes,loop_length,transfer_s,message_ns\n1,10,7e-6,7\n", "mixed units"),
    "no loop": ("message_bytes,transfer_s\n1,7e-6\n", "`loop_length` is missing"),
    "negative": (
        link_csv({3: "4,-700"}),
        "`message_ns` = '-700': should be a finite number above 0",
    ),
    "zero": (link_csv({3: "4,0"}), "should be a finite number above 0"),
    "zero bytes": (link_csv({1: "0,700"}), "`message_bytes` = '0'"),
    "NaN": (link_csv({3: "4,nan"}), "`message_ns` = 'nan'"),
    "infinite": (link_csv({3: "4,inf"}), "`message_ns` = 'inf'"),
    "words": (link_csv({3: "4,fast"}), "should be a number, its unit in the header"),
    "a unit in the cell": (link_csv({3: "4,700 ns"}), "should be a number, its unit in the header"),
    "an empty cell": (link_csv({3: "4,"}), "should be a number"),
    "half a byte": (link_csv({1: "0.5,700"}), "should be a whole number"),
    "a cell too many": (link_csv({3: "4,700,1"}), ":4: has 3 cells, the header 2"),
    "a column twice": (
        "message_bytes,message_ns,message_ns\n1,2,3\n",
        "the header has `message_ns` twice",
    ),
    "three sizes": (messages([1, 1024, 1 << 20]), "3 message sizes: a fit needs 4 at least"),
    "a short span": (messages([1024, 2048, 4096, 8192, 16384]), "64 times the smallest at least"),
    "one unit of bytes": (messages([1, 4, 16, 64]), "do not tell latency and bandwidth apart"),
    "no growth": (
        "\n".join(["message_bytes,message_ns", *(f"{size},700" for size in SIZES)]),
        "times hardly grow",
    ),
    "no line": (
        "\n".join(
            [HEADER, *(f"{size},{(700 + size) * 9 ** (n % 2)}" for n, size in enumerate(SIZES))]
        ),
        "a line does not fit: rms",
    ),
    "no latency": (
        "\n".join([HEADER, *(f"{size},{size}" for size in SIZES[6:])]),
        "the latency comes out at",
    ),
    "above the line": (
        "\n".join(["message_bytes,message_ns", *(f"{size},{700 + size / 1000}" for size in SIZES)]),
        "what all 36 transceivers of VC709 carry",
    ),
    "UTF-16": (link_csv().encode("utf-16"), "UTF-16"),
    "bytes": (b"\x89PNG\r\n\x1a\n\x00\x00", "cannot be read: not in UTF-8"),
    "a zip": (b"PK\x03\x04\x00\x00\x00\x00", "is no text"),
    "an open quote": (link_csv({3: '4,"700'}), "is no CSV"),
    "cut output": (hpcc(B_EFF), "has a header and no row"),
    "wrong output": (
        hpcc(B_EFF + "1 65536 4.4e-2 2.9e+06\nValidation: FAILED!"),
        "Validation: FAILED",
    ),
    "nan in output": (hpcc(B_EFF + "1 65536 nan 2.9e+06\n"), "`transfer_s` = 'nan'"),
    "another benchmark": (
        "function,best_mbytes_per_s\ncopy,100\n",
        "`emuchain calibrate board` takes it",
    ),
}

BOARDS: dict[str, tuple[str, str]] = {
    "a link": (link_csv(), "`emuchain calibrate link` takes it"),
    "no function": ("function,best_mbytes_per_s\nsum,100\n", "known: copy, scale, add, triad"),
    "negative rate": ("function,best_mbytes_per_s\ncopy,-100\n", "above 0"),
    "no boards": ("function,best_mbytes_per_s,fpgas\ncopy,100,0\n", "`fpgas` = '0'"),
    "mixed rates": (
        "matrix_size,best_s,gflops\n1000,1,2000\n",
        "mixed units: `gflops` is 1e+03 times",
    ),
    "no rate": (
        "matrix_size,time\n1000,1\n",
        "needs a column with its unit beside it: best_s or gflops",
    ),
    "two boards": ("board,matrix_size,best_s\na,1000,1\nb,1000,1\n", "`--only board=NAME`: a, b"),
    "two networks": (
        "network,layer,phase,samples,us\na,x,FP,1,1\nb,x,FP,1,1\n",
        "`--only network=NAME`",
    ),
    "no phase": ("network,layer,phase,samples,us\na,x,XY,1,1\n", "`phase` = 'XY': known: fp"),
    "no PG": ("network,layer,phase,samples,us\na,x,FP,1,1\n", "no row has phase PG"),
    "two times": ("network,layer,phase,samples,us,cycles\na,x,FP,1,1,200\n", "one unit to a file"),
    "too many DSPs": ("clock_mhz,dsp_used\n200,4000\n", "VC709 has 3,600"),
    "two bitstreams": ("clock_mhz,dsp_used\n200,2000\n250,2000\n", "reports of 2 bitstreams"),
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "bad.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("name", LINKS)
def test_files_of_links(tmp_path: Path, name: str) -> None:
    content, why = LINKS[name]
    out = tmp_path / "cluster.toml"
    with pytest.raises(InputError) as caught:
        calibrate_link(written(tmp_path, content), out=out)
    message = str(caught.value)
    assert why in message
    assert "\n" not in message
    assert not out.exists()


@pytest.mark.parametrize("name", BOARDS)
def test_files_of_boards(tmp_path: Path, name: str) -> None:
    content, why = BOARDS[name]
    out = tmp_path / "board.toml"
    with pytest.raises(InputError) as caught:
        calibrate_board(written(tmp_path, content), "vc709", out=out)
    message = str(caught.value)
    assert why in message
    assert "\n" not in message
    assert not out.exists()


@pytest.mark.parametrize(
    ("kind", "name"), [("link", "NaN"), ("link", "no line"), ("board", "no PG")]
)
def test_the_command_ends_with_one_line_and_status_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str, name: str
) -> None:
    content, why = (LINKS if kind == "link" else BOARDS)[name]
    path = written(tmp_path, content)
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", kind, str(path), "--type", "vc709", "-o", str(tmp_path / "out.toml")])
    assert ended.value.code == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("emuchain: error: ")
    assert printed.err.count("\n") == 1
    assert why in printed.err


def test_what_is_no_file(tmp_path: Path) -> None:
    for path, why in ((tmp_path, "is a folder"), (tmp_path / "none.csv", "No such file")):
        with pytest.raises(InputError, match=why):
            calibrate_link(path)
    with pytest.raises(InputError, match="no measurements"):
        calibrate_link([])


def test_a_run_is_not_given_twice(tmp_path: Path) -> None:
    path = written(tmp_path, link_csv())
    twin = tmp_path / "twin.csv"
    twin.write_text(path.read_text())
    with pytest.raises(InputError, match=r"twin.csv: holds the same as .*bad.csv"):
        calibrate_link([path, twin])


def test_no_measurement_is_overwritten(tmp_path: Path) -> None:
    path = written(tmp_path, link_csv())
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    for out in (path, link):
        with pytest.raises(InputError, match="a file of measurements, which `FILE`"):
            calibrate_link(path, out=out)
    assert path.read_text() == link_csv()
    kind = tmp_path / "kind.toml"
    kind.write_text('name = "k"\nclock_mhz = 100\ndsp = 10\non_chip_memory_kbit = 100\n')
    with pytest.raises(InputError, match="a board's file, which `type`"):
        calibrate_link(path, out=kind, type=str(kind))
    with pytest.raises(InputError, match="writes another file there"):
        calibrate_link(path, out=tmp_path / "x.png", plot=tmp_path / "x.png")
