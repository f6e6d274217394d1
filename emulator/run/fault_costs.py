"""What faults cost in virtual time: the same run without any, with all, and with each alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..faults import Faults
from ..plan import ChainPlan
from .record import GivenSizes
from .segment import Death
from .segments import segments_of
from .simulate import simulate


@dataclasses.dataclass(frozen=True)
class FaultCosts:
    """The virtual time in ps of a run without faults, with all, and with each alone that costs time.

    Each has its description. All boards that die count as one fault; `deaths` are those within the run.
    """

    without_ps: int
    with_ps: int
    alone_ps: tuple[tuple[str, int], ...]
    deaths: tuple[Death, ...] = ()

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
        return [(what, alone_ps - self.without_ps) for what, alone_ps in self.alone_ps]


def fault_costs(plan: ChainPlan, samples: int, with_ps: int, sizes: Sequence[GivenSizes] = ()) -> FaultCosts:
    """Return what the faults of a plan cost in a run that took `with_ps`, by simulation.

    Args:
        plan: with faults.
        samples: in an epoch.
        with_ps: virtual time of the run.
        sizes: those of compressed messages, for each epoch, as for `simulate`.
    """

    def time_ps(hurt: ChainPlan) -> int:
        return simulate(hurt, samples, sizes=sizes).virtual_time_ps

    faults = plan.faults
    if not faults.in_time:
        return FaultCosts(with_ps, with_ps, ())
    without_ps = time_ps(plan.hurt_by(Faults()))
    deaths = tuple(segment.death for segment in segments_of(plan, samples) if segment.death is not None)
    kinds = [(str(fault), faults.alone(fault)) for fault in faults.slowing]
    if faults.deaths:
        kinds.append((" and ".join(map(str, faults.in_order)), faults.deaths_alone))
    if len(kinds) == 1:
        return FaultCosts(without_ps, with_ps, ((kinds[0][0], with_ps),), deaths)
    alone = tuple((what, time_ps(plan.hurt_by(one))) for what, one in kinds)
    return FaultCosts(without_ps, with_ps, alone, deaths)
