"""The layers that make queries, keys and values: which channels belong to which head, and one layer for all of them.

Attention takes channels head by head: q, k and v of head 0, then of head 1, and so on; where heads share k and v, group
by group (`operations/attention.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..onnx_graph import OnnxNode, Step, Value, Walk
from ..operations.conv import Conv
from .heads import Heads

GROUPED = (
    "shares queries among heads, or keys and values among unequal groups of heads; only equal groups (grouped queries,"
    " GQA) are supported"
)


def by_heads(heads: Heads, count: int) -> Heads:
    """Return (samples, rows, channels) as (samples, heads, rows, values)."""
    samples, rows, channels = heads.places.shape
    places = heads.places.reshape(samples, rows, count, channels // count).transpose(0, 2, 1, 3)
    return dataclasses.replace(heads, places=places)


def channels_of(
    walk: Walk, node: OnnxNode, parts: Sequence[Heads]
) -> tuple[int, int, list[tuple[int, int]], NDArray[np.intp]]:
    """Return the number of heads, and of their groups with a k and v each; the channels that `attention` takes, as
    (place among parts, channel); and, of the heads of all samples as the node has them, where each is among its own.

    Raises:
        InputError: rows, samples or heads are mixed, or channels are used twice.
    """
    rows, size = parts[0].places.shape[-2:]
    channels, owners = [], []
    for heads in parts:
        shape = walk.shape(Value(heads.step))
        assert shape is not None
        pixel, channel = np.divmod(heads.places.reshape(-1, rows, size), shape[0])
        sample, row = np.divmod(pixel, shape[1])
        in_rows = shape[1] == rows and shape[2] == 1 and (row == np.arange(rows)[:, None]).all()
        if not in_rows or (channel != channel[:, :1]).any() or (sample != sample[:, :1, :1]).any():
            raise node.refusal("mixes rows or samples in queries, keys or values; a row is a token of a sequence")
        channels.append(channel[:, 0])
        owners.append(sample[:, 0, 0])
    if any((other != owners[0]).any() for other in owners[1:]):
        raise node.refusal("takes queries of one sample and keys of another")
    count, begun = len(owners[0]) // parts[0].samples, dict[int, int]()
    tied = np.empty(len(owners[0]), np.intp)
    kinds = [*zip(owners[0].tolist(), map(tuple, np.concatenate(channels, axis=1).tolist()), strict=True)]
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}  # by channels of k and v, those of q, k and v of heads
    for owner, kind in kinds:
        if owner == owners[0][0]:
            groups.setdefault(kind[size:], []).append(kind)
    places = {kind: place for place, kind in enumerate(kind for heads in groups.values() for kind in heads)}
    for place, (owner, kind) in enumerate(kinds):
        tied[place] = owner * count + places.get(kind, 0)
        begun[owner] = begun.get(owner, 0) + 1
    if len(places) != count or len({*tied.tolist()}) != len(tied) or {*begun.values()} != {count}:
        raise node.refusal(GROUPED)
    if [*places] != [kind for owner, kind in kinds if owner == owners[0][0]]:
        raise node.refusal("shares keys and values among heads that do not stand side by side; they should")
    order = []
    for shared, heads_of_group in groups.items():
        order += [(0, channel) for kind in heads_of_group for channel in kind[:size]]
        order += [(1 + place // size, channel) for place, channel in enumerate(shared)]
    uneven = len({*map(len, groups.values())}) > 1
    if uneven or len({(parts[part].step, channel) for part, channel in order}) < len(order):
        raise node.refusal(GROUPED)
    return count, len(groups), order, tied


def source_of(walk: Walk, node: OnnxNode, steps: Sequence[int], order: Sequence[tuple[int, int]]) -> int:
    """Return the step whose channels attention takes, of layers that became one with the channels in that order.

    Raises:
        InputError: it needs channels in another order than those of what is no layer, or of one that others take.
    """
    own = list(dict.fromkeys(steps))
    widths = []
    for step in own:
        shape = walk.shape(Value(step))
        assert shape is not None
        widths.append(shape[0])
    begins = dict(zip(own, np.cumsum([0, *widths[:-1]]).tolist(), strict=True))
    channels = tuple(begins[steps[part]] + channel for part, channel in order)
    if len(channels) != sum(widths):
        raise node.refusal("leaves out some channels of what makes queries, keys and values; it should use all of them")
    if len(own) == 1 and channels == tuple(range(len(channels))):
        return own[0]
    layers = [walk.steps[step] for step in own if step >= 0]
    if len(layers) < len(own) or any(not _is_linear(layer) for layer in layers):
        raise node.refusal("takes queries, keys and values of other than fully connected layers (Linear) of each row")
    first = min(own)
    for step in own:
        walk.replace(step, merged=step != first)
    keys = {**layers[0].keys, "channels": len(channels), "bias": any(layer.keys["bias"] for layer in layers)}
    walk.replace(first, keys=keys, parts=tuple(layers), channels=channels)
    return first


def _is_linear(layer: Step) -> bool:
    return layer.kind is Conv and not layer.parts and layer.node.operator in ("MatMul", "Gemm")
