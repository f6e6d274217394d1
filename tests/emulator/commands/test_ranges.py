"""`--range`: lines below the first of an answer and keys of JSON, which `none` leaves out without
any other change.

What the first line says is at the values of data sheets, and mostly outside of its own range: with
a range, it says so.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.commands.cli import main

KEYS = {"range", "ranges", "classes", "share_of_width", "confidence"}
COMMANDS = [
    ("plan", "quick-cifar", "--devices", "3"),
    ("simulate", "quick-cifar", "--devices", "3", "--samples", "128"),
    (
        "simulate",
        "quick-cifar",
        "--devices",
        "2",
        "--samples",
        "128",
        "--schedule",
        "1f1b-so",
        "--engines",
        "turns",
    ),
    (
        "simulate",
        "char-lstm",
        "--cluster",
        "farnn-9p",
        "--schedule",
        "farnn",
        "--samples",
        "64",
        "--batch",
        "16",
    ),
    ("plan", "char-lstm", "--cluster", "farnn-9p", "--schedule", "farnn", "--batch", "16"),
    ("sweep", "quick-cifar", "--devices", "1-4"),
    ("explore", "quick-cifar", "--cluster", "vc709", "--devices", "2", "--batch", "8"),
    ("study", "compare", "quick-cifar", "--devices", "2-3"),
]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    return said.out


@pytest.mark.parametrize("words", COMMANDS)
def test_none_leaves_out_the_lines_of_the_range_alone(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    lines, plain = (unwrapped(printed(capsys, *words, *more)) for more in ((), ("--range", "none")))
    assert " at data-sheet values" in lines[0]
    lines[0] = lines[0].replace(" at data-sheet values", "")
    assert lines[1].startswith("range: 90 % ")
    more = len(lines) - len(plain)
    assert 2 <= more <= 3
    assert lines[:1] + lines[1 + more :] == plain
    assert any(line.startswith("measure first: ") for line in lines[1 : 1 + more])


def unwrapped(text: str) -> list[str]:
    """Lines of the first screen, as they were before they were wrapped; the lines below are left as
    they are.
    """
    return text.replace("\n  ", " ").splitlines()


@pytest.mark.parametrize("words", COMMANDS)
def test_json_has_range_classes_and_shares(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    said, plain = (
        json.loads(printed(capsys, *words, "--json", *more)) for more in ((), ("--range", "none"))
    )
    assert said["range"]["low"] < said["range"]["high"]
    assert said["classes"].keys() == said["share_of_width"].keys()
    if words[0] == "sweep":
        for row in (said["best"], *filter(None, [said["knee"]]), *said["rows"]):
            assert row.pop("range_low") <= row.pop("range_high")
        del said["findings"], plain["findings"]
    assert {key: value for key, value in said.items() if key not in KEYS} == plain


def test_measured_constants_narrow_the_range(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = tmp_path / "ours.toml"
    cluster.write_text(
        'name = "ours"\n[[boards]]\ntype = "vc709"\n[links]\nbandwidth_gbps = 150\nlatency_ns ='
        ' 1000\n[uncertainty]\n"board.clock_mhz" = { low = 99, high = 101, class = "measured",'
        ' from = "a scope", date = 2026-11-25 }\n'
        '"board.efficiency" = { low = 0.84, high = 0.86, class = "measured" }\n'
    )
    words = ("plan", "quick-cifar", "--devices", "3", "--cluster")
    wide: dict[str, Any] = json.loads(printed(capsys, *words, "vc709", "--json"))
    narrow: dict[str, Any] = json.loads(printed(capsys, *words, str(cluster), "--json"))
    assert wide["images_per_s"] == narrow["images_per_s"]
    assert narrow["range"]["high"] - narrow["range"]["low"] < 0.2 * (
        wide["range"]["high"] - wide["range"]["low"]
    )
    assert narrow["classes"]["board.clock_mhz"] == "measured"
    assert "engines measured" in printed(capsys, *words, str(cluster))


MEASURED = {
    "board.clock_mhz": "{ low = 98, high = 102 }",
    "board.efficiency": "{ low = 0.84, high = 0.86 }",
    "board.off_chip_gbytes_per_s": "{ low = 29, high = 31 }",
    "link.bandwidth_gbps": "{ low = 147, high = 153 }",
    "link.latency_ns": "{ low = 990, high = 1010 }",
}
VALUES = {
    "at measured values": (MEASURED, "8"),
    "at data-sheet values": ({"board.clock_mhz": MEASURED["board.clock_mhz"]}, "8"),
    "": (
        dict.fromkeys(("board.clock_mhz", "board.efficiency"), '{ class = "data sheet" }'),
        "1",
    ),
}


@pytest.mark.parametrize("message", VALUES)
def test_the_first_line_says_at_which_values_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, message: str
) -> None:
    """Where one constant is not measured, it is at data sheets' values; where all are exact, it has
    no range.
    """
    ranges, devices = VALUES[message]
    cluster = tmp_path / "ours.toml"
    entries = "\n".join(f'"{key}" = {entry}' for key, entry in ranges.items())
    cluster.write_text(
        'name = "ours"\nboards = [{ type = "vc709" }]\nlinks = { bandwidth_gbps = 150,'
        f" latency_ns = 1000 }}\n[uncertainty]\n{entries}\n"
    )
    words = ("plan", "quick-cifar", "--devices", devices, "--cluster", str(cluster))
    first = unwrapped(printed(capsys, *words))[0]
    assert first.endswith(f" images/s{message and f' {message}'}")
