"""Names of others, in every place that takes one: shown, written and drawn as text, and never
obeyed.
"""

from __future__ import annotations

import csv
import dataclasses
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.commands.frame import output
from emuchain.emulator.commands.frame.output import phases
from emuchain.emulator.common import InputError
from emuchain.emulator.view import new_figure, save_figure, table
from emuchain.emulator.view.progress import LiveProgress

from .running import status_of

VISIBLE = "[red]a[/] $x^{$ \\frac '<b>"
"""One line of printable characters, which markup of rich, mathematics of matplotlib and HTML would
take for theirs.
"""
HIDDEN = "=b\x1b[31m\nc"
"""What may be in a file's name, and in none of a network."""
NETWORK = """name = '''{}'''
input = [3, 16, 16]
layers = [{{type = "conv", channels = 4, kernel = 3, stride = 4}}, {{type = "fc", features = 4}}, {{type = "softmax"}}]
"""
CLUSTER = """name = '''{0}'''
[[boards]]
type = "vc709"
name = '''{0}'''
[links]
bandwidth_gbps = 10
latency_ns = 100
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a network and a cluster of visible names, and images in a file of a
    hidden one.
    """
    monkeypatch.chdir(tmp_path)
    Path("n.toml").write_text(NETWORK.format(VISIBLE))
    Path("c.toml").write_text(CLUSTER.format(VISIBLE))
    with h5py.File("d.h5", "w") as file:
        file["images"], file["labels"] = np.zeros((20, 3, 16, 16), np.uint8), np.arange(20) % 4
    shutil.copy("d.h5", f"{HIDDEN}.h5")
    return tmp_path


def is_plain(text: str) -> bool:
    """Whether a terminal obeys nothing of it."""
    return all(line.isprintable() for line in text.split("\n"))


