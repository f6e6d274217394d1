"""F ahead of other actions: what must come first does, whatever a device waits for, and nothing
changes.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import Mailbox, others_first, run
from emuchain.emulator.device import Device, Epoch, train_programs
from emuchain.emulator.device.lanes import AHEAD
from emuchain.emulator.device.memories import Versions
from emuchain.emulator.schedule import Action, EpochShape, Kind, Schedule, parse
from emuchain.kernels import Arena
from emuchain.launch import SingleProcess

from ..schedule.chains import any_schedule, stashing


class Recorded:
    """A device that keeps what it does; `waits` says for how many turns of the host each action
    waits first.
    """

    def __init__(
        self, waits: Callable[[Action], int] = lambda action: 0, *, may_go_ahead: bool = True
    ) -> None:
        self.may_go_ahead, self._waits = may_go_ahead, waits
        self.did: list[str] = []
        self._weights = Versions(np.zeros(1, np.float32), Arena())

    def begin_epoch(self, epoch: Epoch) -> None:
        """See `Device`."""
        self.did.append("begin")

    def end_epoch(self) -> None:
        """See `Device`."""
        self.did.append("end")

    async def do(self, action: Action, epoch: Epoch) -> None:
        """Check that the weights that the action names are there."""
        for _ in range(self._waits(action)):
            await others_first()
        assert action.version is None or self._weights[action.version] == action.version, action
        self.did.append(str(action))

    async def settle(self, *, keeps: bool) -> None:
        """See `Device`."""

    async def sum_gradients(self, step: int, epoch: Epoch) -> None:
        """See `Device`."""

    async def join_sums(self) -> None:
        """See `Device`."""

    async def update(self, step: int, keeps: bool, on_step: Any) -> None:
        """Make weights that have the version's number as their value."""
        self._weights.advance(keeps=keeps)[...] += 1
        self.did.append(f"U{step + 1}")

    def free(self, versions: Sequence[int]) -> None:
        """See `Device`."""
        self._weights.free(versions)

    def versions(self) -> int:
        """Number of versions of the weights that are there."""
        return len(self._weights)


EPOCH = Epoch((), ())


def done(device: Any, program: Sequence[Action], *, ahead: bool = True) -> list[str]:
    """What the device does."""
    run(train_programs([device], iter(program), EPOCH, ahead=ahead))
    assert device.did[0] == "begin"
    assert device.did[-1] == "end"
    return device.did[1:-1]


BY_HAND = """schedule hand, 1 devices
micro-batches 0:1 1:2 | 2:3 3:4
0F0v0 0B0v0 0W0 0F1v0 0B1v0 0W1 0U1 0F2v1 0B2v1 0W2 0F3v1 0B3v1 0W3 0U2
"""


def test_by_hand() -> None:
    """While B0 waits F1 is done, but not F2: U1 comes before it."""
    [program] = parse(BY_HAND).programs([0]).values()
    did = done(Recorded(lambda action: 9 * (action.kind is Kind.BACKWARD)), list(program))
    assert did == "F0v0 F1v0 B0v0 W0 B1v0 W1 U1 F2v1 F3v1 B2v1 W2 B3v1 W3 U2".split()


def test_f_goes_ahead_of_a_few_actions_at_most() -> None:
    actions = [
        Action(kind, number, 0) for number in range(9) for kind in (Kind.FORWARD, Kind.BACKWARD)
    ]
    did = done(Recorded(lambda action: 99 * (action.kind is Kind.BACKWARD)), actions)
    assert did[: AHEAD + 2] == [*(f"F{number}v0" for number in range(AHEAD + 1)), "B0v0"]


def test_f_keeps_the_version_that_it_is_the_last_to_use() -> None:
    """F1 uses version 0 after U1, and frees it."""
    text = (
        "schedule hand, 1 devices\nmicro-batches 0:1 | 1:2\n0F0v0 0B0v0 0W0 0U1 0F1v0 0B1v1 0W1"
        " 0U2\n"
    )
    [program] = parse(text).programs([0]).values()
    device = Recorded(lambda action: 9 * (action.kind is Kind.FORWARD))
    assert done(device, list(program)) == "F0v0 B0v0 W0 U1 F1v0 B1v1 W1 U2".split()
    assert device.versions() == 1


def stashed(devices: int, steps: int) -> Schedule:
    """PipeDream's weight stashing."""
    return stashing(EpochShape(devices, 2 * steps, 2, 2), lambda device: devices - device)


