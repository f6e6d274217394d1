"""Schedules: made, printed, parsed and dry-run; what the dry run finds in schedules that were tampered with."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from emuchain.emulator.common.errors import InputError
from emuchain.emulator.config.config import load_config
from emuchain.emulator.plan.plan import make_plan
from emuchain.emulator.schedule.action import Action, Kind, Schedule
from emuchain.emulator.schedule.dry_run import dry_run
from emuchain.emulator.schedule.pipeline import Lags, cut_samples, fpdeep, sync
from emuchain.emulator.schedule.text import parse, to_text

GOLDEN = Path(__file__).parent / "golden"
SMALL = st.integers(1, 12)


def lags_of(late_forward: int, late_backward: int, batch: int) -> Lags:
    """The lags of a device whose weights become new so many samples after the mini-batch's last one entered."""

    def lags(late: int) -> tuple[int, ...]:
        return tuple(max(0, math.ceil((late - sample) / batch)) for sample in range(batch))

    return Lags(lags(late_forward), lags(late_backward))


@st.composite
def chain_lags(draw: st.DrawFn, batch: int) -> list[Lags]:
    """Lags of a chain: FP is later nearer to the chain's end, and so lags less there; EB is late by 0 or 1 sample."""
    late = sorted(draw(st.lists(st.integers(0, 3 * batch + 2), min_size=1, max_size=6)), reverse=True)
    return [lags_of(k, min(k, draw(st.integers(0, 1))), batch) for k in late]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Any schedule of either kind."""
    batch, micro_batch, samples = draw(SMALL), draw(SMALL), draw(st.integers(1, 50))
    if draw(st.booleans()):
        return sync(draw(st.integers(1, 7)), samples, batch, micro_batch)
    return fpdeep(draw(chain_lags(batch)), samples, batch, micro_batch)


def actions_of(schedule: Schedule) -> list[list[Action]]:
    """All actions of all devices."""
    return [list(program) for program in schedule.programs(range(schedule.devices)).values()]


@given(st.integers(1, 7), st.integers(1, 60), SMALL, SMALL)
def test_sync_passes_the_dry_run(devices: int, samples: int, batch: int, micro_batch: int) -> None:
    dry_run(sync(devices, samples, batch, micro_batch))


@given(SMALL, st.integers(1, 60), SMALL, st.data())
def test_fpdeep_passes_the_dry_run(batch: int, samples: int, micro_batch: int, data: st.DataObject) -> None:
    dry_run(fpdeep(data.draw(chain_lags(batch)), samples, batch, micro_batch))


@given(schedules())
def test_each_action_once_and_in_order(schedule: Schedule) -> None:
    micro_batches, steps = len(schedule.micro_batches), schedule.steps
    for actions in actions_of(schedule):
        for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.GRADIENT):
            portions = [schedule.micro_batches[a.index].portion(a) for a in actions if a.kind is kind]
            samples = [sample for portion in portions for sample in range(*portion.slice.indices(1 << 30))]
            assert samples == list(range(schedule.micro_batches[-1].end))
        assert [a.index for a in actions if a.kind is Kind.GRADIENT] == list(range(micro_batches))
        assert [a.index for a in actions if a.kind is Kind.UPDATE] == list(range(1, steps + 1))


@given(schedules(), st.data())
def test_one_devices_program_does_not_depend_on_who_else_is_asked_for(schedule: Schedule, data: st.DataObject) -> None:
    device = data.draw(st.integers(0, schedule.devices - 1))
    [alone] = schedule.programs([device]).values()
    assert list(alone) == actions_of(schedule)[device]


@given(SMALL, st.integers(1, 60), SMALL, st.data())
def test_versions_are_those_that_the_lags_ask_for(
    batch: int, samples: int, micro_batch: int, data: st.DataObject
) -> None:
    lags = data.draw(chain_lags(batch))
    schedule = fpdeep(lags, samples, batch, micro_batch)
    for device, actions in enumerate(actions_of(schedule)):
        for kind, late in ((Kind.FORWARD, lags[device].forward), (Kind.BACKWARD, lags[device].backward)):
            seen = {}
            for action in actions:
                if action.kind is kind:
                    found = schedule.micro_batches[action.index].portion(action).slice
                    seen |= dict.fromkeys(range(found.start, found.stop), action.version)
            assert seen == {n: max(0, n // batch - late[n % batch]) for n in range(samples)}


@given(SMALL, st.integers(1, 60), SMALL, st.integers(1, 5))
def test_without_lags_fpdeep_is_sync(batch: int, samples: int, micro_batch: int, devices: int) -> None:
    none = [lags_of(0, 0, batch)] * devices
    found = fpdeep(none, samples, batch, micro_batch)
    assert actions_of(found) == actions_of(sync(devices, samples, batch, micro_batch))


@given(schedules())
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
    """All samples in order, none of a micro-batch in two mini-batches, and nothing is cut without need."""
    found = cut_samples(samples, batch, micro_batch)
    assert [mb.index for mb in found] == list(range(len(found)))
    assert [n for mb in found for n in range(mb.begin, mb.end)] == list(range(samples))
    for mb in found:
        assert 1 <= mb.samples <= micro_batch
        assert {n // batch for n in range(mb.begin, mb.end)} == {mb.step}
        assert mb.begin % batch % micro_batch == 0


@given(SMALL, st.integers(1, 60), SMALL, st.data())
def test_portions_end_where_a_lag_or_a_neighbours_portion_does(
    batch: int, samples: int, micro_batch: int, data: st.DataObject
) -> None:
    lags = data.draw(chain_lags(batch))
    schedule = fpdeep(lags, samples, batch, micro_batch)
    programs = actions_of(schedule)

    def ends(device: int, kind: Kind) -> set[int]:
        return {schedule.micro_batches[a.index].portion(a).slice.stop for a in programs[device] if a.kind is kind}

    whole = {mb.end for mb in schedule.micro_batches}
    for device, device_lags in enumerate(lags):
        for kind, late in ((Kind.FORWARD, device_lags.forward), (Kind.BACKWARD, device_lags.backward)):
            changes = {n for n in range(1, samples) if n % batch and late[n % batch] != late[n % batch - 1]}
            neighbour = device - 1 if kind is Kind.FORWARD else device + 1
            others = ends(neighbour, kind) if 0 <= neighbour < len(lags) else set()
            own_forward = ends(device, Kind.FORWARD) if kind is Kind.BACKWARD else set()
            assert ends(device, kind) <= whole | changes | others | own_forward


@pytest.mark.parametrize("late", [(0, 1), (2, 0), (0, 0, 1), (-1,), (1, 0, -1)])
def test_lags_that_would_take_weights_back(late: tuple[int, ...]) -> None:
    fine = (0,) * len(late)
    for forward, backward in ((late, fine), (fine, late)):
        with pytest.raises(ValueError, match="older version"):
            Lags(forward, backward)


@pytest.mark.parametrize("late", [(0,), (5,), (1, 0), (3, 2, 2), (2, 2, 2)])
def test_lags_that_hold(late: tuple[int, ...]) -> None:
    assert Lags(late, (0,) * len(late)).forward == Lags((9,) * len(late), late).backward == late


@given(schedules())
def test_text_round_trip(schedule: Schedule) -> None:
    text = to_text(schedule)
    found = parse(text)
    assert (found.name, found.devices, found.steps) == (schedule.name, schedule.devices, schedule.steps)
    assert list(found.micro_batches) == list(schedule.micro_batches)
    assert actions_of(found) == actions_of(schedule)
    assert to_text(found) == text
    dry_run(found)


@given(schedules())
def test_a_parsed_schedule_can_be_run_twice(schedule: Schedule) -> None:
    found = parse(to_text(schedule))
    assert actions_of(found) == actions_of(found)


@pytest.mark.parametrize("micro_batch", [1, 3, 4])
def test_balanced_parameters_under_a_continuous_schedule(micro_batch: int) -> None:
    """Staleness exceeds a mini-batch here, and updates of some devices wait for those of others."""
    keys = {"network": "vgg16-cifar", "devices": 24, "batch": 16, "micro_batch": micro_batch}
    plan = make_plan(load_config(None, keys), 1)  # which dry-runs the schedule
    assert len(plan.loans) > 8
    dry_run(plan.schedule(165), plan.loans)


def test_mini_batches_that_are_too_short() -> None:
    with pytest.raises(InputError, match=r"^mini-batches are too short for 30 devices .* larger `batch`"):
        make_plan(load_config(None, {"network": "vgg19-cifar", "devices": 30, "batch": 8}), 1)


GOLDEN_SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "sync-1": lambda: sync(1, 4, 2, 1),
    "sync-3": lambda: sync(3, 7, 4, 2),
    "fpdeep-1": lambda: fpdeep([lags_of(1, 1, 2)], 5, 2, 2),
    "fpdeep-3": lambda: fpdeep([lags_of(5, 1, 4), lags_of(3, 1, 4), lags_of(1, 0, 4)], 14, 4, 2),
    "fpdeep-two-versions-late": lambda: fpdeep([lags_of(4, 1, 2), lags_of(2, 1, 2)], 8, 2, 1),
}


@pytest.mark.parametrize("name", GOLDEN_SCHEDULES)
def test_golden(name: str) -> None:
    """The files were read through by hand; a schedule that changes on purpose has to be read through again."""
    text = (GOLDEN / f"{name}.txt").read_text()
    assert to_text(GOLDEN_SCHEDULES[name]()) == text
    dry_run(parse(text))


def test_no_golden_file_is_forgotten() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(GOLDEN_SCHEDULES)


VALID = """schedule mine, 2 devices
micro-batches 0:2 2:4 | 4:6
0F0v0 0F1v0 0B0v0 0W0 0B1v0 0W1 0U1 0F2v1 0B2v1 0W2 0U2
1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 1F2v1 1B2v1 1W2 1U2
"""


def complaint(text: str) -> str:
    """What the dry run says, in one line."""
    with pytest.raises(InputError) as error:
        dry_run(parse(text))
    line = str(error.value)
    assert "\n" not in line
    assert line.startswith("schedule mine: ")
    return line.removeprefix("schedule mine: ")


def test_the_schedule_that_is_tampered_with_is_valid() -> None:
    dry_run(parse(VALID))
    dry_run(parse("# a comment\n\n" + VALID.replace("\n", "\n\n")))


TAMPERED = {
    # name: what is replaced, with what, what the dry run must say
    "missing F": ("0F0v0 0F1v0", "0F1v0", ["device 1", "F0v0", "of micro-batch 1"]),
    "missing F at the end": ("1F2v1 1B2v1", "1B2v1", ["device 1", "B2v1", "before F2"]),
    "missing last F": ("0F2v1 0B2v1 0W2 0U2", "", ["deadlock", "device 1 waits at F2v1 for its left neighbour"]),
    "missing B": ("1B0v0 1W0", "1W0", ["device 1", "W0", "before B0"]),
    "missing B and W": ("1B0v0 1W0 ", "", ["device 1", "U1", "before W0"]),
    "missing W": ("0W1 0U1", "0U1", ["device 0", "U1", "before W1"]),
    "missing U": ("0U1 0F2v1", "0F2v1", ["device 0", "F2v1", "version 1", "has 0"]),
    "missing last U": ("1W2 1U2", "1W2", ["device 1", "1 updates of 2"]),
    "F twice": ("0F1v0 0B0v0", "0F1v0 0F1v0 0B0v0", ["device 0", "F1v0", "done before"]),
    "B twice": ("1B1v0 1W1", "1B1v0 1B1v0 1W1", ["device 1", "B1v0", "done before"]),
    "W twice": ("0W0 0B1v0", "0W0 0W0 0B1v0", ["device 0", "W0", "done before"]),
    "U twice": ("1U1 1F2v1", "1U1 1U1 1F2v1", ["device 1", "U1", "done before"]),
    "U of a later version": ("0U1 0F2v1", "0U2 0F2v1", ["device 0", "U2", "must be U1"]),
    "U too many": ("1U2", "1U2 1U3", ["device 1", "3 updates of 2"]),
    "F with a version to come": ("0F1v0", "0F1v1", ["device 0", "F1v1", "version 1", "has 0"]),
    "B with an old version": ("1B2v1", "1B2v0", ["device 1", "B2v0", "version 0", "has 1"]),
    "W of the next step": ("0U1 0F2v1 0B2v1 0W2 0U2", "0F2v0 0B2v0 0W2 0U1 0U2", ["device 0", "W2", "of step 1"]),
    "messages in another order to the right": ("0F0v0 0F1v0", "0F1v0 0F0v0", ["device 1", "F0v0", "of micro-batch 1"]),
    "messages in another order to the left": (
        "1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1",
        "1F0v0 1F1v0 1B1v0 1W1 1B0v0 1W0",
        ["device 0", "B0v0", "of micro-batch 1"],
    ),
    "deadlock": (
        "0F0v0 0F1v0 0B0v0 0W0",
        "0F0v0 0B0v0 0W0 0F1v0",
        None,  # nothing is wrong with that: one in flight
    ),
    "deadlock of both": (
        "1F0v0 1B0v0 1W0 1F1v0 1B1v0",
        "1F0v0 1F1v0 1F2v0 1B0v0 1W0 1B1v0",
        ["deadlock", "device 0 waits at B0v0 for its right neighbour", "device 1 waits at F2v0 for its left neighbour"],
    ),
    "B before F": ("1F0v0 1B0v0", "1B0v0 1F0v0", ["device 1", "B0v0", "before F0"]),
    "a device that does nothing": (
        "1F0v0 1B0v0 1W0 1F1v0 1B1v0 1W1 1U1 1F2v1 1B2v1 1W2 1U2",
        "1F0v0",
        ["deadlock", "device 0 waits at B0v0 for its right neighbour"],
    ),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_the_dry_run_finds(name: str) -> None:
    old, new, told = TAMPERED[name]
    assert VALID.count(old) == 1
    text = VALID.replace(old, new)
    if told is None:
        dry_run(parse(text))
        return
    line = complaint(text)
    for part in told:
        assert part in line


@pytest.mark.parametrize("kind", "FBW")
def test_a_sample_that_nobody_trains_on(kind: str) -> None:
    """All actions of the last micro-batch are gone, on all devices, and the update that would miss them."""
    text = VALID
    for word in ("F2v1 ", "B2v1 ", "W2 ", "U2")["FBW".index(kind) :]:
        for device in "01":
            text = text.replace(device + word, "")
    assert complaint(text) == f"device 0 never does {kind}2"


@given(schedules(), st.data())
def test_without_any_one_action_it_is_not_valid(schedule: Schedule, data: st.DataObject) -> None:
    actions = actions_of(schedule)
    device = data.draw(st.integers(0, schedule.devices - 1))
    gone = actions[device].pop(data.draw(st.integers(0, len(actions[device]) - 1)))
    broken = Schedule("broken", schedule.devices, schedule.micro_batches, lambda ds: {d: iter(actions[d]) for d in ds})
    with pytest.raises(InputError, match="^schedule broken: ") as error:
        dry_run(broken)
    assert "device" in str(error.value)
    assert "\n" not in str(error.value)
    assert gone is not None


@given(schedules(), st.data())
def test_with_any_one_action_twice_it_is_not_valid(schedule: Schedule, data: st.DataObject) -> None:
    actions = actions_of(schedule)
    device = data.draw(st.integers(0, schedule.devices - 1))
    twice = data.draw(st.sampled_from(actions[device]))
    actions[device].insert(data.draw(st.integers(0, len(actions[device]))), twice)
    broken = Schedule("broken", schedule.devices, schedule.micro_batches, lambda ds: {d: iter(actions[d]) for d in ds})
    with pytest.raises(InputError, match="^schedule broken: "):
        dry_run(broken)


BAD_TEXTS = {
    "nothing": ("", "first line"),
    "comments only": ("# schedule sync, 1 device\n", "first line"),
    "no number": ("schedule sync, two devices\n", "first line"),
    "fewer lines than devices": (VALID.rsplit("\n", 2)[0] + "\n", "2 lines of actions"),
    "more lines than devices": (VALID + "1F0v0\n", "2 lines of actions"),
    "no micro-batches": (VALID.replace("micro-batches ", "batches "), "micro-batches"),
    "a gap": (VALID.replace("2:4", "3:4"), "'3:4'; expected 2:END"),
    "an empty micro-batch": (VALID.replace("2:4", "2:2"), "'2:2'"),
    "no span": (VALID.replace("2:4", "2-4"), "'2-4'"),
    "another device's action": (VALID.replace("0W0", "1W0"), "device 0: '1W0'"),
    "an unknown kind": (VALID.replace("1B1v0", "1X1v0"), "device 1: '1X1v0'"),
    "no index": (VALID.replace("1B1v0", "1Bv0"), "device 1: '1Bv0'"),
    "an index too large": (VALID.replace("0W2", "0W3"), "'0W3': there are only 3"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_texts_that_cannot_be_parsed(name: str) -> None:
    text, told = BAD_TEXTS[name]
    with pytest.raises(InputError) as error:
        parse(text, "some.txt")
    assert str(error.value).startswith("some.txt: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


@given(st.integers(0, len(VALID)), st.integers(0, 12), st.text("schedulmn,vFBWU0123456789:| \n#-é\0", max_size=8))
def test_a_damaged_text_is_valid_or_refused_in_one_line(begin: int, length: int, new: str) -> None:
    text = VALID[:begin] + new + VALID[begin + length :]
    try:
        schedule = parse(text, "some.txt")
        assert len(actions_of(schedule)) == schedule.devices
        dry_run(schedule)
    except InputError as error:
        assert len(str(error).splitlines()) == 1


@given(st.text(max_size=80))
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse(text)


@pytest.mark.parametrize("old", ["2 devices", "0:2", "0W0"])
def test_endless_numbers(old: str) -> None:
    with pytest.raises(InputError):
        parse(VALID.replace(old, old[0] + "0" * 5000 + old[1:] if old == "2 devices" else old + "0" * 5000))


def test_no_devices() -> None:
    with pytest.raises(InputError):
        dry_run(parse("schedule mine, 0 devices\nmicro-batches 0:2\n"))
