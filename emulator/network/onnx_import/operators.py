"""Conversion of ONNX operators: each becomes an operation of the description, or merely a view of
its input.

An operation's file names the operators that become it. The others are here: flattening changes
nothing, because a fully connected layer is a convolution over whole maps. Softmax at the end is
left out, because a description has its own. Operators are those of https://onnx.ai/onnx/operators/,
of any version.

An imported graph's steps become a description: their order, names and inputs. ONNX lists nodes in
the order of the data flow, and so does a description; but an SFU's operation moves up to the layer
that makes the last of its inputs. So a map is pooled where it is made, and less bypasses other
layers:

    ONNX          conv1  conv2      pool(conv1)  add(pool, conv2)  conv3
    description   conv1  pool       conv2  add                     conv3
                  '- layer 1 -'     '- layer 2 -'                  '- layer 3

Notes are what the user should know of the file: what of it is not taken, and what is another here.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...common import InputError, plural, validate
from ..description import Description, Node
from ..description import node as node_of
from ..graph import IMAGES, resolve
from ..onnx_graph import (
    FLOAT,
    FROM_IMAGES,
    LINES,
    MAPS,
    Attributes,
    Constant,
    Expectation,
    MixedTokens,
    OnnxGraph,
    OnnxNode,
    Step,
    Value,
    Walk,
    folded,
    rewritten,
)
from ..operation import LayerOperation, Operation, operation_types
from ..operations.activations import HardSigmoid, Sigmoid
from ..operations.conv import Conv
from ..operations.normalisation import Softmax
from ..operations.sequence import Embedding
from ..shape import Shape
from . import sequences, views
from .apart import taken_apart
from .attention import Attentions, note_of_biases
from .pytorch import of_export
from .spelled import (
    note_of_padding,
    with_map_operators,
    with_operators,
    with_places,
    with_products,
)


def to_description(
    name: str,
    source: str,
    images: Shape,
    steps: Sequence[Step],
    output: int,
    expectations: Sequence[Expectation],
) -> Description:
    """Return the description of a network whose results are those of the step `output`.

    Raises:
        InputError: an operation has a value out of range or does not fit its input, or an
            expectation is wrong.
    """
    order = in_order(steps)
    takers = [
        n
        for before, n in zip([FROM_IMAGES, *order], order, strict=False)
        if _must_name(steps[n], before)
    ]
    ends_elsewhere = order[-1:] != [output]
    referenced = {taken for n in takers for taken in steps[n].takes} | (
        {output} if ends_elsewhere else set()
    )
    names = _names({n: steps[n] for n in order if _opens_layer(steps[n]) or n in referenced})
    nodes: list[Node] = []
    for n in order:
        keys: dict[str, Any] = dict(steps[n].keys)
        if n in takers:
            keys["from"] = [names[taken] for taken in steps[n].takes]
        if n in names:
            keys["name"] = names[n]
        if (tied := steps[n].tied) is not None:
            keys["tied"] = names[tied]
        nodes.append(node_of(steps[n].kind, keys, steps[n].node.where))
    nodes.append(Node(Softmax(), source=(names[output],) if ends_elsewhere else None))
    empty = validate(Description, {"name": name, "input": images, "layers": []}, source)
    description = empty.model_copy(update={"layers": tuple(nodes)})
    network = resolve(
        description, source, [*(steps[n].node.where for n in order), f"{source}: the output"]
    )
    begins = list(itertools.takewhile(lambda n: not _opens_layer(steps[n]), order))
    made = [network.entry for _ in begins]
    made += [tensor.shape for tensor in network.tensors]
    shapes = dict(zip(order, made, strict=True)) | {FROM_IMAGES: images}
    for expectation in expectations:
        expectation.check(shapes[expectation.step])
    return description


def in_order(steps: Sequence[Step]) -> list[int]:
    """Return the numbers of steps in the order of the description, in which an SFU's follow their
    layer.
    """
    layers: list[int] = []  # of each step
    opened = -1
    for step in steps:
        opened += _opens_layer(step)
        layers.append(
            opened if _opens_layer(step) else max(layers[n] if n >= 0 else -1 for n in step.takes)
        )
    return [n for n in sorted(range(len(steps)), key=layers.__getitem__) if not steps[n].merged]


def _opens_layer(step: Step) -> bool:
    return issubclass(step.kind, LayerOperation)


def _must_name(step: Step, before: int) -> bool:
    return step.kind.joins or step.takes != (before,)


def _names(steps: Mapping[int, Step]) -> dict[int, str]:
    """Return unique names after the nodes', of letters, digits, _ and -."""
    names, counts = {FROM_IMAGES: IMAGES}, {IMAGES: 1}
    for n, step in steps.items():
        stem = re.sub(r"[^\w-]+", "_", step.node.name).strip("_") or step.kind.type
        name, count = stem, counts.get(stem, 1)
        while name in counts:
            count += 1
            name = f"{stem}_{count}"
        counts[stem] = count
        counts.setdefault(name, 1)
        names[n] = name
    return names


