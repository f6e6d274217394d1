"""How the stages of a chain lie on its devices: in a loop, as in interleaved schedules, or in a V.

In a loop, chunk c of device d of N is stage c N + d. In a V, odd chunks run back, so that of two chunks device d has
stages d and 2N - 1 - d, and the last stage is on device 0 (ZBV: Qi et al., 2024; DualPipeV).
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fold:
    """Stages 0, 1, … of a chain on `devices` devices, `chunks` on each; in a loop, or `in_v`."""

    devices: int
    chunks: int = 1
    in_v: bool = False

    @property
    def count(self) -> int:
        """Number of stages."""
        return self.devices * self.chunks

    def device(self, stage: int) -> int:
        """Return the device of a stage."""
        chunk, place = divmod(stage, self.devices)
        return self.devices - 1 - place if self._is_back(chunk) else place

    def chunk(self, stage: int) -> int:
        """Return the number of a stage among those of its device."""
        return stage // self.devices

    def stage(self, device: int, chunk: int) -> int:
        """Return the stage that is a device's chunk."""
        return chunk * self.devices + (self.devices - 1 - device if self._is_back(chunk) else device)

    def stages(self, device: int) -> list[int]:
        """Return a device's stages, in the order of its chunks."""
        return [self.stage(device, chunk) for chunk in range(self.chunks)]

    def link(self, stage: int) -> int | None:
        """Return the device in front of the link between a stage and the next one, None if one device has both.

        That behind the last device closes a loop to a ring.
        """
        here, there = self.device(stage), self.device(stage + 1)
        return None if here == there else min(here, there) if self.in_v else here

    def _is_back(self, chunk: int) -> bool:
        return self.in_v and chunk % 2 == 1
