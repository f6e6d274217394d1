"""The first screen: each command answers in its first lines what was asked, with the numbers of its
JSON.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main

from ..counted import COUNTED_WORDS

Printed = Callable[..., list[str]]

NARROW_LINKS = ("--cluster", "vc709-10g")
MANY = "128"


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Runs a command and returns the lines that it prints into a pipe."""

    def run(*arguments: str) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr()
        assert ended.value.code == 0, said.err
        return said.out.splitlines()

    return run


def as_json(printed: Printed, *arguments: str) -> Any:
    return json.loads("\n".join(printed(*arguments, "--json")))


def number_before(unit: str, line: str) -> float:
    """The number that stands before `unit`, with its separators taken out."""
    found = re.search(rf"([\d,.]+) {re.escape(unit)}", line)
    assert found, line
    return float(found[1].replace(",", ""))


def line_of(start: str, lines: list[str]) -> str:
    [line] = [line for line in lines[: lines.index("")] if line.startswith(start)]
    return line


def test_simulate_answers_with_the_numbers_of_its_json(printed: Printed) -> None:
    words = ("simulate", "quick-cifar", "--devices", "3", "--samples", "1000")
    lines, said = printed(*words), as_json(printed, *words)
    assert number_before("images/s", lines[0]) == pytest.approx(said["images_per_s"], rel=1e-3)
    assert "3 VC709" in lines[0]
    assert number_before("ms", line_of("epoch of 1,000 images", lines)) == pytest.approx(
        said["epoch_ends_ps"][0] / 1e9, rel=1e-2
    )
    bottleneck = said["steady"]["bottleneck"]
    assert line_of("limit: ", lines).startswith(f"limit: {bottleneck['slowest']['name']}, ")
    assert number_before("images/s", line_of("If engines were free", lines)) == pytest.approx(
        bottleneck["images_per_s_links_alone"], rel=1e-3
    )
    stale = said["stale_samples"]
    several = f"{min(stale)} to {max(stale)}" if min(stale) < max(stale) else f"{max(stale)}"
    assert f"{several} of 64 samples" in line_of("weights: ", lines)


IGNORED = ("--memory", "ignored")


def test_where_memory_is_ignored_every_rate_says_so(printed: Printed) -> None:
    for words in (
        ("simulate", "vgg16-cifar", "--devices", "4", "--samples", "128", *IGNORED),
        (
            "simulate",
            "vgg16-cifar",
            *IGNORED,
            "--replicas",
            "2",
            "--devices",
            "4",
            "--samples",
            "128",
        ),
        ("plan", "vgg11-cifar", "--devices", "4", *IGNORED),
    ):
        said, lines = as_json(printed, *words), printed(*words)
        assert said["fits"] is False
        missing = f"memory ignored, {_mebibytes(said['missing_bytes'])} MiB too much"
        rates = [line for line in lines if re.search(r"\d (images/s|GOPS)\b", line)]
        assert rates[0] == lines[0]
        assert all(missing in line for line in rates), rates
        assert f"does not fit, {_mebibytes(said['missing_bytes'])} MiB missing" in line_of(
            "memory: ", lines
        )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f}" if count >= 100 * 2**20 else f"{count / 2**20:.3g}"


def test_where_all_fits_no_rate_says_otherwise(printed: Printed) -> None:
    for command in (("simulate", "quick-cifar", "--samples", "128"), ("plan", "quick-cifar")):
        words = (*command, "--devices", "3")
        assert as_json(printed, *words)["fits"] is True
        assert as_json(printed, *words)["missing_bytes"] == 0
        text = "\n".join(printed(*words))
        assert "memory: fits on chip" in text
        assert "ignored" not in text


def test_plan_answers_with_the_numbers_of_its_json(printed: Printed) -> None:
    words = ("plan", "quick-cifar", "--devices", "3")
    lines, said = printed(*words), as_json(printed, *words)
    assert number_before("images/s", lines[0]) == pytest.approx(said["images_per_s"], rel=1e-3)
    assert line_of("limit: ", lines).startswith(f"limit: {said['limit']}")
    assert line_of("epoch of 50,000 images: ", lines)
    assert line_of("next: ", lines) == "next: emuchain plan quick-cifar --devices 6"
    assert said["stale_samples"] == [4, 4, 4]


