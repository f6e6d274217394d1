"""Classes of FPDeep's rows: predictions notice planted faults and do not depend on fitted
constants; fitted rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from emuchain.emulator.cluster import Cluster, load_cluster
from emuchain.emulator.studies import methods as parallelism
from emuchain.papers import Class, Result, constants, load_claims, validate
from emuchain.papers.fpdeep import evidence, methods, runs, scaling
from emuchain.papers.fpdeep.runs import FILE, read_runs

pytestmark = pytest.mark.sampled(4)

CLAIMS = load_claims("fpdeep")
Fault = Callable[[pytest.MonkeyPatch], None]


def changed(**keys: float) -> Fault:
    """Other boards or links: keys of --what-if, with `_` for the dot."""
    changes = {key.replace("_", ".", 1): value for key, value in keys.items()}

    def plant(patch: pytest.MonkeyPatch) -> None:
        def faulty(name: str, counted: Mapping[str, object], **more: object) -> Cluster:
            return load_cluster(name, {**counted, **constants.cluster_changes(**more), **changes})

        patch.setattr(evidence, "cluster_of", faulty)

    return plant


def few_parameters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parallelism.Workload, "parameter_bytes", 1000)


def many_parameters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parallelism.Workload, "parameter_bytes", 10_000_000_000)


def no_maps_between_models(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(parallelism, "input_bytes", lambda layer: 1)
    patch.setattr(parallelism, "output_bytes", lambda layer: 1)


def other_layers(patch: pytest.MonkeyPatch) -> None:
    whole = methods.section
    patch.setattr(methods, "section", lambda network, *_: whole(network, "conv2_1", "conv4_3"))


def one_layer(patch: pytest.MonkeyPatch) -> None:
    whole = methods.section
    patch.setattr(methods, "section", lambda network, *_: whole(network, "conv4_2", "conv4_2"))
    patch.setattr(methods, "PORTS", methods.Ports(100, 13.1))


def vgg16_for_vgg19(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(evidence.ZOO, "vgg19", "vgg16")


def two_points_behind_sync(patch: pytest.MonkeyPatch) -> None:
    def behind(run: runs.Run) -> runs.Run:
        accuracies = [accuracy - 0.02 for accuracy in run.test_accuracy]
        return (
            run.model_copy(update={"test_accuracy": accuracies})
            if run.schedule == "fpdeep"
            else run
        )

    known = list(map(behind, read_runs(FILE)))
    patch.setattr(runs, "all_runs", lambda: known)


FAULTS: Mapping[Fault, str] = {
    changed(
        board_on_chip_memory_kbit=10_000_000, board_bram=300_000
    ): "conv-onchip-only bram-fpgas bram-util-15 eq10-bram alexnet-no-balancing",
    changed(board_off_chip_gbytes_per_s=300): "excess-weights-neighbour",
    changed(link_bandwidth_gbps=10_000): (
        "t5-dp-flop-util t5-lp-flop-util t5-mp-flop-util t5-fpdeep-flop-util order-flop-util"
        " param-transfer-no-tighten"
    ),
    changed(board_dsp=600): "idle-under-5 idle-over-30",
    changed(link_latency_ns=1e6): "fine-storage-less unaligned-samples",
    few_parameters: (
        "t5-dp-comm-footprint t5-lp-comm-footprint order-footprint"
        " t5-dp-comm-bandwidth t5-lp-comm-bandwidth order-bandwidth layer-order-link"
    ),
    many_parameters: "t5-fpdeep-comm-footprint t5-fpdeep-comm-bandwidth",
    no_maps_between_models: "t5-mp-comm-footprint t5-mp-comm-bandwidth",
    other_layers: "fig9-2d-degree fig9-2d-ports fig10-1d-better fig10-gap-grows",
    one_layer: "fig10-2d-at-4",
    vgg16_for_vgg19: "bw-vgg16-vgg19",
    two_points_behind_sync: "unaligned-convergence",
}
"""A fault, and the predictions that must notice it."""

FEWER_SIZES = (5, 35, 70)
"""For idle stages."""


def run_rows(row_class: Class) -> list[str]:
    return [name for name, claim in CLAIMS.items() if claim.expect and claim.row_class is row_class]


def measured(names: list[str]) -> dict[str, Result]:
    """Measure rows afresh."""
    forget()
    return {
        result.claim.id: result for result in validate("fpdeep", [CLAIMS[name] for name in names])
    }


def forget() -> None:
    for module in (evidence, methods):
        for function in vars(module).values():
            if isinstance(function, constants.kept):
                function.forget()


@pytest.fixture(autouse=True)
def _cached_no_longer() -> Iterator[None]:
    yield
    forget()


@pytest.fixture(autouse=True)
def _fewer_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "SIZES", FEWER_SIZES)


def named(rows: str) -> list[str]:
    return [f"fpdeep-{row}" for row in rows.split()]


def test_every_prediction_has_a_planted_fault() -> None:
    planted = [name for rows in FAULTS.values() for name in named(rows)]
    assert sorted(planted) == sorted(run_rows(Class.PREDICTION))


def _case(fault: Fault, rows: str) -> Any:
    marks = [pytest.mark.slow] if rows.startswith(("t5-", "fine-", "idle-")) else []
    return pytest.param(fault, rows, id=rows.split()[0], marks=marks)


@pytest.mark.parametrize(("fault", "rows"), [_case(*each) for each in FAULTS.items()])
def test_predictions_notice_a_fault(
    fault: Fault, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = measured(named(rows))
    fault(monkeypatch)
    broken = measured(named(rows))
    assert [name for name in sound if sound[name].ours == broken[name].ours] == []


CONSTANTS: list[dict[str, Any]] = [
    {"board_dsp_share": 0.80, "board_clock_mhz": 210, "board_power_w": 34},
    {"board_dsp_share": 0.85, "board_clock_mhz": 190, "board_power_w": 29},
]
"""Other values of what was fitted to Table 6."""


@pytest.mark.slow
@pytest.mark.parametrize("fitted", CONSTANTS)
def test_predictions_do_not_hang_on_fitted_constants(
    fitted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = run_rows(Class.PREDICTION)
    before = measured(names)
    changed(**fitted)(monkeypatch)
    after = measured(names)
    assert [name for name in names if before[name].verdict is not after[name].verdict] == []


def test_fitted_rows_hang_on_fitted_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = (
        "fpdeep-linear",
        "fpdeep-abs-linear",
        "fpdeep-intro-linear",
        "fpdeep-epochs",
        "fpdeep-bottleneck",
    )
    names = [name for name in run_rows(Class.FITTED) if not name.startswith(slow)]
    before = measured(names)
    changed(**CONSTANTS[0])(monkeypatch)
    after = measured(names)
    assert len(names) > 15
    assert [name for name in names if before[name].ours == after[name].ours] == []


def test_a_row_that_is_said_twice_has_the_verdict_of_the_other() -> None:
    exempt = (  # a value within tolerance of 83, where the other row wants 83 at least
        "fpdeep-linear-limit-alexnet"
    )
    twice = [
        claim
        for claim in CLAIMS.values()
        if claim.same_as and claim.id != exempt and not _is_place(claim.id)
    ]
    found = measured([*(c.id for c in twice), *(c.same_as for c in twice if c.same_as)])
    assert len(twice) > 3
    assert [
        c.id
        for c in twice
        if found[c.id].verdict.is_good is not found[str(c.same_as)].verdict.is_good
    ] == []


def test_an_order_holds_where_all_its_places_do() -> None:
    places = [claim for claim in CLAIMS.values() if claim.same_as and _is_place(claim.id)]
    orders = {str(claim.same_as) for claim in places}
    found = measured([*(claim.id for claim in places), *orders])
    assert len(orders) == 4 and len(places) == 16
    for order in orders:
        held = [found[claim.id].verdict.is_good for claim in places if claim.same_as == order]
        assert len(held) == 4 and found[order].verdict.is_good is all(held)


def _is_place(name: str) -> bool:
    """Whether a row is a place in an order of Table 5."""
    return name.startswith("fpdeep-t5-")
