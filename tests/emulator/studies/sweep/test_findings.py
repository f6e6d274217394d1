"""What a sweep says in its first lines."""

from __future__ import annotations

import dataclasses

from emuchain.emulator.studies.sweep import chosen_rows, findings, table_of

from .rows import line, result, row

LINK = {"bottleneck": "link 2 -> 3 (paths 1, 2)", "bottleneck_kind": "link"}


def test_best_and_knee() -> None:
    rows = [row(n, 1000.0 * n) for n in (1, 2, 3)] + [row(n, 3000.5 + n, **LINK) for n in (4, 5, 6)]
    best, knee, memory = findings(result(rows))
    assert best == "best: 6 boards: 3,006 images/s; link 2 -> 3 (paths 1, 2) limits"
    assert (
        knee == "knee: 3 boards, 3,000 images/s; FP of conv1[0:4] ICP on device 0 limits up to it;"
        " beyond, each board adds less than half as much: link 2 -> 3 (paths 1, 2) limits"
    )
    assert memory == "memory: all is on chip from 1 board on, the fewest of the sweep"


def test_a_plateau_is_called_by_its_cause() -> None:
    """The slowest in each cut is an engine, and links are why no other cut is better."""
    rows = [row(n, 1000.0 * n, cause="memory" if n < 3 else "engine") for n in (1, 2, 3, 4, 5)]
    rows += [row(n, 5000.0, cause="link") for n in (6, 7, 8, 9)]
    of_all = result(rows)
    _, knee, _ = findings(of_all)
    assert (
        knee
        == "knee: 5 boards, 5,000 images/s; engines limit up to it; beyond, each board adds less"
        " than half as much: links limit"
    )
    rows[-1] |= {"images_per_s": 5001.0}
    assert (
        findings(result(rows))[0]
        == "best: 9 boards: 5,001 images/s; links limit; slowest in this cut: FP of conv1[0:4] ICP"
        " on device 0"
    )
    _, cells = table_of(of_all, rows)
    assert [cell[-1] for cell in cells[3:6]] == ["FP of conv1 on device 0"] * 2 + [
        "link: FP of conv1 on device 0"
    ]
    rows[:5] = [row(n, 1000.0 * n, cause="link") for n in (1, 2, 3, 4, 5)]
    assert findings(result(rows))[1].endswith(
        "; links limit up to it; beyond, each board adds less than half as much: links limit, too"
    )


def test_no_knee() -> None:
    assert "knee: none; rate still rising at 3 boards" in findings(line([1, 2, 3]))


def test_other_keys_are_named() -> None:
    rows = [row(n, 10.0 * n * batch, batch=batch) for batch in (8, 16) for n in (1, 2)]
    assert findings(result(rows, batch=(8, 16)))[0].startswith(
        "best: 2 boards, batch = 16: 320 images/s; "
    )


def test_replicas_are_counted_as_boards() -> None:
    rows = [row(n, 10.0 * n, boards=3 * n) for n in (1, 2)]
    assert findings(result(rows))[0].startswith("best: 6 boards (3 replicas of 2): 20 images/s; ")


def test_memory() -> None:
    figures = {
        "y": {},
        "o": {"off_chip_mib": 3.5},
        "n": {"fits": False, "missing_mib": 9.25},
        "b": {"fits": False, "missing_mib": 9.25, "off_chip_mib": 3.5},
    }

    def message(where: str) -> str:
        rows = [row(n, 1.0 + n, **figures[letter]) for n, letter in enumerate(where, 1)]
        return next(found for found in findings(result(rows)) if found.startswith("memory: "))

    assert (
        message("noyy") == "memory: all is on chip from 3 boards on; with 2, 3.5 MiB are off chip"
    )
    assert (
        message("ooob")
        == "memory: never all on chip; with 4 boards, 3.5 MiB are off chip, 9.2 MiB are missing"
    )
    assert (
        message("yynyn")
        == "memory: all is on chip only with 1-2, 4 boards; with 5, 9.2 MiB are missing"
    )


def test_a_best_point_that_does_not_fit_says_so() -> None:
    assert findings(line([5.0], fits=False, missing_mib=3.0))[0].endswith(
        "; memory ignored: 3.0 MiB are missing"
    )


def test_more_boards_that_are_slower() -> None:
    assert (
        findings(line([10, 20, 15, 30, 29]))[-1]
        == "not monotone: 3 boards (15 images/s) are slower than 2 (20); so is 1 more"
    )
    rows = [
        row(n, rate, batch=batch) for batch in (8, 16) for n, rate in ((1, 10.0), (2, 20.0 - batch))
    ]
    message = "not monotone: 2 boards (4 images/s) are slower than 1 (10) at batch = 16"
    assert findings(result(rows, batch=(8, 16)))[-1] == message
    assert not any(message.startswith("not monotone") for message in findings(line([10, 10, 20])))


