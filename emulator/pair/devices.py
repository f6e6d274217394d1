"""The devices of a pair: a GPU, an FPGA built of chains of PEs, and the link between them."""

from __future__ import annotations

import dataclasses

from ..cluster import Cluster, Fpga, Gpu, Link, PeArray
from ..common import InputError
from ..schedule import ScheduleKind
from .gpu import STATES
from .steps import VALUE_BYTES


@dataclasses.dataclass(frozen=True)
class Pair:
    """A GPU and an FPGA; of a GPU alone, the FPGA is None. The optimiser keeps `states` arrays for each parameter."""

    gpu: Gpu
    link: Link
    fpga: Fpga | None = None
    states: int = STATES

    @property
    def array(self) -> PeArray:
        """The FPGA's MVM units."""
        assert self.fpga is not None and self.fpga.pe_array is not None
        return self.fpga.pe_array

    @property
    def cycle_ps(self) -> int:
        """Clock period of the FPGA in ps."""
        assert self.fpga is not None
        return self.fpga.period_ps

    def values_ps(self, values: int) -> int:
        """Return the time in ps that values take on the link, without its latency."""
        return self.link.transfer_ps(VALUE_BYTES * values)

    def load_ps(self, weights: int) -> int:
        """Return the time in ps in which weights reach the PEs: by the link, or a weight a cycle into each chain."""
        return max(self.values_ps(weights), -(-weights // self.array.chains) * self.cycle_ps) + self.link.latency_ps


def pair_of(cluster: Cluster, kind: ScheduleKind, devices: int | None = None) -> Pair:
    """Return the devices of a cluster that a schedule of pairs takes: a GPU, and for most of them an FPGA behind it.

    Raises:
        InputError: the cluster has other boards, or `devices` is another number.
    """
    assert kind.offload is not None
    wanted = kind.offload.devices
    if devices not in (None, wanted):
        those = "a GPU and an FPGA" if wanted > 1 else "a GPU alone"
        raise InputError(f"`devices` = {devices}: `schedule` = {kind.name!r} takes {those}; should be {wanted}")
    gpu, fpga = cluster.board(0), cluster.board(1)
    if not isinstance(gpu, Gpu):
        raise InputError(
            f"`cluster` = {cluster.name!r}: device 0 is a {gpu.name}, where `schedule` = {kind.name!r} needs a GPU;"
            " should have a board with `kind` = 'gpu' first, as 'farnn-9p'"
        )
    if wanted == 1:
        return Pair(gpu, cluster.link_at(0))
    if not isinstance(fpga, Fpga) or fpga.pe_array is None:
        said = "a GPU, too" if isinstance(fpga, Gpu) else "an FPGA without `pe_chains`"
        raise InputError(
            f"`cluster` = {cluster.name!r}: device 1, {fpga.name}, is {said}, where `schedule` = {kind.name!r} needs"
            " an FPGA with chains of PEs; should have such a board second, as 'farnn-9p'"
        )
    return Pair(gpu, cluster.link_at(0), fpga)