def test_plan_gives_one_verdict(printed: Printed) -> None:
    for words in (
        ("vgg16-cifar", "--devices", "24"),
        ("vgg11-cifar", "--devices", "2"),
        ("quick-cifar",),
    ):
        lines = printed("plan", *words)
        assert len([line for line in lines if re.search(r"\bfits?\b", line)]) == 1


def test_the_next_command_lifts_the_limit(printed: Printed) -> None:
    """More boards where engines limit, faster links where links do, another schedule where draining
    does.
    """
    for given in (
        ["--devices", "2", "--samples", "256"],
        ["--devices", "4", "--samples", "256", *NARROW_LINKS],
        ["--devices", "8", "--samples", "256", "--schedule", "sync", "--batch", "4"],
    ):
        before = as_json(printed, "simulate", "quick-cifar", *given)
        words = shlex.split(line_of("next: ", printed("simulate", "quick-cifar", *given)))
        assert words[:4] == ["next:", "emuchain", "simulate", "quick-cifar"]
        after = as_json(printed, *words[2:])
        after = after.get("what_if", {"run": after})["run"]
        assert after["steady"]["images_per_s"] > 1.05 * before["steady"]["images_per_s"], words


def test_a_comparison_stands_in_the_first_lines(printed: Printed) -> None:
    words = (
        "simulate",
        "quick-cifar",
        "--devices",
        "4",
        "--samples",
        "64",
        "--what-if",
        "devices=2",
    )
    lines, said = printed(*words), as_json(printed, *words)
    line = line_of("if devices = 2: ", lines)
    assert number_before("images/s", line) == pytest.approx(
        said["what_if"]["run"]["images_per_s"], rel=1e-3
    )


def test_draining_is_named_where_a_schedule_drains(printed: Printed) -> None:
    lines = printed(
        "simulate", "quick-cifar", "--devices", "4", "--samples", "64", "--schedule", "sync"
    )
    said = as_json(
        printed,
        "simulate",
        "quick-cifar",
        "--devices",
        "4",
        "--samples",
        "64",
        "--schedule",
        "sync",
    )
    line = line_of("then: each update drains the chain, ", lines)
    assert number_before("images/s", line) == pytest.approx(1e12 / said["interval_ps"], rel=1e-3)
    share = 1 - said["interval_ps"] / said["steady"]["period_ps"]
    assert number_before("%", line) == pytest.approx(100 * share, abs=0.1)
    assert line_of("weights: ", lines) == "weights: every sample uses the newest weights (sync)"


def test_draining_is_the_limit_where_it_takes_most_of_the_time(printed: Printed) -> None:
    words = ("--devices", "8", "--samples", "64", "--schedule", "sync", "--batch", "4")
    lines = printed("simulate", "quick-cifar", *words)
    assert line_of("limit: ", lines).startswith("limit: each update drains the chain, ")
    slowest = as_json(printed, "simulate", "quick-cifar", *words)["steady"]["bottleneck"][
        "slowest"
    ]["name"]
    assert line_of("then: ", lines).startswith(f"then: {slowest}, ")


def test_train_ends_with_its_answer_and_show_begins_with_it(
    printed: Printed, tmp_path: Path
) -> None:
    out = str(tmp_path / "run.h5")
    lines = printed(
        "train", "--devices", "2", "--samples", "64", "--test-samples", "20", "--out", out
    )
    answer = lines[-lines[::-1].index("") :]
    assert len(answer) <= 8
    said = as_json(printed, "simulate", "--devices", "2", "--samples", "64")
    assert number_before("images/s", answer[0]) == pytest.approx(said["images_per_s"], rel=1e-3)
    starts = (
        "test accuracy ",
        "limit: ",
        "memory: fits on chip",
        "weights: ",
        f"next: emuchain show {out}",
    )
    assert all(any(line.startswith(start) for line in answer) for start in starts)
    shown = printed("show", out)
    assert number_before("images/s", shown[0]) == pytest.approx(said["images_per_s"], rel=1e-3)
    assert shown[1] == answer[1]
    assert line_of("memory: ", shown) == "memory: fits on chip"
    assert (
        line_of("next: ", shown) == "next: emuchain simulate quick-cifar --devices 2 --samples 64"
    )


