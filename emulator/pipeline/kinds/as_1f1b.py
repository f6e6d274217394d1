"""`1f1b-as`: on accelerators that send while they compute."""

from __future__ import annotations

from ..machine import Machine, Transport
from ._scheduled import scheduled

AS_1F1B = scheduled("1f1b-as", Machine(transport=Transport.HIDDEN))
