"""Rotary positions from ONNX: queries and keys of which each number is a sum of two numbers of a
layer, by cosines and sines of the row (Su et al., 2021).

People spell them in many ways: halves of a head that change places, pairs side by side that are
stacked, with tables of the file or computed from rates. So each number here is a sum of places
times factors; what `rotary` makes of the same places has the same factors.

    y[a] = x[a] * cos - x[b] * sin        y[b] = x[b] * cos + x[a] * sin
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .....kernels.layers.rotary import turns
from ...onnx_graph import OnnxNode, Walk
from .heads import Heads, Norm, Places, moved

Factors = NDArray[np.float64]

_CLOSE = 1e-5
"""Exporters round angles, cosines and sines to single precision."""

OTHER_TURNS = (
    "turns queries or keys by other angles than those of rotary embeddings (RoPE): row · base^(-2i /"
    " e) of pair i, from row 0 on, alike for all heads, queries and keys"
)


class Turn(NamedTuple):
    """How pairs of a head's first `channels` are turned."""

    channels: int
    base: float
    interleaved: bool


@dataclasses.dataclass(frozen=True)
class Mixed:
    """Numbers that are sums of numbers that a step made for this many samples, each by a factor."""

    step: int
    samples: int
    parts: tuple[tuple[Places, Factors], ...]
    norm: Norm | None = None

    @classmethod
    def of(cls, value: Heads | Mixed) -> Mixed:
        """Return a value as sums of one number each."""
        if isinstance(value, Mixed):
            return value
        factors = np.full(value.places.shape, value.factor)
        return cls(value.step, value.samples, ((value.places, factors),), value.norm)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its axes."""
        return self.parts[0][0].shape

    @property
    def heads(self) -> Heads:
        """The first numbers, as if there were no others."""
        return Heads(self.step, self.samples, self.parts[0][0])

    def times(self, factors: NDArray[Any]) -> Mixed:
        """Return the numbers by factors, which are repeated as needed."""
        parts = []
        for places, own in self.parts:
            product = own * factors
            parts.append((np.broadcast_to(places, product.shape), product))
        return dataclasses.replace(self, parts=tuple(parts))

    def swapped(self) -> Mixed:
        """Return the numbers with their last two axes the other way round."""
        parts = [(places.swapaxes(-1, -2), own.swapaxes(-1, -2)) for places, own in self.parts]
        return dataclasses.replace(self, parts=tuple(parts))


def added(node: OnnxNode, one: Mixed, other: Mixed) -> Mixed:
    """Return the sum of numbers of one step.

    Raises:
        InputError: they are of several steps, or of other sizes.
    """
    if one.step != other.step or one.shape != other.shape or one.norm != other.norm:
        raise node.refusal(OTHER_TURNS)
    return dataclasses.replace(one, parts=one.parts + other.parts)


def joined(node: OnnxNode, values: Sequence[Mixed], axis: int) -> Mixed:
    """Return numbers of one step, one after another along an axis.

    Raises:
        InputError: they are of several steps.
    """
    if len({(value.step, value.norm) for value in values}) > 1:
        raise node.refusal(OTHER_TURNS)
    count = max(len(value.parts) for value in values)
    parts = []
    for number in range(count):
        places, factors = list[Places](), list[Factors]()
        for value in values:
            own, by = value.parts[min(number, len(value.parts) - 1)]
            places.append(own)
            factors.append(by if number < len(value.parts) else np.zeros_like(by))
        parts.append((np.concatenate(places, axis), np.concatenate(factors, axis)))
    return dataclasses.replace(values[0], parts=tuple(parts))


def viewed(walk: Walk, node: OnnxNode, value: Mixed) -> list[Mixed]:
    """Return a value after a view, by the view's outputs; it raises as `moved`."""
    count = math.prod(value.shape)
    order = np.arange(count, dtype=np.int32).reshape(value.shape)
    whole = dataclasses.replace(value.heads, places=order)
    made = []
    for view in moved(walk, node, whole):
        parts = [
            (places.ravel()[view.places], own.ravel()[view.places]) for places, own in value.parts
        ]
        made.append(dataclasses.replace(value, parts=tuple(parts)))
    return made


def unturned(node: OnnxNode, value: Mixed) -> tuple[Heads, Turn | None]:
    """Return the numbers (…, rows, values of a head) before they were turned, and how they were.

    Raises:
        InputError: they are other sums than rotary positions make.
    """
    places, factors = (np.stack([part[n] for part in value.parts]) for n in (0, 1))
    rows, size = value.shape[-2:]
    # In row 0 nothing is turned: the number of its own place has the factor there.
    own = np.abs(factors[..., :1, :]).argmax(0)[None].repeat(rows, -2)
    cosines = np.take_along_axis(factors, own, 0)[0]
    before = np.take_along_axis(places, own, 0)[0]
    rest = factors.copy()
    np.put_along_axis(rest, own, 0, 0)
    other = np.abs(rest).max(-2, keepdims=True).argmax(0)[None].repeat(rows, -2)
    sines = np.take_along_axis(rest, other, 0)[0]
    partners = np.take_along_axis(places, other, 0)[0]
    np.put_along_axis(rest, other, 0, 0)
    factor = float(cosines.ravel()[0])
    if factor == 0 or rest.any() or (np.abs(cosines[..., 0, :] / factor - 1) > _CLOSE).any():
        raise node.refusal(OTHER_TURNS)
    heads = Heads(value.step, value.samples, before, factor, value.norm)
    cosines, sines = (own.reshape(-1, rows, size) / factor for own in (cosines, sines))
    turned = np.abs(sines).max((0, 1)) > 0
    count = int(turned.sum())
    if count == 0:
        if (np.abs(cosines - 1) > _CLOSE).any():
            raise node.refusal(OTHER_TURNS)
        return heads, None
    before, partners = (own.reshape(-1, rows, size)[..., :count] for own in (before, partners))
    for interleaved in (False, True):
        if interleaved:
            pairs, swap = np.arange(count) // 2, np.arange(count) ^ 1
        else:
            half = count // 2
            pairs, swap = np.arange(count) % max(1, half), np.roll(np.arange(count), half)
        if count % 2 or not turned[:count].all() or (before[..., swap] != partners).any():
            continue
        second = swap < np.arange(count)
        turn = _turn(cosines[..., :count], sines[..., :count], pairs, second, interleaved)
        if turn is not None and (np.abs(cosines[..., count:] - 1) <= _CLOSE).all():
            return heads, turn
    raise node.refusal(OTHER_TURNS)


def _turn(
    cosines: Factors, sines: Factors, pairs: NDArray[Any], second: NDArray[Any], interleaved: bool
) -> Turn | None:
    """Return the turn whose cosines and sines (heads, rows, channels) these are; None if there is
    none.
    """
    channels, rows = len(pairs), cosines.shape[1]
    base = 10000.0
    if channels > 2 and rows > 1:
        place = int(np.flatnonzero((pairs == 1) & second)[0])
        angle = math.atan2(float(sines[0, 1, place]), float(cosines[0, 1, place]))
        if angle <= 0:
            return None
        base = float(f"{angle ** (-channels / 2):.4g}")
    own = [table.astype(np.float64)[:, pairs] for table in turns(rows, channels, base)]
    signed = own[1] * np.where(second, 1, -1)
    fits = np.abs(cosines - own[0]).max() <= _CLOSE * rows and (
        np.abs(sines - signed).max() <= _CLOSE * rows
    )
    return Turn(channels, base, interleaved) if fits else None
