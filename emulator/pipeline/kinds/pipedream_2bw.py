"""`2bw`: on GPUs; mini-batches of N micro-batches, the fewest that PipeDream-2BW's paper allows on N devices."""

from __future__ import annotations

import dataclasses

from ...schedule import EpochShape
from ..machine import Machine
from ..shape import Shape
from ._scheduled import scheduled
from ._unflushed import unflushed_form


def _epoch(shape: Shape) -> EpochShape:
    return dataclasses.replace(shape.epoch, batch=shape.devices)


PIPEDREAM_2BW = scheduled("2bw", Machine(), unflushed_form, _epoch)
