"""Products that are spelled otherwise. Those of two values by Einstein's convention are matrix
products of moved axes.

b h i d, b h j d -> b h i j    is    (b h i d) (b h d j)
b h i d, b j d   -> b h i j    is    (b h i d) (b 1 d j)

Products of weights with patches of images, whose pixels were put in a row, are a convolution.

b c (h p) (w q) -> b (h w) (p q c), by (p q c) o    is    o c p q, by steps of p q
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from ...onnx_graph import INT64, Constant, OnnxGraph, OnnxNode
from ...shape import Shape


def with_products(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with Transpose and MatMul in place of each Einsum that is a matrix product,
    and Conv in place of products with patches.
    """
    nodes: list[OnnxNode] = []
    for node in graph.nodes:
        nodes += _product(node) if node.operator == "Einsum" and len(node.inputs) == 2 else [node]
    return _with_convolutions(dataclasses.replace(graph, nodes=tuple(nodes)))


def _product(node: OnnxNode) -> list[OnnxNode]:
    """Return the nodes that compute a sum of products; the node itself where they cannot."""
    terms, arrow, made = str(node.attributes.get("equation", "")).replace(" ", "").partition("->")
    operands = list(zip(terms.split(","), node.inputs, strict=False))
    if arrow == "" or len(operands) != 2 or "." in terms:
        return [node]
    if len({*operands[1][0]} - {*operands[0][0]}) > 1:
        operands.reverse()  # such as weights before rows
    (one, _), (other, _) = operands
    batch, left, right = [
        [axis for axis in made if (axis in one, axis in other) == where]
        for where in ((True, True), (True, False), (False, True))
    ]
    summed = [axis for axis in one if axis in other and axis not in made]
    whole = len(summed) == 1 == len(right) and len(left) >= 1
    orders = [*batch, *left, *summed], [*batch, *summed, *right], [*batch, *left, *right]
    if not whole or any(
        sorted(order) != sorted(term)
        for order, term in zip(orders, (one, other, made), strict=True)
    ):
        return [node]
    nodes, taken, lone = list[OnnxNode](), list[str](), left[:-1] if batch else []
    for number, ((term, name), order) in enumerate(zip(operands, orders[:2], strict=True)):
        own = _moved(node, name, term, order, f"{node.outputs[0]}/{number}")
        nodes += own
        taken.append(own[0].outputs[0] if own else name)
        if number and lone:
            places = range(len(batch), len(batch) + len(lone))
            result = f"{node.outputs[0]}/{number}/lone"
            nodes.append(node.replaced("Unsqueeze", [taken[-1]], result, axes=[*places]))
            taken[-1] = result
    back = _moved(node, f"{node.outputs[0]}/product", "".join(orders[2]), [*made], node.outputs[0])
    result = back[0].inputs[0] if back else node.outputs[0]
    return [*nodes, node.replaced("MatMul", taken, result), *back]


def _moved(
    node: OnnxNode, name: str, term: str, order: Sequence[str], result: str
) -> list[OnnxNode]:
    """Return the node that brings the axes of a value into an order, if that is another one."""
    places = [term.index(axis) for axis in order]
    if places == sorted(places):
        return []
    return [node.replaced("Transpose", [name], result, perm=places)]


_SAME = ("Identity", "Cast")


class _Patches(NamedTuple):
    """Patches of images, as rows of pixels: `shape` is (channels, patches down, patches across), and
    `size` the (rows, columns) of a patch; `order` is that of 0 (channels), 1 (rows) and 2 (columns)
    in a row.
    """

    images: str
    shape: Shape
    size: tuple[int, int]
    order: tuple[int, ...]


