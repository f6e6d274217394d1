"""Gathering of a recurrent layer's states between the devices that share it, at every step (`timing.lockstep`).

States of earlier units come from the left on path 2, those of later units from the right on path 7. Sums of errors of
states come from the right on path 4, and complete ones from the left on path 8. These messages carry values only: their
times are in those of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..mapping import DataPath, Slice, StreamKey
from ..schedule import SampleSpan
from .ports import Ports

Data = NDArray[np.float32]


def shares_states(slices: Sequence[Slice]) -> bool:
    """Return whether a device with these slices shares a recurrent layer with a neighbour."""
    return any(part.layer.operation.recurs and not (part.is_first and part.is_last) for part in slices)


class Gather:
    """A slice's exchange with those of the same layer on neighbouring devices."""

    def __init__(self, part: Slice, ports: Ports) -> None:
        self._part, self._ports = part, ports

    def _key(self, path: DataPath) -> StreamKey:
        return StreamKey(path, self._part.layer.makes.number, values=True)

    def _send(self, path: DataPath, span: SampleSpan, values: Data) -> None:
        self._ports.send_untimed(self._key(path), span.first, values[:, None, None, :])

    async def _receive(self, path: DataPath, span: SampleSpan) -> Data:
        message = await self._ports.receive(self._key(path), span)
        assert message.data is not None
        return message.data[:, 0, 0, :]

    async def states(self, span: SampleSpan, own: Data) -> Data:
        """Return the states (samples, hidden) of all units after a step, from those of the own ones."""
        part = self._part
        found = [own]
        if not part.is_first:
            found.insert(0, await self._receive(DataPath.PARTIAL_ACTIVATIONS, span))
        if not part.is_last:
            self._send(DataPath.PARTIAL_ACTIVATIONS, span, np.concatenate(found, axis=1))
            found.append(await self._receive(DataPath.STATES, span))
        if not part.is_first:
            self._send(DataPath.STATES, span, np.concatenate(found[1:], axis=1))
        return np.concatenate(found, axis=1)

    async def error_sums(self, span: SampleSpan) -> Data | None:
        """Return the errors of all states (samples, hidden) that slices of later units have summed; None if none."""
        return None if self._part.is_last else await self._receive(DataPath.INPUT_ERRORS, span)

    async def errors(self, span: SampleSpan, sums: Data) -> Data:
        """Return the complete errors of the own units' states, from the sums with those of this slice."""
        part = self._part
        if part.is_first:
            complete = sums
        else:
            self._send(DataPath.INPUT_ERRORS, span, sums)
            complete = await self._receive(DataPath.STATE_ERRORS, span)
        if not part.is_last:
            self._send(DataPath.STATE_ERRORS, span, np.ascontiguousarray(complete[:, part.channels :]))
        return np.ascontiguousarray(complete[:, : part.channels])
