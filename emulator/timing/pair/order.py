"""Tasks of a pair in the order of FARNN's Fig. 6, of the configurations it is compared with, and of a GPU alone.

Overlapped:
    FW  The GPU does I-MVM of a layer while R goes to the FPGA, whose steps begin when both are there. R goes as soon as
        the PEs have done the layer before, whose outputs I-MVM waits for.
    BW  The GPU transposes R and sends it anew. Its steps wait for the errors of the layer's outputs, which BW I-MVM of
        the layer behind makes. GC and WU of that layer run on the GPU meanwhile.
The GPU does its tasks one after another. So it transposes R after BW I-MVM of the layer behind, which is older. In turn
(section 6.2.4) nothing overlaps. A GPU alone does all steps of a layer, as cuDNN trains it, and then those of the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ...cluster import Gpu
from ...common import InputError
from .devices import persistent_step_ps, standard_step_ps
from .tasks import Costs, Resource, Task, TaskList
from .work import OtherWork, Phase, RecurrentWork, Workload

_FW, _BW = Phase.FORWARD, Phase.BACKWARD


@dataclasses.dataclass
class _Making:
    """The tasks so far; `ready` are those that make what the next part takes, `passed` the FPGA's last one."""

    costs: Costs
    added: TaskList = dataclasses.field(default_factory=TaskList)
    ready: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()
    late: list[Task] = dataclasses.field(default_factory=list)
    """GC and WU of the layer behind, which the GPU does while the FPGA has the next."""

    def forward(self, work: RecurrentWork) -> None:
        """Add FW of a layer; of one with two directions, one after the other on the FPGA."""
        products = (
            ()
            if self.costs.inputs_too
            else [self._add_inputs(work, _FW, direction) for direction in range(work.directions)]
        )
        done = []
        for direction in range(work.directions):
            if self.costs.inputs_too:
                self._pass_inputs(work, _FW, direction, self.ready)
            needed = self.ready if self.costs.inputs_too else (products[direction],)
            done.append(self._pass_steps(work, _FW, direction, needed))
        self.ready = tuple(done)

    def backward(self, work: RecurrentWork) -> None:
        """Add BW of a layer, and GC and WU of the one behind it."""
        each_way = range(work.directions)
        turned = [self._turn(work, work.recurrent_weights, direction) for direction in each_way]
        turned_inputs = [
            self._turn(work, work.input_weights, direction) for direction in each_way if self.costs.inputs_too
        ]
        self.finish()
        done = []
        for direction in each_way:
            stepped = self._pass_steps(work, _BW, direction, self.ready, (turned[direction],))
            if self.costs.inputs_too:
                done.append(self._pass_inputs(work, _BW, direction, (), (turned_inputs[direction],)))
            else:
                done.append(self.added.add(self.costs.input_products(work, _BW, direction), (stepped,)))
        self.ready = tuple(done)
        self.late = [self.costs.gradients(work), self.costs.update(work)]

    def others(self, work: OtherWork, phase: Phase) -> None:
        """Add layers without a state; in BW their gradients may wait, as GC does."""
        self.ready = (self.added.add(self.costs.others(work, phase), self.ready),)
        if phase is _BW:
            self.finish()
            self.late = [self.costs.others(work, phase), self.costs.update(work)]

    def finish(self) -> None:
        """Add GC and WU of the layer behind."""
        for task in self.late:
            self.added.add(task)
        self.late = []

    def _turn(self, work: RecurrentWork, weights: int, direction: int) -> int:
        return self.added.add(self.costs.transposition(work, weights, direction))

    def _add_inputs(self, work: RecurrentWork, phase: Phase, direction: int) -> int:
        return self.added.add(self.costs.input_products(work, phase, direction), self.ready)

    def _load(self, work: RecurrentWork, phase: Phase, weights: int, direction: int, after: Sequence[int]) -> int:
        """Add the transfer of weights, for which the PEs must have done with others."""
        return self.added.add(self.costs.load(work, phase, weights, direction), (*self.passed, *after))

    def _pass_steps(
        self, work: RecurrentWork, phase: Phase, direction: int, needed: Sequence[int], sent: Sequence[int] = ()
    ) -> int:
        loaded = self._load(work, phase, _recurrent(work, phase), direction, sent)
        place = self.added.add(self.costs.steps(work, phase, direction), (*needed, loaded))
        self.passed = (place,)
        return place

    def _pass_inputs(
        self, work: RecurrentWork, phase: Phase, direction: int, needed: Sequence[int], sent: Sequence[int] = ()
    ) -> int:
        loaded = self._load(work, phase, work.input_weights, direction, sent)
        place = self.added.add(self.costs.input_steps(work, phase, direction), (*needed, loaded))
        self.passed = (place,)
        return place


