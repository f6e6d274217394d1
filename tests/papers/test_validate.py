"""Claims and verdicts; quick measures, which must notice where the emulator is wrong."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import DataPath, Mapping, partition, streams
from emuchain.emulator.network import load_network
from emuchain.kernels import conv
from emuchain.kernels.optimizers import sgd
from emuchain.papers import Claim, Class, Result, Verdict, judge, load_claims, select, validate
from emuchain.papers.claim import Expect
from emuchain.papers.fpdeep import engines, evidence, partitioning, resources, scaling, throughput
from emuchain.papers.tables import by_class, class_rows, headline, markdown_tables

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = load_claims("fpdeep")
SLOW = (
    "abs-linear batch-arbitrary unaligned-samples latency-no linear- intro-linear epochs"
    " partition-poly".split()
)
CHEAP = [
    claim
    for name, claim in CLAIMS.items()
    if claim.expect and not name.removeprefix("fpdeep-").startswith(tuple(SLOW))
]


def result_of(name: str) -> Result:
    [result] = validate("fpdeep", [CLAIMS[f"fpdeep-{name}"]])
    return result


ONE: dict[str, Any] = {
    "id": "x",
    "where": "here",
    "kind": "value",
    "class": "prediction",
    "quantity": "q",
    "value": 1,
}


def test_a_claim_is_either_run_or_not() -> None:
    Claim.model_validate({**ONE, "not_run": "why"})
    for wrong in (
        {},
        {"not_run": "why", "expect": {"near": 1}},
        {"expect": {}},
        {"expect": {"near": 1, "above": 0}},
    ):
        with pytest.raises(ValueError):
            Claim.model_validate({**ONE, **wrong})


@pytest.mark.parametrize(
    ("expect", "good", "bad"),
    [
        ({"near": 10}, [10, 10.9, 9.1, [9.5, 10.5]], [11.1, 8.9, [10, 12], []]),
        ({"near": 10, "tolerance": 0.5}, [14.9], [15.1]),
        ({"near": [1, 2]}, [[1, 2], [1.05, 1.9]], [[1, 2.3], [1], [2, 1], 1]),
        ({"equals": ["a", "b"]}, [["a", "b"]], [["b", "a"], ["a"]]),
        ({"at_least": 3}, [3, [3, 4]], [2.9, [4, 2], []]),
        ({"at_most": 3}, [3, [3, 2]], [3.1, [2, 4]]),
        ({"above": 3}, [3.1], [3, [4, 3]]),
        ({"below": 3}, [2.9], [3, [3, 2]]),
        ({"between": [3, 8]}, [3, 8, [3, 8]], [2.9, 8.1, [5, 9], []]),
    ],
)
def test_verdicts_by_hand(expect: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    wanted = Expect.model_validate(expect)
    assert all(judge(wanted, ours)[0].is_good for ours in good)
    assert not any(judge(wanted, ours)[0].is_good for ours in bad)


@given(st.floats(0.1, 1e6), st.floats(-0.9, 9), st.floats(0.01, 0.5))
def test_deviations(published: float, off_by: float, tolerance: float) -> None:
    verdict, deviation = judge(
        Expect(near=published, tolerance=tolerance), published * (1 + off_by)
    )
    assert deviation == pytest.approx(off_by, abs=1e-9)
    if abs(abs(off_by) - tolerance) > 1e-6:
        assert (verdict is Verdict.WITHIN) == (abs(off_by) < tolerance)


def test_the_largest_deviation_counts() -> None:
    assert judge(Expect(near=1), [1.01, 0.95, 1.04])[1] == pytest.approx(-0.05)
    assert judge(Expect(near=1), [])[1] == math.inf


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """Of all claims with quick measures."""
    return {result.claim.id: result for result in validate("fpdeep", CHEAP)}


def broken(expect: Expect) -> Expect:
    """What a claim would expect, had another value been published."""
    ((key, wanted),) = expect.said.items()
    far = {
        "at_least": math.inf,
        "above": math.inf,
        "at_most": -math.inf,
        "below": -math.inf,
        "between": [-2, -1],
    }
    if key == "near":
        return Expect(near=np.multiply(wanted, 1.6).tolist(), tolerance=expect.tolerance)
    return Expect(**{key: far.get(key, ["something else"])})


def test_other_values_would_not_be_confirmed(results: dict[str, Result]) -> None:
    for result in results.values():
        assert result.claim.expect is not None
        if result.verdict.is_good:
            assert not judge(broken(result.claim.expect), result.ours)[0].is_good, result


def of_arithmetic() -> set[str]:
    """Return the rows whose last digits depend on the machine's sums."""
    return {
        name for name, claim in CLAIMS.items() if (claim.measure or "").startswith("arithmetic.")
    }


