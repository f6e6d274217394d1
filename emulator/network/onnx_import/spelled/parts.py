"""Parts of a value along an axis as a list, of which nodes take one each (PyTorch's split, chunk and
unbind): what such a node takes is a slice of the value.
"""

from __future__ import annotations

import dataclasses
import itertools

from ...onnx_graph import INT64, Constant, OnnxGraph, OnnxNode


def with_parts(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with Slice, or Gather of a part of one without its axis, in place of each
    SplitToSequence of which nodes take parts alone.
    """
    splits = {node.outputs[0]: node for node in graph.nodes if node.operator == "SplitToSequence"}
    if not splits:
        return graph
    known = graph.known
    nodes, constants, kept = list[OnnxNode](), dict(graph.constants), set[str]()
    for node in graph.nodes:
        made = None
        if node.operator == "SequenceAt" and node.inputs[0] in splits:
            made = _part(splits[node.inputs[0]], node, known)
        if made is None:
            kept.update(node.inputs)
            nodes.append(node)
        else:
            nodes.append(made[0])
            constants.update(made[1])
    nodes = [node for node in nodes if node.outputs[0] not in {*splits} - kept]
    return dataclasses.replace(graph, nodes=tuple(nodes), constants=constants)


def _part(
    split: OnnxNode, node: OnnxNode, known: dict[str, Constant]
) -> tuple[OnnxNode, dict[str, Constant]] | None:
    """Return the node that takes a part by itself, with the constants that it needs; None if it is
    not known which.
    """
    place, sizes = (
        known.get(node.inputs[1]),
        known.get(split.inputs[1]) if split.inputs[1:] else None,
    )
    axis = split.integer("axis", 0)
    if place is None or place.entries is None or len(place.entries) != 1:
        return None
    [number] = map(int, place.entries)
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
