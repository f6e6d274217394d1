"""Reading of an ONNX file as plain data; weights stay in the file, unless training begins with them."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from ...common import InputError, read_file
from ...inputs import shown
from ..onnx_graph import FEW, Constant, OnnxGraph, OnnxNode, are_numbers

if TYPE_CHECKING:
    import onnx

T = TypeVar("T")

_MOST_BYTES = 2**31
"""The most that protobuf takes."""


def read_onnx(path: pathlib.Path) -> OnnxGraph:
    """Return the graph of an ONNX file.

    Raises:
        InputError: the file cannot be read, is not an ONNX file, or the package onnx is not installed.
    """
    source = shown(path)
    graph = _read(path, source, lambda model: _plain(model.graph, source))
    if not graph.nodes:
        raise InputError(f"{source}: not an ONNX file, or one without a network: its graph holds no node")
    return graph


def read_onnx_arrays(path: pathlib.Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ONNX file by name, those that it keeps in files beside it, too.

    Raises:
        InputError: as of `read_onnx`, or such a file cannot be read.
    """

    def arrays(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
        from onnx.numpy_helper import to_array

        beside = str(path.parent)
        found = {_text(tensor.name): to_array(tensor, beside) for tensor in model.graph.initializer}
        for node in model.graph.node:
            tensors = [attribute.t for attribute in node.attribute if attribute.name == "value"]
            if node.op_type == "Constant" and tensors:
                found[_text(node.output[0])] = to_array(tensors[0], beside)
        return found

    return _read(path, shown(path), arrays)


def files_beside(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the files beside an ONNX file in which it keeps arrays.

    Raises:
        InputError: as of `read_onnx`.
    """

    def places(model: onnx.ModelProto) -> list[pathlib.Path]:
        tensors = [*model.graph.initializer, *(said.t for node in model.graph.node for said in node.attribute)]
        entries = (entry for tensor in tensors for entry in tensor.external_data if entry.key == "location")
        return [path.parent / _text(entry.value) for entry in entries]

    return list(dict.fromkeys(_read(path, shown(path), places)))


def _read(path: pathlib.Path, source: str, take: Callable[[onnx.ModelProto], T]) -> T:
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise InputError(f"{source}: ONNX files need the package onnx: pip install 'emuchain[onnx]'") from None
    try:
        return take(onnx.ModelProto.FromString(read_file(path, _MOST_BYTES)))
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from None
    except (DecodeError, ValueError, TypeError, KeyError, onnx.checker.ValidationError) as error:
        raise InputError(f"{source}: not an ONNX file, or a damaged one: {' '.join(str(error).split())}") from None


def _plain(graph: onnx.GraphProto, source: str) -> OnnxGraph:
    constants = {constant.name: constant for constant in map(_constant, graph.initializer)}
    inputs = {_text(value.name): _dimensions(value) for value in graph.input}
    return OnnxGraph(
        source,
        {name: sizes for name, sizes in inputs.items() if name not in constants},
        tuple(_text(value.name) for value in graph.output),
        tuple(_node(node, source) for node in graph.node),
        constants,
        sum(map(_is_folded, graph.node)),
    )


def _is_folded(node: onnx.NodeProto) -> bool:
    """Return whether PyTorch folded batch normalisation into a convolution.

    Its default exporter says so in the node's metadata; its old one gives such names to weights and biases that it
    computed, and leaves those of parameters as they were.
    """
    rules = [_text(said.value) for said in getattr(node, "metadata_props", ()) if "rule_name" in _text(said.key)]
    computed = [_text(name).startswith("onnx::Conv_") for name in node.input[1:3]]
    return node.op_type == "Conv" and (any("FuseBatchNorm" in rule for rule in rules) or computed == [True, True])


def _text(text: str | bytes) -> str:
    """Return a name; protobuf gives bytes if it is not UTF-8, for which decoding raises ValueError."""
    return text if isinstance(text, str) else text.decode()


def _dimensions(value: onnx.ValueInfoProto) -> tuple[int | None, ...]:
    dimensions = value.type.tensor_type.shape.dim
    return tuple(size.dim_value if size.HasField("dim_value") else None for size in dimensions)


def _node(node: onnx.NodeProto, source: str) -> OnnxNode:
    operator, domain = _text(node.op_type), _text(node.domain)
    inputs, outputs = tuple(map(_text, node.input)), tuple(map(_text, node.output))
    return OnnxNode(
        source,
        _text(node.name) or "".join(outputs[:1]),
        operator if domain in ("", "ai.onnx") else f"{domain}.{operator}",
        inputs,
        outputs,
        {_text(attribute.name): _attribute(attribute) for attribute in node.attribute},
    )


def _attribute(attribute: onnx.AttributeProto) -> object:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _constant(value)
    if isinstance(value, float):
        return _shortest(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(each.decode() if isinstance(each, bytes) else each for each in value)
    return value


def _constant(tensor: onnx.TensorProto) -> Constant:
    import onnx

    shape, zero = tuple(tensor.dims), _is_zero(tensor)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or not 0 <= math.prod(shape) <= FEW:
        return Constant(_text(tensor.name), shape, None, is_zero=zero)
    found = onnx.numpy_helper.to_array(tensor).ravel().tolist()
    numbers = tuple(_shortest(number) if isinstance(number, float) else number for number in found)
    return Constant(_text(tensor.name), shape, numbers if are_numbers(numbers) else None, is_zero=zero)


def _is_zero(tensor: onnx.TensorProto) -> bool:
    """Return whether a tensor of the dimensions of a recurrent layer's state holds zeros only."""
    if len(tensor.dims) != 3 or not (tensor.raw_data or tensor.float_data):
        return False
    return not any(tensor.float_data) and tensor.raw_data.count(0) == len(tensor.raw_data)


def _shortest(number: float) -> float:
    """Return the shortest decimal that is this number in single precision: 0.1, where the file has 0.10000000149."""
    import numpy as np

    return float(str(np.float32(number)))
