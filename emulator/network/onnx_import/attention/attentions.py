"""Attention from ONNX: products of queries and keys, softmax over keys, and products of these with
values.

PyTorch's exporters write `scaled_dot_product_attention` so, and people do; ONNX has an operator,
Attention, since its version 23. Which nodes make queries, keys and values of which results follows
from the graph alone, before the walk; the views between are `heads`.

Layers that make queries, keys and values become what `attention` takes in `merged`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...onnx_graph import OnnxGraph, OnnxNode, Value, Walk
from ...operations.attention import Attention
from ...operations.joins import Concat
from ...operations.rotary import HeadNorm, Rotary, ScoreTable
from ...operations.scale import Affine
from .heads import (
    MOVES,
    Heads,
    Norm,
    by_heads,
    heads_of,
    moved,
    plain,
    sizes_of,
    spread,
)
from .merged import GROUPED, channels_of, crossed, is_crossed, source_of
from .terms import Scores, Table, buckets_of, scale_of, slopes_of, table_of, taken_apart
from .turned import OTHER_TURNS, Mixed, added, joined, unturned, viewed

_OF_SCORES = frozenset({"Add", "Where", "Mul", "Div", "Identity", "Cast", "Reshape"})
_OF_TURNS = frozenset({"Add", "Sub", "Mul", "Neg", "Concat"})
_OF_SHARES = frozenset({"Dropout", "Identity", "Cast", "IsNaN", "Where", "Reshape"})
_SCALES = frozenset({"Mul", "Div"})
_LENGTH = "LpNormalization"
_NORMS = frozenset({"RMSNormalization", _LENGTH})

_CLOSE = 1e-5
"""Exporters round numbers to single precision."""

_HIDES = -1e4
"""What is added to scores of keys that a query does not see, or less: exp of it is 0."""


class Attentions:
    """All attention of a graph: the nodes that belong to it, and the values between them."""

    def __init__(self, walk: Walk, graph: OnnxGraph) -> None:
        self._walk = walk
        self._makers = graph.makers
        self._constants = graph.fixed
        self._values: dict[str, Heads | Mixed | Scores] = {}
        self._nodes: set[int] = set()
        self._added_terms: dict[str, tuple[Table | None, NDArray[Any]]] = {}
        self._tables: dict[str, tuple[float, dict[str, int], Value]] = {}
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
            taken = [own for own in node.operands if own and own not in self._constants]
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
            if node is not None and node.operator in _NORMS:
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
        joins_channels = node.operator == "Concat" and node.integer("axis", 1) not in (0, 1)
        return joins_channels and operators <= MOVES | _OF_TURNS

    def _turning(self, last: OnnxNode) -> list[OnnxNode]:
        """Return the nodes that turn queries or keys, from the views of what layers make on."""
        nodes, todo = {id(last): last}, [last]
        while todo:
            for name in todo.pop().inputs:
                maker = self._makers.get(name)
                if maker is None or name in self._constants or id(maker) in nodes:
                    continue
                both = maker.operator not in ("Add", "Sub") or not {*maker.inputs} & self._constants
                if maker.operator in MOVES | _OF_TURNS | _NORMS and both:
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
        if node.operator == "Shape" and not isinstance(taken[0], Scores):
            own = taken[0].heads if isinstance(taken[0], Mixed) else taken[0]
            self._walk.name(node, sizes_of(self._walk, node, own))
        elif node.operator == "Attention":
            self._operator(node)
        elif node.operator in _NORMS:
            self._values[node.outputs[0]] = self._normed(node)
        elif any(isinstance(value, Scores) for value in taken):
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
            heads = self._heads(node, place)
            whole = heads.shape if isinstance(heads, Mixed) else heads.places.shape
            factor = self._scale(node, whole[-2:])
            self._values[node.outputs[0]] = (
                heads.times(np.array(factor))
                if isinstance(heads, Mixed)
                else dataclasses.replace(heads, factor=heads.factor * factor)
            )
        elif node.operator in MOVES:
            for name, made in zip(node.outputs, self._moved(node), strict=False):
                self._name(node, name, made)
        else:
            raise node.refusal(_ELSEWHERE)

    def _normed(self, node: OnnxNode) -> Heads:
        """Return queries or keys after their norm; by length, it is one by the root of mean squares,
        times 1 over the root of their size.
        """
        heads = self._heads(node, 0)
        if not isinstance(heads, Heads) or heads.norm is not None or heads.factor != 1:
            raise node.refusal(_ELSEWHERE)
        last, size = heads.places.ndim - 1, heads.places.shape[-1]
        by_length = node.operator == _LENGTH
        scale = (size,) if by_length else self._walk.weight(node)
        if node.integer("axis", -1) not in (-1, last) or scale != (size,):
            raise node.refusal("normalises queries or keys over other axes than a head's channels")
        if by_length:
            if node.integer("p", 2) != 2:
                raise node.refusal("divides queries or keys by other lengths than L2")
            least = node.number("epsilon", 0.0) or 1e-12
            norm = Norm(None, least**2 / size, heads.places)
            return dataclasses.replace(heads, norm=norm, factor=size**-0.5)
        numbers = node.number("epsilon", 1e-5), heads.places, node.number("offset", 0.0)
        return dataclasses.replace(heads, norm=Norm(node.inputs[1], *numbers))

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
            factors = self._array(node, place)
            if np.ptp(factors) <= _CLOSE * np.abs(factors).max() > 0:
                raise node.refusal(_LEARNT)  # what turns rows is not the same for all
            return Mixed.of(self._heads(node, 1 - place)).times(factors)
        values = [Mixed.of(self._heads(node, place)) for place in range(len(node.inputs))]
        if node.operator == "Neg":
            return values[0].times(np.array(-1.0))
        if node.operator == "Concat":
            return joined(node, values, node.integer("axis", 1))
        one, other = values
        return added(node, one, other.times(np.array(-1.0)) if node.operator == "Sub" else other)

    def _scores(self, node: OnnxNode, q: Heads | Mixed, k: Heads | Mixed) -> Scores:
        """Return the products of queries and keys (…, rows, values), turned alike or not."""
        (q, turn), (k, other) = (
            unturned(node, own) if isinstance(own, Mixed) else (own, None) for own in (q, k)
        )
        if turn != other:
            raise node.refusal(OTHER_TURNS)
        return Scores(q, k, q.factor * k.factor, turn=turn)

    def _name(self, node: OnnxNode, name: str, heads: Heads | Mixed) -> None:
        """Record a value under its name: as a sequence, where it is the result of attention in
        order again.
        """
        step = self._walk.step_of(Value(heads.step))
        value = None
        if isinstance(heads, Heads) and step is not None and step.kind is Attention:
            value = plain(self._walk, heads)
        if value is None or (value.channels and not self._is_for_layers(name)):
            self._values[name] = heads
        else:
            self._walk.name(node, value, node.outputs.index(name))

    def _is_for_layers(self, name: str) -> bool:
        takers = {own.operator for own in self._walk.nodes if name in own.inputs}
        return takers <= {"MatMul", "Gemm"}

    def _heads(self, node: OnnxNode, place: int) -> Heads | Mixed:
        known = self._values.get(node.inputs[place]) if place < len(node.inputs) else None
        if isinstance(known, Scores):
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

    def _scale(self, node: OnnxNode, sizes: Sequence[int]) -> float:
        """Return the number by which a node multiplies, or divides; one of `sizes`, those of axes,
        is that of heads.

        Raises:
            InputError: it may be learnt: an array of the file, and not the usual scale, whole or
                for queries and keys each, as exporters write it.
        """
        known = [name for name in node.inputs if name in self._walk.constants]
        array = self._array(node, node.inputs.index(known[0])) if known else np.empty(0)
        if array.size != 1 or (node.operator == "Div" and known[0] == node.inputs[0]):
            raise node.refusal("multiplies queries, keys or scores by other than one number")
        number = float(array.reshape(-1)[0])
        number = number if node.operator == "Mul" else 1 / number
        usual = [size**power for size in sizes for power in (-0.5, -0.25)]
        constant = self._walk.constants[known[0]]
        if constant.roots and constant.shape and not np.isclose(number, usual, _CLOSE, 0).any():
            raise node.refusal(_LEARNT)
        return number

    def _of_scores(self, node: OnnxNode) -> None:
        places = [
            n for n, name in enumerate(node.inputs) if isinstance(self._values.get(name), Scores)
        ]
        scores = self._values[node.inputs[places[-1]]]
        assert isinstance(scores, Scores)
        if id(node) not in self._nodes:
            raise node.refusal(_ELSEWHERE)
        if node.operator == "MatMul":
            self._close(node, scores)
            return
        if node.operator in _SCALES:
            scale = self._scale(node, scores.q.places.shape[-1:])
            terms = None if scores.terms is None else scores.terms * scale
            table = scores.table
            if table is not None:
                table = dataclasses.replace(table, factor=table.factor * scale)
            made = dataclasses.replace(scores, factor=scores.factor * scale)
            made = dataclasses.replace(made, terms=terms, table=table)
        elif node.operator == "Reshape":
            made = taken_apart(self._walk, node, scores)
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
            made = self._added(node, scores, 1 - places[0])
        elif node.operator == "Where" and scores.node is None:
            condition = self._array(node, 0).astype(bool)
            other = self._array(node, 3 - places[0])
            hides = condition if places[0] == 2 else ~condition
            made = self._masked(node, scores, np.where(hides, other.astype(np.float64), 0.0))
        else:
            made = dataclasses.replace(scores, nan=node.operator == "IsNaN")
        self._values[node.outputs[0]] = made

    def _added(self, node: OnnxNode, scores: Scores, place: int) -> Scores:
        """Return scores with a mask, terms or a table that are added."""
        name = node.inputs[place]
        if name not in self._added_terms:  # layers may add the same
            self._added_terms[name] = table_of(self._walk, node, place)
        table, beside = self._added_terms[name]
        if table is None:
            return self._masked(node, scores, self._array(node, place))
        table = dataclasses.replace(table, node=node, place=place)
        if scores.table is not None:
            raise node.refusal("adds a second table to scores, which is not supported")
        lead = scores.shape()
        columns = np.broadcast_to(table.columns, lead)
        made = dataclasses.replace(scores, table=dataclasses.replace(table, columns=columns))
        return self._masked(node, made, beside)

    def _masked(self, node: OnnxNode, scores: Scores, added: NDArray[Any]) -> Scores:
        """Return scores with a mask that is added."""
        rows, keys = scores.q.places.shape[-2], scores.k.places.shape[-2]
        hides = added <= _HIDES
        fits = hides.shape[-2:] in ((rows, keys), (1, keys), (1, 1), (rows, 1))
        if not fits:
            raise node.refusal(
                "adds a mask of other sizes than those of scores, which is not supported"
            )
        if not (hides | (added == 0)).all():
            own = np.broadcast_to(np.where(hides, 0, added), scores.shape(*hides.shape[-2:]))
            terms = own if scores.terms is None else scores.terms + own
            scores = dataclasses.replace(scores, terms=terms)
        planes = np.broadcast_to(hides, (*hides.shape[:-2], rows, keys)).reshape(-1, rows, keys)
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
        scores = Scores(q, k, q.factor * k.factor * scale, node=node)
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

    def _close(self, node: OnnxNode, scores: Scores) -> None:
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

    def _attention(self, node: OnnxNode, scores: Scores, v: Heads) -> Heads:
        """Add the step of attention; return its results as they stand after the product with
        values.
        """
        q, k, v = scores.q, spread(scores.k, scores.q), spread(v, scores.q)
        assert scores.node is not None
        (rows, size), others = q.places.shape[-2:], {k.places.shape, v.places.shape}
        if (
            len(others) > 1
            or q.places.shape[:-2] != k.places.shape[:-2]
            or size != v.places.shape[-1]
        ):
            raise node.refusal(
                f"takes queries {list(q.places.shape)}, keys {list(k.places.shape)} and values"
                f" {list(v.places.shape)}: only as many heads, and values of each, are supported"
            )
        scale = scale_of(node, scores, v)
        crosses = is_crossed(self._walk, (q, k, v))
        hidden = np.zeros((rows, rows), bool) if scores.hidden is None else scores.hidden
        causal = bool(hidden.any())
        if causal and crosses:
            raise node.refusal(
                "hides keys of other rows than the queries' own (cross-attention), which have no"
                " order with them"
            )
        if causal and (hidden != np.triu(np.ones((rows, rows), bool), 1)).any():
            raise node.refusal(
                "hides other keys than those behind a query; only a causal mask is supported"
            )
        if crosses:
            if scores.terms is not None or scores.table is not None:
                raise node.refusal(
                    "adds terms to scores of other rows than the queries' own (cross-attention),"
                    " which have no distance from them"
                )
            if scores.turn is not None or any(part.norm for part in (q, k, v)):
                raise node.refusal(
                    "turns or normalises queries and keys of several values (cross-attention),"
                    " which is supported within a sequence"
                )
            heads, value, tied = crossed(self._walk, node, (q, k, v))
            rows_of = {"keys": k.places.shape[-2], "dropout": scores.dropout, "scale": scale}
            made = self._walk.step(
                scores.node, Attention, {"heads": heads, **rows_of}, value, axes=value.axes
            )
            return self._results(made.step, q, heads, tied)
        heads, groups, order, tied = channels_of(self._walk, node, (q, k, v))
        source = source_of(self._walk, node, [part.step for part in (q, k, v)], order)
        value = Value(source, axes=("samples", "rows", "channels"))
        grouped = {"kv_heads": groups} if groups < heads else {}
        norms = [part.norm for part in (q, k, v) if part.norm is not None]
        if norms:
            fits = all(part.norm and part.norm.fits(part.places) for part in (q, k))
            if not fits or len(norms) > 2 or norms[0].keys != norms[1].keys:
                raise node.refusal("takes queries and keys that are not normalised alike, by heads")
            own = {"heads": heads, **grouped, **norms[0].keys}
            arrays: dict[str, str] = {}
            for key, norm in zip(("queries", "keys"), norms, strict=True):
                arrays |= {} if norm.array is None else {key: norm.array}
            value = self._walk.step(
                scores.node, HeadNorm, own, value, axes=value.axes, arrays=arrays
            )
        if scores.turn is not None:
            turned, base, interleaved = scores.turn
            part = {"turned": turned} if turned < size else {}
            own = {"heads": heads, **grouped, "base": base, "interleaved": interleaved, **part}
            value = self._walk.step(scores.node, Rotary, own, value, axes=value.axes)
        of_scores = {"causal": causal, "dropout": scores.dropout, "scale": scale}
        keys: dict[str, object] = {"heads": heads, **grouped, **of_scores}
        if scores.terms is not None:
            shape = *q.places.shape[:-1], rows
            keys |= slopes_of(
                node, np.broadcast_to(scores.terms, shape), heads, tied, causal=causal
            )
        if scores.table is not None:
            keys |= buckets_of(self._walk, scores.table, tied, causal=causal)
            table = self._table(scores.table, {"heads": heads, **grouped}, value)
            joined = {"axis": "rows"}
            value = self._walk.step(scores.node, Concat, joined, table, value, axes=value.axes)
        step = self._walk.step(scores.node, Attention, keys, value, axes=value.axes).step
        return self._results(step, q, heads, tied)

    def _table(self, table: Table, heads: dict[str, int], value: Value) -> Value:
        """Return the rows of a table, beside a value, or those that others have of it already."""
        known = self._tables.get(table.root)
        if known is None:
            count, _ = self._walk.constants[table.root].shape
            node, keys = table.node, {**heads, "buckets": count}
            self._walk.parameters.use(node, table.place, self._walk.constants[table.root])
            arrays = {"table": table.root}
            made = self._walk.step(node, ScoreTable, keys, value, axes=value.axes, arrays=arrays)
            if table.factor != 1:
                own = {"factor": table.factor, "shift": 0.0}
                made = self._walk.step(node, Affine, own, made, axes=value.axes)
            self._tables[table.root] = known = (table.factor, heads, made)
        factor, others, made = known
        shapes = [self._walk.shape(own) for own in (made, value)]
        alike = shapes[0] and shapes[1] and shapes[0][0] == shapes[1][0]
        if not alike or (factor, others) != (table.factor, heads):
            raise table.node.refusal(
                "adds a table to scores of layers of other sizes, which is not supported"
            )
        return made

    def _results(self, step: int, q: Heads, heads: int, tied: NDArray[np.intp]) -> Heads:
        """Return what a step of attention makes, as it stands after the product with values."""
        rows, size = q.places.shape[-2:]
        whole = np.arange(q.places.size, dtype=np.int32).reshape(q.samples, rows, heads, size)
        by_head = whole.transpose(0, 2, 1, 3).reshape(-1, rows, size)
        return Heads(step, q.samples, by_head[tied].reshape(q.places.shape))


_LEARNT = (
    "multiplies queries, keys or scores by an array of the file, which may be learnt; make it a"
    " number of the model's code, or the weight of an RMS norm of heads"
)

_ELSEWHERE = (
    "takes queries, keys, values or scores elsewhere than in attention, which is not supported"
)
