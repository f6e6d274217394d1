"""Profiles: what each layer takes on each kind of device, measured or worked out;
`profile_files.py` reads them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from ..common import InputError


class LayerTimes(NamedTuple):
    """Times of a layer for a micro-batch; `backward_ps` is EB and PG, `pg_ps` the part of PG, None
    if unknown.
    """

    forward_ps: int
    backward_ps: int
    pg_ps: int | None = None

    def scaled(self, samples: int, profiled: int) -> LayerTimes:
        """Return the times of `samples` samples from these of `profiled` samples, rounded up."""
        pg = None if self.pg_ps is None else -(-self.pg_ps * samples // profiled)
        return LayerTimes(
            -(-self.forward_ps * samples // profiled),
            -(-self.backward_ps * samples // profiled),
            pg,
        )


@dataclasses.dataclass(frozen=True)
class LayerProfile:
    """A layer: its times by kind of device and samples of a micro-batch, and its bytes.

    `output_bytes` cross a cut behind the layer, with all shortcuts; `feature_bytes` are kept from F
    to B.
    """

    name: str
    times: Mapping[tuple[str, int], LayerTimes]
    output_bytes: int
    feature_bytes: int
    parameter_bytes: int


@dataclasses.dataclass(frozen=True)
class Profile:
    """The layers of a network in order.

    Bytes of outputs and features are those of `bytes_of` samples. `memory_bytes` is each kind's
    memory, None where it is not known. Training keeps `parameter_copies` of the parameters,
    gradients included.
    """

    name: str
    layers: tuple[LayerProfile, ...]
    memory_bytes: Mapping[str, int | None]
    bytes_of: int = 1
    parameter_copies: int = 2

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """The samples of a micro-batch for which there are times, in ascending order."""
        return tuple(sorted({samples for _, samples in self.layers[0].times}))

    def times(self, kind: str, samples: int) -> list[LayerTimes]:
        """Return the times of all layers for a micro-batch, scaled from the nearest size that was
        measured.

        Raises:
            InputError: nothing was measured on this kind of device.
        """
        measured = sorted(size for profiled, size in self.layers[0].times if profiled == kind)
        if not measured:
            known = ", ".join(self.memory_bytes)
            raise InputError(f"{self.name}: no times on {kind!r}; there are those on {known}")
        nearest = min(measured, key=lambda size: (abs(size - samples), size))
        return [layer.times[kind, nearest].scaled(samples, nearest) for layer in self.layers]

    def by_layer(self, kind: str, samples: int) -> dict[str, LayerTimes]:
        """Return the same times by the names of the layers."""
        return {
            layer.name: times
            for layer, times in zip(self.layers, self.times(kind, samples), strict=True)
        }

    def whole_ps(self, kind: str, samples: int) -> int:
        """Return the time of the whole network on one device of a kind: T_n of BaPipe's equation
        (1).
        """
        return sum(layer.forward_ps + layer.backward_ps for layer in self.times(kind, samples))
