"""`1f1b-sno`: on GPUs, whose messages wait for their action."""

from __future__ import annotations

import dataclasses

from ..machine import Machine
from ._scheduled import scheduled

SNO_1F1B = dataclasses.replace(scheduled("1f1b-sno", Machine()), overlaps=False)
