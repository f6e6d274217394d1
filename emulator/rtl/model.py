"""A Verilated device, cycle by cycle: rows in, rows out, and which engine has done a row when."""

from __future__ import annotations

import collections
import ctypes
import pathlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .design import DeviceDesign
from .ports import Port, engines_of, inputs_of, outputs_of, units_of

Row = NDArray[np.float32]
"""One row of a stream, column by column, channels last."""

NO_WAVES = -1

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64


def update_numbers(
    samples: int, rate: float, momentum: float, decay: float, loss_scale: int = 1
) -> list[int]:
    """Return the size of a mini-batch, and the bits of the numbers of its update, in single
    precision.
    """
    share = 1 / (samples * loss_scale)
    return [samples, *np.array((share, rate, momentum, decay), np.float32).view(np.uint32).tolist()]


class DeviceModel:
    """A device in simulation, in cycle `cycle`; edge n leads from cycle n - 1 to n. It begins in
    reset, in which its parameters are written.
    """

    def __init__(self, library: pathlib.Path, design: DeviceDesign, numbers: Sequence[int]) -> None:
        self.design = design
        self.inputs: tuple[Port, ...] = inputs_of(design)
        self.outputs: tuple[Port, ...] = outputs_of(design)
        self._library = _functions(library)
        self._units = units_of(design)
        self._queues = [collections.deque[tuple[int, Row]]() for _ in self.inputs]
        self._device = self._library.device_new((ctypes.c_uint32 * len(numbers))(*numbers))
        # The reset comes before cycle 0, to which edge 0 leads.
        self.cycle = -1

    @property
    def done(self) -> bool:
        """Whether the update is done in this cycle."""
        return bool(self._library.device_done(self._device))

    def write(self, place: int, name: str, values: NDArray[np.float32]) -> None:
        """Write the weights, their master copy or the bias of a slice, in reset."""
        unit = self._units.index((place, name))
        for address, word in enumerate(
            np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32).tolist()
        ):
            self._library.device_write(self._device, unit, address, word)

    def read(self, place: int, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """Return the weights, their master copy or the bias of a slice."""
        unit = self._units.index((place, name))
        words = [
            self._library.device_read(self._device, unit, address)
            for address in range(int(np.prod(shape)))
        ]
        return np.array(words, np.uint32).view(np.float32).reshape(shape)

    def start(self, waves: int = NO_WAVES) -> None:
        """End the reset; write waves to a descriptor, if the model was built for that, up to
        `end_waves`.
        """
        self._library.device_start(
            self._device, self.design.reset_cycles, waves, self.design.period_ps
        )

    def end_waves(self) -> int:
        """Write what is left of the waves; return the number of the error that kept some from being
        written, or 0.
        """
        return int(self._library.device_end_waves(self._device))

    def settle(self, numbers: Sequence[int]) -> None:
        """Set the numbers of the update to come; the mini-batch's size stays that of the reset."""
        self._library.device_settle(self._device, (ctypes.c_uint32 * len(numbers))(*numbers))

    def put(self, path: int, cycle: int, row: Row) -> None:
        """Let a row arrive on a path in a cycle to come, or in the next one in which the path is
        free.
        """
        queue = self._queues[path]
        earliest = max(self.cycle, queue[-1][0] if queue else self.cycle) + 1
        queue.append((max(cycle, earliest), np.ascontiguousarray(row, np.float32).reshape(-1)))

    def run(self, until: int) -> dict[int, Row]:
        """Run up to cycle `until`, and no further than one in which rows leave, or the update is
        done.

        Return the rows that leave, by path.

        Raises:
            RuntimeError: a row came for which there was no room.
        """
        while self.cycle < until:
            coming = min((queue[0][0] for queue in self._queues if queue), default=until + 1)
            # In one call up to the cycle before the next arrival; then a single cycle, at whose
            # edge the rows that have arrived are taken in.
            if coming > self.cycle + 1:
                cycles = min(until, coming - 1) - self.cycle
            else:
                cycles = 1
                for path, queue in enumerate(self._queues):
                    if queue and queue[0][0] == coming:
                        row = queue.popleft()[1]
                        self._library.device_put(
                            self._device, path, row.ctypes.data_as(ctypes.c_void_p)
                        )
            self.cycle += self._library.device_run(self._device, cycles)
            if self._library.device_overrun(self._device):
                raise RuntimeError(
                    f"device {self.design.number}: no room for a row, in cycle {self.cycle}"
                )
            left = self._left()
            if left or self.done:
                return left
        return {}

    def _left(self) -> dict[int, Row]:
        rows = {}
        for path, port in enumerate(self.outputs):
            if self._library.device_has(self._device, path):
                row = np.empty(port.words, np.float32)
                self._library.device_get(self._device, path, row.ctypes.data_as(ctypes.c_void_p))
                rows[path] = row
        return rows

    def rows_done(self) -> dict[tuple[str, int], NDArray[np.int64]]:
        """Return the cycles in which engines had done their rows, by phase and place of the
        slice.
        """
        log = np.empty((self._library.device_events(self._device), 2), np.int64)
        self._library.device_log(self._device, log.ctypes.data_as(ctypes.c_void_p))
        return {
            engine: log[log[:, 1] == number, 0]
            for number, engine in enumerate(engines_of(self.design))
        }

    def close(self) -> None:
        """Free the model."""
        if self._device:
            self._library.device_free(self._device)
            self._device = None


def _functions(path: pathlib.Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.device_new.restype = _POINTER
    library.device_new.argtypes = [ctypes.c_void_p]
    library.device_settle.argtypes = [_POINTER, ctypes.c_void_p]
    library.device_start.argtypes = [_POINTER, _INT, ctypes.c_int, _INT]
    library.device_write.argtypes = [_POINTER, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32]
    library.device_read.argtypes, library.device_read.restype = (
        [_POINTER, ctypes.c_uint32, ctypes.c_uint32],
        ctypes.c_uint32,
    )
    library.device_put.argtypes = [_POINTER, _INT, ctypes.c_void_p]
    library.device_get.argtypes = [_POINTER, _INT, ctypes.c_void_p]
    library.device_run.argtypes, library.device_run.restype = [_POINTER, _INT], _INT
    library.device_has.argtypes, library.device_has.restype = [_POINTER, _INT], _INT
    library.device_log.argtypes = [_POINTER, ctypes.c_void_p]
    library.device_end_waves.argtypes, library.device_end_waves.restype = [_POINTER], ctypes.c_int
    library.device_free.argtypes = [_POINTER]
    for name in ("device_done", "device_overrun", "device_events"):
        function = getattr(library, name)
        function.argtypes, function.restype = [_POINTER], _INT
    return library
