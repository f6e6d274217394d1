"""The classes of INCEPTIONN's rows: predictions can come out otherwise, and depend on no fitted
constant.

Guesses (`null`) know no network: they are recomputed here from the published figures of the others.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from emuchain.comm.exchange import time
from emuchain.kernels import inceptionn
from emuchain.papers import Class, Result, freedoms_of, judge, load_claims, validate
from emuchain.papers.constants import Choice, in_force
from emuchain.papers.inceptionn import evidence, nic, runs, times
from emuchain.papers.run import measures

pytestmark = pytest.mark.sampled(4)

CLAIMS = load_claims("inceptionn")
PREDICTIONS = [
    claim for claim in CLAIMS.values() if claim.row_class is Class.PREDICTION and claim.expect
]
Fault = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Drops times that were computed with a fault."""
    yield
    evidence.times.forget()


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """The predictions that are run."""
    return {found.claim.id: found for found in validate("inceptionn", PREDICTIONS) if found.is_run}


def with_interconnect(**changes: Any) -> Fault:
    def fault(patch: pytest.MonkeyPatch) -> None:
        interconnect = dataclasses.replace(evidence.cluster_network(), **changes)
        for module in (evidence, times):
            patch.setattr(module, "cluster_network", lambda: interconnect)

    return fault


