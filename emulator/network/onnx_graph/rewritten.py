"""Graphs as the walk takes them.

A network here takes one sample. So several sequences, such as a source and a target, become rows of
one input, in the order of the inputs; and rows of values that become a sequence or maps at once are
that. Lists of parts, as PyTorch's default exporter writes them,
become the parts.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

from .inputs import alike
from .node import INT64, Attributes, Constant, OnnxGraph, OnnxNode

_SAME = ("Cast", "Identity")


def rewritten(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph of one input, which is no row of values that is something else, without
    lists.
    """
    return _without_lists(_with_shaped_input(_with_one_input(graph)))


def _with_shaped_input(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph whose input is what one node makes of rows of values: a sequence, or maps, such
    as by PyTorch's `x.unsqueeze(1)`, or `x.view(-1, 1, 28, 28)`.
    """
    takers = [node for node in graph.nodes if {*node.inputs} & {*graph.inputs}]
    if len(graph.input_sizes) != 2 or len(takers) != 1:
        return graph
    [node], (samples, values) = takers, graph.input_sizes
    if values is None or node.operator not in ("Reshape", "Unsqueeze"):
        return graph
    shape = graph.sizes(node.inputs[1]) if node.has_input(1) else node.integers("axes", ())
    sizes = shape[1:]
    if node.operator == "Unsqueeze":
        axis = shape[0] if len(shape) == 1 else 0
        sizes = {1: (1, values), 2: (values, 1), -1: (values, 1)}.get(axis, ())
    if sizes.count(-1) == 1 and 0 not in sizes:
        sizes = tuple(values // -math.prod(sizes) if size == -1 else size for size in sizes)
    if len(sizes) < 2 or min(sizes) < 1 or math.prod(sizes) != values:
        return graph
    nodes = tuple(own for own in graph.nodes if own is not node)
    return dataclasses.replace(graph, inputs={node.outputs[0]: (samples, *sizes)}, nodes=nodes)


def _with_one_input(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph whose inputs are rows of one, if all are symbols that it looks up; else the
    graph as it is.
    """
    sizes = [*graph.inputs.values()]
    lengths = [own[1] for own in sizes if len(own) == 2 and own[1] is not None]
    fits = len({own[:1] for own in sizes}) == 1 and len(lengths) == len(sizes)
    if len(sizes) < 2 or not fits or not all(_is_looked_up(graph, name) for name in graph.inputs):
        return graph
    name, ends = "+".join(graph.inputs), [*itertools.accumulate(lengths, initial=0)]
    cuts = []
    for own, begin, end in zip(graph.inputs, ends, ends[1:], strict=False):
        bounds = Attributes({"starts": (begin,), "ends": (end,), "axes": (1,)})
        cuts.append(OnnxNode(graph.source, own, "Slice", (name,), (own,), bounds))
    packed = {name: (sizes[0][0], ends[-1])}
    return dataclasses.replace(graph, inputs=packed, nodes=(*cuts, *graph.nodes))


def _is_looked_up(graph: OnnxGraph, name: str) -> bool:
    """Return whether an input is of symbols: what nodes take of it is an index in constants."""
    names = alike(dataclasses.replace(graph, inputs={name: graph.inputs[name]}), *_SAME)
    takers = [
        node
        for node in graph.nodes
        if names & {*node.inputs} and node.operator not in (*_SAME, "Shape")
    ]
    return bool(takers) and all(
        node.operator == "Gather" and node.inputs[0] in graph.constants for node in takers
    )


def _without_lists(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with a Split in place of each list of a constant's parts, which are parameters
    of their own; and with Slice, or Gather of a part without its axis, in place of what nodes take
    of other lists (PyTorch's split, chunk and unbind).
    """
    lists = {node.outputs[0]: node for node in graph.nodes if node.operator == "SplitToSequence"}
    if not lists:
        return graph
    known = graph.known
    parts: dict[str, dict[int, str]] = {name: {} for name in lists}
    for node in graph.nodes:
        for name in {*node.inputs} & lists.keys():
            place = _place(node, known)
            taken = parts[name]
            # Behind no place it stays a list.
            taken[-1 if place is None or place in taken else place] = node.outputs[0]
    splits = {
        name: split
        for name, node in lists.items()
        if node.inputs[0] in graph.constants and (split := _split(node, known, parts[name]))
    }
    nodes, constants, kept = list[OnnxNode](), dict(graph.constants), set[str]()
    for node in graph.nodes:
        place = _place(node, known)
        listed = lists.get(node.inputs[0]) if place is not None else None
        if listed is not None and node.inputs[0] in splits:
            continue
        made = None if listed is None or place is None else _part(listed, node, place, known)
        if made is None:
            kept.update(node.inputs)
            nodes.append(splits.get(node.outputs[0] if node.outputs else "", node))
        else:
            nodes.append(made[0])
            constants.update(made[1])
    left_out = {*lists} - kept - splits.keys()
    nodes = [node for node in nodes if not left_out & {*node.outputs[:1]}]
    return dataclasses.replace(graph, nodes=tuple(nodes), constants=constants)


def _place(node: OnnxNode, known: Mapping[str, Constant]) -> int | None:
    """Return the place in a list from which a node takes a part; None if it does not, or it is not
    known which.
    """
    place = known.get(node.inputs[1]) if node.operator == "SequenceAt" else None
    numbers = None if place is None else place.numbers
    return None if numbers is None or len(numbers) != 1 else int(numbers[0])


def _split(
    node: OnnxNode, known: Mapping[str, Constant], parts: Mapping[int, str]
) -> OnnxNode | None:
    """Return the Split of a list's parts, by their places; None where it is not known."""
    given = known.get(node.inputs[1]) if node.has_input(1) else None
    sizes = () if given is None or given.numbers is None else given.numbers
    if not {*range(len(sizes))} >= parts.keys():
        return None
    from onnx import helper

    names = [parts.get(place, f"{node.outputs[0]}.{place}") for place in range(len(sizes))]
    axis = node.integer("axis", 0)
    proto = helper.make_node("Split", [*node.inputs], names, node.name, axis=axis)
    made = dataclasses.replace(node, operator="Split", outputs=tuple(names), proto=proto)
    return dataclasses.replace(made, attributes=Attributes({"axis": axis}))


def _part(
    split: OnnxNode, node: OnnxNode, number: int, known: Mapping[str, Constant]
) -> tuple[OnnxNode, dict[str, Constant]] | None:
    """Return the node that takes part `number` of a list by itself, with the constants that it
    needs; None if it is not known which that is.
    """
    sizes = known.get(split.inputs[1]) if split.inputs[1:] else None
    axis = split.integer("axis", 0)
    inputs, own = [split.inputs[0]], dict[str, Constant]()
    operator, shape = "Slice", tuple[int, ...]((1,))
    if not split.has_input(1) and not split.integer("keepdims", 1):
        bounds, operator, shape = {"place": number}, "Gather", ()
    elif split.has_input(1) and (sizes is None or sizes.entries is None or number < 0):
        return None
    else:
        counts = [1] if sizes is None or sizes.entries is None else [*map(int, sizes.entries)]
        if sizes is None or sizes.shape == ():
            counts *= number + 1
        ends = [0, *itertools.accumulate(counts)]
        if number + 1 >= len(ends):
            return None
        bounds = {"first": ends[number], "end": ends[number + 1], "axis": axis}
    for key, bound in bounds.items():
        name = f"{node.outputs[0]}/{key}"
        own[name] = Constant(name, shape, (bound,), kind=INT64)
        inputs.append(name)
    keys = {"axis": axis} if operator == "Gather" else {}
    return split.replaced(operator, inputs, node.outputs[0], **keys), own
