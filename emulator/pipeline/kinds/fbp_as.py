"""`fbp-as`: on accelerators whose F and B share their multipliers."""

from __future__ import annotations

from ..machine import Engines, Machine, Transport
from ._scheduled import scheduled

FBP_AS = scheduled("fbp-as", Machine(Engines.SHARED, Transport.HIDDEN))
