"""A network with its weights as an ONNX file, which `onnx_import` reads again: its graph up to its logits.

Each operation writes its own nodes (`Operation.to_onnx`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..common import InputError, format_bytes
from .layer import Network
from .onnx_nodes import Arrays, Export, Form, Nodes

_OPSET, _IR = 17, 8
_OUTPUT = "logits"
_MOST_BYTES = 2**31 - 2**24
"""The most that protobuf takes, with room for nodes and names."""


def onnx_image(weights: Mapping[str, Arrays], network: Network, blame: str) -> bytes:
    """Return the content of an ONNX file: the network up to its logits, with `weights` by layer and name.

    Samples are any number; `blame` begins messages.

    Raises:
        InputError: the package onnx is not installed, or an operation cannot be exported.
    """
    try:
        from onnx import TensorProto, helper
    except ImportError:
        raise InputError(f"{blame}: ONNX files need the package onnx: pip install 'emuchain[onnx]'") from None
    size = sum(array.nbytes for arrays in weights.values() for array in arrays.values())
    if size > _MOST_BYTES:
        raise InputError(
            f"{blame}: {network.name} has {format_bytes(size)} of weights, and an ONNX file at most"
            f" {format_bytes(_MOST_BYTES)}; a .safetensors file takes them"
        )
    nodes = Nodes(network.name, blame)
    name, form, sizes = _input(network, nodes)
    taken = nodes.begin(name, form, network.entry if form is Form.STEPS else network.input)
    if network.entry != network.input:
        nodes.begin(nodes.steps(taken, "sequence"), Form.STEPS, network.entry)
    for layer in network.layers:
        operation, held, learners = layer.operation, weights[layer.name], 0
        made = f"{layer.name}/made"
        operation.to_onnx(
            Export(nodes, operation.type, layer.name, (layer.reads,), layer.makes, layer.name, made, held)
        )
        for place, step in enumerate(layer.sfu):
            own = f"{layer.name}/{place}"
            learners += step.operation.parameters(step.output) > 0
            end = str(learners) * (learners > 1)
            step.operation.to_onnx(
                Export(nodes, step.operation.type, layer.name, step.reads, step.makes, own, own, held, end)
            )
    [results] = network.layers[-1].hands_on
    last, steps = nodes.of(results.number), network.result_steps
    logits = nodes.steps(last, _OUTPUT) if steps > 1 else nodes.row(last, _OUTPUT)
    axes: list[str | int] = ["samples", *([steps] if steps > 1 else []), network.classes]
    kind = TensorProto.INT64 if form is Form.SYMBOLS else TensorProto.FLOAT
    model = helper.make_model(
        helper.make_graph(
            nodes.made,
            network.name,
            [helper.make_tensor_value_info(name, kind, ["samples", *sizes])],
            [helper.make_tensor_value_info(logits, TensorProto.FLOAT, axes)],
            nodes.arrays,
        ),
        producer_name="emuchain",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    image: bytes = model.SerializeToString()
    return image


def _input(network: Network, nodes: Nodes) -> tuple[str, Form, tuple[int, ...]]:
    """Return the name, the form and the sizes of the network's input: symbols, a sequence, or maps."""
    takers = [layer for layer in network.layers if layer.reads.is_images]
    if network.takes_symbols:
        return "symbols", Form.SYMBOLS, (network.input[1],)
    in_place = all(layer.window == ((1, 1), (1, 1), (0, 0)) for layer in takers)
    attends = in_place and network.input[2] == 1 and not all(layer.has_weights for layer in network.layers)
    if (network.layers[0].operation.recurs or attends) and network.entry == network.input:
        channels, steps, _ = network.input
        return "steps", Form.STEPS, (steps, channels)
    return "images", Form.MAPS, network.input
