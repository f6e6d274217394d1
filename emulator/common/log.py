"""The library's log, by the standard library's `logging`: silent until a program listens to it.

`emuchain.train` has the start, epochs and mini-batches of runs; `emuchain.sweep`,
`emuchain.study` and `emuchain.precision` have what is computed.
"""

from __future__ import annotations

import logging
from typing import Literal

Part = Literal["train", "sweep", "study", "precision"]


def logger(part: Part) -> logging.Logger:
    """Return the logger of a part, whose messages go on to `emuchain`, and from there to the
    program's handlers.
    """
    whole = logging.getLogger("emuchain")
    if not whole.handlers:
        whole.addHandler(logging.NullHandler())
    return whole.getChild(part)
