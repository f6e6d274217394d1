"""BaPipe's claims: all are there, the document has current values, and measures agree with what is
done by hand.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
from pathlib import Path

import pytest
from click.testing import CliRunner

from emuchain.emulator.mapping import cut_layers
from emuchain.emulator.schedule import warm_ups
from emuchain.papers import (
    Class,
    Result,
    constants_of,
    draw_pictures,
    load_claims,
    tables,
    validate,
)
from emuchain.papers.bapipe import explorer, gpus, largest, layers, schedules, speedups
from emuchain.papers.bapipe.largest import FEATURE_MBYTES, PARAMETER_BYTES
from emuchain.papers.commands import validate as command
from emuchain.papers.constants import in_force, in_use
from emuchain.papers.tables import by_class, markdown_tables

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = load_claims("bapipe")
OF_CASES = [
    *(name for name, claim in CLAIMS.items() if (claim.measure or "").startswith("schedules.")),
]
"""Rows that count cases of Tables I and II."""


@pytest.fixture(scope="module")
def quick() -> list[Result]:
    """All claims; of Tables I and II with fewer micro-batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "MICRO_BATCHES", (1, 4, 16))
        return list(validate("bapipe", CLAIMS.values()))


def result_of(name: str) -> Result:
    [result] = validate("bapipe", [CLAIMS[f"bapipe-{name}"]])
    return result


def test_the_document_has_current_values(quick: list[Result]) -> None:
    lines = (ROOT / "docs" / "validation-bapipe.md").read_text(encoding="utf-8").splitlines()
    rows = [
        row
        for row in markdown_tables(quick)
        if not row.startswith(tuple(f"| {name} |" for name in OF_CASES))
    ]
    assert [row for row in rows if row not in lines] == []
    text = " ".join(" ".join(lines).split())
    assert f"{tables.headline(quick)} {tables.others(quick)}" in text[: text.index("## ")], (
        "the answer comes first"
    )
    assert all(re.search(rf"\b{name}\b", text) for name in CLAIMS)
    found = by_class(quick)[Class.PREDICTION]
    tour = " ".join((ROOT / "docs" / "tour.md").read_text(encoding="utf-8").split())
    assert f"of BaPipe's {found.confirmed} of {found.run} (" in tour


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", OF_CASES)
def test_the_document_has_all_cases_of_tables_1_and_2(name: str) -> None:
    lines = (ROOT / "docs" / "validation-bapipe.md").read_text(encoding="utf-8").splitlines()
    rows = markdown_tables(list(validate("bapipe", [CLAIMS[name]])))
    assert [row for row in rows[: rows.index("")] if row not in lines] == []


def test_tolerances_are_those_that_were_set() -> None:
    """5 % for GPipe's models and Table VI, 20 % for BaPipe's, 0.1 % for parameters, else 10 %."""
    for name, claim in CLAIMS.items():
        own = name.removeprefix("bapipe-")
        if (
            claim.expect is None
            or "near" not in claim.expect.said
            or claim.row_class in (Class.ECHO, Class.STRUCTURE)
        ):
            continue
        if own.startswith(("t5-gpipe-2", "t5-gpipe-4", "t5-gpipe-8")) or own.startswith("t6-"):
            assert claim.expect.tolerance == 0.05, name
        elif own in (
            "t5-bapipe-2",
            "t5-bapipe-4",
            "t5-bapipe-8",
            "abs-memory",
            "t5-vs-dp",
            "t5-vs-pipe",
        ):
            assert claim.expect.tolerance == 0.20, name
        else:
            assert claim.expect.tolerance <= 0.10, name


def test_guesses_are_the_mean_of_the_other_rows() -> None:
    table = {
        n: c
        for n, c in CLAIMS.items()
        if re.fullmatch(r"bapipe-t3-(vgg16|resnet50|gnmt8)-[48]-[a-z0-9-]+", n)
    }
    for method in ("pipedream", "gpipe", "bapipe"):
        rows = {name: claim for name, claim in table.items() if name.split("-")[4] == method}
        assert len(rows) in (6, 8)
        for name, claim in rows.items():
            others = [other.value for key, other in rows.items() if key != name]
            assert claim.null == pytest.approx(statistics.mean(others), abs=0.001), name