def _with_convolutions(graph: OnnxGraph) -> OnnxGraph:
    """Return a graph with Conv in place of each product of weights with patches of images."""
    makers = graph.makers
    made, moves, constants = dict[int, list[OnnxNode]](), set[int](), dict(graph.constants)
    fixed = graph.fixed
    for node in graph.nodes:
        by_weights = node.operator == "MatMul" and {*node.inputs[1:]} & fixed
        patches = _patches(graph, makers, node) if by_weights else None
        if patches is None:
            continue
        bias = _bias_of(graph, node)
        made[id(node)] = []
        made[id(node if bias is None else bias)], numbers = _convolution(node, patches, bias)
        constants |= {name: Constant(name, (len(n),), n, kind=INT64) for name, n in numbers.items()}
        todo = [node.inputs[0]]
        while todo:
            before = makers.get(todo.pop())
            if before is not None and id(before) not in moves:
                moves.add(id(before))
                todo += before.inputs
    if not made:
        return graph
    nodes, taken = list[OnnxNode](), {*graph.outputs}
    for own in reversed(graph.nodes):
        for node in reversed(made.get(id(own), [own])):
            if id(node) not in moves or not taken.isdisjoint(node.outputs):
                nodes.insert(0, node)
                taken.update(node.inputs)
    return dataclasses.replace(graph, nodes=tuple(nodes), constants=constants)


def _bias_of(graph: OnnxGraph, product: OnnxNode) -> OnnxNode | None:
    """Return the node that alone takes a product, and adds a number of an array to each channel."""
    takers = [node for node in graph.nodes if {*node.inputs} & {*product.outputs}]
    if len(takers) != 1 or takers[0].operator != "Add" or {*graph.outputs} & {*product.outputs}:
        return None
    others = [name for name in takers[0].inputs if name not in product.outputs]
    arrays = [graph.constants[name] for name in others if name in graph.constants]
    return takers[0] if arrays and len(arrays[0].shape) == 1 else None


def _patches(graph: OnnxGraph, makers: dict[str, OnnxNode], product: OnnxNode) -> _Patches | None:
    """Return the patches of the network's images of which a product takes a row each; None if it
    takes something else.
    """
    nodes, name = list[OnnxNode](), product.inputs[0]
    while name in makers and makers[name].inputs and len(nodes) < 3:
        nodes[:0] = [makers[name]] if makers[name].operator not in _SAME else []
        [name, *_] = makers[name].inputs
    if [node.operator for node in nodes] != ["Reshape", "Transpose", "Reshape"]:
        return None
    if name not in graph.inputs or len(graph.inputs[name]) != 4:
        return None
    (apart, together), perm = (
        (graph.sizes(node.inputs[1]) for node in nodes[::2]),
        nodes[1].attributes,
    )
    _, *shape = graph.inputs[name]
    if len(apart) != 6 or len(together) != 3 or None in shape:
        return None
    _, channels, rows, height, columns, width = apart
    order = tuple(perm.get("perm", ()))
    if order[:3] != (0, 2, 4) or shape != [channels, rows * height, columns * width]:
        return None
    numbers = channels * height * width
    if together[1:] not in ((rows * columns, numbers), (-1, numbers), (rows * columns, -1)):
        return None
    return _Patches(
        name, (channels, rows, columns), (height, width), tuple(n // 2 for n in order[3:])
    )


def _convolution(
    product: OnnxNode, patches: _Patches, bias: OnnxNode | None
) -> tuple[list[OnnxNode], dict[str, tuple[int, ...]]]:
    """Return the nodes of a convolution by a product's weights, with the result of this or of the
    node that adds its `bias`, and the numbers that they take.
    """
    (channels, rows, columns), (height, width) = patches.shape, patches.size
    sizes, made = (channels, height, width), product.outputs[0]
    arrays = [] if bias is None else [name for name in bias.inputs if name != made]
    result = made if bias is None else bias.outputs[0]
    names = [f"{made}/{name}" for name in ("apart", "weights", "maps", "pixels")]
    numbers = {
        f"{made}/sizes": (*(sizes[axis] for axis in patches.order), -1),
        f"{made}/rows": (0, -1, rows * columns),
    }
    perm = [3, *(patches.order.index(axis) for axis in range(3))]
    steps: list[tuple[str, list[str], str, dict[str, list[int]]]] = [
        ("Reshape", [product.inputs[1], f"{made}/sizes"], names[0], {}),
        ("Transpose", [names[0]], names[1], {"perm": perm}),
        ("Conv", [patches.images, names[1], *arrays], names[2], {"strides": [height, width]}),
        ("Reshape", [names[2], f"{made}/rows"], names[3], {}),
        ("Transpose", [names[3]], result, {"perm": [0, 2, 1]}),
    ]
    nodes = []
    for operator, inputs, output, keys in steps:
        nodes.append(product.replaced(operator, inputs, output, **keys))
    return nodes, numbers
