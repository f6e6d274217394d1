"""`emuchain pipeline`: the answer first, a table, a drawing; JSON; the schedule's own machine; bad
input.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emuchain.emulator.schedule import pipelines

from ..running import status_of

COSTS = ["--forward", "10", "--backward", "20", "--transfer", "5"]


command = functools.partial(status_of, "pipeline")


def on(schedule: str, stages: int, micro_batches: int) -> list[str]:
    return ["--schedule", schedule, "--stages", str(stages), "--micro-batches", str(micro_batches)]


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert command(*arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


UNEQUAL = "--forward 1,8,5,4,2 --backward 7,8,5,8,10 --gradient 6,1,1,1,9".split()


FOR_TIMES = "order: searched for these times; in training it is that of equal stages"


def test_the_answer_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*on("1f1b-so", 4, 32), *COSTS) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "1f1b-so, 4 stages, 32 micro-batches: a mini-batch takes 1,080, bubble 11.1 %"
    )
    assert lines[1] == "formula: 1,080, holds; exact where SR <= min(F, B)"
    assert [line[:9] for line in lines[-5:-1]] == [f"device {stage} " for stage in range(4)]
    assert max(map(len, lines[:5] + lines[6:])) <= 80
    *_, to_try = lines[5].partition("emuchain pipeline ")
    assert (
        to_try == "--schedule 1f1b-min --stages 4 --micro-batches 32 --forward 10 --backward 20"
        " --transfer 5"
    )
    assert command(*to_try.split()) == 0
    assert all(line == line.rstrip() for line in lines)


def test_help_names_all_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(f"{name}," in shown or f"{name}." in shown for name in pipelines())


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, *on("1f1b-so", 3, 8), *COSTS)
    path = found.pop("critical_path")
    assert (path[0], path[-1]) == ("0F0", "0B7")
    assert found == {
        "schedule": "1f1b-so",
        "stages": 3,
        "micro_batches": 8,
        "chunks": 1,
        "engines": "turns",
        "transport": "stored",
        "backward": "fused",
        "time": 320,
        "bubble": 0.25,
        "busy": [0.75, 0.75, 0.75],
        "features": [6, 4, 2],
        "weight_copies": [1, 1, 1],
        "send_peak": 0.1,
        "plain_1f1b": None,
        "formula": 320,
        "formula_holds": True,
    }


NUMBERS = {
    "fbp-as": (["--forward", "1", "--backward", "2"], "time", 30),
    "fbp-as --engines split": (["--forward", "1", "--backward", "2"], "time", 39),
    "1f1b-sno": (COSTS, "time", 360),
    "1f1b-as --transport stored": (COSTS, "time", 360),
    "1f1b-so --warm-up N-i+1": (COSTS, "time", 360),
    "interleaved --engines split": (COSTS, "formula", None),
    "1f1b-so --warm-up M": (COSTS, "formula_holds", None),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_machines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    costs, key, value = NUMBERS[name]
    schedule, *flags = name.split()
    micro_batches = 9 if schedule == "interleaved" else 8
    assert as_json(capsys, *on(schedule, 3, micro_batches), *costs, *flags)[key] == value


def test_critical_path(capsys: pytest.CaptureFixture[str]) -> None:
    """As a schedule writes actions: device, kind, micro-batch, chunk."""
    times = ["--forward", "1", "--backward", "2"]
    assert as_json(capsys, *on("1f1b-as", 2, 2), *times)["critical_path"] == [
        "0F0",
        "1F0",
        "1B0",
        "1F1",
        "1B1",
        "0B1",
    ]
    found = as_json(capsys, *on("interleaved", 2, 2), *times)["critical_path"]
    assert found[:4] == ["0F0", "1F0", "1F1", "1F0c1"] and found[-1] == "0B1"


def test_a_formula_that_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*on("1f1b-so", 4, 32), "--forward", "1", "--backward", "2.0", "--transfer", "1.2"]
    found = as_json(capsys, *arguments)
    assert (found["time"], found["formula"], found["formula_holds"]) == (112.4, 112.2, False)
    assert command(*arguments) == 0
    assert "formula: 112.2, does not hold here; exact where" in capsys.readouterr().out


def test_memory_over_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """GPipe's F of 0.5 and B of 1 on one device: three micro-batches come, and go."""
    words = [*on("gpipe", 1, 3), "--forward", "0.5", "--backward", "1", "--features", "1kB"]
    [course] = as_json(capsys, *words)["memory_over_time"]
    assert course == {
        "times": [0, 0.5, 1, 2.5, 3.5, 4.5],
        "kept_bytes": [1000, 2000, 3000, 2000, 1000, 0],
    }
    for name, flags in (("zb-v", []), ("search", ["--memory", "3"]), ("interleaved", [])):
        found = as_json(capsys, *on(name, 3, 6), *COSTS, *flags, "--features", "10MB")
        peaks = [max(course["kept_bytes"]) for course in found["memory_over_time"]]
        assert peaks == found["memory_bytes"], name


