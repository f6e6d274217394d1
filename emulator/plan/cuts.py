"""The cuts that are tried on boards that stream rows: by channels, at layers, or the one made by hand."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from ..cluster import Cluster
from ..common import InputError, plural
from ..mapping import Mapping, partition, partition_layers, with_balance
from ..network import Network
from ..timing import Timing
from .by_rate import FindSteady, Settled, place_by_rate, settle, stand_ins

if TYPE_CHECKING:
    from ..config import Config


@dataclasses.dataclass(frozen=True)
class TriedCuts:
    """The cuts of a network over a chain whose `cluster` has a board for each of `devices` times `chunks` stages."""

    config: Config
    network: Network
    cluster: Cluster
    devices: int
    chunks: int

    @property
    def stages(self) -> int:
        """Number of stages of the chain."""
        return self.devices * self.chunks

    @property
    def balancing(self) -> bool:
        """Whether parameters may be stored on other devices."""
        return self.config.balancing == "auto" and self.chunks == 1 and not self.network.last_first

    def as_in_fpdeep(self) -> list[Mapping]:
        """Return the cuts that are tried if data off chip is free, as in FPDeep, or the one made by hand.

        Fully connected layers that do not fit on a board have boards of their own.
        """
        layers = self._at_layers()
        chains = [self.cluster, *stand_ins(self.cluster)]
        cuts = layers if self._is_whole else [*(partition(self.network, c, self.stages) for c in chains), *layers]
        by_hand = self.made_by_hand()
        if by_hand is None:
            return cuts
        same = [mapping for mapping in cuts if mapping.devices == by_hand.devices]
        return same or [with_balance(by_hand, self.cluster)]

    def placed(self, steady_of: FindSteady) -> list[Settled]:
        """Return the cuts that are tried with places for all data, or the one made by hand.

        One that is among those tried is placed as that is, and so takes the same time.

        Raises:
            InputError: the network does not fit, or what was made by hand is wrong.
        """
        by_hand, balancing = self.made_by_hand(), self.balancing
        choices = [settle(mapping, self.cluster, steady_of, 0, balancing=balancing) for mapping in self._at_layers()]
        if not self._is_whole:
            choices += place_by_rate(self.network, self.cluster, self.stages, steady_of, balancing=balancing)
        if by_hand is None:
            return choices
        same = [settled for settled in choices if settled.timing.mapping.devices == by_hand.devices]
        even = with_balance(by_hand, self.cluster)
        bound_ps = Timing.of(even, self.cluster).interval_ps
        return same or [settle(even, self.cluster, steady_of, bound_ps, balancing=balancing)]

    def made_by_hand(self) -> Mapping | None:
        """Return the mapping of the cut made by hand, if there is one.

        Raises:
            InputError: it is wrong, cuts a layer that must stay whole, or has pieces for more or fewer devices.
        """
        cut = self.config.cut
        if cut is None:
            return None
        mapping, noun = cut.mapping(self.network), "board" if self.chunks == 1 else "stage"
        count = len(cut.boards)
        if count != self.stages:
            last = mapping.devices[min(self.stages, count - 1)][0].layer.name
            which = f"none is left for {last}" if count > self.stages else f"{last} is on the last one"
            raise InputError(f"{cut.blame}: has {plural(count, noun)}, and the run {self.stages}; {which}")
        split = (part for slices in mapping.devices for part in slices if not (part.is_first and part.is_last))
        part = next(split, None)
        if part is not None and (self.config.stages == "layers" or (part.layer.operation.recurs and self._is_whole)):
            by = "`stages` = 'layers'" if self.config.stages == "layers" else f"schedule {self.config.schedule.name}"
            raise InputError(f"{cut.blame}: cuts {part.layer.name}, which stays whole with {by}")
        return mapping

    def _at_layers(self) -> list[Mapping]:
        """Return the cut at layers, where layers stay whole or one is worth a try."""
        # A cut through a recurrent layer costs time at each step, which a cut at layers does not.
        may = self.network.last_first and self.stages <= len(self.network.layers)
        return [partition_layers(self.network, self.cluster, self.stages)] if self._is_whole or may else []

    @functools.cached_property
    def _is_whole(self) -> bool:
        """Whether layers may not be cut: so configured, or steps of a recurrent one need all devices at once.

        Raises:
            InputError: then there are more devices than layers.
        """
        network, kind = self.network, self.config.schedule
        if self.config.stages == "layers":
            return True
        if kind.aligned or not network.recurs:
            return False
        if self.stages > len(network.layers):
            raise InputError(
                f"`schedule` = {kind.name!r}: splits micro-batches where its weights change, but devices that share a"
                f" recurrent layer step through whole ones; {network.name} has {plural(len(network.layers), 'layer')}"
                f" for {plural(self.stages, 'device')}; should be at most {plural(len(network.layers), 'device')}, or a"
                " schedule such as 'sync'"
            )
        return True
