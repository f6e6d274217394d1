"""The outcome of an iteration: the four metrics of FPDeep, section 3.3 and Fig. 5."""

from __future__ import annotations

import dataclasses

from ...common import gbps


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The metrics of one method on `devices` devices.

    - FLOP utilisation: useful multiply-accumulates over those that all multipliers could do in the iteration
    - storage: "model parameters and temporal activations must be stored": parameters, their gradients, and the inputs
      of layers that wait for PG, in bytes for each device
    - communication footprint: "the entire communication data throughput of one mini-batch SGD iteration": bytes that
      devices send each other
    - communication bandwidth: "the communication footprint divided by the time of one mini-batch SGD iteration"
    """

    devices: int
    iteration_ps: int
    flop_utilisation: float
    storage_bytes: tuple[int, ...]
    footprint_bytes: int

    @property
    def total_storage_bytes(self) -> int:
        """Bytes stored on all devices."""
        return sum(self.storage_bytes)

    @property
    def largest_storage_bytes(self) -> int:
        """Bytes stored on the device that needs most."""
        return max(self.storage_bytes)

    @property
    def bandwidth_gbps(self) -> float:
        """The average over the iteration, summed over all devices."""
        return gbps(self.footprint_bytes, self.iteration_ps)
