"""Attention from ONNX: products of queries and keys, softmax over keys, and products of these with
values.

PyTorch's exporters write `scaled_dot_product_attention` so, and people do; ONNX has an operator,
Attention, since its version 23. Which nodes make queries, keys and values of which results follows
from the graph alone, before the walk; the views between are `heads`.

Layers that make queries, keys and values become one, whose channels stand head by head: q, k and v
of head 0, then of head 1, and so on; where heads share k and v, group by group
(`operations/attention.py`).

    in the file   Q layer: q0 q1      K layer: k0 k1      V layer: v0 v1
    here          one layer: q0 k0 v0  q1 k1 v1
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..onnx_graph import OnnxGraph, OnnxNode, Step, Value, Walk
from ..operations.attention import Attention
from ..operations.conv import Conv
from ..operations.rotary import HeadNorm, Rotary
from .heads import (
    MOVES,
    Heads,
    Norm,
    by_heads,
    constants_of,
    heads_of,
    moved,
    plain,
    sizes_of,
)
from .turned import OTHER_TURNS, Mixed, Turn, added, joined, unturned, viewed

GROUPED = (
    "shares queries among heads, or keys and values among unequal groups of heads; only equal"
    " groups (grouped queries, GQA) are supported"
)


def channels_of(
    walk: Walk, node: OnnxNode, parts: Sequence[Heads]
) -> tuple[int, int, list[tuple[int, int]], NDArray[np.intp]]:
    """Return the number of heads, and of their groups with a k and v each; the channels that
    `attention` takes, as (place among parts, channel); and, of the heads of all samples as the node
    has them, where each is among its own.

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
    if [*places] != [kind for owner, kind in kinds if owner == owners[0][0]]:
        raise node.refusal(
            "shares keys and values among heads that do not stand side by side; they should"
        )
    order = []
    for shared, heads_of_group in groups.items():
        order += [(0, channel) for kind in heads_of_group for channel in kind[:size]]
        order += [(1 + place // size, channel) for place, channel in enumerate(shared)]
    uneven = len({*map(len, groups.values())}) > 1
    if uneven or len({(parts[part].step, channel) for part, channel in order}) < len(order):
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
        raise node.refusal(
            "leaves out some channels of what makes queries, keys and values; it should use all of"
            " them"
        )
    if len(own) == 1 and channels == tuple(range(len(channels))):
        return own[0]
    layers = [walk.steps[step] for step in own if step >= 0]
    if len(layers) < len(own) or any(not _is_linear(layer) for layer in layers):
        raise node.refusal(
            "takes queries, keys and values of other than fully connected layers (Linear) of"
            " each row"
        )
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


_OF_SCORES = frozenset({"Add", "Where", "Mul", "Div", "Identity", "Cast"})
_OF_TURNS = frozenset({"Add", "Sub", "Mul", "Neg", "Concat"})
_OF_SHARES = frozenset({"Dropout", "Identity", "Cast", "IsNaN", "Where"})
_SCALES = frozenset({"Mul", "Div"})
_NORM = "RMSNormalization"

_HIDES = -1e4
"""What is added to scores of keys that a query does not see, or less: exp of it is 0."""


@dataclasses.dataclass(frozen=True)
class _Scores:
    """Products of queries (…, rows, values) and keys alike, times `factor`, without those `hidden`
    (queries, keys).

    They are `shares` after softmax, which `node` is, and dropped at the rate `dropout`; or only
    `nan`, where of these are not numbers.
    """

    q: Heads
    k: Heads
    factor: float
    hidden: NDArray[np.bool_] | None = None
    node: OnnxNode | None = None
    dropout: float = 0.0
    nan: bool = False
    turn: Turn | None = None


class Attentions:
    """All attention of a graph: the nodes that belong to it, and the values between them."""

    def __init__(self, walk: Walk, graph: OnnxGraph) -> None:
        self._walk = walk
        self._makers = {name: node for node in graph.nodes for name in node.outputs}
        self._constants = constants_of(graph)
        self._values: dict[str, Heads | Mixed | _Scores] = {}
        self._sequences: dict[str, Sequence[Heads | Mixed]] = {}
        self._nodes: set[int] = set()
        for node in graph.nodes if walk.attends else ():
            if node.operator == "Attention":
                self._nodes.update(id(own) for own in self._views(node.inputs[:3]))
                self._nodes.add(id(node))
            elif node.operator == "MatMul":
                self._find(node)

    def _find(self, last: OnnxNode) -> None:
        """Note the nodes of one attention, if `last` is the product of its softmax with values."""
        shares, scores = self._back(last.inputs[0], _OF_SHARES)
        softmax = self._makers.get(scores)
        if softmax is None or softmax.operator != "Softmax" or last.inputs[1] in self._constants:
            return
        before, products = self._back(softmax.inputs[0], _OF_SCORES)
        first = self._makers.get(products)
        if first is None or first.operator != "MatMul" or {*first.inputs} & self._constants:
            return
        views = self._views([*first.inputs, last.inputs[1]])
        self._nodes.update(map(id, (*shares, softmax, *before, first, last, *views)))

    def _back(self, name: str, operators: frozenset[str]) -> tuple[list[OnnxNode], str]:
        """Return the nodes of these operators that make a value, and the one that they make it
        of.
        """
        nodes: list[OnnxNode] = []
        while (node := self._makers.get(name)) is not None and node.operator in operators:
            given = node.inputs[:1] if node.operator == "CastLike" else node.inputs
            taken = [own for own in given if own and own not in self._constants]
            if (
                node.operator == "Where" and len(taken) == 2 and taken[0] in self._makers
            ):  # of what is no number
                guard = self._makers[taken[0]]
                if guard.operator == "IsNaN" and guard.inputs[0] == taken[1]:
                    nodes.append(guard)
                    taken = taken[1:]
            if len(taken) != 1:
                break
            nodes.append(node)
            name = taken[0]
        return nodes, name

    def _views(self, names: Sequence[str]) -> Iterator[OnnxNode]:
        """Yield the nodes by which queries, keys or values come from what layers make."""
        for name in names:
            nodes, begin = self._back(name, MOVES | _SCALES)
            yield from nodes
            node = self._makers.get(begin)
            if node is not None and node.operator == _NORM:
                yield node
                yield from self._views(node.inputs[:1])
            if node is not None and self._turns(node):
                yield from self._turning(node)

    def _turns(self, node: OnnxNode) -> bool:
        """Return whether a node adds or joins products with numbers of the file, as rotary
        embeddings do.
        """
        taken = [self._makers.get(name) for name in node.inputs if name not in self._constants]
        operators = {"" if maker is None else maker.operator for maker in taken}
        if node.operator == "RotaryEmbedding":
            raise node.refusal("is an operator of its own; export the model for version 20 of ONNX")
        if node.operator in ("Add", "Sub") and len(taken) == 2:
            return operators == {"Mul"}
        return node.operator == "Concat" and operators <= MOVES | _OF_TURNS

    def _turning(self, last: OnnxNode) -> list[OnnxNode]:
        """Return the nodes that turn queries or keys, from the views of what layers make on."""
        nodes, todo = {id(last): last}, [last]
        while todo:
            for name in todo.pop().inputs:
                maker = self._makers.get(name)
                if maker is None or name in self._constants or id(maker) in nodes:
                    continue
                both = maker.operator not in ("Add", "Sub") or not {*maker.inputs} & self._constants
                if maker.operator in MOVES | _OF_TURNS | {_NORM} and both:
                    nodes[id(maker)] = maker
                    todo.append(maker)
        return [*nodes.values()]

    def takes(self, node: OnnxNode) -> bool:
        """Return whether a node belongs to attention."""
        if node.operator == "CastLike" and node.inputs[0] in self._walk.constants:
            return False
        return id(node) in self._nodes or any(name in self._values for name in node.inputs)

    def add(self, node: OnnxNode) -> None:
        """Add a node that belongs to attention to the walk.

        Raises:
            InputError: it does what `attention` does not.
        """
        taken = [self._values[name] for name in node.inputs if name in self._values]
        if node.operator == "Shape" and not isinstance(taken[0], _Scores):
            own = taken[0].heads if isinstance(taken[0], Mixed) else taken[0]
            self._walk.name(node, sizes_of(self._walk, node, own))
        elif node.operator == "Attention":
            self._operator(node)
        elif node.operator == _NORM:
            self._values[node.outputs[0]] = self._normed(node)
        elif any(isinstance(value, _Scores) for value in taken):
            self._of_scores(node)
        elif node.operator == "MatMul":
            if len(taken) < 2 and id(node) not in self._nodes:
                raise node.refusal(_ELSEWHERE)
            k = self._heads(node, 1)
            if isinstance(k, Heads):
                k = dataclasses.replace(k, places=k.places.swapaxes(-1, -2))
            else:
                k = k.swapped()
            self._values[node.outputs[0]] = self._scores(node, self._heads(node, 0), k)
        elif node.operator in ("Add", "Sub", "Neg", "Concat") or (
            node.operator in _SCALES and not self._is_number(node)
        ):
            self._values[node.outputs[0]] = self._turned(node)
        elif node.operator in _SCALES:
            place = next(
                (n for n, name in enumerate(node.inputs) if name not in self._walk.constants), 0
            )
            heads, factor = self._heads(node, place), self._scale(node)
            self._values[node.outputs[0]] = (
                heads.times(np.array(factor))
                if isinstance(heads, Mixed)
                else dataclasses.replace(heads, factor=heads.factor * factor)
            )
        elif node.operator == "SequenceAt" and node.inputs[0] in self._sequences:
            index = int(self._array(node, 1).item())
            self._name(node, node.outputs[0], self._sequences[node.inputs[0]][index])
        elif node.operator == "SplitToSequence":
            self._sequences[node.outputs[0]] = self._moved(node)
        elif node.operator in MOVES:
            for name, made in zip(node.outputs, self._moved(node), strict=False):
                self._name(node, name, made)
        else:
            raise node.refusal(_ELSEWHERE)

    def _normed(self, node: OnnxNode) -> Heads:
        """Return queries or keys after their norm."""
        heads, scale = self._heads(node, 0), self._walk.weight(node)
        if not isinstance(heads, Heads) or heads.norm is not None or heads.factor != 1:
            raise node.refusal(_ELSEWHERE)
        last = heads.places.ndim - 1
        if node.integer("axis", -1) not in (-1, last) or scale != heads.places.shape[-1:]:
            raise node.refusal("normalises queries or keys over other axes than a head's channels")
        norm = Norm(node.inputs[1], node.number("epsilon", 1e-5), heads.places)
        return dataclasses.replace(heads, norm=norm)

    def _moved(self, node: OnnxNode) -> Sequence[Heads | Mixed]:
        """Return what a view makes."""
        heads = self._heads(node, 0)
        if isinstance(heads, Mixed):
            return viewed(self._walk, node, heads)
        return moved(self._walk, node, heads)

    def _is_number(self, node: OnnxNode) -> bool:
        """Return whether a node multiplies or divides by one number, or by no constant."""
        sizes = []
        for name in node.inputs:
            known = self._walk.constants.get(name)
            if known is not None:
                sizes.append(known.extents is None and math.prod(known.shape) == 1)
        return all(sizes)

    def _turned(self, node: OnnxNode) -> Mixed:
        """Return what a node of rotary embeddings makes.

        Raises:
            InputError: it is part of something else.
        """
        if node.operator in _SCALES:
            place = next(n for n, name in enumerate(node.inputs) if name in self._walk.constants)
            if node.operator == "Div":
                raise node.refusal(OTHER_TURNS)
            return Mixed.of(self._heads(node, 1 - place)).times(self._array(node, place))
        values = [Mixed.of(self._heads(node, place)) for place in range(len(node.inputs))]
        if node.operator == "Neg":
            return values[0].times(np.array(-1.0))
        if node.operator == "Concat":
            return joined(node, values, node.integer("axis", 1))
        one, other = values
        return added(node, one, other.times(np.array(-1.0)) if node.operator == "Sub" else other)

    def _scores(self, node: OnnxNode, q: Heads | Mixed, k: Heads | Mixed) -> _Scores:
        """Return the products of queries and keys (…, rows, values), turned alike or not."""
        (q, turn), (k, other) = (
            unturned(node, own) if isinstance(own, Mixed) else (own, None) for own in (q, k)
        )
        if turn != other:
            raise node.refusal(OTHER_TURNS)
        return _Scores(q, k, q.factor * k.factor, turn=turn)

    def _name(self, node: OnnxNode, name: str, heads: Heads | Mixed) -> None:
        """Record a value under its name: as a sequence, where it is the result of attention in
        order again.
        """
        step = self._walk.step_of(Value(heads.step))
        value = None
        if isinstance(heads, Heads) and step is not None and step.kind is Attention:
            value = plain(self._walk, heads)
        if value is None:
            self._values[name] = heads
        else:
            self._walk.name(node, value, node.outputs.index(name))

    def _heads(self, node: OnnxNode, place: int) -> Heads | Mixed:
        known = self._values.get(node.inputs[place]) if place < len(node.inputs) else None
        if isinstance(known, _Scores):
            raise node.refusal(_ELSEWHERE)
        return (
            known if known is not None else heads_of(self._walk, node, self._walk.take(node, place))
        )

    def _array(self, node: OnnxNode, place: int) -> NDArray[Any]:
        constant = self._walk.constant(node, place)
        if constant is not None and constant.numbers is not None:
            return np.array(constant.numbers).reshape(constant.shape)
        try:
            return self._walk.expressions.value("" if constant is None else constant.name)
        except KeyError:
            raise node.refusal(
                f"its input {place + 1} should be a constant, such as a mask or a number"
            ) from None

    def _scale(self, node: OnnxNode) -> float:
        """Return the number by which a node multiplies, or divides."""
        place = next(
            (n for n, name in enumerate(node.inputs) if name in self._walk.constants), None
        )
        array = None if place is None else self._array(node, place)
        if array is None or array.size != 1 or (node.operator == "Div" and place == 0):
            raise node.refusal("multiplies queries, keys or scores by other than one number")
        number = float(array.reshape(-1)[0])
        return number if node.operator == "Mul" else 1 / number

    def _of_scores(self, node: OnnxNode) -> None:
        places = [
            n for n, name in enumerate(node.inputs) if isinstance(self._values.get(name), _Scores)
        ]
        scores = self._values[node.inputs[places[-1]]]
        assert isinstance(scores, _Scores)
        if id(node) not in self._nodes:
            raise node.refusal(_ELSEWHERE)
        if node.operator == "MatMul":
            self._close(node, scores)
            return
        if node.operator in _SCALES:
            made = dataclasses.replace(scores, factor=scores.factor * self._scale(node))
        elif node.operator == "Softmax":
            if node.integer("axis", -1) not in (-1, scores.q.places.ndim - 1):
                raise node.refusal(
                    "is not over keys, the last axis of the products of queries and keys"
                )
            made = dataclasses.replace(scores, node=node)
        elif node.operator == "Dropout":
            rate, *_ = *self._walk.numbers(node, "ratio"), 0.5
            if scores.dropout:
                raise node.refusal(
                    "drops shares of attention a second time, which is not supported"
                )
            made = dataclasses.replace(scores, dropout=rate)
        elif node.operator == "Add":
            made = self._masked(node, scores, self._array(node, 1 - places[0]))
        elif node.operator == "Where" and scores.node is None:
            condition = self._array(node, 0).astype(bool)
            other = self._array(node, 3 - places[0])
            hides = condition if places[0] == 2 else ~condition
            made = self._masked(node, scores, np.where(hides, other.astype(np.float64), 0.0))
        else:
            made = dataclasses.replace(scores, nan=node.operator == "IsNaN")
        self._values[node.outputs[0]] = made

    def _masked(self, node: OnnxNode, scores: _Scores, added: NDArray[Any]) -> _Scores:
        """Return scores with a mask that is added."""
        rows, hides = scores.q.places.shape[-2], added <= _HIDES
        if not (hides | (added == 0)).all() or hides.shape[-2:] not in (
            (rows, rows),
            (1, rows),
            (1, 1),
            (rows, 1),
        ):
            raise node.refusal(
                "adds a mask other than 0 and -inf to scores; only a causal mask is supported"
            )
        planes = np.broadcast_to(hides, (*hides.shape[:-2], rows, rows)).reshape(-1, rows, rows)
        if (planes != planes[0]).any():
            raise node.refusal(
                "has a mask for each head or sample; only a causal mask is supported"
            )
        hidden = planes[0] if scores.hidden is None else planes[0] | scores.hidden
        return dataclasses.replace(scores, hidden=hidden)

    def _operator(self, node: OnnxNode) -> None:
        """Add ONNX's own operator Attention."""
        for place, what in ((4, "past keys"), (5, "past values"), (6, "padding")):
            if node.has_input(place):
                raise node.refusal(f"takes {what}, its input {place + 1}, which is not supported")
        if node.number("softcap", 0.0) or any(node.outputs[1:]):
            raise node.refusal("caps scores, or has more results than one, which is not supported")
        q, k, v = (self._plain(node, place) for place in range(3))
        flat = q.places.ndim == 3
        if flat:
            counts = node.integer("q_num_heads", 0), node.integer("kv_num_heads", 0)
            if min(counts) < 1 or q.places.shape[-1] % counts[0]:
                raise node.refusal(GROUPED)
            q, k, v = (by_heads(part, counts[place > 0]) for place, part in enumerate((q, k, v)))
        if q.places.shape[1] % k.places.shape[1]:
            raise node.refusal(GROUPED)
        k, v = (
            dataclasses.replace(
                part, places=part.places.repeat(q.places.shape[1] // part.places.shape[1], 1)
            )
            for part in (k, v)
        )
        scale = node.number("scale", q.places.shape[-1] ** -0.5)
        rows = q.places.shape[-2]
        scores = _Scores(q, k, q.factor * k.factor * scale, node=node)
        if node.integer("is_causal", 0):
            scores = dataclasses.replace(scores, hidden=np.triu(np.ones((rows, rows), bool), 1))
        if node.has_input(3):
            mask = self._array(node, 3)
            scores = self._masked(
                node, scores, np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask
            )
        made = self._attention(node, scores, v)
        if flat:
            turned = made.places.transpose(0, 2, 1, 3)
            made = dataclasses.replace(made, places=turned.reshape(*turned.shape[:2], -1))
        self._name(node, node.outputs[0], made)

    def _close(self, node: OnnxNode, scores: _Scores) -> None:
        if scores.node is None or scores.nan or node.inputs[1] in self._walk.constants:
            raise node.refusal(_ELSEWHERE)
        self._name(node, node.outputs[0], self._attention(node, scores, self._plain(node, 1)))

    def _plain(self, node: OnnxNode, place: int) -> Heads:
        """Return values, which are not turned."""
        heads = self._heads(node, place)
        if isinstance(heads, Heads):
            return heads
        made, turn = unturned(node, heads)
        if turn is not None:
            raise node.refusal(OTHER_TURNS)
        return made

    def _attention(self, node: OnnxNode, scores: _Scores, v: Heads) -> Heads:
        """Add the step of attention; return its results as they stand after the product with
        values.
        """
        q, k = scores.q, scores.k
        assert scores.node is not None
        size, rows = q.places.shape[-1], q.places.shape[-2]
        inputs = {
            (self._walk.steps[heads.step].takes if heads.step >= 0 else ()) for heads in (q, k, v)
        }
        if len({q.step, k.step, v.step}) > 1 and len(inputs) > 1:
            raise node.refusal(
                "takes queries of one value and keys or values of another (cross-attention), which"
                " is not supported"
            )
        if not q.places.shape == k.places.shape == v.places.shape:
            raise node.refusal(
                f"takes queries {list(q.places.shape)}, keys {list(k.places.shape)} and values"
                f" {list(v.places.shape)}: only as many heads, rows and values of each are"
                " supported, not cross-attention"
            )
        if not math.isclose(scores.factor * v.factor, size**-0.5, rel_tol=1e-5) or v.factor != 1:
            raise node.refusal(
                f"scales products by {scores.factor * v.factor:g}, where only 1 over the root of a"
                f" head's {size} values, {size**-0.5:g}, is supported"
            )
        hidden = np.zeros((rows, rows), bool) if scores.hidden is None else scores.hidden
        causal = bool(hidden.any())
        if causal and (hidden != np.triu(np.ones((rows, rows), bool), 1)).any():
            raise node.refusal(
                "hides other keys than those behind a query; only a causal mask is supported"
            )
        heads, groups, order, tied = channels_of(self._walk, node, (q, k, v))
        source = source_of(self._walk, node, [part.step for part in (q, k, v)], order)
        value = Value(source, axes=("samples", "rows", "channels"))
        grouped = {"kv_heads": groups} if groups < heads else {}
        norms = [part.norm for part in (q, k, v) if part.norm is not None]
        if norms:
            fits = all(part.norm and part.norm.fits(part.places) for part in (q, k))
            if not fits or len(norms) > 2 or norms[0].epsilon != norms[1].epsilon:
                raise node.refusal("takes queries and keys that are not normalised alike, by heads")
            own = {"heads": heads, **grouped, "epsilon": norms[0].epsilon}
            arrays = dict(zip(("queries", "keys"), (norm.array for norm in norms), strict=True))
            value = self._walk.step(
                scores.node, HeadNorm, own, value, axes=value.axes, arrays=arrays
            )
        if scores.turn is not None:
            turned, base, interleaved = scores.turn
            part = {"turned": turned} if turned < size else {}
            own = {"heads": heads, **grouped, "base": base, "interleaved": interleaved, **part}
            value = self._walk.step(scores.node, Rotary, own, value, axes=value.axes)
        keys = {"heads": heads, **grouped, "causal": causal, "dropout": scores.dropout}
        step = self._walk.step(scores.node, Attention, keys, value, axes=value.axes).step
        whole = (
            np.arange(q.places.size, dtype=np.int32)
            .reshape(q.samples, rows, heads, size)
            .transpose(0, 2, 1, 3)
        )
        return Heads(step, q.samples, whole.reshape(-1, rows, size)[tied].reshape(q.places.shape))


_ELSEWHERE = (
    "takes queries, keys, values or scores elsewhere than in attention, which is not supported"
)
