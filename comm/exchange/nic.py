"""A worker's NIC, and what passes it: messages with the compressible ToS go by its codec
(INCEPTIONN, section VI).

Replicas exchange all values of a device's gradients in one row, in blocks. With error feedback,
what the codec drops of a gradient is kept by its sender, and added to the next one (Seide et al.,
2014; Stich et al., 2018; Karimireddy et al., 2019).

A NIC logs the sizes of messages that pass the codec, so that a finished run can be timed again;
`histogram` gives the distribution of gradients (Fig. 5).
"""

from __future__ import annotations

import dataclasses
import itertools
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import Arena
from ...kernels.codec import Codec
from ...kernels.number import FP32
from ..collective import piece_bounds
from ..interconnect import COMPRESSIBLE_TOS, Interconnect
from .time import Sizes

Values = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """`count` float32 values, which exchanges change in place; None with timing only."""

    count: int
    values: Values | None

    def block(self, number: int, blocks: int) -> Gradient:
        """Return one of `blocks` blocks of equal size, the first ones a value longer (Algorithm 1,
        line 8); a view.
        """
        bounds = piece_bounds(self.count, blocks)
        return self.between(bounds[number], bounds[number + 1])

    def rows(self, counts: Sequence[int]) -> Iterator[Gradient]:
        """Yield consecutive rows with these numbers of values, as views."""
        for first, count in zip(itertools.accumulate(counts, initial=0), counts, strict=False):
            yield self.between(first, first + count)

    def between(self, begin: int, end: int) -> Gradient:
        """Return the values from one on, before another; a view."""
        return Gradient(end - begin, None if self.values is None else self.values[begin:end])

    def put(self, values: Values | None) -> None:
        """Overwrite the values with these."""
        if self.values is not None:
            self.values[...] = values

    def add(self, values: Values | None) -> None:
        """Add a received sum to the worker's own values, in place (Algorithm 1, line 11)."""
        if self.values is not None:
            np.add(values, self.values, out=self.values)  # type: ignore[arg-type]  # both have values, or neither

    @property
    def bytes(self) -> int:
        """Size as float32."""
        return FP32.bytes_of(self.count)


_HEADER_BYTES = 32
# Not 0: a gradient of fewer values than workers has blocks of no bytes.
_NO_PAYLOAD = -1


@dataclasses.dataclass(frozen=True)
class GradientMessage:
    """A message of a NIC: when it was ready, how long it occupies a link, its ToS, and its bytes,
    if there are any.
    """

    ready_ps: int
    transfer_ps: int
    tos: int
    payload: NDArray[np.uint8] | None


@dataclasses.dataclass(frozen=True)
class GradientFormat:
    """Layout of a gradient message in a buffer: four int64, then the payload."""

    def bytes_of(self, most_payload: int) -> int:
        """Return the size of the largest packed message in bytes."""
        return _HEADER_BYTES + most_payload

    def pack(self, message: GradientMessage, arena: Arena) -> NDArray[np.uint8]:
        """Put header and bytes into one buffer from the arena."""
        size = _NO_PAYLOAD if message.payload is None else message.payload.nbytes
        buffer = arena.take((self.bytes_of(max(size, 0)),), np.uint8)
        buffer[:_HEADER_BYTES].view(np.int64)[:] = (
            message.ready_ps,
            message.transfer_ps,
            message.tos,
            size,
        )
        if message.payload is not None:
            buffer[_HEADER_BYTES:] = message.payload
        return buffer

    def unpack(self, buffer: NDArray[np.uint8]) -> GradientMessage:
        """Return the message at the beginning of a buffer; its payload is a view."""
        ready_ps, transfer_ps, tos, size = buffer[:_HEADER_BYTES].view(np.int64).tolist()
        payload = None if size == _NO_PAYLOAD else buffer[_HEADER_BYTES : _HEADER_BYTES + size]
        return GradientMessage(ready_ps, transfer_ps, tos, payload)