def test_show_says_of_a_run_that_memory_was_ignored(printed: Printed, tmp_path: Path) -> None:
    out = str(tmp_path / "run.h5")
    run = ["--network", "vgg11-cifar", "--devices", "2", "--samples", "8", "--batch", "8", *IGNORED]
    missing = _mebibytes(as_json(printed, "simulate", *run)["missing_bytes"])
    trained = printed("train", *run, "--test-samples", "4", "--out", out)
    shown = printed("show", out)
    for lines in (trained, shown):
        rates = [line for line in lines if "images/s" in line]
        assert rates
        assert all(f"memory ignored, {missing} MiB too much" in line for line in rates)


def test_compare_topology_exchange_and_network_answer_first(printed: Printed) -> None:
    lines, said = printed("study", "compare", "vgg16-cifar", "--devices", "2,4"), None
    said = as_json(printed, "study", "compare", "vgg16-cifar", "--devices", "2,4")
    best = max(
        100 * method["outcomes"][-1]["flop_utilisation"] for method in said["methods"].values()
    )
    assert number_before(
        "data", line_of("FLOP utilisation on 4, %: ", lines).replace(", ", " ")
    ) == pytest.approx(best, rel=1e-3)

    lines, said = printed("study", "topology", "vgg16-cifar", "--devices", "4"), None
    said = as_json(printed, "study", "topology", "vgg16-cifar", "--devices", "4")
    for start, kind in (("chain (1D)", "1d"), ("direct links (2D)", "2d")):
        rate = said["topologies"][-1][kind]["images_per_s"]
        assert number_before("images/s", line_of(start, lines)) == pytest.approx(rate, rel=1e-3)

    lines = printed("study", "exchange", "hdc", "--workers", "4")
    [plain, _] = as_json(printed, "study", "exchange", "hdc", "--workers", "4")["exchanges"]
    shown = re.search(r"[:,] ring ([\d.]+) ms", line_of("4 workers: ", lines))
    assert shown is not None
    assert float(shown[1]) == pytest.approx(plain["ring_ps"] / 1e9, rel=1e-2)

    lines = printed("network", "resnet18")
    said = as_json(printed, "network", "resnet18")
    assert lines[0] == f"resnet18: {said['parameters']:,} parameters in 21 layers"


def test_full_shows_all_devices_and_links(printed: Printed) -> None:
    words = ("resnet8-cifar", "--devices", "15")
    for command in (("simulate", *words, "--samples", "64"), ("plan", *words)):
        short, full = printed(*command), printed(*command, "--full")
        assert sum("--full shows all" in line for line in short) >= 3
        assert not any("--full" in line for line in full)
        assert first_numbers("Devices", full) == [*range(15)]
        assert len(first_numbers("Devices", short)) == 5
        assert short[:8] == full[:8]
        assert len(short) < len(full) - 15


def first_numbers(title: str, lines: list[str]) -> list[int]:
    """The numbers in the first column of the table under a title; lines that go on with names have
    none.
    """
    rows = lines[next(place for place, line in enumerate(lines) if line.startswith(title)) :]
    return [int(line.split()[0]) for line in rows[: rows.index("")] if re.match(r" *\d+ ", line)]


def piped_commands(folder: Path) -> Iterator[tuple[str, ...]]:
    """All commands of which people read the tables, where they are large."""
    for full in ((), ("--full",)):
        yield "simulate", "vgg16", "--devices", MANY, "--samples", "64", *full
    yield "plan", "vgg16", "--devices", MANY, "--full"
    yield "plan", "vgg16-cifar", "--devices", "24"
    yield (
        "simulate",
        "hdc",
        "--schedule",
        "data-parallel-ring",
        "--devices",
        "4",
        "--batch",
        "64",
        "--samples",
        "128",
    )
    yield (
        "train",
        "resnet8-cifar",
        "--samples",
        "32",
        "--test-samples",
        "4",
        "--out",
        str(folder / "run.h5"),
    )
    yield "show", str(folder / "run.h5")
    yield "study", "compare", "vgg16", "--devices", f"2,{MANY}"
    yield "study", "topology", "vgg16", "--devices", f"2,{MANY}"
    yield "study", "exchange", "vgg16", "--workers", f"4,{MANY}"
    yield "network", "googlenet"
    yield ("network",)
    yield "validate", "fpdeep", "--only", "t6"
    yield "validate", "inceptionn", "--only", "fig12"
    yield "data", "info"


