"""The plan of a run on a GPU, alone or with an FPGA: the work of a mini-batch, and its times."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from ..cluster import Cluster
from ..mapping import Mapping, Slice, cut_channels
from ..network import Network
from ..pair import LayerNeeds, Pair, PairTimes, Workload, all_needs, time_mini_batch
from ..schedule import EpochShape, Offload, Schedule

if TYPE_CHECKING:
    from ..config import Config


@dataclasses.dataclass(frozen=True)
class PairPlan:
    """What a run on a pair will do; pure data, the same on every rank."""

    config: Config
    network: Network
    cluster: Cluster
    pair: Pair
    workload: Workload

    @property
    def offload(self) -> Offload:
        """What the GPU gives to the FPGA."""
        assert self.config.schedule.offload is not None
        return self.config.schedule.offload

    @property
    def devices(self) -> int:
        """Number of devices: the GPU is the first, an FPGA the second."""
        return self.offload.devices

    @property
    def nodes(self) -> int:
        """As `devices`: there are no replicas."""
        return self.devices

    @property
    def missing_bytes(self) -> int:
        """Bytes of memory that are missing and that the times ignore: none."""
        return 0

    @property
    def inputs_too(self) -> bool:
        """Whether the FPGA does the input products, too."""
        return self.offload is Offload.ALL_STEPS

    @functools.cached_property
    def times(self) -> PairTimes:
        """The timeline of a mini-batch."""
        return time_mini_batch(self.workload, self.pair, self.offload)

    @functools.cached_property
    def needs(self) -> list[LayerNeeds]:
        """What each recurrent layer takes of the FPGA, if there is one."""
        return all_needs(self.workload, self.pair, self.offload)

    def times_of(self, samples: int) -> PairTimes:
        """Return the timeline of a mini-batch of this size."""
        if samples == self.workload.batch:
            return self.times
        return time_mini_batch(self.workload.of_batch(samples), self.pair, self.offload)

    def epoch_ps(self, samples: int) -> int:
        """Return the time of an epoch, whose mini-batches follow one another."""
        whole, left = divmod(samples, self.config.batch)
        return whole * self.times.mini_batch_ps + (self.times_of(left).mini_batch_ps if left else 0)

    def schedule(self, samples: int) -> Schedule:
        """Return the actions of the GPU in an epoch; the FPGA takes part in F and B."""
        return self.config.schedule.generate(EpochShape(1, samples, self.config.batch, self.config.micro_batch))

    @property
    def mapping(self) -> Mapping:
        """All layers on the GPU."""
        whole = tuple(Slice(layer, 0, cut_channels(layer)) for layer in self.network.layers)
        return Mapping(self.network, (whole,))

    @property
    def mapping_text(self) -> str:
        """Which device has which layers."""
        lines = [f"device 0, {self.pair.gpu.name}: " + ", ".join(layer.name for layer in self.network.layers)]
        if self.pair.fpga is not None:
            steps = ", ".join(work.name for work in self.workload.recurrent)
            lines.append(f"device 1, {self.pair.fpga.name}: steps of {steps}")
        return "\n".join(lines)

    @property
    def boards(self) -> str:
        """The names of the devices."""
        return self.pair.gpu.name + (f" + {self.pair.fpga.name}" if self.pair.fpga else "")

    @property
    def title(self) -> str:
        """The network and the devices."""
        return f"{self.workload.name} on {self.boards}"
