"""Schedules as they are made: every sample once and in order, with the versions that staleness asks
for.
"""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.schedule import (
    Action,
    EpochShape,
    Kind,
    Schedule,
    ScheduleKind,
    Staleness,
    cut_samples,
    dry_run,
    schedules,
)

from .chains import SMALL, actions_of, any_schedule, chain_staleness, fpdeep, staleness_of, sync


@given(st.integers(1, 7), st.integers(1, 60), SMALL, SMALL)
def test_sync_passes_the_dry_run(devices: int, samples: int, batch: int, micro_batch: int) -> None:
    schedule = sync(devices, samples, batch, micro_batch)
    dry_run(schedule)
    assert (schedule.devices, schedule.steps) == (devices, -(-samples // batch))


@given(SMALL, st.integers(1, 60), SMALL, st.data())
def test_fpdeep_passes_the_dry_run(
    batch: int, samples: int, micro_batch: int, data: st.DataObject
) -> None:
    staleness = data.draw(chain_staleness(batch))
    schedule = fpdeep(staleness, samples, batch, micro_batch)
    dry_run(schedule)
    assert (schedule.devices, schedule.steps) == (len(staleness), -(-samples // batch))


@given(any_schedule())
def test_each_action_once_and_in_order(schedule: Schedule) -> None:
    micro_batches, steps = len(schedule.micro_batches), schedule.steps
    for actions in actions_of(schedule):
        for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT):
            spans = [schedule.micro_batches[a.index].span_of(a) for a in actions if a.kind is kind]
            samples = [sample for span in spans for sample in range(*span.slice.indices(1 << 30))]
            assert samples == list(range(schedule.micro_batches[-1].end))
        assert [a.index for a in actions if a.kind is Kind.GRADIENT] == list(range(micro_batches))
        assert [a.index for a in actions if a.kind is Kind.UPDATE] == list(range(1, steps + 1))


@given(any_schedule(), st.data())
def test_one_devices_program_does_not_depend_on_who_else_is_asked_for(
    schedule: Schedule, data: st.DataObject
) -> None:
    device = data.draw(st.integers(0, schedule.devices - 1))
    [program] = schedule.programs([device]).values()
    assert list(program) == actions_of(schedule)[device]


@given(SMALL, st.integers(1, 60), SMALL, st.data())
def test_versions_are_those_that_staleness_asks_for(
    batch: int, samples: int, micro_batch: int, data: st.DataObject
) -> None:
    staleness = data.draw(chain_staleness(batch))
    schedule = fpdeep(staleness, samples, batch, micro_batch)
    for device, actions in enumerate(actions_of(schedule)):
        for kind, late in (
            (Kind.FORWARD, staleness[device].forward),
            (Kind.BACKWARD, staleness[device].backward),
        ):
            seen = {}
            for action in actions:
                if action.kind is kind:
                    found = schedule.micro_batches[action.index].span_of(action).slice
                    seen |= dict.fromkeys(range(found.start, found.stop), action.version)
            assert seen == {n: max(0, n // batch - late[n % batch]) for n in range(samples)}


@given(SMALL, st.integers(1, 60), SMALL, st.integers(1, 5))
def test_without_staleness_fpdeep_is_sync(
    batch: int, samples: int, micro_batch: int, devices: int
) -> None:
    none = [staleness_of(0, 0, batch)] * devices
    found = fpdeep(none, samples, batch, micro_batch)
    assert actions_of(found) == actions_of(sync(devices, samples, batch, micro_batch))


@given(any_schedule())
def test_forwards_in_flight(schedule: Schedule) -> None:
    """Under sync never more than 2·(devices - device) + 1."""
    assume(schedule.name == "sync")
    for device, actions in enumerate(actions_of(schedule)):
        ahead = most = 0
        for action in actions:
            ahead += {Kind.FORWARD: 1, Kind.BACKWARD: -1}.get(action.kind, 0)
            most = max(most, ahead)
        assert most <= 2 * (schedule.devices - device) + 1
        assert ahead == 0


@given(st.integers(0, 60), SMALL, SMALL)
def test_micro_batches(samples: int, batch: int, micro_batch: int) -> None:
    """All samples in order, no micro-batch in two mini-batches, and nothing is cut without need."""
    found = cut_samples(samples, batch, micro_batch)
    assert [mb.index for mb in found] == list(range(len(found)))
    assert [n for mb in found for n in range(mb.begin, mb.end)] == list(range(samples))
    for mb in found:
        assert 1 <= mb.samples <= micro_batch
        assert {n // batch for n in range(mb.begin, mb.end)} == {mb.step}
        assert mb.begin % batch % micro_batch == 0


@given(SMALL, st.integers(1, 60), SMALL, st.data())
def test_spans_end_where_staleness_changes_or_a_neighbours_span_ends(
    batch: int, samples: int, micro_batch: int, data: st.DataObject
) -> None:
    staleness = data.draw(chain_staleness(batch))
    schedule = fpdeep(staleness, samples, batch, micro_batch)
    programs = actions_of(schedule)

    def ends(device: int, kind: Kind) -> set[int]:
        return {
            schedule.micro_batches[a.index].span_of(a).slice.stop
            for a in programs[device]
            if a.kind is kind
        }

    whole = {mb.end for mb in schedule.micro_batches}
    for device, of_device in enumerate(staleness):
        for kind, late in ((Kind.FORWARD, of_device.forward), (Kind.BACKWARD, of_device.backward)):
            changes = {
                n for n in range(1, samples) if n % batch and late[n % batch] != late[n % batch - 1]
            }
            neighbour = device - 1 if kind is Kind.FORWARD else device + 1
            others = ends(neighbour, kind) if 0 <= neighbour < len(staleness) else set()
            own_forward = ends(device, Kind.FORWARD) if kind is Kind.BACKWARD else set()
            assert ends(device, kind) <= whole | changes | others | own_forward


@pytest.mark.parametrize("late", [(0, 1), (2, 0), (0, 0, 1), (-1,), (1, 0, -1)])
def test_staleness_that_would_take_weights_back(late: tuple[int, ...]) -> None:
    fine = (0,) * len(late)
    for forward, backward in ((late, fine), (fine, late)):
        with pytest.raises(InputError, match="older version"):
            Staleness(forward, backward)


@pytest.mark.parametrize("late", [(0,), (5,), (1, 0), (3, 2, 2), (2, 2, 2)])
def test_valid_staleness(late: tuple[int, ...]) -> None:
    assert (
        Staleness(late, (0,) * len(late)).forward
        == Staleness((9,) * len(late), late).backward
        == late
    )


@pytest.mark.parametrize("micro_batch", [1, 3, 4])
def test_balanced_parameters_under_a_continuous_schedule(micro_batch: int, plan_of) -> None:
    """Staleness exceeds a mini-batch here, and updates of some devices wait for those of others."""
    # Making a plan dry-runs its schedule, too.
    plan = plan_of(
        network="vgg16-cifar", devices=24, batch=16, micro_batch=micro_batch, memory="fpdeep"
    )
    assert len(plan.timing.blocks) > 8
    dry_run(plan.schedule(165), plan.timing.stores)


def test_mini_batches_that_are_too_short(plan_of) -> None:
    with pytest.raises(
        InputError, match=r"^mini-batches are too short for 34 devices .* larger `batch`"
    ):
        plan_of(network="vgg19-cifar", devices=34, batch=8, memory="fpdeep")


def any_staleness(batch: int) -> st.SearchStrategy[list[Staleness]]:
    """Staleness of a chain in no order, such as no clocks would give; most such schedules do not
    work.
    """
    late = st.integers(0, 3 * batch)
    return st.lists(
        st.builds(
            lambda forward, backward: Staleness(
                staleness_of(forward, 0, batch).forward, staleness_of(backward, 0, batch).forward
            ),
            late,
            late,
        ),
        min_size=1,
        max_size=6,
    )


def is_valid(kind: ScheduleKind, epoch: EpochShape) -> bool:
    """Whether the dry run of a schedule finds nothing."""
    try:
        dry_run(kind.generate(epoch))
    except InputError:
        return False
    return True


@given(SMALL, SMALL, st.data())
def test_few_mini_batches_show_what_many_would(
    batch: int, micro_batch: int, data: st.DataObject
) -> None:
    staleness = tuple(data.draw(any_staleness(batch)))
    epoch = EpochShape(len(staleness), 0, batch, micro_batch, staleness)
    kind = schedules()["fpdeep"]
    few = kind.steps_to_check(epoch)
    assert few < 6
    valid = [
        is_valid(kind, dataclasses.replace(epoch, samples=steps * batch)) for steps in (few, 12)
    ]
    assert valid[0] == valid[1]


def test_few_mini_batches_show_a_circle_of_waits() -> None:
    """An update waits for B with the weights that it replaces, which waits for F with the weights
    that it makes.
    """
    old, new = (1, 1), (0, 0)
    kind = schedules()["fpdeep"]
    for late, valid in ((Staleness(new, old), False), (Staleness(old, new), True)):
        epoch = EpochShape(1, 0, 2, 2, (late,))
        assert (
            is_valid(kind, dataclasses.replace(epoch, samples=2 * kind.steps_to_check(epoch)))
            is valid
        )


def versions_by_step(
    schedule: Schedule, actions: list[Action]
) -> dict[Kind, dict[int, list[int | None]]]:
    """The versions that F, B and W of each mini-batch name, sample by sample, less its number."""
    found: dict[Kind, dict[int, list[int | None]]] = {kind: {} for kind in Kind}
    for action in actions:
        if action.kind is not Kind.UPDATE:
            micro_batch = schedule.micro_batches[action.index]
            relative = None if action.version is None else action.version - micro_batch.step
            samples = micro_batch.span_of(action).samples
            found[action.kind].setdefault(micro_batch.step, []).extend([relative] * samples)
    return found


@pytest.mark.parametrize("name", [name for name, kind in schedules().items() if kind.repeats])
@given(SMALL, SMALL, st.data())
def test_schedules_that_say_so_repeat(
    name: str, batch: int, micro_batch: int, data: st.DataObject
) -> None:
    staleness = tuple(data.draw(chain_staleness(batch)))
    epoch = EpochShape(len(staleness), 12 * batch, batch, micro_batch, staleness)
    kind = schedules()[name]
    schedule = kind.generate(epoch)
    for actions in actions_of(schedule):
        for by_step in versions_by_step(schedule, actions).values():
            for step in range(kind.steps_to_check(epoch), 12):
                assert by_step.get(step) == by_step.get(step - 1)


def test_other_schedules_and_balanced_parameters_are_checked_for_longer() -> None:
    staleness = (staleness_of(0, 0, 2),) * 2
    alone, balanced = (EpochShape(2, 0, 2, 2, staleness, stores) for stores in ((), ((1, 0),)))
    fpdeep_kind = schedules()["fpdeep"]
    assert fpdeep_kind.steps_to_check(alone) == 2
    assert fpdeep_kind.steps_to_check(balanced) == 6
    own = ScheduleKind("own", fpdeep_kind.generate, "", drains=False)
    assert own.steps_to_check(alone) == 6


@pytest.mark.parametrize("name", schedules())
def test_a_kind_equals_its_copy_of_another_process(name: str) -> None:
    kind = schedules()[name]
    assert pickle.loads(pickle.dumps(kind)) == kind