def describe(graph: OnnxGraph, name: str) -> tuple[Description, str]:
    """Return the description of a graph, called `name`, and one line that the user should see, or
    nothing.

    Raises:
        InputError: an operator that is unknown, or does what a description cannot express; several
            inputs or outputs; sizes that are not fixed, or do not fit the weights; a cycle; a value
            that is not made or not used.
    """
    walk = walked(graph)
    return described(walk, graph, name), note_of(walk, graph)


def described(walk: Walk, graph: OnnxGraph, name: str) -> Description:
    """Return the description of a graph that was walked through; it raises as `describe`."""
    output = walk.output()
    description = to_description(
        name, graph.source, walk.input_shape(), walk.steps, output.step, walk.expectations
    )
    _, rows, columns = description.input
    ends = {"inputs": walk.input_axes(), "results": walk.axes_of(output)}
    if ends["inputs"] == MAPS and rows > 1 == columns:
        ends["inputs"] = LINES
    by_channel = tuple(end for end, axes in ends.items() if axes == LINES)
    return description.model_copy(update={"channels_first": by_channel})


def walked(graph: OnnxGraph) -> Walk:
    """Return the walk through all nodes of a graph; it raises as `describe`."""
    graph = with_products(with_places(rewritten(graph)))
    graph = with_map_operators(with_operators(graph))
    try:
        return _walked(graph)
    except MixedTokens:
        return _walked(graph, has_tokens=True)


def _walked(graph: OnnxGraph, *, has_tokens: bool = False) -> Walk:
    walk = Walk(graph, _output_shape, sequences.with_channels, has_tokens=has_tokens)
    attentions = Attentions(walk, graph)
    for node in graph.nodes:
        if node.operator == "Constant":
            walk.name(node, node.constant())
        elif attentions.takes(node):
            attentions.add(node)
        elif (constants := folded(walk, node)) is not None:
            for place, constant in enumerate(constants):
                walk.name(node, constant, place)
        elif walk.are_sizes(node):
            raise node.refusal(
                "computes sizes from others, one of which is open, in a way that is not followed;"
                " export the model with a fixed number of samples, such as 1, and they are numbers"
            )
        elif node.operator in _known():
            walk.name(node, _known()[node.operator](walk, node))
        else:
            raise node.refusal(_problem(node.operator))
    _tie(walk)
    return walk


def _tie(walk: Walk) -> None:
    """Tie a layer to an embedding whose weights it has; exporters may write them twice, and
    transposed.

    Raises:
        InputError: it is not a layer over each step, or another one has these weights, too.
    """
    for number, embedding in enumerate(walk.steps):
        if embedding.kind is not Embedding:
            continue
        table, heads = walk.constants[embedding.node.inputs[0]], []
        for place, step in enumerate(walk.steps):
            if step.node.operator not in ("MatMul", "Gemm") or step.parts or step.merged:
                continue
            weight = walk.constants.get(step.node.inputs[1])
            if (
                weight is not None
                and sorted(weight.shape) == sorted(table.shape)
                and _are_equal(walk, weight, table)
            ):
                heads.append(place)
        for place in heads:
            step = walk.steps[place]
            if step.kind is not Conv or len(heads) > 1:
                raise step.node.refusal(
                    f"has the weights of the embedding {embedding.node.name!r} (tied weights),"
                    " which is supported for one layer over each step; give it its own"
                )
            walk.steps[place] = dataclasses.replace(step, tied=number)


