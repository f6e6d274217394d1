"""Graphs as the walk takes them.

A network here takes one sample. So several sequences, such as a source and a target, become rows of
one input, in the order of the inputs. Lists of parts of weights, as PyTorch's default exporter
writes them for cross-attention, become ONNX's Split.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from .inputs import alike
from .node import Attributes, OnnxGraph, OnnxNode

_SAME = ("Cast", "Identity")


def rewritten(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph of one input, whose weights are split by Split."""
    return _with_splits(_with_one_input(graph))


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


def _with_splits(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with a Split for each list of a constant's parts."""
    lists = {node.outputs[0]: node for node in graph.nodes if node.operator == "SplitToSequence"}
    if not lists:
        return graph
    numbers = {name: constant.numbers for name, constant in graph.known.items()}
    parts: dict[str, dict[int, str]] = {name: {} for name in lists}
    for node in graph.nodes:
        for name in {*node.inputs} & lists.keys():
            place = numbers.get(node.inputs[-1]) or ()
            if node.operator != "SequenceAt" or len(place) != 1 or place[0] in parts[name]:
                parts[name][-1] = ""  # it stays a list
            else:
                parts[name][int(place[0])] = node.outputs[0]
    made = {
        name: split
        for name, node in lists.items()
        if node.inputs[0] in graph.constants
        and (split := _split(node, numbers.get(node.inputs[-1]) or (), parts[name]))
    }
    nodes = (
        made.get(node.outputs[0] if node.outputs else "", node)
        for node in graph.nodes
        if node.operator != "SequenceAt" or node.inputs[0] not in made
    )
    return dataclasses.replace(graph, nodes=tuple(nodes)) if made else graph


def _split(node: OnnxNode, sizes: tuple[float, ...], parts: Mapping[int, str]) -> OnnxNode | None:
    """Return the Split of a list's parts, by their places; None where it is not known."""
    if len(node.inputs) < 2 or not {*range(len(sizes))} >= parts.keys():
        return None
    from onnx import helper

    names = [parts.get(place, f"{node.outputs[0]}.{place}") for place in range(len(sizes))]
    axis = node.integer("axis", 0)
    proto = helper.make_node("Split", [*node.inputs], names, node.name, axis=axis)
    made = dataclasses.replace(node, operator="Split", outputs=tuple(names), proto=proto)
    return dataclasses.replace(made, attributes=Attributes({"axis": axis}))
