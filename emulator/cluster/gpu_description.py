"""The description of a GPU board, as in a cluster's `[[boards]]`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

from ..common import FINITE, GbytesPerSecond, Name, PositiveNumber, Share, Watts
from .gpu import Gpu


@dataclasses.dataclass(frozen=True, kw_only=True)
class GpuDescription:
    """A `[[boards]]` table with `kind = "gpu"`, with the keys of its `type` filled in."""

    type: str | None = None
    kind: Literal["gpu"] = "gpu"
    name: Name
    peak_tflops: PositiveNumber
    gemm_efficiency: Share
    memory_gbytes_per_s: GbytesPerSecond
    recurrent_us: Annotated[float, FINITE, Gt(0), Le(1e6)]
    persistent_gbytes_per_s: GbytesPerSecond
    persistent_gru_gbytes_per_s: GbytesPerSecond | None = None
    memory_gbytes: PositiveNumber | None = None
    power_w: Watts | None = None
    source: str | None = None
    count: Annotated[int, Ge(1), Le(100_000)] = 1

    def board(self, alpha: float) -> Gpu:
        """Return the board; what FPGAs' engines are built of, `alpha`, is nothing to it."""
        of_gru = self.persistent_gru_gbytes_per_s
        return Gpu(
            name=self.name,
            peak_tflops=self.peak_tflops,
            gemm_efficiency=self.gemm_efficiency,
            memory_gbytes_per_s=self.memory_gbytes_per_s,
            recurrent_ps=round(self.recurrent_us * 1e6),
            persistent_gbytes_per_s=self.persistent_gbytes_per_s,
            persistent_gru_gbytes_per_s=self.persistent_gbytes_per_s if of_gru is None else of_gru,
            off_chip_memory_bytes=None if self.memory_gbytes is None else round(self.memory_gbytes * 1e9),
            power_w=self.power_w,
        )
