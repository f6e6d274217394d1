"""What codecs have dropped of gradients (`error_feedback`), in checkpoints: a row of values for each phase of a sender.

Rows follow the gradients of a device, so they fit only where the network is cut and replicated as before. They travel
one by one, so that no rank ever holds those of all senders.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...launch import Ranks
from ..common import InputError
from .checkpoint_file import CheckpointReader, CheckpointWriter

Residuals = Mapping[str, NDArray[np.float32]]
"""The rows on a rank, by replica, device and phase."""


def write_residuals(ranks: Ranks, own: Residuals, writer: CheckpointWriter | None) -> None:
    """Add all ranks' rows to a checkpoint, which rank 0 writes; for all ranks together."""
    for name in _names(ranks, own):
        rows = [row for row in ranks.gather(own.get(name)) if row is not None]
        if writer is not None:
            writer.array(_member(name), rows[0])


def restore_residuals(ranks: Ranks, own: Residuals, reader: CheckpointReader | None) -> None:
    """Set all ranks' rows, in place, to those that rank 0 reads; for all ranks together.

    Raises:
        InputError: the checkpoint has others, as of another number of replicas or another cut.
    """
    said = None
    for name in _names(ranks, own):
        counts = ranks.gather(None if name not in own else own[name].size)
        rows: list[NDArray[np.float32] | None] = [None] * len(counts)
        if reader is not None and said is None:
            [count] = {count for count in counts if count is not None}
            try:
                row = reader.array(_member(name), np.float32, (count,))
                rows = [None if count is None else row for count in counts]
            except InputError as error:
                said = str(error)
        dealt = ranks.deal(rows)
        if dealt is not None:
            own[name][...] = dealt
    for wrong in filter(None, ranks.share(said)):
        raise InputError(wrong)


def _names(ranks: Ranks, own: Residuals) -> list[str]:
    return sorted({name for names in ranks.share([*own]) for name in names})


def _member(name: str) -> str:
    return f"residuals/{name}"