def test_points_that_fail() -> None:
    assert (
        findings(line([10, 20, None]))[-1] == "1 of 3 points fail, the first: `devices`: too many"
    )
    assert findings(line([None])) == []


def test_schedules_are_compared() -> None:
    rates = {"a": (10.0, 20.0, 30.0), "b": (11.0, 10.0, 10.0), "c": (4.0, 8.0, None)}
    rows = [
        row(n, rate, schedule=name) for name, of in rates.items() for n, rate in enumerate(of, 1)
    ]
    message = findings(result(rows, schedule=(*rates,)))
    assert (
        message[1]
        == "schedules: a is the fastest in 2 of 3 cases; its rate is 2.5 times c's, 0.909 to 3"
        " times b's"
    )
    even = [
        row(n, rate, schedule=name)
        for name, of in (("a", (11, 10)), ("b", (10, 30)))
        for n, rate in enumerate(of, 1)
    ]
    message = findings(result(even, schedule=("a", "b")))
    assert (
        message[1]
        == "schedules: b is the fastest in 1 of 2 cases; its rate is 0.909 to 3 times a's"
    )
    alone = [row(1, 10.0 * n, schedule=name) for n, name in enumerate("abcdef", 1)]
    message = findings(result(alone, schedule=(*"abcdef",)))
    assert (
        message[1]
        == "schedules: f is the fastest; its rate is 1.2 times e's, 1.5 times d's, 2 times c's, 3"
        " times b's"
    )
    assert not any(of.startswith("schedules") for of in findings(line([1, 2])))


def test_less_is_no_knee() -> None:
    rows = [row(2, 100.0 / steps, time_steps=steps) for steps in (1, 2, 3)]
    assert not any(of.startswith("knee") for of in findings(result(rows, time_steps=(1, 2, 3))))
    assert result(rows, time_steps=(1, 2, 3)).series[0].knee is None  # nor in pictures and JSON
    rows = [row(2, rate, batch=n) for n, rate in ((1, 1.0), (2, 2.0), (3, 2.0))]
    assert any(
        of.startswith("knee: batch = 2, 2 images/s")
        for of in findings(result(rows, batch=(1, 2, 3)))
    )


def test_samples_that_are_no_images() -> None:
    of_text = dataclasses.replace(line([10, 20, 25]), noun="sample")
    assert findings(of_text)[0].startswith("best: 3 boards: 25 samples/s; ")
    assert "images" not in "\n".join(
        [*findings(of_text), *table_of(of_text, of_text.rows)[0], repr(of_text)]
    )
    assert repr(of_text) == "<Sweep of 3 points, best 25.0 samples/s on 3 boards>"


def test_the_table() -> None:
    rows = [
        row(1, 1234.5, batch=8),
        row(2, None, batch=8),
        row(3, 0.12345, batch=8, fits=False, missing_mib=2.0),
    ]
    rows.append(row(4, 5.0, batch=8, off_chip_mib=1.5))
    heads, cells = table_of(result(rows, batch=(8, 16)), rows)
    assert heads == [
        "boards",
        "batch",
        "images/s",
        "eff. %",
        "off chip\nMiB",
        "missing\nMiB",
        "limited by",
    ]
    assert cells == [
        ["1", "8", "1,234", "50.0", "-", "-", "FP of conv1 on device 0"],
        ["2", "8", "-", "-", "-", "-", "`devices`: too many"],
        ["3", "8", "0.1235", "50.0", "-", "2.0", "FP of conv1 on device 0"],
        ["4", "8", "5", "50.0", "1.5", "-", "FP of conv1 on device 0"],
    ]


def test_rows_for_a_terminal() -> None:
    few = line([*range(10, 30)])
    assert chosen_rows(few, 20) == few.rows
    many = line([*range(100, 150), *[150] * 50])
    chosen = [each["devices"] for each in chosen_rows(many, 12)]
    assert len(chosen) <= 12
    assert chosen == sorted(set(chosen))
    knee = many.series[0].knee
    assert knee is not None
    assert {1, 51, 100, knee["devices"]} <= {*chosen}


def test_rows_of_many_series() -> None:
    rows = [row(n, 10.0 * n * batch, batch=batch) for batch in range(1, 11) for n in (1, 2, 3, 4)]
    chosen = chosen_rows(result(rows, batch=range(1, 11)), 12)
    assert [(each["batch"], each["devices"]) for each in chosen] == [
        (batch, 4) for batch in range(10, 0, -1)
    ]
