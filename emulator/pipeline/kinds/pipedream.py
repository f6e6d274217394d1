"""`pipedream`: on GPUs; every micro-batch is a mini-batch, since PipeDream does not divide these."""

from __future__ import annotations

import dataclasses

from ...schedule import EpochShape
from ..machine import Machine
from ..shape import Shape
from ._scheduled import scheduled
from ._unflushed import unflushed_form


def _epoch(shape: Shape) -> EpochShape:
    return dataclasses.replace(shape.epoch, batch=1)


PIPEDREAM = scheduled("pipedream", Machine(), unflushed_form, _epoch)
