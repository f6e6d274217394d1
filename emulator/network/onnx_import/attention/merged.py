"""Layers that make queries, keys and values, as `operations/attention.py` takes them: as one layer,
whose channels stand head by head, q, k and v of head 0, then of head 1, and so on; where heads share
k and v, group by group.

    in the file   Q layer: q0 q1      K layer: k0 k1      V layer: v0 v1
    here          one layer: q0 k0 v0  q1 k1 v1

In cross-attention, they stay apart, head by head each, and their rows are joined: k, then v, then q.
There, a row of k or v has as many channels as one of q: what heads share is repeated for each.
A layer that makes several of them becomes several.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....common import plural
from ...onnx_graph import OnnxNode, Step, Value, Walk
from ...operations.attention import Attention
from ...operations.conv import Conv
from ...operations.joins import Concat, SomeChannels
from .heads import Heads

GROUPED = (
    "shares queries among heads, or keys and values among unequal groups of heads; only equal"
    " groups (grouped queries, GQA) are supported"
)
LEFT_OUT = (
    "leaves out some channels of what makes queries, keys and values; it should use all of them"
)
OF_OTHERS = (
    "takes queries, keys and values of other than fully connected layers (Linear) of each row"
)


def channels_of(
    walk: Walk, node: OnnxNode, parts: Sequence[Heads], firsts: Sequence[int] = (0, 0, 0)
) -> tuple[int, int, list[tuple[int, int]], NDArray[np.intp]]:
    """Return the number of heads, and of their groups with a k and v each; the channels that
    `attention` takes, as (place among parts, channel); and, of the heads of all samples as the node
    has them, where each is among its own. Of what each part's step makes, its rows begin at `firsts`.

    Raises:
        InputError: rows, samples or heads are mixed, or channels are used twice.
    """
    size = parts[0].places.shape[-1]
    channels, owners = [], []
    for heads, first in zip(parts, firsts, strict=True):
        shape, rows = walk.shape(Value(heads.step)), heads.places.shape[-2]
        assert shape is not None
        pixel, channel = np.divmod(heads.places.reshape(-1, rows, size), shape[0])
        sample, row = np.divmod(pixel, shape[1])
        in_rows = shape[2] == 1 and (row == np.arange(first, first + rows)[:, None]).all()
        in_rows &= len({*firsts}) > 1 or shape[1] == rows
        if not in_rows or (channel != channel[:, :1]).any() or (sample != sample[:, :1, :1]).any():
            raise node.refusal(
                "mixes rows or samples in queries, keys or values; a row is a token of a sequence"
            )
        channels.append(channel[:, 0])
        owners.append(sample[:, 0, 0])
    if any((other != owners[0]).any() for other in owners[1:]):
        raise node.refusal("takes queries of one sample and keys of another")
    count, begun = len(owners[0]) // parts[0].samples, dict[int, int]()
    tied = np.empty(len(owners[0]), np.intp)
    kinds = [
        *zip(owners[0].tolist(), map(tuple, np.concatenate(channels, axis=1).tolist()), strict=True)
    ]
    groups: dict[
        tuple[int, ...], list[tuple[int, ...]]
    ] = {}  # by channels of k and v, those of q, k and v of heads
    for owner, kind in kinds:
        if owner == owners[0][0]:
            groups.setdefault(kind[size:], []).append(kind)
    in_groups = itertools.chain.from_iterable(groups.values())
    places = {kind: place for place, kind in enumerate(in_groups)}
    for place, (owner, kind) in enumerate(kinds):
        tied[place] = owner * count + places.get(kind, 0)
        begun[owner] = begun.get(owner, 0) + 1
    if len(places) != count or len({*tied.tolist()}) != len(tied) or {*begun.values()} != {count}:
        raise node.refusal(GROUPED)
    order = []
    for shared, heads_of_group in groups.items():
        order += [(0, channel) for kind in heads_of_group for channel in kind[:size]]
        order += [(1 + place // size, channel) for place, channel in enumerate(shared)]
    uneven = len({*map(len, groups.values())}) > 1
    owned = {(parts[part].step, firsts[part], channel) for part, channel in order}
    if uneven or len(owned) < len(order):
        raise node.refusal(GROUPED)
    return count, len(groups), order, tied


def source_of(
    walk: Walk, node: OnnxNode, steps: Sequence[int], order: Sequence[tuple[int, int]]
) -> int:
    """Return the step whose channels attention takes, of layers that became one with the channels
    in that order.

    Raises:
        InputError: it needs channels in another order than those of what is no layer, or of one
            that others take.
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
        raise node.refusal(LEFT_OUT)
    if len(own) == 1 and channels == tuple(range(len(channels))):
        return own[0]
    layers = [walk.steps[step] for step in own if step >= 0]
    if len(layers) < len(own) or any(not _is_linear(layer) for layer in layers):
        raise node.refusal(OF_OTHERS)
    first = min(own)
    for step in own:
        walk.replace(step, merged=step != first)
    keys = {
        **layers[0].keys,
        "channels": len(channels),
        "bias": any(layer.keys["bias"] for layer in layers),
    }
    walk.replace(first, keys=keys, parts=tuple(layers), channels=channels)
    return first


