"""Constants in force for a while, which claims depend on them, and blind predictions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from emuchain.emulator.cluster import Cluster, load_cluster
from emuchain.papers import (
    Class,
    Verdict,
    constants_of,
    freedoms_of,
    load_claims,
    sensitivity,
    validate,
)
from emuchain.papers.claim import NoEvidence
from emuchain.papers.commands import validate as command
from emuchain.papers.constants import (
    Choice,
    Constant,
    beside,
    chosen,
    cluster_changes,
    cluster_of,
    in_force,
    in_use,
    kept,
    reading,
)
from emuchain.papers.fpdeep import evidence, throughput
from emuchain.papers.sensitivity import Sensitivity, sensitivities

DSP_SHARE = constants_of("fpdeep")[0]
CLUSTERS = {"fpdeep": "vc709", "inceptionn": "titan-xp-10gbe"}


def test_changes_are_in_force_for_a_while() -> None:
    assert cluster_changes(link__latency_ns=5) == {"link.latency_ns": 5}
    with in_force({"board.dsp": 900, "x": 1}):
        assert cluster_changes(link__latency_ns=5) == {"board.dsp": 900, "link.latency_ns": 5}
        board = cluster_of("vc709", evidence.counted()).board(0)
        assert board.multipliers == int(900 * 0.833)
        with in_force({}):
            assert cluster_of("vc709") == load_cluster("vc709")
        with beside({"link.latency_ns": 7}):
            assert cluster_changes() == {"board.dsp": 900, "link.latency_ns": 7}
    assert cluster_changes() == {}


def test_results_are_kept_by_what_is_in_force() -> None:
    calls = []

    @kept
    def found(name: str, times: int = 1) -> str:
        calls.append(name)
        return name * times + str(cluster_changes())

    assert found("a") == found("a") == "a{}"
    with in_force({"board.dsp": 1}):
        assert found("a") == "a{'board.dsp': 1}"
    assert found("a", times=2) == "aa{}"
    assert calls == ["a", "a", "a"]


X, Y = (Constant(f"gpus.{name}", 1, (1, 2), "because") for name in "xy")
DSP = Constant("board.dsp", 900, (800, 900), "because")


@kept
def double_x() -> float:
    return 2 * in_use(X)


@kept
def nothing_where_x_is() -> None:
    raise NoEvidence(f"x is {in_use(X)}")


def test_what_is_read() -> None:
    def said(measure: Callable[[], object]) -> list[bool]:
        with reading() as is_read, contextlib.suppress(NoEvidence):
            measure()
        return [is_read(freedom) for freedom in (X, Y, DSP, ORDER)]

    assert said(lambda: None) == [False, False, False, False]
    assert said(double_x) == said(double_x) == [True, False, False, False], "also where it is kept"
    assert said(nothing_where_x_is) == [True, False, False, False]
    assert said(lambda: cluster_of("vc709")) == [False, False, True, False]
    assert said(lambda: chosen(ORDER)) == [False, False, False, True]
    with reading() as is_read:
        assert said(lambda: in_use(Y)) == [False, True, False, False]
    assert is_read(Y) and not is_read(X)


@pytest.mark.parametrize("paper", ["deepbench", "farnn", "inceptionn"])
def test_what_is_not_read_changes_no_row(paper: str) -> None:
    claims = [
        claim
        for claim in load_claims(paper).values()
        if claim.expect and claim.row_class is not Class.IDENTITY
    ]
    before, readers = {}, {}
    for claim in claims:
        with reading() as readers[claim.id]:
            [before[claim.id]] = validate(paper, [claim])
    for freedom in freedoms_of(paper):
        for value in (freedom.values[0], freedom.values[-1]):
            with in_force({freedom.key: value}):
                for result in validate(
                    paper, [claim for claim in claims if not readers[claim.id](freedom)]
                ):
                    assert result == before[result.claim.id], (freedom.key, value)


@pytest.mark.parametrize("paper", CLUSTERS)
def test_defaults_are_those_of_the_paper_as_it_counts(paper: str) -> None:
    counted = evidence.counted() if paper == "fpdeep" else {}
    ordinary = load_cluster(CLUSTERS[paper], counted)

    def with_value(key: str, value: float) -> Cluster:
        return load_cluster(CLUSTERS[paper], {**counted, key: value})

    for constant in constants_of(paper):
        assert constant.default in constant.values == tuple(sorted(set(constant.values)))
        assert with_value(constant.key, constant.default) == ordinary
        others = [with_value(constant.key, value) for value in constant.values]
        assert sum(other == ordinary for other in others) == 1


@contextlib.contextmanager
def silent(total: int, done: int) -> Iterator[Callable[[], None]]:
    yield lambda: None


def test_rows_that_hang_on_a_constant() -> None:
    claims = load_claims("fpdeep")
    names = ("t6-vgg16-gops", "t6-vgg16-gopsj", "bp-triples-ops", "eq8-lut", "t4-dp")
    some = [claims[f"fpdeep-{name}"] for name in names]
    found = {each.constant.name: each for each in sensitivities("fpdeep", some, silent, jobs=1)}
    assert found["power_w"].hanging == ["fpdeep-t6-vgg16-gopsj"]
    assert {"fpdeep-t6-vgg16-gops", "fpdeep-t6-vgg16-gopsj"} <= set(found["clock_mhz"].hanging)
    assert "fpdeep-bp-triples-ops" not in {name for each in found.values() for name in each.hanging}
    verdicts = found["dsp_share"].verdicts["fpdeep-t6-vgg16-gops"]
    for share, verdict in zip(DSP_SHARE.values, verdicts, strict=True):
        with in_force({DSP_SHARE.key: share}):
            [result] = validate("fpdeep", some[:1])
        assert result.verdict is verdict
    ordinary = load_cluster("vc709", evidence.counted())
    assert evidence.cluster() == ordinary, "no change is left in force"


def test_tables_by_hand() -> None:
    constant = Constant("board.x", 2, (1, 2, 3), "because", "rows")
    within, off = Verdict.WITHIN, Verdict.OFF
    names = list(load_claims("fpdeep"))[:2]
    found = [Sensitivity(constant, {names[0]: (within, within, off), names[1]: (off, off, off)})]
    assert sensitivity.constant_rows(found) == [["x", "2", "1 to 3", "rows", "2", "1"]]
    [row] = sensitivity.turning_rows(found, load_claims("fpdeep"))
    assert (row[0], row[-1]) == (names[0], "within 1 to 2, off 3")
    said = (
        "2 claims depend on 1 constant, of which 1 was fitted; 1 verdict changes within their"
        " ranges"
    )
    assert sensitivity.headline(found) == said


ORDER = Choice("ring.order", {"up": 1, "down": -1, "none": 0}, "the text has none", "rows")


def test_a_choice_is_in_force_for_a_while() -> None:
    assert (ORDER.name, ORDER.default, ORDER.values, ORDER.span) == (
        "order",
        1,
        (1, -1, 0),
        "up or down or none",
    )
    assert chosen(ORDER) == "up"
    with in_force({ORDER.key: -1}):
        assert chosen(ORDER) == "down"
        assert cluster_of("vc709") == load_cluster("vc709"), "clusters have no such key"


def test_tables_of_choices_by_hand() -> None:
    within, off = Verdict.WITHIN, Verdict.OFF
    name = next(iter(load_claims("fpdeep")))
    constant = Sensitivity(Constant("board.x", 2, (1, 2, 3), "because"), {})
    rows = [constant, Sensitivity(ORDER, {name: (within, off, off)})]
    assert sensitivity.constant_rows(rows)[1] == [
        "order",
        "up",
        "up or down or none",
        "rows",
        "1",
        "1",
    ]
    [row] = sensitivity.turning_rows(rows, load_claims("fpdeep"))
    assert row[-2:] == ["order", "within up, off down or none"]
    said = (
        "1 claim depends on 1 constant and 1 choice, of which 1 was fitted; 1 verdict changes"
        " within their ranges"
    )
    assert sensitivity.headline(rows) == said
    as_json = sensitivity.sensitivity_as_json(rows, [])
    assert [row["key"] for row in as_json["constants"]] == ["board.x"]
    [choice] = as_json["choices"]
    assert (choice["default"], choice["values"], choice["turning"]) == (
        "up",
        ["up", "down", "none"],
        [name],
    )


def test_of_inceptionn_on_the_screen() -> None:
    printed = CliRunner().invoke(command, ["inceptionn", "--sensitivity", "--only", "fig12-hdc"])
    assert printed.exit_code == 0
    assert "claims depend on 3 constants" in printed.stdout.splitlines()[0]
    as_json: Any = json.loads(
        CliRunner()
        .invoke(command, ["inceptionn", "--sensitivity", "--only", "fig12-hdc", "--json"])
        .stdout
    )
    [latency, *_] = as_json["constants"]
    assert latency["key"] == "network.latency_us"
    assert all(len(verdicts) == len(latency["values"]) for verdicts in latency["verdicts"].values())


@pytest.mark.slow
def test_blind_predictions() -> None:
    """The fitted network's own GOPS come out; the others' follow, and nothing stays in force."""
    found = list(throughput.blind_predictions())
    assert len(found) == 3 * 2 * 3
    for fitted_to, share in {each.fitted_to: each.dsp_share for each in found}.items():
        with in_force({DSP_SHARE.key: share}):
            own = evidence.convolutions(fitted_to).gops_per_fpga
        assert own == pytest.approx(throughput.published(f"fpdeep-t6-{fitted_to}-gops"), rel=0.01)
    by_name = {(each.fitted_to, each.network, each.figure): each for each in found}
    assert by_name["vgg16", "vgg19", "gops"].guess == 1197
    assert by_name["vgg16", "vgg19", "hours"].guess == pytest.approx(
        2.19 * 19.508 / 15.347, rel=1e-3
    )
    assert evidence.cluster() == load_cluster("vc709", evidence.counted())
