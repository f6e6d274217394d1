"""Tasks of a GPU alone, as cuDNN trains recurrent layers: all steps of a layer, then those of the next."""

from __future__ import annotations

from collections.abc import Callable

from ..cluster import Gpu
from ..common import InputError
from .costs import Costs
from .gpu import persistent_step_ps, standard_step_ps
from .offloaded import in_a_row
from .tasks import Phase, Task
from .work import OtherWork, RecurrentWork, Workload

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
            products = [costs.input_products(part, phase, each) for each in range(part.directions)]
            steps = costs.gpu_steps(part, phase, step_ps(costs.pair.gpu, part, costs.batch))
            tasks += [*products, steps] if forward else [steps, *products, costs.gradients(part), costs.update(part)]
    return in_a_row(tasks)