def test_gnmt_by_hand() -> None:
    """LSTM layers of 1,024 with two biases, the first in both directions, attention, three tables
    of 32,320 words.
    """
    encoder, second = 4 * 1024 * (2048 + 2), 4 * 1024 * (3072 + 2)
    attention = 2 * 1024 * 1024 + 2 * 1024 + 1
    words = 3 * 32320 * 1024 + 32320
    assert layers.parameters(8) == 5 * encoder + 4 * second + attention + words == 193_766_977
    assert layers.parameters(74) - layers.parameters(72) == encoder + second
    assert len(layers.gnmt(42)) == 42 + 3


def test_a_model_of_one_gpu_by_hand() -> None:
    """32 layers fill 16 GiB to the last megabytes; the first layer counts twice."""
    used = in_use(PARAMETER_BYTES) * layers.parameters(32) + 33 * in_use(FEATURE_MBYTES) * 1e6
    assert 0.999 < used / 2**34 <= 1
    assert largest.largest("dp", 1) == 32
    with in_force({FEATURE_MBYTES.key: in_use(FEATURE_MBYTES) * 1.01}):
        assert largest.largest("dp", 1) == 30


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_features_that_schedules_keep(stages: int) -> None:
    assert largest.kept_batches("gpipe", stages) == (2 * stages,) * stages
    assert largest.kept_batches("1f1b-sno", stages) == warm_ups("N-i+1", stages, 2 * stages)


@pytest.mark.parametrize("keeps", [(2, 2, 1), (3, 2, 1), (6, 6, 6)])
def test_a_cut_that_fits_is_found_if_there_is_one(keeps: tuple[int, int, int]) -> None:
    """Against all cuts of a model that is just too large, and one that fits."""

    def any_cut(count: int) -> bool:
        chain = layers.gnmt(count)
        return any(
            all(
                sum(largest.layer_bytes(layer, kept) for layer in chain[begin:end])
                <= gpus.MEMORY_BYTES
                for kept, (begin, end) in zip(
                    keeps, itertools.pairwise([0, *ends, len(chain)]), strict=True
                )
            )
            for ends in itertools.combinations(range(1, len(chain)), 2)
        )

    found = next(count for count in range(150, 4, -2) if largest.fits(layers.gnmt(count), keeps))
    assert any_cut(found)
    assert not any_cut(found + 2)


def test_the_bound_that_dp_implies() -> None:
    """R from 32 (64 + R) = 0.62 * 64 (32 + R): 101; then 4 (64 + R) / (4 * 64) = 2.58, and 32/35 of
    it 2.36.
    """
    samples = gpus.all_reduce_samples(0.62)
    assert samples == pytest.approx(101.33, abs=0.01)
    assert 32 * (64 + samples) == pytest.approx(0.62 * 64 * (32 + samples))
    assert speedups.bound(4) == pytest.approx((64 + 101.3) / 64, rel=1e-4)
    assert round(speedups.bound(4, 32), 2) == 2.36
    published = CLAIMS["bapipe-t3-vgg16-4-bapipe"].value
    assert (
        published > speedups.bound(4) > speedups.bound(4, 32) >= speedups.bapipe_speedup("vgg16", 4)
    )


def test_no_speedup_exceeds_the_bound() -> None:
    for (network, devices), row in speedups.BAPIPE.items():
        ideal = (
            devices
            / gpus.work_ps(gpus.layers_of(network))
            / gpus.dp_samples_per_ps(network, devices)
        )
        most = ideal * row.micro_batches / (row.micro_batches + devices - 1)
        assert speedups.pipeline_speedup(network, devices, row) <= most * (1 + 1e-6)
        assert speedups.pipedream_speedup(network, devices) <= ideal * (1 + 1e-6)


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_no_straight_stages_are_faster(devices: int) -> None:
    times = [5, 3, 8, 1, 9, 2, 4]

    def slowest(ends: tuple[int, ...]) -> int:
        return max(sum(times[begin:end]) for begin, end in itertools.pairwise((0, *ends)))

    tried = [
        (*inner, len(times)) for inner in itertools.combinations(range(1, len(times)), devices - 1)
    ]
    found = layers.straight_stages(len(times), devices, lambda begin, end: sum(times[begin:end]))
    assert found in tried and slowest(found) == min(map(slowest, tried))