@given(any_schedule() | st.builds(stashed, st.integers(1, 6), st.integers(1, 20)), st.data())
def test_what_must_come_first_does(schedule: Schedule, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, schedule.devices - 1))
    program = list(schedule.programs([number])[number])
    waits = dict(
        zip(program, data.draw(st.lists(st.integers(0, 4), min_size=len(program))), strict=False)
    )
    device = Recorded(lambda action: waits[action])
    did, place = done(device, program), {str(action): place for place, action in enumerate(program)}
    assert sorted(did) == sorted(place)
    assert device.versions() == 1
    forwards = [action for action in did if action[0] == "F"]
    others = [action for action in did if action[0] != "F"]
    for lane in (forwards, others):
        assert [place[action] for action in lane] == sorted(place[action] for action in lane)
    for before, after in itertools.pairwise(did):
        assert place[before] < place[after] or before[0] == "F" or after[0] == "F"
    for at, action in enumerate(did):
        overtaken = [other for other in did[at:] if place[other] < place[action]]
        assert len(overtaken) <= AHEAD
        assert not overtaken or action[0] == "F"
        assert not any(other[0] == "U" for other in overtaken)


@pytest.mark.parametrize(("may_go_ahead", "ahead"), [(False, True), (True, False)])
def test_the_order_of_the_program_else(may_go_ahead: bool, ahead: bool) -> None:
    [program] = parse(BY_HAND).programs([0]).values()
    device = Recorded(lambda action: 9 * (action.kind is Kind.BACKWARD), may_go_ahead=may_go_ahead)
    assert done(device, actions := list(program), ahead=ahead) == [
        str(action) for action in actions
    ]


def test_f_is_carried_out_while_b_waits_for_a_message() -> None:
    """A device whose B waits for another's message does F meanwhile, and stops there."""
    mail, device = Mailbox(), Recorded()
    whole = device.do

    async def do(action: Action, epoch: Epoch) -> None:
        if action.kind is Kind.BACKWARD:
            await mail.get()
        await whole(action, epoch)

    async def neighbour() -> None:
        while "F1v0" not in device.did:
            await others_first()
        mail.put(0)
        mail.put(1)

    device.do = do  # type: ignore[method-assign]  # a message comes only when F has gone ahead
    actions = [
        Action(kind, number, 0) for number in (0, 1) for kind in (Kind.FORWARD, Kind.BACKWARD)
    ]
    run([*train_programs([device], actions, EPOCH, ahead=True), neighbour()])  # type: ignore[list-item]
    assert device.did == ["begin", "F0v0", "F1v0", "B0v0", "B1v0", "end"]


QUICK = {"network": "quick-cifar", "batch": 16, "samples": 64}
RUNS: dict[str, dict[str, Any]] = {
    "fpdeep": {**QUICK, "devices": 5, "epochs": 2},
    "sync": {**QUICK, "devices": 3, "schedule": "sync"},
    "residual": {
        "network": "resnet18-cifar",
        "devices": 4,
        "batch": 4,
        "samples": 12,
        "micro_batch": 2,
    },
    "replicas": {**QUICK, "devices": 3, "replicas": 2, "compress": "inceptionn:-10"},
    "1f1b-so": {**QUICK, "devices": 4, "schedule": "1f1b-so"},
    "turns": {**QUICK, "devices": 4, "schedule": "1f1b-as", "engines": "turns"},
    "shared": {**QUICK, "devices": 4, "schedule": "1f1b-so", "engines": "shared"},
    "recurrent": {
        "network": "lstm-rows",
        "devices": 3,
        "batch": 16,
        "samples": 48,
        "schedule": "sync",
    },
    "balanced": {**QUICK, "devices": 5, "cluster": ""},
}


IN_ORDER = {"turns", "shared", "recurrent"}


@pytest.mark.parametrize("name", RUNS)
def test_weights_and_times_stay(
    plan_of: Any, trained: Any, bits: Any, small_cluster: str, monkeypatch: Any, name: str
) -> None:
    """A process without other ranks has nothing to wait for; here F goes ahead all the same."""
    keys, goes_ahead = RUNS[name], name not in IN_ORDER
    own = {"cluster": small_cluster} if "cluster" in keys else {}
    plan = plan_of(**{"test_samples": 8, "micro_batch": 4, **keys, **own})
    did: dict[int, list[Action]] = collections.defaultdict(list)
    do = Device.do

    def noting(device: Device, action: Action, epoch: Epoch) -> Any:
        did[device.number].append(action)
        return do(device, action, epoch)

    monkeypatch.setattr(Device, "do", noting)
    expected, in_order = trained(plan), dict(did)
    did.clear()
    monkeypatch.setattr(SingleProcess, "idles", True)
    found = trained(plan)
    assert (did != in_order) == goes_ahead
    assert bits(found.weights) == bits(expected.weights)
    for one, other in zip(found.history, expected.history, strict=True):
        for what in ("train", "test", "virtual_time_ps", "usage"):
            assert getattr(one, what) == getattr(other, what), what