ORDINARY_TOS = 0
WEIGHT_BYTES = "weight_bytes"
"""Among a NIC's statistics, the bytes of weights that were gathered for use."""


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What a NIC has sent with the ToS of gradients: bytes as float32, and bytes after the codec.

    `statistics` are the codec's own counts over these values, such as INCEPTIONN's bit widths
    (Table III), and, where replicas share weights out, the bytes of those that it sent.
    """

    value_bytes: int = 0
    compressed_bytes: int = 0
    statistics: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __add__(self, other: Traffic) -> Traffic:
        # Not a set, whose order would change from run to run, and with it that of reports.
        names = [
            *self.statistics,
            *(name for name in other.statistics if name not in self.statistics),
        ]
        return Traffic(
            self.value_bytes + other.value_bytes,
            self.compressed_bytes + other.compressed_bytes,
            {name: self.statistics.get(name, 0) + other.statistics.get(name, 0) for name in names},
        )

    def __sub__(self, other: Traffic) -> Traffic:
        return self + other.times(-1)

    def times(self, copies: int) -> Traffic:
        """Return the traffic of `copies` such messages."""
        counts = {name: copies * count for name, count in self.statistics.items()}
        return Traffic(copies * self.value_bytes, copies * self.compressed_bytes, counts)

    @property
    def ratio(self) -> float:
        """Bytes before over bytes after compression."""
        return self.value_bytes / self.compressed_bytes if self.compressed_bytes else 1.0


class Nic:
    """Packs and opens gradient messages, and counts what the codec does.

    Where gradients have no values (timing only), sizes are `given`, or else those that the codec
    expects.
    """

    def __init__(self, interconnect: Interconnect, codec: Codec) -> None:
        self.interconnect = interconnect
        self.traffic = Traffic()
        self.sizes = SizeLog()
        self.given: GivenBytes | None = None
        self.residuals: list[Gradient] = []
        self._codec = codec

    def residual(self, count: int) -> Gradient:
        """Return a row of `count` values, 0 at first, for what the codec drops of one phase's
        messages.
        """
        self.residuals.append(Gradient(count, np.zeros(count, np.float32)))
        return self.residuals[-1]

    def pack(
        self, gradient: Gradient, tos: int, copies: int = 1, residual: Gradient | None = None
    ) -> GradientMessage:
        """Pack a block into a message, ready at time 0; count it `copies` times.

        With a `residual`, what the codec dropped of the block before is added, and what it drops
        now is kept there.
        """
        if tos != COMPRESSIBLE_TOS:
            return self._plain(gradient, tos)
        size = gradient.bytes
        if not self._codec.compresses:
            self.traffic += Traffic(size, size).times(copies)
            return self._plain(gradient, tos)
        if gradient.values is None:
            made = self.given(size) if self.given else self._codec.expected_bytes(gradient.count)
            payload, sent = None, Traffic(size, made)
        else:
            payload = self._compressed(
                gradient.values, None if residual is None else residual.values
            )
            sent = Traffic(size, payload.nbytes, self._codec.statistics(payload, gradient.count))
        self.traffic += sent.times(copies)
        # Once, whatever the copies: a run that is timed again asks for one size at each packing.
        self.sizes.add(sent.value_bytes, sent.compressed_bytes)
        return GradientMessage(
            0, self.interconnect.transfer_ps(size, sent.compressed_bytes), tos, payload
        )

    def _compressed(self, values: Values, residual: Values | None) -> NDArray[np.uint8]:
        """Return a block after the codec; what is not finite leaves nothing behind."""
        if residual is None:
            return self._codec.compress(values)
        joined = values + residual
        payload = self._codec.compress(joined)
        np.subtract(joined, self._codec.decompress(payload, joined.size), out=residual)
        # Infinity less infinity is NaN, which would stay in all later gradients.
        residual[~np.isfinite(residual)] = 0
        return payload

    def _plain(self, gradient: Gradient, tos: int) -> GradientMessage:
        # A receiver on this rank gets these very bytes, and may read them after the sender's next
        # steps have overwritten the gradient.
        payload: NDArray[np.uint8] | None = (
            None if gradient.values is None else gradient.values.view(np.uint8).copy()
        )
        return GradientMessage(0, self.interconnect.transfer_ps(gradient.bytes), tos, payload)

    def open(self, message: GradientMessage, count: int) -> Values | None:
        """Return the `count` values of a message; None with timing only."""
        if message.payload is None:
            return None
        if message.tos != COMPRESSIBLE_TOS or not self._codec.compresses:
            return message.payload[: FP32.bytes_of(count)].view(np.float32)
        return self._codec.decompress(message.payload, count)

    def round(self, gradient: Gradient, message: GradientMessage) -> None:
        """Set a block to the values that the receivers of its message get, so that all replicas
        stay equal.
        """
        gradient.put(self.open(message, gradient.count))

    def state(self) -> dict[str, Any]:
        """Return the training state."""
        return dataclasses.asdict(self.traffic)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.traffic = Traffic(**state)


GivenBytes = Callable[[int], int]
"""Function that returns the bytes of a sender's next message after the codec, from those before it.
"""


class SizeLog:
    """The sizes of a sender's messages before and after the codec, in order, until they are
    taken.
    """

    def __init__(self) -> None:
        self._sizes = array("q")

    def add(self, value_bytes: int, compressed_bytes: int) -> None:
        """Add a message."""
        self._sizes.extend((value_bytes, compressed_bytes))

    def take(self) -> Sizes:
        """Return the sizes in bytes (message, 2), and begin anew."""
        sizes, self._sizes = self._sizes, array("q")
        return np.array(sizes, np.int64).reshape(-1, 2)


LEAST_EXPONENT = -40
"""Exponent of the smallest bin, in which smaller values are counted, too."""

BINS = 2 - LEAST_EXPONENT
"""Number of bins: zeros, then values from 2^e to below 2^(e+1) for each e from -40 to -1, then
those of 1 and more.
"""


def histogram(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the counts (sign, bin) of values: first positive ones, which include zeros, then
    negative ones.
    """
    _, exponents = np.frexp(values)
    # Fractions of frexp are from 1/2 to below 1, so that 2^e has the exponent e + 1, and 2^-40
    # comes into bin 1, behind the zeros.
    bins = np.clip(exponents - LEAST_EXPONENT, 1, BINS - 1)
    bins[values == 0] = 0
    signs = (values < 0).astype(np.int64)
    return np.bincount(signs * BINS + bins, minlength=2 * BINS).reshape(2, BINS)