def test_the_explorer_and_the_fastest_cut_agree() -> None:
    """Where links do not limit and everything fits, BaPipe's stages are no slower than those of any
    cut.
    """
    layers = gpus.layers_of("gnmt8")
    row = speedups.BAPIPE["gnmt8", 4]
    slowest = max(gpus.work_ps(part, row.batch) for part in gpus.parts("gnmt8", 4, *row))
    best = cut_layers(
        len(layers), 4, lambda _, begin, end: gpus.work_ps(layers[begin:end], row.batch)
    )
    assert slowest == pytest.approx(best.slowest, rel=1e-6)


def test_tables_1_and_2_notice_another_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MICRO_BATCHES", (8,))
    names = [f"{name}-{row}" for row in ("time", "features") for name in schedules.SCHEDULES]
    assert all(result_of(name).verdict.is_good for name in names)
    run = schedules.run
    other = {"1f1b-as": "gpipe", "fbp-as": "1f1b-as", "1f1b-sno": "1f1b-so", "1f1b-so": "1f1b-sno"}

    def swapped(schedule: str, case: schedules.Case, machine: object = None) -> object:
        found = run(schedule, case, machine)  # type: ignore[arg-type]
        return found if schedule.endswith("-as") and case.n == 1 else run(other[schedule], case)

    monkeypatch.setattr(schedules, "run", swapped)
    good = [name for name in names if result_of(name).verdict.is_good]
    assert good == ["fbp-as-time"], "it takes as long as 1F1B-AS, which stands for it here"


def test_figure_3_by_hand() -> None:
    """3 accelerators, 8 micro-batches, F = 1, B = 2: (8 + 2) * 3."""
    for name in schedules.ASYNCHRONOUS:
        assert schedules.run(name, schedules.FIG_3).makespan_ps == 300


def test_table_6_without_limits_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where DDR is no limit, DP has no bubble, and the pipeline has one of 3 in 131."""
    monkeypatch.setattr(explorer, "DDR_GBYTES_PER_S", 100_000)
    for function in (explorer.boards_of, explorer._stages, explorer.pipeline, explorer.dp):
        function.forget()
    assert explorer.speedup("4vcu129") == pytest.approx(128 / 131, rel=0.01)
    for function in (explorer.boards_of, explorer._stages, explorer.pipeline, explorer.dp):
        function.forget()


def test_constants_have_their_defaults_among_their_values() -> None:
    for constant in constants_of("bapipe"):
        assert constant.default in constant.values == tuple(sorted(set(constant.values)))
        assert in_use(constant) == constant.default
        with in_force({constant.key: constant.values[0]}):
            assert in_use(constant) == constant.values[0]


def test_on_the_screen_and_as_json() -> None:
    printed = CliRunner().invoke(command, ["bapipe", "--only", "t5-bapipe"])
    assert printed.exit_code == 0
    assert printed.stdout.startswith(
        "predictions: 2 of 2 confirmed (2 of 2 figures are within tolerance)\n"
    )
    rows = json.loads(
        CliRunner().invoke(command, ["bapipe", "--only", "t5-gpipe-4", "--json"]).stdout
    )
    [row] = rows
    assert row["ours"][0] == 60
    assert row["class"] == "fitted"


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = draw_pictures("bapipe", tmp_path / "new", None)
    names = "fig2 fig3a fig3b fig4a fig4b table3 table4 table5 table6".split()
    assert [path.name for path in drawn] == [f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
    assert len({path.read_bytes() for path in drawn}) == len(names)
