"""What tests of the exploration share: random profiles on unequal devices, and cuts counted
anew.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

from emuchain.emulator.cluster import Link
from emuchain.emulator.explore import Demand, Pieces
from emuchain.emulator.profile import LayerProfile, LayerTimes, Profile, ProfileStages


@dataclasses.dataclass(frozen=True)
class Case:
    """A random profile on a chain: times F and B of each layer by device, memories, links in Mb/s,
    kept features.
    """

    profile: Profile
    devices: int
    links: tuple[Link, ...]
    demand: Demand

    @property
    def pieces(self) -> Pieces:
        kinds = [str(device) for device in range(self.devices)]
        return Pieces(ProfileStages(self.profile, kinds, 1), self.links, self.demand)

    def work(self, begin: int, end: int, device: int) -> int | None:
        """F + B of layers on a device; None if they do not fit."""
        layers = self.profile.layers[begin:end]
        needed = sum(
            2 * each.parameter_bytes + self.demand.kept[device] * each.feature_bytes
            for each in layers
        )
        memory = self.profile.memory_bytes[str(device)]
        if memory is not None and needed > memory:
            return None
        return sum(sum(each.times[str(device), 1][:2]) for each in layers)

    def message(self, device: int, end: int) -> int:
        """The time of a message behind a device, which ends before layer `end`."""
        if device >= len(self.links):
            return 0
        return -(
            -8_000_000
            * self.profile.layers[end - 1].output_bytes
            // self.links[device].bandwidth_mbps
        )

    def cuts(self) -> Iterator[tuple[int, ...]]:
        """All cuts between layers, as the ends of stages."""
        count = len(self.profile.layers)
        for inner in itertools.combinations(range(1, count), self.devices - 1):
            yield (*inner, count)

    def period(self, ends: tuple[int, ...], *, links_count: bool = False) -> int | None:
        """The time of the slowest stage of a cut, or link; None if a stage does not fit."""
        slowest = 0
        for device, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
            work = self.work(begin, end, device)
            if work is None:
                return None
            message = self.message(device, end)
            wait = 0 if self.demand.overlaps else 2 * message
            slowest = max(slowest, work + wait, message if links_count else 0)
        return slowest


def random_case(seed: int) -> Case:
    """At most 12 layers on at most 4 unequal devices; half of them with memories that bind."""
    dice = random.Random(seed)
    count = dice.randint(2, 12)
    devices = dice.randint(2, min(4, count))
    speeds = [dice.choice([1, 1, 2, 3]) for _ in range(devices)]
    layers = []
    for number in range(count):
        forward, backward = dice.randint(1, 50), dice.randint(1, 100)
        times = {
            (str(device), 1): LayerTimes(
                forward * 6 // speed + dice.randint(0, 3), backward * 6 // speed
            )
            for device, speed in enumerate(speeds)
        }
        layers.append(
            LayerProfile(
                f"l{number}", times, dice.randint(1, 400), dice.randint(0, 40), dice.randint(0, 40)
            )
        )
    limits = [
        dice.choice([None, dice.randint(100, 1500)]) if seed % 2 else None for _ in range(devices)
    ]
    profile = Profile(
        f"case {seed}", tuple(layers), {str(device): limits[device] for device in range(devices)}
    )
    links = tuple(Link(dice.choice([4_000_000, 20_000_000, 10**9]), 0) for _ in range(devices - 1))
    kept = tuple(dice.randint(1, 2) * (devices - device) for device in range(devices))
    return Case(profile, devices, links, Demand(kept, overlaps=dice.random() < 0.5))