def _are_equal(walk: Walk, one: Constant, other: Constant) -> bool:
    """Return whether two arrays are equal, or one is the other transposed; arrays of one number
    alone are not.
    """
    if one.roots & other.roots:
        return True
    try:
        a, b = (walk.expressions.value(constant.name) for constant in (one, other))
    except (KeyError, InputError):  # weights are in a file that is not there
        return False
    is_alike = (a.shape == b.shape and bool((a == b).all())) or (
        a.T.shape == b.shape and bool((b == a.T).all())
    )
    return is_alike and a.size > 0 and bool((a != a.flat[0]).any())


def _output_shape(
    kind: type[Operation], keys: dict[str, Any], where: str, taken: Sequence[Shape]
) -> Shape:
    return node_of(kind, keys, where).operation.output(taken)


def _same(walk: Walk, node: OnnxNode) -> Value:
    return walk.take(node, states=True, apart=True)


def _cast(walk: Walk, node: OnnxNode) -> Value:
    """Return a value, whose format is what `precision` says.

    Raises:
        InputError: it is rounded to integers, or to truths.
    """
    value, kind = walk.take(node, states=True), node.integer("to", 0)
    if kind not in (FLOAT, *_NARROW) and value.step != FROM_IMAGES:
        raise node.refusal(
            f"`to` = {kind}: makes other numbers of values; only floats are supported"
        )
    return value


def _squeeze(walk: Walk, node: OnnxNode) -> Value:
    value, places = walk.take(node, states=True), walk.integers(node, "axes")
    view = views.squeeze(walk, node, value, places)
    return sequences.squeeze(walk, node, value, places) if view is None else view


def _flatten(walk: Walk, node: OnnxNode) -> Value:
    if (axis := node.integer("axis", 1)) != 1:
        raise node.refusal(f"`axis` = {axis}: only flattening from axis 1 on is supported")
    value = walk.take(node)
    if walk.axes_of(value)[0] != "samples":
        raise node.refusal(f"flattens {walk.shown_axes(value)}, where samples should come first")
    return walk.flat(value)


def _reshape(walk: Walk, node: OnnxNode) -> Value:
    value, target = walk.take(node, apart=True), walk.constant(node, 1)
    if value.apart is None and (
        target is not None
        and target.entries is not None
        and (view := views.reshape(walk, node, value, target.entries)) is not None
    ):
        return view
    if (
        target is not None
        and (entries := target.entries)
        and (value.apart is not None or len(entries) > 3)
        and (made := taken_apart(walk, node, value, entries)) is not None
    ):
        return made
    if (sequence := sequences.reshape(walk, node)) is not None:
        return sequence
    shape = (
        target.sizes
        if target is not None and target.sizes is not None
        else walk.integers(node, "shape")
    )
    if len(shape) != 2 or shape[0] not in (0, -1, walk.batch, "samples") or shape == (-1, -1):
        raise node.refusal(
            f"to the shape {list(shape)}: only to one row of values for each sample, [0, -1], is"
            " supported"
        )
    if isinstance(shape[1], int) and shape[1] != -1:
        walk.expect(node, value, values=shape[1])
    return walk.flat(value)