def less_bandwidth(patch: pytest.MonkeyPatch) -> None:
    """Beta is a fifth greater."""
    with_interconnect(bandwidth_mbps=evidence.cluster_network().bandwidth_mbps * 10 // 12)(patch)


def whole_gradients(patch: pytest.MonkeyPatch) -> None:
    """The ring sends the whole gradient in each step, not a block."""
    patch.setattr(time, "block_sizes", lambda values, workers: np.full(workers, values))


def one_more_round(patch: pytest.MonkeyPatch) -> None:
    """The aggregator's first round of weights goes out twice."""
    rounds = time.broadcast_rounds
    patch.setattr(time, "broadcast_rounds", lambda nodes: [next(rounds(nodes)), *rounds(nodes)])


def other_rule(patch: pytest.MonkeyPatch) -> None:
    """8 or 16 bits by the range of a value, not by the bound."""
    compress = inceptionn.compress
    patch.setattr(
        nic.inceptionn, "compress", lambda values, exponent: compress(values, exponent, "range")
    )


def other_runs(patch: pytest.MonkeyPatch) -> None:
    """Gradients eight times as large, and accuracies that codecs and truncation cost a tenth of."""

    def changed(run: runs.Run) -> runs.Run:
        lossy = run.gradients != "none" or run.weights != "none"
        return run.model_copy(
            update={
                "widths": [[a / 2, b + a / 2, c / 2, d + c / 2] for a, b, c, d in run.widths],
                "histograms": [
                    [side[-3:] + side[:-3] for side in signs] for signs in run.histograms
                ],
                "test_accuracy": [each * (0.9 if lossy else 1.0) for each in run.test_accuracy],
            }
        )

    found = [changed(run) for run in runs.all_runs()]
    patch.setattr(runs, "all_runs", lambda: found)


def weights_for_gradients(patch: pytest.MonkeyPatch) -> None:
    """Truncated weights and truncated gradients are swapped."""
    found = [
        run.model_copy(update={"gradients": run.weights, "weights": run.gradients})
        for run in runs.all_runs()
    ]
    patch.setattr(runs, "all_runs", lambda: found)


FAULTS: list[Fault] = [
    less_bandwidth,
    whole_gradients,
    one_more_round,
    other_rule,
    other_runs,
    weights_for_gradients,
]


def differs(ours: Any, theirs: Any) -> bool:
    """Whether a measure has changed: figures by more than 1 %, all else at all."""
    if np.shape(ours) != np.shape(theirs) or not np.issubdtype(np.asarray(ours).dtype, np.number):
        return bool(ours != theirs)
    return not np.allclose(ours, theirs, rtol=0.01, atol=0)


def measured(names: Iterable[str], fault: Fault) -> dict[str, Result]:
    evidence.times.forget()
    with pytest.MonkeyPatch.context() as patch:
        fault(patch)
        found = {
            result.claim.id: result
            for result in validate("inceptionn", [CLAIMS[name] for name in names])
        }
    evidence.times.forget()
    return found


def test_a_planted_fault_changes_every_prediction(results: dict[str, Result]) -> None:
    unchanged = set(results)
    for fault in FAULTS:
        faulty = measured(sorted(unchanged), fault)
        unchanged -= {name for name in unchanged if differs(faulty[name].ours, results[name].ours)}
    assert unchanged == set()


@pytest.mark.parametrize("constant", ["latency_ps", "packet_stack_ps", "sum_ps_per_kbyte"])
def test_no_prediction_hangs_on_a_fitted_constant(
    constant: str, results: dict[str, Result]
) -> None:
    """Without it figures stay within 1 %, and no verdict changes."""
    without = measured(results, with_interconnect(**{constant: 0}))
    for name, result in results.items():
        assert without[name].verdict is result.verdict
        if result.claim.expect is not None and "near" in result.claim.expect.said:
            assert not differs(without[name].ours, result.ours), name


TURNED_BY_CHOICES = {"t2-alexnet-communicate-s", "t2-resnet50-communicate-s", "fig12-resnet50-comm"}
TURNED_BY_CHOICES |= {"fig12-alexnet-comm", "t3-alexnet-eb8", "t3-hdc-eb10", "t3-vgg16-eb10"}


def test_a_fitted_row_hangs_on_a_fitted_constant_or_a_choice() -> None:
    """Without a constant it moves by more than 1 %, or to another verdict; or a choice turns it.
    Predictions do not.
    """
    names = [
        claim.id for claim in CLAIMS.values() if claim.row_class is Class.FITTED and claim.expect
    ]
    before = measured(names, lambda patch: None)
    moved, counts = set(), {}
    for constant in ("packet_stack_ps", "latency_ps", "sum_ps_per_kbyte"):
        without = measured(names, with_interconnect(**{constant: 0}))
        of_this = {
            name
            for name in names
            if differs(without[name].ours, before[name].ours)
            or without[name].verdict is not before[name].verdict
        }
        moved |= of_this
        counts[constant] = len(of_this)
    chosen = {name for name in names if name.removeprefix("inceptionn-") in TURNED_BY_CHOICES}
    for choice in (freedom for freedom in freedoms_of("inceptionn") if isinstance(freedom, Choice)):
        with in_force({choice.key: choice.values[-1]}):
            after = measured(names, lambda patch: None)
        moved |= {name for name in chosen if after[name].verdict is not before[name].verdict}
    assert list(counts.values()) == [8, 9, 26], "as docs/validation-inceptionn.md says"
    both_times_move = {
        "inceptionn-ratio-not-time"
    }  # and not their ratio, as the engines are nearly as slow as the stack
    assert set(names) - moved == both_times_move


def test_rows_that_cannot_fail_are_no_predictions() -> None:
    """What is read back, or follows from the format, of whatever is measured."""
    prefixes = (
        "nic-board",
        "freq",
        "tos-value",
        "header-bypass",
        "ieee-split",
        "normal-naive-trunc",
        "net-",
        "t1-",
    )
    prefixes += (
        "fig1-",
        "burst-width",
        "burst-floats",
        "model-size-",
        "ring-",
        "eq-",
        "cb-",
        "db-",
        "tag-",
        "mode",
    )
    for name, claim in CLAIMS.items():
        own = name.removeprefix("inceptionn-")
        if own.startswith(prefixes) or (own.startswith("t2-") and own.endswith("-pct")):
            assert claim.row_class is not Class.PREDICTION, name


def test_rows_that_say_the_same_have_the_same_measure() -> None:
    """Two differ in form alone: blocks that are sent and received, and shares that add up to 100
    %.
    """
    in_form = {
        "ring-p1-send",
        "ring-p2-send",
        "t2-comm-70",
        "fig12-incc-wa",
        "burst-floats",
        "tag-vector",
    }
    in_form |= {"fig14-trunc-max"}
    found = measures("inceptionn")
    for name, claim in CLAIMS.items():
        if claim.same_as and name.removeprefix("inceptionn-") not in in_form:
            first, second = found[claim.same_as], found[name]
            assert first is second or first().ours == second().ours, name


NETWORKS = evidence.NETWORKS


def others(pattern: str, name: str) -> list[Any]:
    """The published figures of the other networks' rows."""
    ids = [f"inceptionn-{pattern.format(other)}" for other in NETWORKS if other != name]
    return [
        CLAIMS[each].value
        for each in ids
        if each in CLAIMS and isinstance(CLAIMS[each].value, (int, float, list))
    ]


SHARES = ["fig12-{}-total", "fig12-{}-comm"]
SHARES += [
    f"t2-{{}}-{step}-pct"
    for step in ("forward", "backward", "gpu-copy", "grad-sum", "communicate", "update", "total")
]


def test_guesses_are_the_mean_of_the_other_networks() -> None:
    for name in NETWORKS:
        for pattern in SHARES:
            claim = CLAIMS.get(f"inceptionn-{pattern.format(name)}")
            if claim is not None:
                assert claim.null == pytest.approx(
                    statistics.mean(others(pattern, name)), abs=0.01
                ), claim.id
        for exponent in (10, 8, 6):
            rows = others(f"t3-{{}}-eb{exponent}", name)
            mean = [statistics.mean(column) for column in zip(*rows, strict=True)]
            assert CLAIMS[f"inceptionn-t3-{name}-eb{exponent}"].null == pytest.approx(
                mean, abs=0.01
            )


def test_guesses_of_seconds_are_those_of_the_other_networks_by_size() -> None:
    for name in NETWORKS:
        for step in ("grad-sum", "communicate", "total"):
            claim = CLAIMS[f"inceptionn-t2-{name}-{step}-s"]
            seconds = others(f"t2-{{}}-{step}-s", name)
            sizes = [evidence.values(other) for other in NETWORKS if other != name]
            each = [found / size for found, size in zip(seconds, sizes, strict=True)]
            assert claim.null == pytest.approx(
                evidence.values(name) * statistics.mean(each), rel=1e-3
            ), claim.id


def test_a_guess_passes_all_of_table_3_at_the_loosest_bound() -> None:
    """So these rows confirm nothing."""
    good = []
    for name in NETWORKS:
        claim = CLAIMS[f"inceptionn-t3-{name}-eb6"]
        assert claim.expect is not None
        good.append(judge(claim.expect, claim.null)[0].is_good)
    assert good == [True] * 4
