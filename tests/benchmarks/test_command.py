"""`emuchain bench`: bad input is refused in one line."""

from __future__ import annotations

import pytest

from .helpers import run_main


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["kernels", "--list", "vgg"], ["--list", "vgg-cifar-1", "imagenet-1"]),
        (["kernels", "--runs", "6"], ["--runs", "6", "7"]),
        (["kernels", "--form", "sse9"], ["--form", "sse9", "avx2", "portable"]),
        (["kernels", "--json", "--markdown"], ["--json", "--markdown"]),
        (["recurrent", "--kind", "rnn"], ["--kind", "rnn", "lstm", "gru"]),
        (["recurrent", "--steps", "0"], ["--steps", "0"]),
        (["chain", "--runs", "3"], ["--runs", "3", "7"]),
        (["chain", "--network", "vgg61"], ["`network`", "vgg61", "vgg16"]),
        (["chain", "--network", "vgg16"], ["`network`", "3x224x224", "3x32x32", "1,000", "10"]),
        (["chain", "--batch", "10001"], ["--batch", "10001"]),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    words: list[str],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(
        "EMUCHAIN_KERNEL_FORM", ""
    )  # as if unset; what the flag puts there goes with the test
    assert run_main(*arguments) == 2
    said = capfd.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("emuchain: error: ")
    assert all(word in line for word in words)
    assert said.out == ""


def test_forms_that_contradict(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from emuchain.kernels.form import FORM, FORMS

    other = next(name for name in FORMS if name != FORM.name)
    monkeypatch.setenv("EMUCHAIN_KERNEL_FORM", FORM.name)
    assert run_main("kernels", "--form", other) == 2
    assert f"EMUCHAIN_KERNEL_FORM is {FORM.name}" in capfd.readouterr().err
    monkeypatch.setenv("EMUCHAIN_KERNEL_FORM", "")
    assert run_main("kernels", "--form", other) == 2  # this process has its kernels already
    assert FORM.name in capfd.readouterr().err


def test_a_launcher_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("emuchain.benchmarks.commands.launcher_rank", lambda: 0)
    assert run_main("chain") == 2
    assert "launcher" in capfd.readouterr().err