def _softmax(walk: Walk, node: OnnxNode) -> Value:
    value = walk.take(node)
    axes = walk.axes_of(value)
    axis = node.integer("axis", 1 if value.axes is None and not value.is_flat else -1)
    if value.axes is not None and -len(axes) <= axis < len(axes) and axes[axis] == "channels":
        return dataclasses.replace(value, is_closed=True)
    if axis != 1 and not (value.is_flat and axis == -1):
        raise node.refusal(f"`axis` = {axis}: only over classes, axis 1, is supported")
    return dataclasses.replace(value, is_closed=True)


_VIEWS: Mapping[str, Callable[[Walk, OnnxNode], Value]] = {
    "Cast": _cast,
    "CastLike": _same,
    "Expand": views.expand,
    "Flatten": _flatten,
    "Gather": sequences.gather,
    "Identity": _same,
    "LogSoftmax": _softmax,
    "Pad": views.pad,
    "Reshape": _reshape,
    "Slice": sequences.cut,
    "Softmax": _softmax,
    "Split": sequences.split,
    "Squeeze": _squeeze,
    "Transpose": sequences.transpose,
    "Unsqueeze": views.unsqueeze,
}


def _problem(operator: str) -> str:
    """Return why there is no converter of an operator, and what to do in its place."""
    if operator.startswith("Random") or operator == "Bernoulli":
        return (
            "draws numbers at random, as dropout does with inplace=True; only dropout without it is"
            " supported"
        )
    if (
        "Quantize" in operator
        or operator.rpartition(".")[2].startswith("QLinear")
        or operator.endswith("Integer")
    ):
        return (
            "belongs to a quantised network; only networks in single precision are supported:"
            " export it before"
        )
    remedy = next((said for said, names in _REMEDIES.items() if operator in names.split()), "")
    return (
        f"unknown operator; known are Constant, {', '.join(_known())};"
        f" {remedy or 'write what it computes by modules of these'}"
    )


_REMEDIES = {
    "use nn.LSTM or nn.GRU": "RNN",
    "write it by nn.Linear, nn.Conv2d or scaled_dot_product_attention": "Einsum Det",
    "use nn.Upsample (nearest, bilinear), or nn.ConvTranspose2d, which take fixed places": (
        "GridSample AffineGrid RoiAlign MaxRoiPool MaxUnpool"
    ),
    "use nn.ConvTranspose2d, which adds patches that overlap": "Col2Im",
    "use nn.PixelUnshuffle": "SpaceToDepth",
    "use nn.Conv2d": "DeformConv",
    "use slices with fixed bounds, torch.cat, or nn.Embedding for symbols": (
        "GatherElements Scatter ScatterND ScatterElements Compress ReverseSequence"
    ),
    "do it behind the network, on its outputs: no errors go back through a choice": (
        "TopK ArgMax ArgMin NonZero NonMaxSuppression Unique OneHot Hardmax Sign Floor Ceil Round"
    ),
    "give masks to attention (is_causal=True, attn_mask as a buffer), or multiply by a buffer": (
        "Where Trilu Equal Greater GreaterOrEqual Less LessOrEqual And Or Not Xor IsNaN IsInf"
    ),
    "fix all sizes before the export; of steps of a sequence, use nn.LSTM or nn.GRU": (
        "Loop If Scan Range Size ConstantOfShape Shape Mod"
    ),
    "use nn.LSTM, nn.GRU or attention, which carry sums from step to step": "CumSum CumProd",
    "use nn.ELU": "Selu Celu",
    "use nn.ReLU, nn.ELU or nn.Mish": "Softplus ThresholdedRelu Shrink",
    "use nn.Tanh": "Softsign Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Tan",
    "use torch.relu(x) + torch.relu(-x)": "Abs",
    "use whole modules, of which it is a part: nn.GELU, nn.LayerNorm, nn.RMSNorm, nn.Softmax": (
        "Exp Log Sqrt Reciprocal Erf"
    ),
    "give what depends on positions alone as a buffer": "Sin Cos",
    "use mean or amax over rows and columns": (
        "ReduceSum ReduceMin ReduceProd ReduceL1 ReduceLogSum ReduceLogSumExp ReduceSumSquare Mean"
    ),
    "use nn.AvgPool2d": "LpPool GlobalLpPool",
    "use nn.LayerNorm, nn.RMSNorm or nn.InstanceNorm2d": (
        "LpNormalization MeanVarianceNormalization"
    ),
    "use expand, or torch.cat": "Tile",
    "use torch.cat": "SequenceConstruct SequenceInsert SequenceEmpty ConcatFromSequence",
    "compute spectra before, in the data": "DFT STFT MelWeightMatrix",
}
"""What to do in place of operators, by modules and functions of PyTorch."""


