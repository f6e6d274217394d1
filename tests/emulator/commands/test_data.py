"""`emuchain data`: fetch, info, preview."""

import dataclasses
import json
import struct
import zlib

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from emuchain.emulator import data as data_sets
from emuchain.emulator.commands.data import data, reported
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, png, preview_picture, shapes


@pytest.fixture
def run(monkeypatch):
    """Runs a command on a small `shapes`."""
    real = data_sets.load_data

    def load(where, **keys):
        return shapes.draw(50, 10) if where == "shapes" else real(where, **keys)

    monkeypatch.setattr(data_sets, "load_data", load)
    return lambda *arguments: CliRunner().invoke(data, [str(argument) for argument in arguments])


def test_info(run):
    output = run("info", "--data", "shapes").output
    for line in (
        "name             shapes",
        "training images  50",
        "test images      10",
        "3 x 32 x 32",
        "10: disc",
    ):
        assert line in output
    assert "note" not in output


def test_info_as_json(run):
    values = json.loads(run("info", "--json").output)
    assert (values["name"], values["train_samples"], values["test_samples"]) == ("shapes", 50, 10)
    assert values["shape"] == [3, 32, 32] and len(values["classes"]) == 10
    pixels = shapes.draw(50, 10).train_images.reshape(50, 3, -1)
    assert values["mean"] == pytest.approx(pixels.mean(axis=(0, 2)), rel=1e-6)
    assert values["std"] == pytest.approx(pixels.std(axis=(0, 2)), rel=1e-6)


def test_info_of_images_of_ones_own(run, tmp_path):
    for name in ("cat", "dog"):
        for number in range(3):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (10 + number, 9), (200, 0, 51)).save(tmp_path / name / f"{number}.png")
    (tmp_path / "dog" / "3.png").touch()
    assert "dog/3.png: a broken image" in str(
        run("info", "--data", tmp_path, "--resize", "8,8").exception
    )
    output = run("info", "--data", tmp_path, "--resize", "8,8", "--crop", 6, "--skip-broken").output
    for line in (
        "training images  4",
        "test images      2",
        "3 x 6 x 6",
        "2: cat, dog",
        "mean (of 255)    200.000, 0.000, 51.000",
        "1 of 7 images are broken and left out, such as dog/3.png",
    ):
        assert line in output
    assert "`crop[0]` = 'a': should be a valid integer" in str(
        run("info", "--data", tmp_path, "--crop", "a").exception
    )


def test_what_is_left_out_is_reported_by_info_and_preview(run, tmp_path):
    for name in ("cat", "dog"):
        for number in range(3):
            (tmp_path / "of" / name).mkdir(exist_ok=True, parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / "of" / name / f"{number}.png")
            Image.new("RGB", (8, 8)).save(tmp_path / "of" / name / f"{number}.gif")
    assert "6 files left out: 6 .gif" in run("info", "--data", tmp_path / "of").output
    output = run("preview", "--data", tmp_path / "of", "--out", tmp_path / "p.png").output
    assert output.startswith(f"{tmp_path / 'p.png'}: written; 6 files left out: 6 .gif")


def test_info_of_a_text(run, tmp_path):
    (tmp_path / "a.txt").write_text("abcd" * 200)
    output = run("info", "--data", tmp_path / "a.txt").output
    for line in (
        "name             a.txt",
        "11 windows of 64 characters",
        "1, the last tenth",
        "4: 'a' 'b' 'c' 'd'",
    ):
        assert line in output
    assert "unigram model    2.000 bits" in output
    assert "bigram model     0.0" in output


def test_errors_are_left_to_the_main_command(run, tmp_path):
    assert isinstance(run("info", "--data", tmp_path).exception, InputError)
    assert isinstance(run("preview", "--data", tmp_path, "--out", "x.png").exception, InputError)
    assert "is a text" in str(run("preview", "--data", "text", "--out", "x.png").exception)
    assert isinstance(run("preview", "--out", tmp_path / "no" / "x.png").exception, InputError)


def test_preview(run, tmp_path):
    result = run("preview", "--out", tmp_path / "x.png", "--columns", 3)
    assert result.exit_code == 0
    content = (tmp_path / "x.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", content[16:24]) == (2 * (3 * 34 - 2), 2 * (10 * 34 - 2))


def test_a_preview_that_would_be_too_large():
    images, labels = np.zeros((1, 3, 256, 256), np.uint8), np.zeros(1, np.int64)
    data = Dataset("wide", images, labels, images, labels, tuple(map(str, range(1000))))
    assert preview_picture(dataclasses.replace(data, classes=("a", "b")), 3).shape == (514, 772, 3)
    with pytest.raises(
        InputError,
        match=r"`columns` = 12: a picture of 258,000 x 3,096 pixels, since wide has 1,000 cl",
    ):
        preview_picture(data, 12)


def test_preview_of_grey_images():
    images = np.arange(2 * 12, dtype=np.uint8).reshape(2, 1, 3, 4)
    labels = np.array([1, 1])
    picture = preview_picture(Dataset("grey", images, labels, images, labels, ("a", "b")), 2)
    assert picture.shape == (16, 20, 3)
    assert (picture[:6] == 255).all()
    np.testing.assert_array_equal(picture[10::2, 12::2], images[1, 0, :, :, None].repeat(3, axis=2))


def test_png_holds_the_pixels():
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    content = png(pixels)
    size = struct.unpack(">I", content[33:37])[0]
    rows = np.frombuffer(zlib.decompress(content[41 : 41 + size]), np.uint8).reshape(2, 10)
    assert not rows[:, 0].any()
    np.testing.assert_array_equal(rows[:, 1:].reshape(2, 3, 3), pixels)


def test_fetch(run, tmp_path, monkeypatch):
    calls = []

    def fetched(name, to, *, mirrors, progress):
        calls.append((name, to, mirrors))
        progress("a.gz", 5_000_000, 10_000_000)
        return to / "mnist"

    monkeypatch.setattr(data_sets, "fetch_data", fetched)
    result = run("fetch", "mnist", "--to", tmp_path, "--mirror", "http://here/")
    assert f"mnist: complete in {tmp_path / 'mnist'}" in result.output
    run("fetch", "cifar10", "--to", tmp_path)
    assert calls == [("mnist", tmp_path, ["http://here/"]), ("cifar10", tmp_path, None)]
    assert run("fetch", "imagenet", "--to", tmp_path).exit_code == 2


def test_progress_in_lines(capsys):
    with reported() as progress:
        for done in range(0, 101, 5):
            progress("a", done * 10**6, 100 * 10**6)
        progress("b", 1, None)
        progress("b", 2, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [*(f"a: {done}.0 of 100.0 MB" for done in (0, 25, 50, 75, 100)), "b: 0.0 MB"]


def test_progress_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with reported() as progress:
        progress("a.gz", 1, 10)
        progress("a.gz", 10, 10)
    assert "a.gz" in capsys.readouterr().err
