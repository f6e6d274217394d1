"""Assignment of devices to ranks."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Placement:
    """Consecutive devices on each rank, as evenly as possible; ranks beyond the number of devices host none."""

    devices: int
    ranks: int

    def host(self, device: int) -> int:
        """Return the rank of a device."""
        return device * min(self.ranks, self.devices) // self.devices

    def hosted(self, rank: int) -> list[int]:
        """Return the devices of a rank."""
        return [device for device in range(self.devices) if self.host(device) == rank]

    def described(self, rank: int) -> str:
        """Return the devices of a rank as text."""
        hosted = self.hosted(rank)
        if len(hosted) < 2:
            return f"device {hosted[0]}" if hosted else "no device"
        return f"devices {hosted[0]}-{hosted[-1]}"

    def __str__(self) -> str:
        return "; ".join(f"rank {rank}: devices {self.hosted(rank)}" for rank in range(self.ranks))