@functools.cache
def _known() -> Mapping[str, Callable[[Walk, OnnxNode], Value]]:
    """Return the converters of all operators but Constant, by name."""
    known = {name: kind.from_onnx for kind in operation_types().values() for name in kind.onnx}
    return dict(sorted({**_VIEWS, **known}.items()))


_WITHOUT_EFFECT = frozenset(
    "allowzero noop_with_empty_axes num_outputs qk_matmul_output_mode seed softmax_precision"
    " stash_type storage_order training_mode".split()
)
"""Attributes that need not be read: of what is refused, of results that nothing takes, and of how
something is done.
"""

_BOUNDED = {Sigmoid: "Sigmoid", HardSigmoid: "HardSigmoid"}
"""Ends of models that have another loss than softmax and cross-entropy."""

_NARROW = {10: "half precision", 11: "double precision", 16: "bfloat16"}
"""ONNX's numbers of other types of parameters than single precision."""


def note_of(walk: Walk, graph: OnnxGraph) -> str:
    """Return in one line what the user should know, or nothing."""
    return "; ".join(
        [
            *_of_end(walk),
            *of_export(walk),
            *_of_numbers(walk),
            *note_of_biases(walk),
            *note_of_padding(graph),
            *_left_out(walk, graph),
        ]
    )


def _of_end(walk: Walk) -> list[str]:
    """Return what is said of an end that tells of another loss."""
    output = walk.output()
    last = walk.step_of(output)
    if output.is_closed or last is None or last.kind not in _BOUNDED:
        return []
    return [
        f"its last operation is {_BOUNDED[last.kind]}, so the model has another loss than softmax"
        " and cross-entropy; train it with `loss` = bce, or mse"
    ]


def _of_numbers(walk: Walk) -> list[str]:
    """Return what is said of parameters that are stored in another format."""
    kinds = [walk.constants[name].kind for name in walk.parameters.names if name in walk.constants]
    return [
        f"its file has {plural(kinds.count(kind), 'array')} of weights in {name}; here, their"
        " format is what `precision` says"
        for kind, name in _NARROW.items()
        if kind in kinds
    ]


def _left_out(walk: Walk, graph: OnnxGraph) -> list[str]:
    """Return what is said of what nothing here takes: nodes, arrays, attributes, and states beside
    the output.
    """
    taken = {*graph.outputs, *(name for node in graph.nodes for name in node.inputs)}
    nodes = [node for node in graph.nodes if not taken & {*node.outputs}]
    arrays = [name for name in graph.constants if name not in taken]
    attributes = [
        f"`{name}` of node {node.name!r}"
        for node in walk.nodes
        if isinstance(node.attributes, Attributes)
        and walk.constants.keys().isdisjoint(node.outputs)
        for name in node.attributes.unread
        if name not in _WITHOUT_EFFECT
    ]
    states = [name for name in graph.outputs if walk.is_state(name)]
    return [
        *_counted("node", [repr(node.name) for node in nodes], "whose results nothing takes"),
        *_counted("array", [*map(repr, arrays)], "that no node takes"),
        *_counted("attribute", attributes, "that no operation here has"),
        *_counted("output", [*map(repr, states)], "that are last states of layers"),
    ]


def _counted(noun: str, names: Sequence[str], which: str) -> list[str]:
    if not names:
        return []
    example = f", such as {names[0]}" if len(names) > 1 else f": {names[0]}"
    return [f"left out: {plural(len(names), noun)} {which}{example}"]
