"""The ends of a pair's streams on one of its two devices, and what their messages hold as arrays of kernels."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...comm import Mailbox, Message
from ...kernels.recurrent import GruSlice, LstmSlice, Tape
from ..network import Layer
from ..timing.pair import Content, PairKey, Part, Phase, streams_of, work_of
from .ports import Outlet

Data = NDArray[np.float32]
"""Values (samples, steps, values); of weights, (1, 1, weights). Once sent, they belong to the receiver."""


class PairPorts:
    """The ends of a device's streams, by their keys; `sent_bytes` have left through each of them."""

    def __init__(self, inlets: Mapping[PairKey, Mailbox], outlets: Mapping[PairKey, Outlet]) -> None:
        self.sent_bytes: collections.Counter[PairKey] = collections.Counter()
        self._inlets, self._outlets = inlets, outlets

    def send(self, key: PairKey, first: int, values: Data) -> None:
        """Send values of samples from `first` on; of weights, `first` is the mini-batch's number."""
        self.sent_bytes[key] += values.nbytes
        no_times = np.zeros((len(values), 1), np.int64)  # the pair's timeline has them
        self._outlets[key].put(Message(first, no_times, values[:, None]))

    async def receive(self, key: PairKey, first: int) -> Data:
        """Return the next values, which begin with sample `first`, or are those of mini-batch `first`."""
        message: Message = await self._inlets[key].get()
        if message.first != first or message.data is None:
            raise RuntimeError(f"{key}: {message.first} came, {first} was expected")
        return message.data[:, 0]

    def take_sent_bytes(self) -> collections.Counter[PairKey]:
        """Return the bytes that have left since the last call."""
        sent, self.sent_bytes = self.sent_bytes, collections.Counter()
        return sent


Kernel = LstmSlice | GruSlice

_WEIGHTS = {
    Content.INPUT_WEIGHTS: ("w",),
    Content.WEIGHTS: ("r", "p", "b_w", "b_r"),
    Content.TURNED_WEIGHTS: ("r", "p"),
    Content.TURNED_INPUT_WEIGHTS: ("w",),
}
"""Arrays one behind the other, as far as the layer has them. For BW they are in the same order: kernels turn them."""


def joined_weights(content: Content, arrays: Mapping[str, Data]) -> Data:
    """Return the weights of a message (1, 1, weights), from a direction's arrays by name."""
    return np.concatenate([arrays[name].ravel() for name in _WEIGHTS[content] if name in arrays])[None, None]


def split_weights(content: Content, kernel: Kernel, message: Data) -> dict[str, Data]:
    """Return the arrays that a message of weights holds."""
    shapes = _shapes(kernel)
    names = [name for name in _WEIGHTS[content] if name in shapes]
    ends = np.cumsum([math.prod(shapes[name]) for name in names])
    parts = np.split(message.reshape(-1), ends[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(names, parts, strict=True)}


def _shapes(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    rows = kernel.channels
    shapes: dict[str, tuple[int, ...]] = {"w": (rows, kernel.inputs), "r": (rows, kernel.width)}
    shapes |= {"b_w": (rows,), "b_r": (rows,)}
    return {**shapes, "p": (kernel.width, kernel.units)} if _projects(kernel) else shapes


def _projects(kernel: Kernel) -> bool:
    return isinstance(kernel, LstmSlice) and kernel.outputs > 0


def sent_for_gradients(layer: Layer) -> list[Content]:
    """Return what the FPGA sends of the steps of EB."""
    streams = streams_of(work_of(layer), 0, inputs_too=False)
    back = [stream for stream in streams if stream.phase is Phase.BACKWARD and stream.part is Part.STEPS]
    return [stream.content for stream in back if not stream.to_fpga]


def of_tape(content: Content, kernel: Kernel, tape: Tape) -> Data:
    """Return what a message for gradients holds (samples, steps, values), from a tape after EB."""
    if content is Content.RESET:
        return _last_gate(kernel, tape.delta_r) if _is_linear(kernel) else tape.inner
    arrays = {Content.DELTAS: tape.delta, Content.CELLS: tape.cells, Content.PROJECTED_ERRORS: tape.of_outputs}
    return arrays[content]


def tape_arrays(kernel: Kernel, got: Mapping[Content, Data], before: Data) -> dict[str, Data]:
    """Return the arrays of a tape that gradients need, by name, from messages and the states before each step."""
    nothing, delta = before[:, :, :0], got[Content.DELTAS]
    arrays = {"inner": nothing, "h_before": before, "cells": nothing, "delta": delta}
    if _projects(kernel):
        arrays |= {"cells": got[Content.CELLS], "of_outputs": got[Content.PROJECTED_ERRORS]}
    if _is_linear(kernel):
        arrays["delta_r"] = delta.copy()
        _last_gate(kernel, arrays["delta_r"])[...] = got[Content.RESET]
    elif isinstance(kernel, GruSlice):
        arrays["inner"] = got[Content.RESET]
    return arrays


def _is_linear(kernel: Kernel) -> bool:
    return isinstance(kernel, GruSlice) and kernel.linear_before_reset


def _last_gate(kernel: Kernel, channels: Data) -> Data:
    """Return a view of the values of each unit's last gate: n of a GRU."""
    return channels[:, :, kernel.gates - 1 :: kernel.gates]
