"""Answers: at most eight lines, where the least important give way; the commands that they name run
as they stand.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from emuchain.emulator.cluster import Fpga, load_cluster
from emuchain.emulator.common import number
from emuchain.emulator.mapping import partition_with_memory
from emuchain.emulator.plan import ChainPlan, make_plan
from emuchain.emulator.run import AnswerRange, Cause, cause_of, steady_state
from emuchain.emulator.view import (
    Line,
    class_words,
    command_line,
    limit_lines,
    memory_line,
    multiplier_texts,
    next_changes,
    range_lines,
    weights_line,
    wide_lines,
)
from emuchain.emulator.view.answer import MOST_LINES, first_screen
from emuchain.emulator.view.limits import _if_free, rates_without
from emuchain.emulator.view.terminal import ignored, wrapped

from ..counted import COUNTED

PlanOf = Callable[..., ChainPlan]


@pytest.fixture
def plan_of(plan_of: PlanOf) -> PlanOf:
    """Makes a plan on boards that count multipliers, so that links and memory may limit."""
    return functools.partial(plan_of, changes=COUNTED)


def test_optional_lines_give_way() -> None:
    lines = [Line(f"{i}", optional=i in (3, 5)) for i in range(10)]
    assert first_screen(lines, 80) == [f"{i}" for i in range(10) if i not in (3, 5)]
    assert first_screen(lines[:9], 80) == [f"{i}" for i in range(9) if i != 5]
    assert first_screen(lines[:7], 80) == [f"{i}" for i in range(7)]


def test_lines_that_wrap_count() -> None:
    lines = [Line("word " * 20), Line("optional", optional=True), *[Line("short")] * 6]
    shown = first_screen(lines, 60)
    assert len(shown) == MOST_LINES
    assert "optional" not in shown
    assert max(map(len, shown)) <= 60


def test_a_command_to_paste_is_one_line() -> None:
    command = "next: emuchain simulate " + "--flag value " * 12
    assert first_screen([Line(command)], 40) == [command]


def test_a_rate_and_its_note_are_not_parted() -> None:
    note = ignored(150 << 20)
    assert note == "; memory ignored, 150 MiB too much"
    for width in range(60, 100):
        lines = wrapped(f"{'word ' * 9}1,234 images/s{note}", width)
        assert any(f"1,234 images/s{note}" in line for line in lines)
    assert wrapped("a b c 9.23 s", 10) == ["a b c", "  9.23 s"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(9338.8, "9,339"), (789.83, "789.8"), (0.08123, "0.08123"), (1234567, "1,234,567")],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_rates_without_a_kind_are_those_of_the_others(plan_of: PlanOf) -> None:
    state = steady_state(plan_of(network="quick-cifar", devices=3, cluster="vc709-10g"))
    times_ps = state.bottleneck.times_ps
    assert rates_without(state) == {
        "engines": 1e12 / times_ps["links"],
        "links": 1e12 / times_ps["engines"],
    }
    one_device = steady_state(plan_of(network="quick-cifar", devices=1))
    assert rates_without(one_device) == {}


def said_of(plan: ChainPlan) -> list[str]:
    state = steady_state(plan)
    return [line.text for line in limit_lines(plan, state, cause_of(plan, state))]


def changes_of(plan: ChainPlan) -> dict[str, object]:
    return next_changes(plan, cause_of(plan, steady_state(plan)))


def test_the_larger_gain_stands_first(plan_of: PlanOf) -> None:
    for cluster, text in (
        ("vc709-10g", "If links were free, with this cut"),
        ("vc709", "If engines were free"),
    ):
        *_, line = said_of(plan_of(network="quick-cifar", devices=3, cluster=cluster))
        assert line.startswith(text)


def test_an_engine_that_is_slowest_is_not_blamed_for_narrow_links(plan_of: PlanOf) -> None:
    """Over 10 Gb/s, no cut of these layers over 8 boards is any faster than one over 4; over 140
    Gb/s they are.
    """
    plan = plan_of(network="resnet8-cifar", devices=8, cluster="vc709-10g")
    slowest = steady_state(plan).bottleneck.slowest
    assert slowest.kind == "engine"
    limit, wider, _ = said_of(plan)
    assert limit.startswith(f"limit: {slowest.name}, ") and limit.endswith(
        ", in a cut that links set"
    )
    found = re.fullmatch(
        r"If links had (\d+) Gb/s: steady ([\d,]+) images/s with a new cut, now ([\d,]+)", wider
    )
    assert found is not None
    assert changes_of(plan) == {"what_if": f"link.bandwidth_gbps={found[1]}"}
    after = make_plan(plan.config, 1, {"link.bandwidth_gbps": int(found[1])})
    assert [found[2], found[3]] == [
        number(steady_state(each).images_per_s) for each in (after, plan)
    ]
    assert float(found[2].replace(",", "")) > 4 * float(found[3].replace(",", ""))


def test_more_devices_are_no_more_than_there_are_channels(plan_of: PlanOf) -> None:
    assert changes_of(plan_of(network="hdc", devices=3)) == {"devices": 6}


def test_a_replicated_schedule_gets_a_larger_batch_with_its_devices(plan_of: PlanOf) -> None:
    plan = plan_of(network="quick-cifar", schedule="data-parallel-ring", devices=4, batch=4)
    changes = changes_of(plan)
    assert changes in ({"batch": 8}, {"devices": 8, "batch": 8})


def test_commands_are_quoted_and_keep_flags() -> None:
    flags = {"network": "my net.toml", "crop": (1, 2), "skip_broken": True, "devices": 3}
    line = command_line("simulate", None, flags)
    assert shlex.split(line) == [
        *("emuchain", "simulate", "my net.toml", "--crop", "1,2", "--skip-broken", "--devices", "3")
    ]
    assert (
        command_line("train", "run.toml", {"network": "hdc"})
        == "emuchain train run.toml --network hdc"
    )


def test_weights(plan_of: PlanOf) -> None:
    plan = plan_of(network="quick-cifar", devices=8, batch=4)
    late = max(max(staleness.forward) for staleness in plan.steady.staleness)
    assert late > 1
    assert weights_line(plan).text.endswith(f"use weights up to {late} updates old")


def test_kinds_without_a_difference_stand_together(plan_of: PlanOf) -> None:
    state = steady_state(plan_of(network="quick-cifar", devices=3))
    times_ps = state.bottleneck.times_ps
    alike = dataclasses.replace(
        state.bottleneck, times_ps={**times_ps, "exchanges": times_ps["links"]}
    )
    [line] = _if_free(dataclasses.replace(state, bottleneck=alike))
    engines, others = (
        number(1e12 / time_ps) for time_ps in (times_ps["links"], times_ps["engines"])
    )
    assert (
        line
        == f"If engines were free, with this cut: {engines} images/s; if links or exchanges were:"
        f" {others}"
    )


def test_several_kinds_that_limit_alike_are_named(plan_of: PlanOf) -> None:
    state = steady_state(plan_of(network="vgg16-cifar", devices=15))
    slowest = state.bottleneck.slowest.sample_ps
    times_ps = {
        **state.bottleneck.times_ps,
        "engines": slowest,
        "links": slowest,
        "memory": slowest - 1,
    }
    tied = dataclasses.replace(state.bottleneck, times_ps=times_ps)
    plan = plan_of(network="vgg16-cifar", devices=15)
    lines = [
        line.text
        for line in limit_lines(plan, dataclasses.replace(state, bottleneck=tied), Cause("engine"))
    ]
    assert (
        "With this cut, engines and links limit equally: lifting only one of them gains nothing"
        in lines
    )
    assert not any("If " in line for line in lines)


def test_what_memory_costs_is_said_where_it_costs(plan_of: PlanOf) -> None:
    slow, free = (
        plan_of(network="vgg16-cifar", devices=15),
        plan_of(network="quick-cifar", devices=3),
    )
    assert 0 < slow.bound_ps < slow.timing.interval_ps
    bound = number(1e12 / slow.bound_ps)
    assert memory_line(slow, 0).text.endswith(f"; with all on chip: at most {bound} images/s")
    assert free.bound_ps == free.timing.interval_ps
    assert memory_line(free, 0).text == "memory: fits on chip"


def test_more_boards_are_not_suggested_where_they_are_no_faster(plan_of: PlanOf) -> None:
    """Whatever is suggested is faster, or another key where boards do not help."""
    for cluster in ("vc709", "vc709-10g"):
        plan = plan_of(network="quick-cifar", devices=200, cluster=cluster)
        changes = changes_of(plan)
        more = partition_with_memory(plan.network, plan.cluster, 384, None).balance
        assert more is not None
        assert more.server_ps >= plan.timing.interval_ps
        assert "devices" not in changes
        key, _, value = str(changes["what_if"]).partition("=")
        config = plan.config.model_copy(update={"micro_batch": plan.config.batch})
        faster = make_plan(config, 1, {key: float(value)})
        assert faster.timing.interval_ps < plan.timing.interval_ps


# Ranges, and classes of constants

CLASSES = {
    "link.bandwidth_gbps": "data sheet",
    "board.off_chip_gbytes_per_s": "data sheet",
    "link.latency_ns": "assumed",
}


def range_of(**share_of_width: float) -> AnswerRange:
    shares = {f"board.{key}": share for key, share in share_of_width.items()}
    return AnswerRange(7794, 9224, 4000, CLASSES, shares)


def test_range_has_its_grounds_and_what_to_measure() -> None:
    lines = [line.text for line in range_lines(range_of(clock_mhz=0.0, off_chip_gbytes_per_s=1.0))]
    assert lines == [
        "range: 90 % from 7,794 to 9,224; memory by data sheet, links assumed",
        "measure first: board.off_chip_gbytes_per_s (all of the width)",
    ]
    assert "(63.0 % of the width)" in range_lines(range_of(clock_mhz=0.63))[1].text


def test_range_that_is_a_point_has_nothing_to_measure() -> None:
    assert [line.text for line in range_lines(AnswerRange(5, 5, 4000, {}, {}))] == [
        "range: 90 % from 5 to 5"
    ]
    assert range_lines(None) == []


def test_least_certain_class_of_a_group_is_reported() -> None:
    assert (
        class_words({"board.clock_mhz": "fitted", "board.efficiency": "measured"})
        == "engines fitted to a paper"
    )
    assert class_words({"network.latency_us": "measured"}) == "network measured"


# What stays wide on the fullest link


def test_what_stays_wide(plan_of: Any) -> None:
    """quick-cifar on 3 boards: conv2 is cut between the first two, whose partial sums fill the
    link.
    """
    keys = {"network": "quick-cifar", "devices": 3, "schedule": "sync"}
    assert wide_lines(plan_of(**keys)) == []
    assert wide_lines(plan_of(**{**keys, "devices": 1}, precision="bf16")) == []
    [line] = wide_lines(plan_of(**keys, precision="bf16"))
    assert (
        line.text == "fullest link, 0 to 1: 72.2 kB/sample; 90.8 % of its bytes stay fp32: partial"
        " activations"
    )
    plan = plan_of(**keys, precision="bf16")
    narrow, wide = (
        sum(
            stream.sample_bytes
            for stream in plan.timing.sent(0, forward=True)
            if (stream.number_format.bits == 32) == is_wide
        )
        for is_wide in (False, True)
    )
    assert (narrow + wide, round(100 * wide / (narrow + wide), 1)) == (72192, 90.8)


def test_commands_have_the_flags_of_the_table() -> None:
    given = {"network": "quick-cifar", "precision": {"format": "mxfp8", "loss_scale": 8}}
    assert (
        command_line("plan", None, given)
        == "emuchain plan quick-cifar --precision mxfp8 --precision.loss-scale 8"
    )


def test_boards_with_fewer_multipliers_are_counted() -> None:
    board = load_cluster("vc709").board(0)
    assert isinstance(board, Fpga) and board.budget is not None
    half = dataclasses.replace(board, budget=dataclasses.replace(board.budget, lut=416 * 100))
    [alike], [text] = multiplier_texts([board] * 3), multiplier_texts([half, board, board])
    assert text == f"{alike}; 1 of 3 boards has fewer, 100 at least"
