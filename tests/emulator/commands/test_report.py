"""`emuchain report`: the page is written, and wrong input is one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from emuchain.emulator.api import train
from emuchain.emulator.commands.cli import main
from emuchain.emulator.common import InputError
from emuchain.emulator.finished import report, results

pytest.importorskip("jinja2", reason="jinja2, which renders pages, is not installed")


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results file."""
    file = tmp_path_factory.mktemp("run") / "first.h5"
    train("quick-cifar", devices=2, samples=64, test_samples=20, batch=32, out=str(file))
    return file


@pytest.fixture(scope="module")
def other_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results file of another run, with the same name."""
    file = tmp_path_factory.mktemp("run") / "first.h5"
    train("quick-cifar", devices=1, samples=32, test_samples=20, batch=32, out=str(file))
    return file


def emuchain(*arguments: str | Path) -> int:
    """Run a command and return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    return ended.value.code if isinstance(ended.value.code, int) else 0


def test_a_report(
    run_file: Path, other_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert emuchain("report", run_file, "-o", out) == 0
    alone = out.read_text(encoding="utf-8")
    assert "<h1>quick-cifar on 2 \N{MULTIPLICATION SIGN} VC709</h1>" in alone
    assert f"report of 1 run in {out}" in capsys.readouterr().out
    assert emuchain("report", run_file, other_file, "--out", out) == 0
    several = out.read_text(encoding="utf-8")
    assert "<h1>2 runs of quick-cifar</h1>" in several
    assert (
        str(run_file) in several and str(other_file) in several
    )  # their names are alike, so the paths tell them apart


def test_in_python(run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert emuchain("report", run_file, "--json", "--out", tmp_path / "command.html") == 0
    shown = json.loads(capsys.readouterr().out)
    assert report(run_file, out=tmp_path / "function.html") == shown
    pages = [
        (tmp_path / name).read_text(encoding="utf-8") for name in ("command.html", "function.html")
    ]
    assert pages[0] == pages[1]
    [of_results] = report(results(run_file))["runs"]
    assert of_results["name"] == "run 1" and of_results["seed_runs"][0]["file"] is None
    assert {**of_results, "name": "", "seed_runs": []} == {
        **shown["runs"][0],
        "name": "",
        "seed_runs": [],
    }
    for runs, said in (
        ((), "report: give"),
        ((results(run_file), run_file), "the same run as run 1"),
    ):
        with pytest.raises(InputError, match=said):
            report(*runs)
    with pytest.raises(InputError, match="seeds 3"):
        report(run_file, seeds=3)


def test_bad_input(
    run_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
) -> None:
    (tmp_path / "no.h5").write_text("no results")
    copied = shutil.copy(run_file, tmp_path / "copied.h5")
    files = [shutil.copy(run_file, tmp_path / f"{number}.h5") for number in range(13)]
    page = tmp_path / "page.html"
    for arguments, words in (
        ([], "Missing argument 'RUN.h5 ...'"),
        ([tmp_path / "none.h5"], "no such file"),
        ([tmp_path], "is a folder; give a file"),
        ([tmp_path / "no.h5"], "not a results file of emuchain, but a text file"),
        ([run_file, run_file], f"the same run as {run_file}"),
        (
            [run_file, run_file.parent / ".." / run_file.parent.name / run_file.name],
            "the same run as",
        ),
        ([run_file, copied], f"the same run as {run_file}"),
        (files, "the same run as"),
        ([*files, "--seeds", "apart"], "13 results files: a page shows at most 12"),
        ([run_file, "--seeds", "0"], "'0' is neither a number of seeds"),
        ([run_file, "--seeds", "2"], "--seeds 2: first has 1 seed: 1; missing: 2"),
    ):
        assert emuchain("report", *arguments, "-o", page) == 2
        assert words in one_line(capsys.readouterr().err), arguments
        assert not page.exists()
    for out, words in (
        (tmp_path / "nowhere" / "page.html", "does not exist"),
        (tmp_path, f"such as {tmp_path / 'report.html'}"),
        ("/proc/page.html", "cannot be written"),
        (copied, "is a results file"),
    ):
        before = Path(copied).read_bytes()
        assert emuchain("report", copied, "-o", out) == 2
        assert words in one_line(capsys.readouterr().err), out
        assert Path(copied).read_bytes() == before


@pytest.fixture(scope="module")
def seed_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The results files of three seeds, in folders of their own."""
    files = []
    for seed in (1, 2, 3):
        file = tmp_path_factory.mktemp(f"seed{seed}") / f"run-seed{seed}.h5"
        train(
            "quick-cifar",
            devices=2,
            samples=64,
            test_samples=20,
            batch=32,
            seed=seed,
            out=str(file),
        )
        files.append(file)
    return files


def test_seeds(
    seed_files: list[Path],
    other_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
) -> None:
    out = tmp_path / "page.html"
    assert emuchain("report", *seed_files, "--seeds", 3, "-o", out) == 0
    assert f"report of 1 run, 3 files of several seeds in {out}" in capsys.readouterr().out
    assert "VC709, 3 seeds</h1>" in out.read_text(encoding="utf-8")
    assert emuchain("report", *seed_files, "--seeds", "apart", "-o", out) == 0
    assert "<h1>3 runs of quick-cifar</h1>" in out.read_text(encoding="utf-8")
    capsys.readouterr()
    before = out.read_bytes()
    assert emuchain("report", seed_files[0], seed_files[2], "--seeds", 3, "-o", out) == 2
    assert "--seeds 3: run has 2 seeds: 1, 3; missing: 2" in one_line(capsys.readouterr().err)
    assert emuchain("report", *seed_files, other_file, "--seeds", 3, "-o", out) == 2
    assert "--seeds 3: first has 1 seed: 1; missing: 2, 3" in one_line(capsys.readouterr().err)
    assert out.read_bytes() == before


def test_json_is_all_that_is_printed(
    seed_files: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert emuchain("report", *seed_files, "--json") == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert not any(tmp_path.iterdir())
    runs = [results(file) for file in seed_files]
    assert run["seeds"] == [1, 2, 3]
    assert run["test_accuracy"] == pytest.approx(sum(each.test_accuracy for each in runs) / 3)
    assert [each["file"] for each in run["seed_runs"]] == list(map(str, seed_files))
    assert [each["virtual_time_ps"] for each in run["seed_runs"]] == [
        each.virtual_time_ps for each in runs
    ]
    assert emuchain("report", *seed_files, "--json", "-o", "page.html") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["runs"] == [run]
    assert "report of 1 run" in said.err and (tmp_path / "page.html").exists()


def test_figures(
    seed_files: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Callable[[str], str],
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, which draws figures, is not installed")
    folder = tmp_path / "figures"
    assert emuchain("report", *seed_files, "--figures", folder) == 0
    listed = [line.removeprefix("drawn: ") for line in capsys.readouterr().out.splitlines()]
    assert sorted(listed) == sorted(map(str, folder.iterdir()))
    assert str(folder / "accuracy-over-virtual-time.pdf") in listed
    (folder / "memory.svg").write_text("<svg>drawn by hand</svg>")
    assert emuchain("report", *seed_files, "--figures", folder) == 2
    assert "memory.svg: is there already" in one_line(capsys.readouterr().err)
    assert emuchain("report", *seed_files, "--figures", seed_files[0]) == 2
    assert "`figures`" in one_line(capsys.readouterr().err)