TRAIN = ["train", "n.toml", "--cluster", "c.toml", "--batch", "10", "--progress", "none"]
COMMANDS = [
    ["network", "n.toml"],
    ["plan", "n.toml", "--cluster", "c.toml"],
    ["simulate", "n.toml", "--cluster", "c.toml", "--samples", "4"],
    ["study", "compare", "n.toml", "--cluster", "c.toml", "--devices", "2"],
    ["timeline", "n.toml", "--cluster", "c.toml"],
    ["rtl", "n.toml", "--cluster", "c.toml", "--out", f"{HIDDEN}.rtl"],
    ["data", "info", "--data", f"{HIDDEN}.h5"],
    ["data", "preview", "--data", f"{HIDDEN}.h5", "--out", f"{HIDDEN}.png"],
    [*TRAIN, "--data", f"{HIDDEN}.h5", "--out", f"{HIDDEN}.out.h5"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_what_a_command_prints(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert status_of(*words) == 0
    said = capsys.readouterr()
    assert is_plain(said.out) and is_plain(said.err)
    if "n.toml" in words and words[0] != "timeline":
        assert "[red]a[/]" in said.out


@pytest.mark.parametrize(
    "words",
    [
        ["network", f"{HIDDEN}.toml"],
        ["show", f"{HIDDEN}.h5"],
        ["report", f"{HIDDEN}.none"],
        ["retime", f"{HIDDEN}.h5"],
        ["data", "info", f"{HIDDEN}"],
        ["data", "info", "--data", f"no/{HIDDEN}"],
        [f"tr{HIDDEN}"],
        ["train", f"--{HIDDEN}"],
        ["train", "--compress", HIDDEN],
        ["train", "--out", f"no/{HIDDEN}"],
        ["plan", "keys.toml"],
        ["validate", HIDDEN],
    ],
    ids=lambda words: " ".join(words[:2]).encode("unicode_escape").decode(),
)
def test_what_an_error_quotes(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
    words: list[str],
) -> None:
    Path("keys.toml").write_text('name = "x"\n"a\\u001b[31m\\nb" = 3\n')
    assert status_of(*words) == 2
    said = capsys.readouterr()
    assert one_line(said.err).isprintable()
    assert is_plain(said.out)


def test_classes_of_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of folders, which anyone may name."""
    image = pytest.importorskip("PIL.Image")
    for name in ("a\x1b]0;title\x07", "b\n[red]"):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(4):
            image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(
                folder / "images" / name / f"{number}.png"
            )
    assert status_of("data", "info", "--data", "images") == 0
    said = capsys.readouterr().out
    assert is_plain(said)
    assert "a\\x1b]0;title\\x07" in said


def test_a_path_that_is_no_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*TRAIN, "--data", "d.h5", "--out", "o\udcff.h5") == 0
    capsys.readouterr()
    assert status_of("show", "o\udcff.h5") == 0
    assert status_of("report", "o\udcff.h5", "--out", "r\udcff.html") == 0
    assert "r\\udcff.html" in capsys.readouterr().out


def test_cells_of_a_sweep_are_no_formulas(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second sweep takes the rows of the first, errors of points among them."""
    for name in ("=n.toml", "+n.toml", "@n.toml"):
        Path(name).write_text(NETWORK.format("=n"))
    words = [
        "sweep",
        "--csv",
        "s.csv",
        "--cluster",
        "c.toml",
        "--devices",
        "1,999",
        "=n.toml,+n.toml,@n.toml",
    ]
    tables = []
    for _ in range(2):
        status_of(*words)
        with open("s.csv", newline="") as file:
            tables.append([*csv.reader(file)])
    assert tables[0] == tables[1]
    assert {row[0] for row in tables[0][1:]} == {"'=n.toml", "'+n.toml", "'@n.toml"}
    error = tables[0][0].index("error")
    assert [row[error][:3] for row in tables[0][1:]] == 3 * ["", "`de"]
    for row in tables[0]:
        assert not [cell for cell in row if cell[:1] in tuple("=+-@\t\r")]


@pytest.mark.parametrize("words", [[*COMMANDS[1]], [*COMMANDS[2]], [*COMMANDS[3]], [*COMMANDS[4]]])
def test_names_in_pictures_are_text(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert status_of(*words, "--plot", "p.png") == 0, capsys.readouterr().err
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


def test_text_of_a_picture_is_as_it_was_given(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    figure = new_figure(3, 2, "plot")
    axes = figure.subplots()
    axes.plot([1, 2], label="$y_{$")
    axes.legend()
    axes.set_title("\x1b$x_{$")
    axes.set_xticks([0, 1], ["$a$", "\\b"])
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        save_figure(figure, tmp_path / "p.svg", "plot")
    drawn = (tmp_path / "p.svg").read_text(encoding="utf-8")
    for text in ("$y_{$", "\\x1b$x_{$", "$a$", "\\b"):
        assert f">{text}</text>" in drawn


def test_names_in_tables_bars_and_phases_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Terminal:
        """A terminal, whose text is kept."""

        encoding = "utf-8"

        def write(self, text: str) -> int:
            seen.append(text)
            return len(text)

        def flush(self) -> None:
            """Do nothing."""

        def isatty(self) -> bool:
            """Be a terminal."""
            return True

        def fileno(self) -> int:
            """Be none of the system's."""
            raise OSError

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    hostile = "[red]x[/] [/no] \x1b[31m"
    with output.escaping():
        table(hostile, ["a", "[/]"], [[hostile, hostile]])
        with phases(hostile) as show:
            show(hostile)
        with LiveProgress(width=80) as progress:
            progress.start(2, 1)
            progress.note(hostile)
        print(hostile)
    said = "".join(seen)
    assert said.count("[red]x[/] [/no] \\x1b[31m") >= 6
    assert "\x1b[31m" not in said
    assert "\x1b[?25l" in said  # that of rich, which hides the cursor for a bar


@pytest.mark.parametrize("name", ["a\n$system(1);", "", "x\x1b[31m", "n" * 201, 3, None])
def test_names_given_in_python(name: object, one_line: Callable[..., str]) -> None:
    network, cluster = emuchain.load_network("quick-cifar"), emuchain.load_cluster("vc709")
    layer = dataclasses.replace(network.layers[0], name=name)
    board = dataclasses.replace(cluster.boards[0], name=name)  # type: ignore[type-var]  # all are dataclasses
    for make in (
        lambda: dataclasses.replace(network, name=name),
        lambda: dataclasses.replace(network, layers=(layer, *network.layers[1:])),
        lambda: dataclasses.replace(cluster, name=name),
        lambda: dataclasses.replace(cluster, boards=(board,)),
    ):
        with pytest.raises(
            InputError, match="a name is one line of 1 to 200 printable characters"
        ) as raised:
            make()
        assert one_line(raised).isprintable()


def test_a_file_whose_name_is_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ONNX files are called as they are, whatever that is."""
    pytest.importorskip("onnx")
    assert status_of(*TRAIN, "--data", "d.h5", "--out", "run.h5") == 0
    assert status_of("export", "run.h5", f"{HIDDEN}.onnx") == 0
    capsys.readouterr()
    assert status_of("network", f"{HIDDEN}.onnx") == 0
    said = capsys.readouterr().out
    assert is_plain(said)
    assert said.startswith("=b\\x1b[31m\\nc: ")
