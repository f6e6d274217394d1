"""Act-RAM: a slice's input activations, kept from FP until PG (FPDeep, section 5.2.2)."""

from __future__ import annotations

from ...kernels import Arena
from ..schedule import SpanStore


class ActRam(SpanStore):
    """Arrays of micro-batches in memory from an arena; also holds other arrays until EB or PG."""

    def __init__(self, arena: Arena) -> None:
        super().__init__(arena.take)