def _recurrent(work: RecurrentWork, phase: Phase) -> int:
    """Return the number of a direction's weights that go to the FPGA for its steps; FW needs the biases, too."""
    return work.recurrent_weights + (work.biases if phase is _FW else 0)


def overlapped(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks of a pair whose GPU works beside the FPGA.

    If I-MVM is the FPGA's, too, it holds one matrix at a time: W, then R, and in BW their transposes the other way
    round.
    """
    making = _Making(costs)
    for part in workload.parts:
        if isinstance(part, OtherWork):
            making.others(part, _FW)
        else:
            making.forward(part)
    for part in reversed(workload.parts):
        if isinstance(part, OtherWork):
            making.others(part, _BW)
        else:
            making.backward(part)
    making.finish()
    return making.added.tasks


def in_turn(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks of a pair that does one after another: transfers, FW, BW, GC and WU (section 6.2.4)."""
    tasks: list[Task] = []
    for part in workload.parts:
        if isinstance(part, OtherWork):
            tasks.append(costs.others(part, _FW))
            continue
        for direction in range(part.directions):
            tasks += [
                costs.input_products(part, _FW, direction),
                costs.load(part, _FW, _recurrent(part, _FW), direction),
                costs.transfer(part, _FW, Resource.TO_FPGA, direction),
                costs.steps(part, _FW, direction, streamed=False),
                costs.transfer(part, _FW, Resource.TO_GPU, direction),
            ]
    for part in reversed(workload.parts):
        if isinstance(part, OtherWork):
            tasks += [costs.others(part, _BW, passes=2), costs.update(part)]
            continue
        for direction in range(part.directions):
            tasks += [
                costs.transposition(part, part.recurrent_weights, direction),
                costs.load(part, _BW, _recurrent(part, _BW), direction),
                costs.transfer(part, _BW, Resource.TO_FPGA, direction),
                costs.steps(part, _BW, direction, streamed=False),
                costs.transfer(part, _BW, Resource.TO_GPU, direction),
                costs.input_products(part, _BW, direction),
            ]
        tasks += [costs.gradients(part), costs.update(part)]
    return in_a_row(tasks)


def in_a_row(tasks: Sequence[Task]) -> list[Task]:
    """Return tasks each of which waits for the one before it."""
    return [dataclasses.replace(task, after=(place - 1,) if place else ()) for place, task in enumerate(tasks)]


StepTime = Callable[[Gpu, RecurrentWork, int], int]


def standard(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks with cuDNN's standard form."""
    return _alone(workload, costs, standard_step_ps)


def persistent(workload: Workload, costs: Costs) -> list[Task]:
    """Return the tasks with cuDNN's persistent form.

    Raises:
        InputError: a layer has a projection.
    """
    for work in workload.recurrent:
        if work.projection is not None:
            raise InputError(
                f"`schedule` = 'gpu-persistent': {work.name} has a projection, which cuDNN's persistent form does not"
                " take; should be 'gpu-standard'"
            )
    return _alone(workload, costs, persistent_step_ps)


def _alone(workload: Workload, costs: Costs, step_ps: StepTime) -> list[Task]:
    tasks: list[Task] = []
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        forward = phase is Phase.FORWARD
        for part in workload.parts if forward else reversed(workload.parts):
            if isinstance(part, OtherWork):
                tasks.append(costs.others(part, phase, passes=1 if forward else 2))
                tasks += [] if forward else [costs.update(part)]
                continue
            products = [costs.input_products(part, phase, direction) for direction in range(part.directions)]
            steps = costs.gpu_steps(part, phase, step_ps(costs.pair.gpu, part, costs.batch))
            tasks += [*products, steps] if forward else [steps, *products, costs.gradients(part), costs.update(part)]
    return in_a_row(tasks)