@pytest.mark.parametrize("as_json", [False, True])
def test_picture_and_trace(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    picture, trace = tmp_path / "x.svg", tmp_path / "x.json"
    arguments = [*on("1f1b-so", 3, 8), *COSTS, "--plot", str(picture), "--trace", str(trace)]
    assert command(*arguments, *["--json"] * as_json) == 0
    printed = capsys.readouterr().out
    if as_json:
        assert json.loads(printed)["time"] == 320
    else:
        assert printed.splitlines()[-2:] == [f"drawn in {picture}", f"trace in {trace}"]
    assert "1f1b-so, N = 3, M = 8: time 320, bubble 25.0 %" in picture.read_text()
    slices = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert max(event["args"]["end"] for event in slices) == 320
    assert len(slices) == 2 * 8 * 3 + 2 * 8 * 2


def test_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert command(*on("1f1b-so", 3, 8), *COSTS, "--plot", "x.svg") == 2
    assert "`--plot` needs matplotlib: pip install 'emuchain[plot]'" in capsys.readouterr().err


def test_times_are_exact(capsys: pytest.CaptureFixture[str]) -> None:
    """A third of 0.1 for each of three chunks is no decimal number."""
    flags = ["--forward", "0.1", "--backward", "0.2", "--chunks", "3"]
    found = as_json(capsys, *on("interleaved", 2, 4), *flags)
    assert (found["time"], found["formula_holds"]) == (1.3, True)


def test_chunks_and_gradients(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        as_json(capsys, *on("interleaved", 4, 8), "--forward", "2", "--backward", "4")["time"] == 57
    )
    assert (
        as_json(capsys, *on("zero-bubble", 4, 8), "--forward", "1", "--backward", "2")["time"] == 27
    )
    uneven = ["--forward", "2", "--backward", "3", "--gradient", "1"]
    assert as_json(capsys, *on("zero-bubble", 4, 8), *uneven)["time"] == 8 * 5 + 3 * 3


@pytest.mark.parametrize("said", ["2e-3", "0.002", ".002", "2.E-3", "0.2e-2", "000000000000.002"])
def test_a_time_is_read_as_it_is_written(capsys: pytest.CaptureFixture[str], said: str) -> None:
    """Exactly: GPipe's take (M + N - 1) (F + B)."""
    found = as_json(capsys, *on("gpipe", 2, 2), "--forward", said, "--backward", "1e9")
    assert Fraction(str(found["time"])) == 3 * (Fraction(2, 1000) + 10**9)


@pytest.mark.parametrize(
    "said", ["1e12", "1e-13", "1.5e-12", "1e99", "1e-99", "1e", "e3", ".", "٣", "1e99999999", "0x3"]
)
def test_advice_on_times_is_taken_as_it_is_written(
    capsys: pytest.CaptureFixture[str], said: str
) -> None:
    assert command(*on("gpipe", 2, 2), "--forward", said, "--backward", "1") == 2
    error = capsys.readouterr().err
    assert (
        f"`forward` = {said!r}: must be a number that is not negative, such as 3, 2.5 or 2e-3, of"
        " at most 12" in error
    )
    for advised in ("3", "2.5", "2e-3", "999999999999", "0.000000000001"):
        assert command(*on("gpipe", 2, 2), "--forward", advised, "--backward", "1") == 0


LISTS = {
    # two stages, two micro-batches: by hand
    "1f1b-sno --forward 1,2 --backward 2,3 --transfer 1": (15, None),
    "1f1b-sno --forward 1,2 --backward 2,3 --transfer 1,9": (15, None),
    "1f1b-sno --forward 1,2 --backward 2,3 --transfer 1 --latency 0.5": (16, None),
    "1f1b-sno --forward 2,2 --backward 3,3 --transfer 1": (17, 17),
    "1f1b-sno --forward 2 --backward 3 --transfer 1": (17, 17),
    "1f1b-as --forward 1,2 --backward 2,3": (13, None),
    "zero-bubble --forward 1 --backward 2,2 --gradient 1,1": (7, 7),
    "interleaved --forward 2 --backward 4,4": (15, 15),
    "interleaved --forward 1,1,1,1 --backward 4": (15, 15),
    "interleaved --forward 1,1,1,2 --backward 4": (17, None),
}


@pytest.mark.parametrize("given", LISTS)
def test_times_by_stage(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    schedule, *flags = given.split()
    found = as_json(capsys, *on(schedule, 2, 2), *flags)
    assert (found["time"], found["formula"]) == LISTS[given]


UNLIKE = {
    "1f1b-as --forward 1,9 --backward 2,18": (12, 108),
    "1f1b-as --forward 9,1 --backward 18,2 --engines split": (108, 12),
    "fbp-as --forward 1,9 --backward 2,18": (12, 108),
    "interleaved --forward 1,1,1,9 --backward 2,2,2,18": (24, 120),
    "interleaved --forward 2,10 --backward 4,20": (24, 120),
    "zero-bubble --forward 3,1 --backward 4,1 --gradient 2,0.5": (28, 8),
    "1f1b-as --forward 1,1 --backward 2,2 --transfer 9": (12, 12),
}
"""The work of each of two devices on four micro-batches."""


@pytest.mark.parametrize("of", UNLIKE)
def test_the_bubble_is_of_all_devices(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The busiest one has a line of its own, where they differ."""
    schedule, *flags = of.split()
    found, work = as_json(capsys, *on(schedule, 2, 4), *flags), UNLIKE[of]
    assert found["busy"] == [float(Fraction(own, found["time"])) for own in work]
    assert found["bubble"] == float(1 - Fraction(sum(work), 2 * found["time"]))
    assert command(*on(schedule, 2, 4), *flags) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith(f"bubble {100 * found['bubble']:.1f} %")
    busiest = (
        f"busiest: device {found['busy'].index(max(found['busy']))}, for"
        f" {100 * max(found['busy']):.1f} % of the time"
    )
    assert second.startswith("formula: " if work[0] == work[1] else busiest)


def test_by_hand_of_devices_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, *on("1f1b-as", 2, 4), "--forward", "1,9", "--backward", "2,18")
    assert (found["time"], found["bubble"]) == (111, float(1 - Fraction(120, 222)))


@pytest.mark.parametrize("name", ["search", "zb-2p", "zb-v"])
def test_a_searched_order_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its file takes as long as the order does, from the first action to the last."""
    file = tmp_path / "order.csv"
    times = ["--forward", "4", "--backward", "6", "--gradient", "2", "--transfer", "1"]
    found = as_json(capsys, *on(name, 3, 6), *times, "-o", str(file))
    assert found["bound"] <= found["time"] <= found["makespan"]
    assert found["bubble"] == float(1 - Fraction(60, Fraction(found["time"])))
    again = as_json(capsys, "--schedule", str(file), *times)
    assert (again["time"], again["features"]) == (found["makespan"], found["features"])
    assert (again["chunks"], again["backward"]) == (2 if name == "zb-v" else 1, "split")


def test_memory_in_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """2.5 micro-batches of 2 GiB have room for two, and 3 of 1 GiB for three."""
    words = [*on("search", 2, 6), "--forward", "2", "--backward", "4"]
    found = as_json(capsys, *words, "--memory", "5GiB,3GiB", "--features", "2GiB,1GiB")
    count = as_json(capsys, *words, "--memory", "2,3")
    assert (found["time"], found["memory"]) == (count["time"], count["memory"])
    assert found["memory"][0] == 2 and found["memory"][1] <= 3
    assert found["memory_bytes"] == [4 << 30, found["memory"][1] << 30]
    kept = as_json(capsys, *on("gpipe", 2, 6), *words[6:], "--features", "1.5kB")
    assert kept["memory_bytes"] == [9000, 9000]


@settings(max_examples=30)
@given(st.data())
def test_what_is_tried_next_is_as_fast_as_it_says(data: st.DataObject) -> None:
    """The note has the time of plain 1F1B on the same machine, whatever the stages take; equal ones
    have none.
    """
    stages = data.draw(st.integers(2, 5))
    times = [
        data.draw(st.lists(st.integers(1, 12), min_size=stages, max_size=stages)) for _ in range(3)
    ]
    forward, errors, gradient = times
    flags = [
        "--forward",
        forward,
        "--backward",
        [a + b for a, b in zip(errors, gradient, strict=True)],
    ]
    flags += ["--gradient", gradient]
    words = [word if isinstance(word, str) else ",".join(map(str, word)) for word in flags]
    micro_batches = data.draw(st.integers(1, 9))

    def taken(*more: str) -> dict[str, Any]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            assert command(*more, *words, "--json") == 0
        answer: dict[str, Any] = json.loads(printed.getvalue())
        return answer

    found = taken(*on("zero-bubble", stages, micro_batches))
    plain = taken(*on("1f1b-sno", stages, micro_batches), "--not-fused")
    equal = all(len({*column}) == 1 for column in times)
    assert found["plain_1f1b"] == (None if equal else plain["time"])
    assert plain["plain_1f1b"] is None


def test_an_order_of_equal_stages_without_a_plain_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = "--forward 1,9 --backward 2,18 --engines split".split()
    assert command(*on("2bw", 2, 4), *times) == 0
    assert (
        "order: that of equal stages; on stages that differ another may be faster"
        in capsys.readouterr().out
    )


def test_a_command_to_try_on_stages_of_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    """Each stage gets a device of its own, with the times that it had as a chunk."""
    assert command(*on("interleaved", 2, 2), *"--forward 1,1,1,2 --backward 3".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert FOR_TIMES in lines
    *_, to_try = next(line for line in lines if line.startswith("next: ")).partition(
        "emuchain pipeline "
    )
    times = "--forward 1,1,1,2 --backward 1.5,1.5,1.5,1.5"
    assert to_try == f"--schedule 1f1b-min --stages 4 --micro-batches 2 {times}"
    assert command(*to_try.split()) == 0


def test_streamed(capsys: pytest.CaptureFixture[str]) -> None:
    """FPDeep's machine: (M + 1) (F + B), and 2 (N - 1) rows and their messages; eight rows unless
    it is said.
    """
    arguments = [*on("fbp-as", 3, 8), *COSTS, "--engines", "split", "--transport", "streamed"]
    found = as_json(capsys, *arguments)
    assert (found["time"], found["formula"], found["rows"]) == (
        9 * 30 + 4 * 35 / 8,
        9 * 30 + 4 * 35 / 8,
        8,
    )
    assert as_json(capsys, *arguments, "--rows", "3")["time"] == pytest.approx(
        9 * 30 + 4 * 35 / 3, rel=1e-15
    )


BAD = {
    "list": (
        "--forward 1,2",
        "`forward` = '1,2': has 2 values; must be one, or one for each of 3 stages",
    ),
    "list of chunks": (
        "--schedule interleaved --forward 1,2",
        "has 2 values; must be one, or one for each of 3 devices, or of 6 stages",
    ),
    "list of links": (
        "--transfer 1,2,3,4",
        "has 4 values; must be one, or one for each link of 3 stages",
    ),
    "in a list": ("--forward 1,x,2", "`forward` = 'x': must be a number that is not negative"),
    "no time in a list": ("--forward 1,0,2", "`forward` = '1,0,2': must be more than 0"),
    "empty": ("--forward 1,,2", "`forward` = ''"),
    "gradient in a list": ("--gradient 1,21,1", "is part of `backward` = 20 (stage 1)"),
    "latency": ("--latency -1", "`latency` = '-1'"),
    "picture": ("--plot x.abc", "`--plot` x.abc: the end of a picture's name is one of ."),
    "folder": ("--plot no/x.svg", "`--plot` = 'no/x.svg': the folder"),
    "trace": ("--trace no/x.json", "`trace` = 'no/x.json': the folder"),
    "rows": ("--rows 4", "`rows` = 4: messages are stored; rows need `--transport streamed`"),
    "shared and streamed": (
        "--engines shared --transport streamed",
        "rows of shared engines have no fixed time",
    ),
    "schedule": ("--schedule 1f1b-os", "did you mean `1f1b-so`? must be one of 1f1b-as, "),
    "forward": ("--forward=-1", "`forward` = '-1': must be a number that is not negative"),
    "no time": ("--backward 0", "`backward` = '0': must be more than 0"),
    "exponent": ("--transfer 1e99999999", "`transfer` = '1e99999999'"),
    "gradient": ("--gradient 21", "`gradient` = 21: is part of `backward` = 20"),
    "stages": ("--stages 0", "'--stages'"),
    "too many": ("--micro-batches 1000000", "`micro_batches` = 1000000: on 3 stages at most 66666"),
    "engines": ("--engines many", "'--engines'"),
    "chunks": ("--chunks 2", "`chunks` = 2: 1f1b-so has one stage on each device"),
    "warm-up": ("--warm-up open(i)", "`warm_up` = 'open(i)'"),
    "deadlock": ("--warm-up i", "deadlock: device 0 waits at B0v0 for B0 of stage 1"),
    "memory": ("--memory 3", "`memory` = 3: 1f1b-so has an order of its own; a limit is for"),
    "no memory": ("--schedule search --memory 0", "`memory` = '0': must be a number above 0"),
    "little memory": ("--schedule search --memory 0.5", "device 0 needs room for 1 micro-batch"),
    "bytes": ("--schedule search --memory 1GiB", "is in bytes, so --features should say"),
    "memories": ("--schedule search --memory 1,2", "has 2 values; must be one, or one for each of"),
    "features": ("--features 3", "`features` = '3': must have a unit, such as 1.5GiB"),
    "searched chunks": ("--schedule zb-v --chunks 3", "`chunks` = 3: zb-v has 2 stages on each"),
    "searched warm-up": ("--schedule search --warm-up i", "`warm_up`: search searches its order"),
    "searched engines": ("--schedule search --engines shared", "leave out --engines and"),
    "order": ("-o no/x.csv", "`out` = 'no/x.csv': the folder"),
    "fixed order": ("--schedule gpipe --warm-up i", "`warm_up`: gpipe has a fixed order"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags, message = BAD[name]
    assert command(*on("1f1b-so", 3, 8), *COSTS, *flags.split()) == 2
    out, error = capsys.readouterr()
    assert out == "" and message in error
    assert error.startswith("emuchain: error: ") and error.count("\n") == 1


V = "0F0,0F1,3F0,3I0,3W0,3F1,0I0,0W0,3I1,0I1,3W1,0W1\n,1F0,2F0,1F1,2F1,2I0,2W0,1I0,1W0,2I1,1I1,2W1,1W1\n"


@pytest.mark.parametrize(
    ("text", "chunks", "time"), [("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", 1, 90), (V, 2, 80)]
)
def test_a_file_has_its_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, chunks: int, time: int
) -> None:
    """GPipe's take (M + N - 1) (F + B), those of the V 16 times an F, B or W of a stage."""
    file = tmp_path / "mine.csv"
    file.write_text(text)
    words = ["--schedule", str(file), "--forward", "10", "--backward", "20"]
    found = as_json(capsys, *words)
    sizes = found["stages"], found["micro_batches"], found["chunks"]
    assert (*sizes, found["time"], found["formula"]) == (2, 2, chunks, time, None)
    assert found["backward"] == ("fused" if chunks == 1 else "split")
    assert command(*words, "--stages", "2", "--micro-batches", "2") == 0
    message = capsys.readouterr().out.splitlines()
    assert "emuchain pipeline --schedule 1f1b-min --stages 2 --micro-batches 2" in next(
        line for line in message if line.startswith("next: ")
    )


def test_a_list_of_times_by_device_folds_with_the_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text(V)
    by_device = as_json(capsys, "--schedule", str(file), "--forward", "2,20", "--backward", "4,40")
    by_stage = as_json(
        capsys, "--schedule", str(file), "--forward", "1,10,10,1", "--backward", "2,20,20,2"
    )
    assert (
        by_device["time"] == by_stage["time"]
        and by_device["critical_path"] == by_stage["critical_path"]
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--stages", "3"], "`stages` = 3: `schedule` = "),
        (["--micro-batches", "3"], "`micro_batches` = 3: `schedule` = "),
        (["--chunks", "2"], "`chunks` = 2: `schedule` = "),
        (["--warm-up", "N"], "has a fixed order"),
    ],
)
def test_flags_that_a_file_contradicts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    one_line: Any,
    flags: list[str],
    message: str,
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n")
    assert command("--schedule", str(file), "--forward", "1", "--backward", "1", *flags) == 2
    assert message in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("flag", ["--stages", "--micro-batches"])
def test_a_schedule_by_name_needs_its_sizes(
    capsys: pytest.CaptureFixture[str], one_line: Any, flag: str
) -> None:
    words = on("gpipe", 2, 2)
    place = words.index(flag)
    assert command(*words[:place], *words[place + 2 :], "--forward", "1", "--backward", "1") == 2
    assert f"Missing option '{flag}'" in one_line(capsys.readouterr().err)


def test_r_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: F 2, R 1, B 4; the second device waits for no R, the first one puts R into the time
    in which it would wait for errors.
    """
    file = tmp_path / "r.csv"
    file.write_text("0F0,0F1,0F2,0R1,0B0,0R2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n")
    words = ["--schedule", str(file), "--forward", "2", "--backward", "4", "--recompute", "1"]
    parts = ["--recompute-features", "0.25", "--features", "100B"]
    answer = as_json(capsys, *words, *parts)
    # Device 0: F 0-6, R1 6-7, B0 8-12, R2 12-13, B1 14-18, B2 20-24; device 1: B0 4-8, B1 10-14.
    assert answer["time"] == 24 and answer["busy"] == [20 / 24, 18 / 24]
    assert answer["memory"] == [2.25, 1] and answer["memory_bytes"] == [225, 100]
    assert answer["memory_over_time"][0] == {
        "times": [0, 2, 4, 6, 12, 18, 24],
        "kept_bytes": [100, 125, 150, 225, 200, 100, 0],
    }
    assert answer["features"] == [2, 1]
    assert command(*words) == 0
    drawn = "device 0 000011112222ββ..aaaaaaaaγγ..bbbbbbbb"  # noqa: RUF001 - R in Greek letters
    assert drawn in capsys.readouterr().out
    file.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    assert command(*words) == 2
    error = capsys.readouterr().err
    assert "`recompute` = 1: " in error and "has no R; it is for a file with R" in error


def test_a_search_may_place_r(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the memory, in bytes, and as the file that it writes says; the default R is F."""
    words = [*on("search", 3, 4), "--forward", "2", "--backward", "4", "--features", "100B"]
    words += ["--memory", "150B"]
    plain = as_json(capsys, *words)
    file = tmp_path / "r.csv"
    parts = ["--recompute-features", "0.25"]
    again = as_json(capsys, *words, *parts, "-o", str(file))
    assert again["bound"] <= again["time"] < plain["time"]
    assert max(again["memory_bytes"]) <= 150 and max(again["memory"]) <= 1.5
    for size, course in zip(again["memory_bytes"], again["memory_over_time"], strict=True):
        assert size == max(course["kept_bytes"])
    times = ["--forward", "2", "--backward", "4"]
    read = as_json(capsys, "--schedule", str(file), *times, *parts)
    assert (read["time"], read["memory"]) == (again["time"], again["memory"])


def test_o_and_l_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F1 waits for O0, and L0 goes beside B1; lanes of their own are drawn."""
    file = tmp_path / "own.csv"
    file.write_text("0F0,0O0,0F1,0F2,0B1,0L0,0B2,0B0\n")
    words = ["--schedule", str(file), "--forward", "2", "--backward", "4"]
    answer = as_json(capsys, *words, "--offload", "3", "--features", "100B")
    # F 0-2, O 2-5, F 5-7 and 7-9, B 9-13 and 13-17, L 13-16, B 17-21.
    assert answer["time"] == 21 and answer["features"] == [2]
    assert answer["memory_over_time"] == [
        {"times": [0, 7, 17, 21], "kept_bytes": [100, 200, 100, 0]}
    ]
    assert command(*words, "--offload", "3") == 0
    drawn = capsys.readouterr().out
    assert "<<<" in drawn and ">>>" in drawn
    assert "O: <, L: >" in drawn
    assert command(*words) == 2
    assert "has O and L; say how long by --offload" in capsys.readouterr().err
    plain = [*on("gpipe", 2, 2), "--forward", "2", "--backward", "4"]
    assert command(*plain, "--offload", "3") == 2
    assert "`offload` = 3: gpipe has no O" in capsys.readouterr().err
