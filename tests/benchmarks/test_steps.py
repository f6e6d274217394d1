"""The benchmark of training in formats: what it runs, what it computes of turns, and prints.
Nothing here asks how fast it is.
"""

from __future__ import annotations

import json

import pytest

from emuchain.benchmarks import steps
from emuchain.benchmarks.chain import Setting, Turn
from emuchain.emulator.common import InputError

from .helpers import run_main

SETTING = Setting("vgg16-cifar", 8, 1, 128, 16, 1, 7)


def turns(*seconds: float) -> list[Turn]:
    return [Turn(1000, value) for value in seconds]


def test_ratios_are_of_the_same_round() -> None:
    """A round in which the machine is half as fast changes no ratio."""
    measured = {"fp32": turns(10, 20, 10), "bf16": turns(11, 22, 12)}
    fp32, bf16 = steps.rows_of(measured)
    assert (fp32.sample_ms, fp32.ratio) == (10, 1)
    assert (bf16.sample_ms, bf16.ratio) == (12, pytest.approx(1.1))
    assert (bf16.least_ratio, bf16.largest_ratio) == pytest.approx((1.1, 1.2))
    assert steps.answer([fp32, bf16]) == ["bf16: 1.10 of fp32's time"]
    assert steps.sheet(SETTING, [bf16]).rows == (("bf16", "12.00 ms", "1.10", "1.10", "1.20"),)


def test_formats_each_once() -> None:
    names = steps.precisions("bf16, fp32,bf16,mxint8 accumulate=dot:32")
    assert names == ["bf16", "mxint8 accumulate=dot:32"]
    assert len(steps.precisions(steps.FORMATS)) == 4
    for formats, word in (("bf17", "bf17"), ("fp32", "beside fp32")):
        with pytest.raises(InputError, match=word):
            steps.precisions(formats)


def test_the_command_trains_in_one_process() -> None:
    words = steps.command(SETTING, "mxint8 accumulate=dot:32")
    assert "--precision=mxint8 accumulate=dot:32" in words
    assert {"train", "--devices=8", "--cluster=u55c", "--batch=128"} <= set(words)
    assert not any("mpiexec" in word for word in words)


def test_what_it_prints(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def taken(setting: Setting, names: list[str]) -> dict[str, list[Turn]]:
        assert (setting.network, setting.batch) == ("quick-cifar", 64)
        return {name: turns(10 + number) for number, name in enumerate(names)}

    monkeypatch.setattr(steps, "take_turns", taken)
    given = ["precision", "--network", "quick-cifar", "--formats", "bf16,mxfp8", "--batch", "64"]
    assert run_main(*given, "--json") == 0
    said = json.loads(capfd.readouterr().out)
    assert [row["format"] for row in said["rows"]] == ["fp32", "bf16", "mxfp8"]
    assert [row["ratio"] for row in said["rows"]] == pytest.approx([1, 1.1, 1.2])
    assert run_main("precision", "--formats", "bf16") == 2
    assert "--network" in capfd.readouterr().err
