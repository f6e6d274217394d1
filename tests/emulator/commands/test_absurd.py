"""Numbers that no machine holds or no one waits for: a refusal with the number, or a warning before
the start.
"""

from __future__ import annotations

import re

import pytest

from emuchain.emulator.cluster import load_cluster, settable_keys
from emuchain.emulator.commands.cli import main
from emuchain.emulator.commands.design import explore as exploring
from emuchain.emulator.common import InputError
from emuchain.emulator.config import Config, load_config
from emuchain.emulator.run import Training

PAIR = "lstm-rows --cluster farnn-9p --schedule farnn"
STREAMED = "--transport streamed --rows 4096"
REFUSED = {
    "explore quick-cifar --cluster vc709 --devices 2 --batch 1000000000": (
        "`batch` = 1000000000: 1,000,000,000 micro-batches of 1 sample on 2 devices, at most"
        " 100,000"
    ),
    "study compare quick-cifar --devices 2 --batch 1000000000": (
        "`batch` = 1000000000: planning takes about"
    ),
    "sweep quick-cifar --devices 1-10000 --batch 1-1000": "10,000,000 points, at most 1,000,000",
    "sweep quick-cifar --devices 1,2 --cluster 1000000000": "`cluster` = '1000000000': known:",
    "schedule quick-cifar --devices 2 --steps 1000000000": (
        "`steps` = 1000000000: mini-batches of 64 samples on 2 stages, at most 7,812"
    ),
    "schedule --schedule gpipe --devices 2 --micro-batches 1000000000": (
        "`micro_batches` = 1000000000: of 2 mini"
    ),
    "pipeline --schedule gpipe --stages 2 --micro-batches 1000000000 --forward 1 --backward 2": (
        "`micro_batches` = 1000000000: on 2 stages at most 100000"
    ),
    f"pipeline --schedule gpipe --stages 2 --micro-batches 196 --forward 1 --backward 2 {STREAMED}": (
        "`micro_batches` = 196: of 4096 rows on 2 stages at most 195"
    ),
    "pipeline --schedule interleaved --stages 2 --micro-batches 50002 --forward 1 --backward 2": (
        "`micro_batches` = 50002: on 4 stages at most 50000"
    ),
    f"plan {PAIR} --batch 1000000000": (
        "`batch` = 1000000000: takes 159,744,001,404,024 bytes of P100's memory"
    ),
    f"simulate {PAIR} --batch 1000000000 --samples 1": "bytes of P100's memory",
    f"timeline {PAIR} --batch 1000000000": "bytes of P100's memory",
    "bench kernels --runs 1000000000": "1000000000 is not in the range 7<=x<=1000",
    "bench chain --ranks 1000000000": "1000000000 is not in the range 1<=x<=1024",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    [line] = [line for line in said.err.splitlines() if not line.startswith("emuchain: loading")]
    assert line.startswith("emuchain: error: ") and REFUSED[command] in line


OF_MANY_DIGITS = [
    "pipeline --schedule gpipe --stages 2 --forward 1 --backward 2 --micro-batches {}",
    "pipeline --schedule gpipe --stages 2 --micro-batches 2 --backward 2 --forward {}",
    "pipeline --schedule gpipe --micro-batches 2 --forward 1 --backward 2 --stages {}",
    (
        "pipeline --schedule 1f1b-as --stages 2 --micro-batches 2 --forward 1 --backward 2"
        " --warm-up 1-{:.90}*{:.90}"
    ),
    "schedule --schedule gpipe --devices 2 --micro-batches {}",
    "schedule --schedule gpipe --micro-batches 2 --devices {}",
    "schedule --steps {}",
    "schedule --batch {}",
    "schedule --check {}",
    "plan --devices {}",
    "plan --batch {}",
    "plan --cut {}",
    "plan --set link.bandwidth_gbps={}",
    "plan {}",
    "simulate --batch {}",
    "explore alexnet --devices 2 --batch {}",
    "network {}",
    "sweep --devices {}",
]


@pytest.mark.parametrize("command", OF_MANY_DIGITS)
def test_an_error_has_no_number_of_300_digits(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    digits = "7" * 300
    with pytest.raises(SystemExit) as ended:
        main(command.format(digits, digits).split())
    error = capsys.readouterr().err
    assert ended.value.code == 2 and "emuchain: error: " in error
    assert re.search(r"\d{41}", error) is None and len(error) < 2000


def test_a_timeline_simulates_no_more_than_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """A billion samples would take a quarter of a day."""
    shown = []
    for samples in ("10000", "1000000000"):
        with pytest.raises(SystemExit) as ended:
            main(["timeline", "quick-cifar", "--samples", samples])
        assert not ended.value.code
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


class _Begun(Exception):
    """Raised in place of the work."""


def _stop(*_: object, **__: object) -> None:
    raise _Begun


@pytest.mark.parametrize("batch", [128, 4096])
def test_a_long_exploration_says_how_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("emuchain.emulator.explore.explore", _stop)
    with pytest.raises(_Begun):
        exploring.explore.main(
            ["quick-cifar", "--cluster", "vc709", "--devices", "8", "--batch", str(batch)],
            standalone_mode=False,
        )
    said = capsys.readouterr().err
    assert (
        "warning: exploring 8,191 micro-batches takes about 2 minutes; see --batch" in said
    ) is (batch == 4096)


@pytest.mark.parametrize(("epochs", "warns"), [(2, False), (10**9, True)])
def test_training_of_a_pair_says_how_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, epochs: int, warns: bool
) -> None:
    monkeypatch.setattr(Training, "run", _stop)
    with pytest.raises(SystemExit):
        main(f"train {PAIR} --samples 4 --test-samples 2 --progress none --epochs {epochs}".split())
    said = capsys.readouterr().err
    assert (
        "warning: training on 4,000,000,000 samples in 1,000,000,000 epochs takes about" in said
    ) is warns


TABLES_AND_NAMES = {"faults", "precision", "changes", "freeze", "new_layers", "target_columns"}
NO_NUMBERS = ["nan", "inf", "-inf"]


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("key", settable_keys())
def test_no_key_of_a_cluster_is_endless(key: str, value: str) -> None:
    """Nor is what is text, a table or a truth value such a number."""
    with pytest.raises(InputError):
        load_cluster("vc709", {key: float(value)})


@pytest.mark.parametrize("value", NO_NUMBERS)
@pytest.mark.parametrize("key", sorted(Config.model_fields.keys() - TABLES_AND_NAMES))
def test_no_key_of_a_run_is_endless(key: str, value: str) -> None:
    with pytest.raises(InputError):
        load_config(None, {key: float(value)})
