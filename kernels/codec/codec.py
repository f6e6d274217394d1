"""The interface of all codecs: a message's float32 numbers as bytes.

A codec is spelt as on the command line: `none`, `inceptionn:-10`, `topk:0.01`. To add one, add a
file with a subclass of `Codec` to this folder.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..extensions import registry, subclasses
from ..inceptionn.format import Buffer, CodecError, opened, values_of
from ..number import FP32, Count

_MOST_DIGITS = 4


class Codec(abc.ABC):
    """Turns numbers into bytes, and back. Codecs are values: equal if they are spelt alike."""

    kinds: ClassVar[tuple[str, ...]]
    """The words before the colon that name the codec."""

    spelling: ClassVar[str]
    """Its possible spellings, for messages."""

    compresses: ClassVar[bool] = True
    """Whether messages pass through the codec; if not, they are sent unchanged."""

    size_depends_on_values: ClassVar[bool] = False
    """Whether `expected_bytes` is only an estimate, because it does not know the values."""

    @classmethod
    def is_kind(cls, word: str) -> bool:
        """Return whether a word before the colon names the codec."""
        return word in cls.kinds

    @classmethod
    @abc.abstractmethod
    def parse(cls, kind: str, argument: str) -> Codec:
        """Return the codec of a kind with an argument, the text after the colon. Raise CodecError
        if there is none.
        """

    @abc.abstractmethod
    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the bytes of an array's values, in C order. Raise CodecError if it is not of
        float32.
        """

    @abc.abstractmethod
    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """Return the `count` values of a buffer as a flat array. Raise CodecError if it does not
        hold exactly these.
        """

    @abc.abstractmethod
    def largest_bytes(self, count: int) -> int:
        """Return an upper bound on the bytes of `count` values, whatever they are."""

    @abc.abstractmethod
    def expected_bytes(self, count: Count) -> Count:
        """Return the expected bytes of `count` values that are not known."""

    def statistics(self, buffer: Buffer, count: int) -> Mapping[str, int]:
        """Return counts over the `count` values of a buffer, by name; they add up over messages."""
        return {}

    @abc.abstractmethod
    def __str__(self) -> str:
        """Return the codec's spelling."""


@dataclasses.dataclass(frozen=True)
class NoCodec(Codec):
    """No compression: the bytes of the numbers themselves."""

    kinds = ("none",)
    spelling = "none"
    compresses = False

    @classmethod
    def parse(cls, kind: str, argument: str) -> Codec:
        """See `Codec`."""
        if argument:
            raise CodecError("it takes no argument")
        return cls()

    def compress(self, values: NDArray[np.float32]) -> NDArray[np.uint8]:
        """See `Codec`; a copy."""
        return values_of(values).view(np.uint8).copy()

    def decompress(self, buffer: Buffer, count: int) -> NDArray[np.float32]:
        """See `Codec`; a copy."""
        data, count = opened(buffer, count)
        if data.size != FP32.bytes_of(count):
            raise CodecError(
                f"{count} values are {FP32.bytes_of(count)} bytes, but the buffer has {data.size}"
            )
        return data.copy().view(np.float32)

    def largest_bytes(self, count: int) -> int:
        """See `Codec`."""
        return FP32.bytes_of(count)

    def expected_bytes(self, count: Count) -> Count:
        """See `Codec`."""
        return FP32.bytes_of(count)

    def __str__(self) -> str:
        return "none"


@registry
def codecs() -> tuple[type[Codec], ...]:
    """Return all codecs, `NoCodec` first."""
    kinds = subclasses(__package__, Codec)  # type: ignore[type-abstract]  # only its subclasses are returned
    return (NoCodec, *(codec for codec in kinds if codec is not NoCodec))


def parse_codec(text: str) -> Codec:
    """Return the codec with this spelling. Raise CodecError, a ValueError, where there is none."""
    kind, colon, argument = text.partition(":")
    known = ", ".join(codec.spelling for codec in codecs())
    for codec in codecs():
        if codec.is_kind(kind) and bool(argument) == bool(colon):
            try:
                return codec.parse(kind, argument)
            except CodecError as error:
                raise CodecError(f"{text!r}: {error}; known codecs: {known}") from None
    raise CodecError(f"there is no codec {text!r}; known codecs: {known}")


def parsed_number(argument: str) -> int:
    """Return an argument as an integer. Raise CodecError if it is not one."""
    if (
        not argument.removeprefix("-").isdecimal()
        or not argument.isascii()
        or len(argument) > _MOST_DIGITS
    ):
        raise CodecError(f"expected a whole number, not {argument!r}")
    return int(argument)