def test_piped_output_is_80_columns_wide_with_no_blanks_at_ends(
    printed: Printed, tmp_path: Path
) -> None:
    for command in piped_commands(tmp_path):
        lines = printed(*command)
        assert not [line for line in lines if line != line.rstrip()], command
        wide = [line for line in lines if len(line) > 80 and not line.startswith("next: ")]
        assert not wide, f"{command}: {wide}"
        assert "…" not in "\n".join(line for line in lines if "validate" not in command), command


def test_a_schedule_has_no_blanks_at_ends(printed: Printed) -> None:
    assert not [
        line
        for line in printed("schedule", "quick-cifar", "--devices", "3")
        if line != line.rstrip()
    ]


@pytest.mark.parametrize(
    "network, epoch",
    [
        ("quick-cifar", "50,000 images"),  # CIFAR-10 and CIFAR-100 have 50,000 training images each
        ("lenet-mnist", "60,000 images"),
        ("alexnet", "1,281,167 images"),
        ("char-lstm", None),  # a text of any length
    ],
)
def test_an_epoch_is_that_of_the_data_set(
    printed: Printed, network: str, epoch: str | None
) -> None:
    for words in (("plan", network), ("simulate", network, "--samples", "2")):
        starts = [
            line.partition(":")[0] for line in printed(*words) if line.startswith("epoch of ")
        ]
        others = (
            []
            if words[0] == "plan"
            else ["epoch of 2 samples" if epoch is None else "epoch of 2 images"]
        )
        assert starts == others + ([] if epoch is None else [f"epoch of {epoch}"])


def test_nothing_fits_in_more_than_all_block_ram(printed: Printed) -> None:
    """Device 0 of four has 117 % of its board's memory in buffers, of which 28 % are shallow
    memories of LUTs.
    """
    words = ("plan", "resnet18-cifar", "--devices", "4")
    found = as_json(printed, *words)
    assert found["missing_bytes"] == 0
    shares = [device["utilisation"]["block_ram_bytes_share"] for device in found["devices"]]
    assert 0.5 < max(shares) <= 1


@pytest.mark.parametrize(
    "flags, note",
    [
        (
            ["--compress", "inceptionn:-10"],
            "`compress` = inceptionn:-10: has no effect without replicas",
        ),
        (["--exchange", "aggregator"], "`exchange` = aggregator: has no effect without replicas"),
        (
            ["--optimizer", "adam", "--momentum", "0.5"],
            "`momentum` = 0.5: has no effect with `optimizer` = 'adam'",
        ),
        (["--compress", "inceptionn:-10", "--replicas", "2"], None),
        (["--momentum", "0.5"], None),
    ],
)
def test_settings_without_effect_are_noted(
    capsys: pytest.CaptureFixture[str], flags: list[str], note: str | None
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "quick-cifar", "--samples", "2", *flags])
    assert not ended.value.code
    said = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("emuchain: note: ")
    ]
    assert len(said) == (note is not None)
    assert note is None or said[0].startswith(f"emuchain: note: {note}")


def test_one_of_a_kind_is_singular(printed: Printed) -> None:
    text = "\n".join(
        line
        for words in (
            ("simulate", "quick-cifar", "--samples", "1", "--batch", "1", "--micro-batch", "1"),
            ("plan", "resnet18-cifar", "--devices", "4", *COUNTED_WORDS),
            ("explore", "quick-cifar", "--cluster", "vc709", "--devices", "1", "--batch", "1"),
        )
        for line in printed(*words)
    )
    assert (
        "epoch of 1 image: " in text
        and "micro-batches of 1 sample: " in text
        and "on 1 device\n" in text
    )
    assert (
        re.findall(
            r"(?<![\d.,])1 (?:images|samples|layers|devices|boards|micro-batches|stages|rows)\b",
            text,
        )
        == []
    )