def _is_linear(layer: Step) -> bool:
    return layer.kind is Conv and not layer.parts and layer.node.operator in ("MatMul", "Gemm")


def is_crossed(walk: Walk, parts: Sequence[Heads]) -> bool:
    """Return whether queries, keys and values are rows of several values, or of one that holds all
    of them.
    """
    q, k, _ = parts
    steps = [part.step for part in parts]
    inputs = {(walk.steps[step].takes if step >= 0 else ()) for step in steps}
    shape = walk.shape(Value(q.step))
    joined = shape is not None and shape[1] == _rows(q) + 2 * _rows(k)
    apart = len({*steps}) > 1 and len(inputs) > 1
    return apart or _rows(q) != _rows(k) or (joined and len({*steps}) == 1)


def crossed(
    walk: Walk, node: OnnxNode, parts: Sequence[Heads]
) -> tuple[int, Value, NDArray[np.intp]]:
    """Return the number of heads, the rows of keys, of values and of queries, and the last of
    `channels_of`.

    Raises:
        InputError: as of `channels_of` and `source_of`; or rows hold other channels.
    """
    q, k, _ = parts
    shape = walk.shape(Value(q.step))
    assert shape is not None
    alone = len({part.step for part in parts}) == 1 and shape[1] == _rows(q) + 2 * _rows(k)
    firsts = (2 * _rows(k), 0, _rows(k)) if alone else (0, 0, 0)
    heads, groups, order, tied = channels_of(walk, node, parts, firsts)
    own = [tuple(channel for part, channel in order if part == n) for n in range(3)]
    axes = "samples", "rows", "channels"
    if alone:
        if any(channels != tuple(range(shape[0])) for channels in own):
            raise node.refusal("takes queries, keys and values of other channels of their rows")
        return heads, Value(q.step, axes=axes), tied
    made = dict(zip("qkv", _apart(walk, node, parts, own), strict=True))
    if groups < heads:
        for part in "kv":
            made[part] = _repeated(walk, node, made[part], groups, heads // groups)
    rows = [Value(made[part], axes=axes) for part in "kvq"]
    return heads, walk.step(node, Concat, {"axis": "rows"}, *rows, axes=axes), tied


def _apart(
    walk: Walk, node: OnnxNode, parts: Sequence[Heads], channels: Sequence[tuple[int, ...]]
) -> list[int]:
    """Return steps that make these channels of those of each part, in their order."""
    made, taken = list[int](), dict[int, set[int]]()
    for part, own in zip(parts, channels, strict=True):
        taken.setdefault(part.step, set()).update(own)
    for part, own in zip(parts, channels, strict=True):
        shape = walk.shape(Value(part.step))
        assert shape is not None
        if len(taken[part.step]) != shape[0]:
            raise node.refusal(LEFT_OUT)
        if own == tuple(range(shape[0])):
            made.append(part.step)
            continue
        layer = walk.steps[part.step] if part.step >= 0 else None
        if layer is None or not _is_linear(layer):
            raise node.refusal(OF_OTHERS)
        keys, takes = {**layer.keys, "channels": len(own)}, map(Value, layer.takes)
        walk.replace(part.step, merged=True)
        layer = dataclasses.replace(layer, merged=False)
        made.append(walk.step(layer.node, Conv, keys, *takes).step)
        walk.replace(made[-1], parts=(layer,), channels=own, order=layer.order)
    return made


def _repeated(walk: Walk, node: OnnxNode, step: int, groups: int, times: int) -> int:
    """Return the step that makes the channels of each of the groups as many times, side by side."""
    shape, axes = walk.shape(Value(step)), ("samples", "rows", "channels")
    assert shape is not None
    count = shape[0] // groups
    parts = [
        walk.step(
            node, SomeChannels, {"first": group * count, "count": count}, Value(step, axes=axes)
        )
        for group in range(groups)
        for _ in range(times)
    ]
    parts = [dataclasses.replace(part, axes=axes) for part in parts]
    return walk.step(node, Concat, {"axis": "channels"}, *parts, axes=axes).step


def note_of_biases(walk: Walk) -> list[str]:
    """Return what is said of layers that became one, of which some have no bias; softmax does not
    see those of keys.
    """
    count = 0
    for number, step in enumerate(walk.steps):
        if not step.parts or step.merged or not step.keys["bias"]:
            continue
        of_parts = [np.full(part.keys["channels"], not part.keys["bias"]) for part in step.parts]
        lacking = np.concatenate(of_parts)[list(step.channels)]
        for taker in walk.steps:
            if taker.kind is Attention and taker.takes == (number,):
                keys: dict[str, Any] = dict(taker.keys)
                lacking &= ~Attention(**keys).are_keys((len(lacking), 1, 1))
        count += bool(lacking.any())
    if not count:
        return []
    return [
        f"{plural(count, 'layer')} of queries, keys and values have biases for some of them alone;"
        " the others begin at 0 and are trained here, too"
    ]


def _rows(part: Heads) -> int:
    return int(part.places.shape[-2])
