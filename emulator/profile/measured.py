"""Stages on boards whose layers were measured: the roofline says what fits where, the profile how
long a layer takes.

A formula for layers is 5 to 17 % off, which is more than its constants are. A slice takes the share
of its layer's times that it has of the layer's cut channels.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ..cluster import Board
from ..common import InputError
from ..mapping import SINGLE_STORAGE, Slice, cut_channels
from ..network import Network
from ..number import Storage
from ..schedule import StageCosts
from .profile import LayerTimes, Profile
from .roofline import BoardStage
from .stages import BoardStages


def check_profile(profile: Profile, network: Network, boards: Sequence[Board], source: str) -> None:
    """Check that a profile has times of all layers of a network, on all kinds of boards.

    Raises:
        InputError: times are missing; the message names the layers or the board, and `source`.
    """
    known = {layer.name for layer in profile.layers}
    missing = [layer.name for layer in network.layers if layer.name not in known]
    if missing:
        raise InputError(
            f"{source}: no times of {', '.join(missing)}: should have each layer of {network.name}"
        )
    measured = dict.fromkeys(kind for kind, _ in profile.layers[0].times)
    for board in boards:
        if board.name not in measured:
            raise InputError(
                f"{source}: no times on {board.name}; there are those on {', '.join(measured)}"
            )


class MeasuredBoardStages(BoardStages):
    """Stages on boards whose layers were measured: the roofline says what fits, the profile how
    long it takes.
    """

    def __init__(
        self,
        network: Network,
        boards: Sequence[Board],
        samples: int,
        storage: Storage = SINGLE_STORAGE,
        shares: int = 1,
        recomputed: Collection[int] = (),
        *,
        profile: Profile,
        **more: Any,
    ) -> None:
        """Take what `BoardStages` takes, and the profile, which has all layers and boards
        (`check_profile`).
        """
        super().__init__(network, boards, samples, storage, shares, recomputed, **more)
        self._times = {kind: profile.by_layer(kind, samples) for kind in dict.fromkeys(self.kinds)}

    def costs(
        self,
        begin: int,
        end: int,
        device: int,
        kept: int,
        *,
        weight_copies: int = 1,
        together: bool = False,
    ) -> StageCosts:
        """See `Stages`."""
        costs = super().costs(
            begin, end, device, kept, weight_copies=weight_copies, together=together
        )
        times = self._times[self.kinds[device]]
        parts = self.slices(begin, end)
        return measured_costs(costs, parts, times, self._recomputed, apart=self._apart)

    def least_ps(self, begin: int, end: int, device: int) -> int:
        """See `Stages`."""
        times = _measured(self.slices(begin, end), self._times[self.kinds[device]])
        return int(times.forward_ps + times.backward_ps)


def measured_costs(
    costs: StageCosts,
    slices: Sequence[Slice],
    layers: Mapping[str, LayerTimes],
    recomputed: Collection[int] = (),
    *,
    apart: bool = False,
) -> StageCosts:
    """Return the costs of a stage with the times of its slices' layers (`Profile.by_layer`), and
    those of F again of `recomputed` layers: in B, or `apart` in R.

    Where PG was not measured, it takes the part of B that it has by the roofline.

    Raises:
        InputError: layers are recomputed, and PG was not measured.
    """
    times = _measured(slices, layers)
    again = _measured([part for part in slices if part.layer.index in recomputed], layers)
    forward = math.ceil(times.forward_ps)
    backward = math.ceil(times.backward_ps + (0 if apart else again.forward_ps))
    recompute, pg = math.ceil(again.forward_ps) if apart else 0, times.pg_ps
    if pg is None and recomputed:
        raise InputError("`recompute`: the profile should have `gradient_us` of each layer")
    if pg is None:
        assert costs.pg_ps is not None
        pg = times.backward_ps * Fraction(costs.pg_ps, costs.backward_ps)
    forward = max(forward, 1 - min(backward, 1))  # layers that take no time get a picosecond
    return dataclasses.replace(
        costs,
        forward_ps=forward,
        backward_ps=backward,
        pg_ps=min(math.ceil(pg), backward),
        recompute_ps=recompute,
    )


def measured_stage(
    stage: BoardStage,
    layers: Mapping[str, LayerTimes],
    recomputed: Collection[int] = (),
    *,
    apart: bool = False,
) -> BoardStage:
    """Return a stage with the times of its layers (`Profile.by_layer`), of which none is known to
    wait for memory.
    """
    parts = [layer.part for layer in stage.layers]
    costs = measured_costs(stage.costs, parts, layers, recomputed, apart=apart)
    unbound = tuple(dataclasses.replace(layer, bound_by_memory=()) for layer in stage.layers)
    return dataclasses.replace(stage, costs=costs, layers=unbound)


class _MeasuredTimes(NamedTuple):
    """Exact times of slices; None for PG if that of a layer is not known."""

    forward_ps: Fraction
    backward_ps: Fraction
    pg_ps: Fraction | None


def _measured(slices: Sequence[Slice], layers: Mapping[str, LayerTimes]) -> _MeasuredTimes:
    forward = backward = Fraction(0)
    pg: Fraction | None = Fraction(0)
    for part in slices:
        times, share = (
            layers[part.layer.name],
            Fraction(part.end - part.begin, cut_channels(part.layer)),
        )
        forward += share * times.forward_ps
        backward += share * times.backward_ps
        pg = None if pg is None or times.pg_ps is None else pg + share * times.pg_ps
    return _MeasuredTimes(forward, backward, pg)
