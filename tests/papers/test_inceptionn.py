"""INCEPTIONN's claims: all are there, the document has current values, and measures notice what is
wrong.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from emuchain.comm import Interconnect, NicEngines
from emuchain.comm.exchange import BINS, histogram
from emuchain.emulator.common import InputError, Mean
from emuchain.kernels.inceptionn import compress, width_counts
from emuchain.papers import (
    Class,
    Result,
    Verdict,
    draw_pictures,
    judge,
    load_claims,
    tables,
    validate,
)
from emuchain.papers.claim import Expect, NoEvidence
from emuchain.papers.commands import validate as command
from emuchain.papers.inceptionn import codec, evidence, nic, ring, runs, times, training
from emuchain.papers.inceptionn.runs import Loss, decide
from emuchain.papers.tables import by_class, markdown_tables

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = load_claims("inceptionn")
OF_RUNS = [
    *(name for name, claim in CLAIMS.items() if (claim.measure or "").startswith("training.")),
]
"""Rows of training runs."""


def result_of(name: str) -> Result:
    [result] = validate("inceptionn", [CLAIMS[f"inceptionn-{name}"]])
    return result


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Of all claims."""
    return list(validate("inceptionn", CLAIMS.values()))


def test_the_document_has_current_values(results: list[Result]) -> None:
    lines = (ROOT / "docs" / "validation-inceptionn.md").read_text(encoding="utf-8").splitlines()
    rounding = {
        "inceptionn-eq-sgd",
        "inceptionn-alg1-update",
        "inceptionn-eq-dist-sgd",
        "inceptionn-ring-bitwise",
    }
    rows = [
        row
        for row in markdown_tables(results)
        if not row.startswith(tuple(f"| {name} |" for name in rounding))
    ]
    assert [row for row in rows if row not in lines] == []
    answer = " ".join(
        line.strip()
        for line in lines[lines.index("```text") + 1 : lines.index("## What is not reproduced")]
    )
    said = f"{tables.headline(results)} {tables.others(results)} {tables.missed_line(results)} ```"
    assert answer.startswith(said), "the headline comes first"
    found = by_class(results)[Class.PREDICTION]
    tour = " ".join((ROOT / "docs" / "tour.md").read_text(encoding="utf-8").split())
    assert f"of INCEPTIONN's {found.confirmed} of {found.run} (" in tour


def test_points_are_in_the_unit_of_the_value() -> None:
    expect = Expect(near=[92.0, 6.5, 1.5, 0.0], points=5)
    assert judge(expect, [96.9, 2.0, 1.0, 0.1]) == (Verdict.WITHIN, None)
    assert judge(expect, [97.1, 2.0, 0.9, 0.0])[0] is Verdict.OFF
    assert judge(expect, [92.0])[0] is Verdict.OFF


def test_table_2_by_hand() -> None:
    """AlexNet: 4 gradients in and 3 rounds of weights, of 60,965,224 values in packets of 1,448
    bytes.
    """
    packets = math.ceil(4 * 60_965_224 / 1448)
    one_s = (4 * 60_965_224 + 90 * packets) * 8e-10
    found = evidence.times("alexnet", "WA")
    assert found.communicate == pytest.approx(100 * (7 * one_s + 4 * 1e-4), rel=1e-9)
    assert found.gradient_sum == pytest.approx(100 * 3 * 4 * 60_965_224 / 8.33e9, rel=1e-4)
    assert found.node == pytest.approx(3.13 + 16.22 + 5.68 + 13.67)


def test_a_ring_that_blocks_takes_three_sevenths() -> None:
    for name in ("alexnet", "resnet50", "vgg16"):
        less = evidence.less_percent(
            evidence.times(name, "INC").communicate, evidence.times(name, "WA").communicate
        )
        assert less == pytest.approx(100 * 4 / 7, abs=0.2)


def test_totals_are_judged_as_all_figures_are() -> None:
    """10 % of the published reduction, as that of communication."""
    found = {name: result_of(f"fig12-{name}-total").verdict for name in evidence.NETWORKS}
    assert [name for name, verdict in found.items() if verdict.is_good] == ["resnet50"]


Patch = Callable[[pytest.MonkeyPatch], None]


