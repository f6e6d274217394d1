"""What faults cost in virtual time: the same run without any, with all, and with each alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..faults import BoardFault, Faults, LinkFault
from ..plan import Plan
from .simulate import simulate
from .sizes import GivenSizes


@dataclasses.dataclass(frozen=True)
class FaultCosts:
    """The virtual time of a run without faults, with all, and with each alone that costs time; in ps."""

    without_ps: int
    with_ps: int
    alone_ps: tuple[tuple[BoardFault | LinkFault, int], ...]

    @property
    def cost_ps(self) -> int:
        """What all faults cost."""
        return self.with_ps - self.without_ps

    @property
    def share(self) -> float:
        """The cost over the time without faults."""
        return self.cost_ps / self.without_ps

    @property
    def each(self) -> list[tuple[str, int]]:
        """Each fault, and what it costs alone."""
        return [(str(fault), alone_ps - self.without_ps) for fault, alone_ps in self.alone_ps]


def fault_costs(plan: Plan, samples: int, with_ps: int, sizes: Sequence[GivenSizes] = ()) -> FaultCosts:
    """Return what the faults of a plan cost in a run that took `with_ps`, by simulation.

    Args:
        plan: with faults.
        samples: in an epoch.
        with_ps: virtual time of the run.
        sizes: those of compressed messages, for each epoch, as for `simulate`.
    """

    def time_ps(faults: Faults) -> int:
        return simulate(dataclasses.replace(plan, faults=faults), samples, sizes=sizes).virtual_time_ps

    faults = plan.faults
    if not faults.in_time:
        return FaultCosts(with_ps, with_ps, ())
    if len(faults.in_time) == 1:
        return FaultCosts(time_ps(Faults()), with_ps, ((faults.in_time[0], with_ps),))
    alone = tuple((fault, time_ps(faults.alone(fault))) for fault in faults.in_time)
    return FaultCosts(time_ps(Faults()), with_ps, alone)
