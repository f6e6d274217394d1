"""An ONNX file as plain data; weights stay in the file, for training starts afresh.

A model's graph is a list of nodes in the order in which data flow (ONNX's IR specification, "Graphs"). A node takes
values by name and makes others. What no node makes is an input of the graph, or a constant that the file holds: a
weight, a bias, now and then a shape.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..layers import Shape
from ..validation import shown

if TYPE_CHECKING:
    import onnx

_FEW = 16
"""Constants of at most so many numbers may be sizes, axes or rates."""


@dataclasses.dataclass(frozen=True)
class Constant:
    """A tensor that the file holds: its shape, and its numbers where these are few."""

    name: str
    shape: tuple[int, ...]
    numbers: tuple[float, ...] | None


@dataclasses.dataclass(frozen=True)
class OnnxNode:
    """An operator with the names of what it takes and makes; an optional input that is not given is ""."""

    source: str
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def where(self) -> str:
        """How messages begin that are about this node."""
        return f"{self.source}: node {self.name!r} ({repr(self.operator)[1:-1]})"

    def refusal(self, problem: str) -> InputError:
        """An error that is about this node."""
        return InputError(f"{self.where}: {problem}")

    def integers(self, attribute: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """An attribute that is a list of integers.

        Raises:
            InputError: it is something else.
        """
        value = self.attributes.get(attribute, default)
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise self.refusal(f"`{attribute}` should be a list of integers")
        return value

    def integer(self, attribute: str, default: int) -> int:
        """An attribute that is an integer.

        Raises:
            InputError: it is something else.
        """
        value = self.attributes.get(attribute, default)
        if not isinstance(value, int):
            raise self.refusal(f"`{attribute}` should be an integer")
        return value

    def number(self, attribute: str, default: float) -> float:
        """An attribute that is a number.

        Raises:
            InputError: it is something else.
        """
        value = self.attributes.get(attribute, default)
        if not isinstance(value, float):
            raise self.refusal(f"`{attribute}` should be a number")
        return value

    def constant(self) -> Constant:
        """What an operator Constant makes."""
        [value, *_] = [*self.attributes.values(), None]
        name = "".join(self.outputs[:1])
        if isinstance(value, Constant):
            return dataclasses.replace(value, name=name)
        numbers = value if isinstance(value, tuple) else (value,)
        few = all(isinstance(number, (int, float)) for number in numbers) and len(numbers) <= _FEW
        return Constant(name, (len(numbers),), numbers if few else None)


@dataclasses.dataclass(frozen=True)
class OnnxGraph:
    """Nodes and constants; of an input each dimension, None where it is not fixed."""

    source: str
    inputs: Mapping[str, tuple[int | None, ...]]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Constant]

    @property
    def images(self) -> tuple[int | None, Shape]:
        """Of the graph's input the number of samples, if it is fixed, and the shape of each.

        Raises:
            InputError: there are several inputs, or it is none of images of one size.
        """
        if len(self.inputs) != 1:
            names = ", ".join(map(repr, self.inputs))
            raise InputError(f"{self.source}: {len(self.inputs)} inputs: {names}; there should be one")
        [(name, sizes)] = self.inputs.items()
        match sizes:
            case samples, int(channels), int(rows), int(columns):
                return samples, (channels, rows, columns)
        shown_sizes = "x".join("?" if size is None else str(size) for size in sizes)
        raise InputError(
            f"{self.source}: the input {name!r} is {shown_sizes or 'without a shape'}; it should be samples x channels"
            " x rows x columns, and all but the first fixed"
        )


def read_onnx(path: pathlib.Path) -> OnnxGraph:
    """The graph of an ONNX file.

    Raises:
        InputError: the file cannot be read, is none of ONNX's, or the package onnx is not installed.
    """
    source = shown(path)
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise InputError(f"{source}: ONNX files need the package onnx: pip install 'emuchain[onnx]'") from None
    try:
        graph = _plain(onnx.ModelProto.FromString(path.read_bytes()).graph, source)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from None
    except (DecodeError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{source}: not an ONNX file, or a damaged one: {' '.join(str(error).split())}") from None
    if not graph.nodes:
        raise InputError(f"{source}: not an ONNX file, or one without a network: its graph holds no node")
    return graph


def _plain(graph: onnx.GraphProto, source: str) -> OnnxGraph:
    constants = {constant.name: constant for constant in map(_constant, graph.initializer)}
    inputs = {_text(value.name): _dimensions(value) for value in graph.input}
    return OnnxGraph(
        source,
        {name: sizes for name, sizes in inputs.items() if name not in constants},
        tuple(_text(value.name) for value in graph.output),
        tuple(_node(node, source) for node in graph.node),
        constants,
    )


def _text(text: str | bytes) -> str:
    """A name; protobuf gives bytes where it is not UTF-8, and these raise ValueError."""
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
    return tuple(value) if isinstance(value, list) else value


def _constant(tensor: onnx.TensorProto) -> Constant:
    import onnx

    shape = tuple(tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or not 0 <= math.prod(shape) <= _FEW:
        return Constant(_text(tensor.name), shape, None)
    numbers = onnx.numpy_helper.to_array(tensor).ravel().tolist()
    return Constant(_text(tensor.name), shape, tuple(_shortest(n) if isinstance(n, float) else n for n in numbers))


def _shortest(number: float) -> float:
    """The shortest decimal that is this number in single precision: 0.1, where the file has 0.10000000149."""
    import numpy as np

    return float(str(np.float32(number)))