def with_interconnect(**changes: Any) -> Patch:
    def change(patch: pytest.MonkeyPatch) -> None:
        interconnect = dataclasses.replace(evidence.cluster_network(), **changes)
        evidence.times.forget()
        for module in (evidence, times):
            patch.setattr(module, "cluster_network", lambda: interconnect)

    return change


def other_blocks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ring, "sent_block", lambda worker, step, workers: (worker - step + 2) % workers)


def as_printed(patch: pytest.MonkeyPatch) -> None:
    """Line 17 of Algorithm 1, off by one."""
    patch.setattr(
        ring,
        "sent_block",
        lambda worker, step, workers: (worker - step + 1 + (step >= workers)) % workers,
    )


def lossy(patch: pytest.MonkeyPatch) -> None:
    """Decompressed values that are too small."""
    through = codec._through
    patch.setattr(
        codec, "_through", lambda values, coding: np.float32(1 - 2.0**-9) * through(values, coding)
    )


def overlapping(patch: pytest.MonkeyPatch) -> None:
    """Vectors that overlap."""
    joined = nic.hardware.joined
    patch.setattr(
        nic.hardware,
        "joined",
        lambda low, high: joined(dataclasses.replace(low, length=low.length // 2), high),
    )


@pytest.fixture(autouse=True)
def forget() -> Any:
    """Drops times that were computed with another interconnect."""
    yield
    evidence.times.forget()


@pytest.mark.parametrize(
    ("name", "patch"),
    [
        ("fig12-alexnet-comm", with_interconnect(blocking=False)),
        ("fig12-incc-inc", with_interconnect(packet_stack_ps=0)),
        ("fig12-wac-comm", with_interconnect(packet_stack_ps=0)),
        (
            "ratio-not-time",
            with_interconnect(packet_stack_ps=0, engines=NicEngines(clock_period_ps=1)),
        ),
        ("t2-resnet50-communicate-s", with_interconnect(packet_overhead_bytes=400)),
        ("t2-resnet50-grad-sum-s", with_interconnect(sum_ps_per_kbyte=200_000)),
        ("eq-first-term", with_interconnect(latency_ps=10**10)),
        ("fig15-inc-flat", with_interconnect(latency_ps=10**10)),
        ("ring-allreduce", as_printed),
        ("ring-bitwise", as_printed),
        ("ring-ex-step4", as_printed),
        ("ring-p1-send", other_blocks),
        ("ring-ex-after-p1", other_blocks),
        ("error-bound-holds", lossy),
        ("mode-mid", lossy),
        ("mode-none", lossy),
        ("shifter", overlapping),
        ("alignment", overlapping),
    ],
)
def test_measures_notice(name: str, patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    assert result_of(name).verdict.is_good
    patch(monkeypatch)
    assert not result_of(name).verdict.is_good


def test_the_ratio_does_not_matter_where_the_stack_is_slower() -> None:
    interconnect = evidence.cluster_network()
    at_5, at_12 = (
        evidence.exchange_ps(interconnect, "INC+C", 10**6, ratio=ratio) for ratio in (5, 12)
    )
    assert at_5 == at_12
    assert evidence.exchange_ps(interconnect, "INC+C", 10**6, ratio=1.5) > at_5


def runs_by_hand(seeds: int = 2) -> list[dict[str, Any]]:
    """Runs of all networks: exact without codec, lossy otherwise; each seed is 0.2 points better
    than the last one.
    """
    made = []
    for name, seed in itertools.product(training.STAND_INS.values(), range(seeds)):
        base, more = {"network": name, "seed": seed, "epochs": 2}, 0.002 * seed
        histograms = [[[0] * (BINS - 1) + [0], [1] * (BINS - 1) + [0]]] * 3
        made.append({**base, "test_accuracy": [0.5, 0.9 + more], "histograms": histograms})
        for exponent, zeros in ((-10, 0.90), (-8, 0.94), (-6, 0.98)):
            widths = [[zeros, 1 - zeros, 0.0, 0.0]] * 2
            for rule in ("inceptionn", "inceptionn-range"):
                of = {**base, "gradients": f"{rule}:{exponent}", "widths": widths}
                made.append(
                    {**of, "test_accuracy": [0.5, 0.888 + more, 0.896 + more, 0.898 + more]}
                )
        for bits in training.TRUNCATED:
            lost = 0.0 if name == "hdc" else 0.2
            made.append(
                {**base, "gradients": f"truncate:{bits}", "test_accuracy": [0.5, 0.9 - lost + more]}
            )
            made.append({**base, "weights": f"truncate:{bits}", "test_accuracy": [0.2]})
    return made


@pytest.fixture
def some_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps({"runs": runs_by_hand()}))
    found = runs.read_runs(path)
    monkeypatch.setattr(runs, "all_runs", lambda: found)


@pytest.mark.usefixtures("some_runs")
def test_measures_of_runs_by_hand() -> None:
    found = training.loss("alexnet", "inceptionn:-10")
    assert (found.points, found.error) == (pytest.approx(1.2), pytest.approx(0.1))
    assert training.ratio_over_seeds("hdc", -10) == Mean(
        pytest.approx(training.ratio("hdc", -10)), 0
    )
    assert training.extra_epochs("hdc") == 1
    assert training.ratio("hdc", -10) == pytest.approx(32 / (0.9 * 2 + 0.1 * 10))
    assert training.plain_widths("hdc", -10) == pytest.approx([3100 / 41, 500 / 41, 500 / 41, 0])
    assert training.plain_widths("hdc", -7) == pytest.approx([3400 / 41, 400 / 41, 300 / 41, 0])
    assert training.loss("hdc", weights="truncate:24").points == pytest.approx(
        80.1
    )  # it diverged: chance is left
    assert result_of("fig14-trunc-hdc-only").ours == ["hdc"]
    assert result_of("fig5-range").ours == [0, 0, 0]
    assert result_of("fig14-ratio-bound").verdict is Verdict.HOLDS
    assert result_of("t3-hdc-eb8").verdict is Verdict.WITHIN
    assert result_of("t3-alexnet-eb10").verdict is Verdict.OFF
    assert result_of("fig14-resnet-drop").ours == pytest.approx(20)
    assert all(result_of(name.removeprefix("inceptionn-")).is_run for name in OF_RUNS)


def test_standard_errors_by_hand() -> None:
    assert Mean.over([1.0, 2.0, 3.0]) == Mean(2.0, pytest.approx(1 / 3**0.5))
    assert Mean.over([2.0]) == Mean(2.0, math.inf)
    assert Loss(1.0, 0.9).counts
    assert not Loss(1.0, 1.1).counts
    assert [Loss(points, 0.5).is_surely(2) for points in (1.4, 1.6, 2.4, 2.6)] == [
        True,
        None,
        None,
        False,
    ]
    assert Loss(-9.0, math.inf).is_surely(2) is None
    assert (str(Loss(-0.01, 0.5)), str(Loss(1.0, math.inf))) == ("0.0 ± 0.5", "1.0 (one seed)")


def test_noise_decides_nothing() -> None:
    sure, open_, wrong = Loss(1.0, 0.5), Loss(1.8, 0.5), Loss(3.0, 0.5)
    decide({"a": sure}, 2)
    decide(
        {"a": sure, "b": wrong, "c": open_}, 2, ["d is missing"]
    )  # one that loses more is enough
    with pytest.raises(NoEvidence, match="within the seeds' standard errors"):
        decide({"a": sure, "b": open_}, 2)
    with pytest.raises(NoEvidence, match="d is missing"):
        decide({"a": sure}, 2, ["d is missing"])


OF_ACCURACY = (
    "fig4-trunc-g-vs-w",
    "fig4-w-complex",
    "acc-extra-epochs",
    "acc-drop-without",
    "fig14-acc-2-6",
)


@pytest.mark.parametrize("name", [*OF_ACCURACY, "fig14-trunc-hdc-only"])
def test_one_seed_is_no_evidence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [runs.Run.model_validate(run) for run in runs_by_hand(seeds=1)]
    monkeypatch.setattr(runs, "all_runs", lambda: found)
    assert result_of(name).verdict is Verdict.NOT_RUN
    assert "one seed" in result_of(name).how


def test_runs_that_do_not_learn_are_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice chance is not enough, nor is an epoch on the way there."""
    made = [runs.Run.model_validate(run) for run in runs_by_hand()]
    idle = [
        run.model_copy(update={"test_accuracy": [0.9, 0.9, 0.9, 0.2]})
        if run.network == "vgg11-cifar"
        else run
        for run in made
    ]
    monkeypatch.setattr(runs, "all_runs", lambda: idle)
    assert result_of("t3-vgg16-eb6").how.startswith(
        "vgg11-cifar did not learn with inceptionn-range:-6"
    )
    largest = result_of("fig14-inc-max")
    assert largest.is_run
    assert "vgg11-cifar did not learn" in largest.how
    assert result_of("t3-hdc-eb6").is_run


@pytest.mark.parametrize(("third", "more"), [(0.93, 0), (0.92, 1), (0.90, 2), (0.87, 3)])
def test_extra_epochs_are_those_of_the_mean_over_seeds(
    third: float, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mean accuracy must reach 0.895; one run may make up for another."""
    lossy = [
        [0.5, 0.880, 0.890, 0.90],
        [0.5, 0.875, 0.885, 0.90],
        [0.5, third, third - 0.01, third - 0.01],
    ]
    plain = [
        runs.Run(network="hdc", seed=seed, epochs=2, test_accuracy=[0.5, 0.9]) for seed in range(3)
    ]
    codec = [
        runs.Run(
            network="hdc", gradients="inceptionn:-10", seed=seed, epochs=2, test_accuracy=accuracy
        )
        for seed, accuracy in enumerate(lossy)
    ]
    monkeypatch.setattr(runs, "all_runs", lambda: plain + codec)
    assert training.extra_epochs("hdc") == more


@pytest.mark.parametrize("exponent", [-10, -7, -6])
def test_histograms_give_the_widths_that_the_codec_would_make(
    exponent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.Generator(np.random.Philox(key=3))
    values = (random.standard_normal(5000) * 10.0 ** random.uniform(-6, 1, 5000)).astype(np.float32)
    run = runs.Run(
        network="hdc",
        seed=1,
        epochs=1,
        test_accuracy=[0.9],
        histograms=[histogram(values).tolist()],
    )
    monkeypatch.setattr(runs, "all_runs", lambda: [run])
    counts = width_counts(compress(values, exponent, "range"), values.size)
    assert min(counts) > 0
    assert training.plain_widths("hdc", exponent) == pytest.approx(
        [100 * count / values.size for count in counts]
    )


def test_without_runs_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "all_runs", lambda: [])
    for name in OF_RUNS:
        found = result_of(name.removeprefix("inceptionn-"))
        assert found.verdict is Verdict.NOT_RUN
        assert "No runs of" in found.how


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not a file of runs"),
        ("[]", "must be an object"),
        ('{"runs": [{"network": "hdc"}]}', "is missing"),
        (
            '{"runs": [{"network": "hdc", "seed": 1, "epochs": 1, "test_accuracy": [2]}]}',
            "= 2: should be",
        ),
        ('{"runs": [], "more": 1}', "more"),
    ],
)
def test_bad_runs(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str],
    tmp_path: Path,
    text: str,
    message: str,
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(str(path))) as error:
        runs.read_runs(path)
    assert message in one_line(error)


def test_the_command() -> None:
    printed = CliRunner().invoke(command, ["inceptionn", "--only", "fig12-alexnet", "--json"])
    assert [row["verdict"] for row in json.loads(printed.output)] == ["off", "within"]
    printed = CliRunner().invoke(command, ["inceptionn", "--only", "t1-lr-hdc"])
    assert "not run: inceptionn-t1-lr-hdc" in printed.output


@pytest.mark.usefixtures("some_runs")
def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = {path.name for path in draw_pictures("inceptionn", tmp_path / "figures", None)}
    assert drawn >= {"fig5.png", "fig12.png", "fig13.png", "fig14a.png", "fig14b.png", "fig15.png"}
    assert all((tmp_path / "figures" / name).stat().st_size > 1000 for name in drawn)
    with pytest.raises(InputError, match="cannot be written: File exists"):
        (tmp_path / "taken").write_text("")
        draw_pictures("inceptionn", tmp_path / "taken", None)


def test_an_interconnect_of_a_byte_a_picosecond() -> None:
    """Fig. 1's hierarchies are measured with it."""
    assert Interconnect(8_000_000, 0).transfer_ps(12_345) == 12_345