def test_the_document_has_all_claims_and_current_values(results: dict[str, Result]) -> None:
    text = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{name}\b", text) for name in CLAIMS)
    rounding = of_arithmetic()
    rows = markdown_tables([result for name, result in results.items() if name not in rounding])
    table = rows[: rows.index("")]
    assert len(table) > 80
    assert [row for row in table if row not in text.splitlines()] == []


@pytest.mark.slow
def test_all_measures_are_in_the_document(results: dict[str, Result]) -> None:
    rounding = {*of_arithmetic(), "fpdeep-partition-poly"}
    dear = validate("fpdeep", [claim for name, claim in CLAIMS.items() if name not in results])
    whole = {**results, **{result.claim.id: result for result in dear}}
    found = [whole[name] for name in CLAIMS]
    text = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    rows = markdown_tables([result for result in found if result.claim.id not in rounding])
    claims, reasons = rows[: rows.index("")], rows[rows.index("", rows.index("") + 1) + 2 :]
    counts = [f"| {' | '.join(row)} |" for row in class_rows(found)]
    assert [
        row for row in [*claims, *counts, headline(found), *reasons] if row not in text.splitlines()
    ] == []
    assert text.index(headline(found)) < text.index("\n## "), "the answer comes first"
    counted = by_class(found)[Class.PREDICTION]
    tour = " ".join((ROOT / "docs" / "tour.md").read_text(encoding="utf-8").split())
    assert f"of FPDeep's predictions {counted.confirmed} of {counted.run} are confirmed" in tour


def test_claims_are_selected_by_prefix() -> None:
    names = [claim.id for claim in select("fpdeep", "t4")]
    assert names == [f"fpdeep-t4-{method}" for method in ("dp", "lp", "mp", "hp")]
    assert select("fpdeep", "fpdeep-t4") == select("fpdeep", "t4")
    assert select("fpdeep") == list(CLAIMS.values())
    for paper, prefix in (("fpdeep", "t4-x"), ("other", "")):
        with pytest.raises(InputError):
            select(paper, prefix)


@pytest.mark.parametrize(("name", "link_gbps"), [("vgg16", 20), ("alexnet-darknet", 30)])
def test_beyond_the_linear_limit_links_are_the_bottleneck(name: str, link_gbps: float) -> None:
    limit = scaling.linear_limit(name, link_gbps)
    assert 2 < limit < 40
    cluster = evidence.vc709(link__bandwidth_gbps=link_gbps)
    for devices in range(2, limit + 2):
        mapping = partition(load_network(name), cluster, devices)
        most = max(
            sum(
                stream.sample_bytes
                for stream in streams(mapping, link)
                if stream.path.is_forward is forward
            )
            for link in range(devices - 1)
            for forward in (True, False)
        )
        assert mapping.balance is not None
        link_is_slower = 8e3 * most / link_gbps > mapping.balance.slowest_ps
        assert link_is_slower == (devices == limit + 1)


Patch = Callable[[pytest.MonkeyPatch], None]


def scaled(module: Any, name: str, factor: float) -> Patch:
    """A function whose results are off by a factor."""
    function = getattr(module, name)
    return lambda patch: patch.setattr(
        module, name, lambda *a, **k: np.float32(factor) * function(*a, **k)
    )


def wrong_update(patch: pytest.MonkeyPatch) -> None:
    update = sgd.update
    patch.setattr(
        sgd, "update", lambda *arrays, count, **keys: update(*arrays, count=count + 1, **keys)
    )


