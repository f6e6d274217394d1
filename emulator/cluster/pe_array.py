"""Chains of processing elements (PEs) for recurrent layers (FARNN, section 5.1)."""

from __future__ import annotations

import dataclasses

from .board import ACTIVATION_CYCLES

LSTM_UNITS = 4
"""MVM units, one for each gate of an LSTM (section 5)."""


@dataclasses.dataclass(frozen=True)
class PeArray:
    """The MVM units of an FPGA: each has `chains` chains of `pes_per_chain` PEs, with `words` weights in each PE.

    A chain takes one weight a cycle while weights are loaded. The activation pipeline takes `activation_cycles`.
    """

    chains: int
    pes_per_chain: int
    words: int
    units: int = LSTM_UNITS
    activation_cycles: int = ACTIVATION_CYCLES

    @property
    def pes(self) -> int:
        """Number of PEs of an MVM unit."""
        return self.chains * self.pes_per_chain
