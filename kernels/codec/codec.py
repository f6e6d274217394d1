"""Codecs of one interface: what a message's float32 numbers are as bytes.

A codec's text is how the command line spells it: `none`, `inceptionn:-10` (errors below 2^-10), `inceptionn-range:-10`
(the paper's rule by range), `truncate:16`, `truncate:22`, `truncate:24` (so many bits dropped).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..buffers import Buffer, opened, values_of
from ..buffers import CodecError as CodecError
from ..inceptionn import inceptionn
from . import truncation

_FLOAT_BYTES = 4
_KNOWN = "none, inceptionn:E and inceptionn-range:E for an error bound 2^E (E from -127 to 0), truncate:16, :22 and :24"


class Codec(Protocol):
    """Makes bytes of numbers, and numbers of these bytes."""

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """The bytes of an array's values, in C order. Raises CodecError if it is not of float32."""

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """The `count` values of a buffer, in one dimension. Raises CodecError if these are not what it holds."""

    def __str__(self) -> str:
        """How it is spelt."""


@dataclasses.dataclass(frozen=True)
class NoCodec:
    """Numbers as they are."""

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """As `Codec`; a copy."""
        return values_of(values).view(np.uint8).copy()

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """As `Codec`; a copy."""
        data, count = opened(buffer, count)
        if data.size != _FLOAT_BYTES * count:
            raise CodecError(f"{count} values are {_FLOAT_BYTES * count} bytes, but the buffer has {data.size}")
        return data.copy().view(np.float32)

    def __str__(self) -> str:
        return "none"


@dataclasses.dataclass(frozen=True)
class Inceptionn:
    """INCEPTIONN's, see `inceptionn.py`. Raises CodecError if there is no such bound or rule."""

    error_bound_exponent: int
    rule: inceptionn.Rule = "bound"

    def __post_init__(self) -> None:
        inceptionn.Limits.of(self.error_bound_exponent, self.rule)

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """As `Codec`."""
        return inceptionn.compress(values, self.error_bound_exponent, self.rule)

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """As `Codec`."""
        return inceptionn.decompress(buffer, count)

    def __str__(self) -> str:
        return f"inceptionn{'' if self.rule == 'bound' else '-range'}:{self.error_bound_exponent}"


@dataclasses.dataclass(frozen=True)
class Truncation:
    """Drops the `bits` least significant bits: 16, 22 or 24, else CodecError. See `truncation.py`."""

    bits: int

    def __post_init__(self) -> None:
        truncation.check(self.bits)

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """As `Codec`."""
        return truncation.compress(values, self.bits)

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """As `Codec`."""
        return truncation.decompress(buffer, count, self.bits)

    def made_bytes(self, count: truncation.Count) -> truncation.Count:
        """The bytes of so many values, whatever they are; of one buffer or of many."""
        return truncation.made_bytes(count, self.bits)

    def __str__(self) -> str:
        return f"truncate:{self.bits}"


def parse_codec(text: str) -> Codec:
    """The codec that is spelt so. Raises CodecError, a ValueError, where there is none."""
    if text == "none":
        return NoCodec()
    found = re.fullmatch(r"(inceptionn|inceptionn-range|truncate):(-?[0-9]{1,3})", text, re.ASCII)
    if found is None:
        raise CodecError(f"there is no codec {text!r}; known are {_KNOWN}")
    name, number = found[1], int(found[2])
    try:
        if name == "truncate":
            return Truncation(number)
        return Inceptionn(number, "bound" if name == "inceptionn" else "range")
    except CodecError as error:
        raise CodecError(f"{text!r}: {error}; known are {_KNOWN}") from None