def coarse_alone(patch: pytest.MonkeyPatch) -> None:
    """A mapping that gives one channel of each device to the next."""

    def uneven(name: str, devices: int = evidence.DEVICES) -> Mapping:
        found = evidence.mapping(name, devices)
        first, second, *rest = found.devices
        taken = dataclasses.replace(first[-1], end=first[-1].end - 9)
        given = dataclasses.replace(second[0], begin=second[0].begin - 9)
        return dataclasses.replace(
            found, devices=((*first[:-1], taken), (given, *second[1:]), *rest)
        )

    patch.setattr(partitioning, "mapping", uneven)


def a_channel_twice(patch: pytest.MonkeyPatch) -> None:
    def twice(name: str, devices: int = evidence.DEVICES) -> Mapping:
        found = evidence.mapping(name, devices)
        return dataclasses.replace(found, devices=(*found.devices, found.devices[-1]))

    patch.setattr(partitioning, "mapping", twice)


def other_channels(path: DataPath) -> Patch:
    def change(patch: pytest.MonkeyPatch) -> None:
        links = [
            (
                right,
                tuple(
                    dataclasses.replace(s, channels=s.channels + (s.path is path)) for s in carried
                ),
            )
            for right, carried in engines._shared_links()
        ]
        patch.setattr(engines, "_shared_links", lambda: links)

    return change


def odd_multipliers(patch: pytest.MonkeyPatch) -> None:
    found = [
        (part, dataclasses.replace(e, multipliers=e.multipliers + 1))
        for part, e in engines._engines("fp")
    ]
    patch.setattr(engines, "_engines", lambda *phases: iter(found))


def slow_rows(patch: pytest.MonkeyPatch) -> None:
    found = [
        (part, dataclasses.replace(e, row_ps=2 * e.row_ps)) for part, e in engines._engines("fp")
    ]
    patch.setattr(engines, "_engines", lambda *phases: iter(found))


def shallow_banks(patch: pytest.MonkeyPatch) -> None:
    original = resources.parameter_memory
    patch.setattr(
        resources,
        "parameter_memory",
        lambda *a: dataclasses.replace(
            original(*a), bytes=2 * original(*a).bytes, banks=3 * original(*a).banks
        ),
    )


def fewer_in_flight_first(patch: pytest.MonkeyPatch) -> None:
    planned = evidence.plan("vgg16")
    steady = dataclasses.replace(planned.steady, in_flight=planned.steady.in_flight[::-1])
    patch.setattr(resources, "plan", lambda name: dataclasses.replace(planned, steady=steady))


def no_updates(patch: pytest.MonkeyPatch) -> None:
    planned = evidence.plan("vgg16-cifar", batch=8)
    patch.setattr(throughput, "plan", lambda *_, **__: planned)


@pytest.mark.parametrize(
    ("name", "patch"),
    [
        ("eq1-fp", scaled(conv, "forward", 1.001)),
        ("eq2-eb", scaled(conv, "error", 1.001)),
        ("eq3-pg", scaled(conv, "gradient", 1.001)),
        ("pg-split", scaled(conv, "gradient", 1.001)),
        ("eq4-update", wrong_update),
        ("eq5-variance", coarse_alone),
        ("balance-wbar", coarse_alone),
        ("no-reconfig", a_channel_twice),
        ("datapath-1", other_channels(DataPath.ACTIVATIONS)),
        ("datapath-2", other_channels(DataPath.PARTIAL_ACTIVATIONS)),
        ("datapath-3", other_channels(DataPath.OUTPUT_ERRORS)),
        ("datapath-4", other_channels(DataPath.INPUT_ERRORS)),
        ("dsp-rounding", odd_multipliers),
        ("fp-cycles-pixel", slow_rows),
        ("fp-macs-per-tile", slow_rows),
        ("lpram-size", shallow_banks),
        ("lpram-banks", shallow_banks),
        ("lpram-depth", shallow_banks),
        ("actram", fewer_in_flight_first),
        ("lgb-timing", no_updates),
    ],
)
def test_measures_notice(name: str, patch: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    assert result_of(name).verdict.is_good
    patch(monkeypatch)
    assert not result_of(name).verdict.is_good
