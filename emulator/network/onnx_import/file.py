"""Reading of an ONNX file, or of a model in memory, as plain data; weights stay there, unless
training begins with them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ...common import ONNX, OTHER, InputError, kind_of, other_kind, read_file, shown
from ..onnx_graph import FEW, Attributes, Constant, OnnxGraph, OnnxNode, are_numbers, shortest
from .pytorch import from_pytorch

if TYPE_CHECKING:
    import onnx

_FLOATS = (1, 10, 11, 16)
"""ONNX's numbers of the types of parameters: single, half, double and bfloat16."""

_KIND = "kind"
"""End of the key by which PyTorch tells what an array was."""

_MOST_BYTES = 2**31
"""The most that protobuf takes."""


class StoredArrays(Mapping[str, NDArray[Any]]):
    """The arrays of an ONNX file by name, those that it keeps in files beside it, too; each is read
    when looked up.

    Looking one up raises InputError if such a file cannot be read.
    """

    def __init__(self, model: onnx.ModelProto, folder: pathlib.Path, source: str) -> None:
        self._folder, self._source = folder, source
        self._tensors = {_text(tensor.name): tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant":
                self._tensors.update(
                    {
                        _text(node.output[0]): attribute.t
                        for attribute in node.attribute
                        if attribute.name == "value"
                    }
                )

    def __getitem__(self, name: str) -> NDArray[Any]:
        from onnx.checker import ValidationError
        from onnx.numpy_helper import to_array

        tensor = self._tensors[name]
        try:
            return to_array(tensor, str(self._folder))
        except OSError as error:
            raise InputError(f"{self._source}: cannot be read: {error.strerror or error}") from None
        except (ValueError, TypeError, ValidationError) as error:
            raise InputError(
                f"{self._source}: {name!r} is damaged: {' '.join(str(error).split())}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def files(self) -> list[pathlib.Path]:
        """The files beside it in which it keeps arrays."""
        entries = (entry for tensor in self._tensors.values() for entry in tensor.external_data)
        return list(
            dict.fromkeys(
                self._folder / _text(entry.value) for entry in entries if entry.key == "location"
            )
        )

    @property
    def other_bytes(self) -> int:
        """The size of the files beside it."""
        sizes = []
        for path in self.files:
            with contextlib.suppress(OSError, ValueError):
                sizes.append(path.stat().st_size)
        return sum(sizes)


def read_onnx(path: pathlib.Path) -> OnnxGraph:
    """Return the graph of an ONNX file; its arrays are read when they are looked up.

    Raises:
        InputError: the file cannot be read, is not an ONNX file, or the package onnx is not
            installed.
    """
    source = shown(path)
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise InputError(
            f"{source}: ONNX files need the package onnx: pip install 'emuchain[onnx]'"
        ) from None
    try:
        data = read_file(path, _MOST_BYTES)
        graph = graph_of(onnx.ModelProto.FromString(data), path.parent, source, len(data))
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}") from None
    except (DecodeError, ValueError, TypeError, KeyError, onnx.checker.ValidationError) as error:
        if isinstance(error, DecodeError) and kind_of(path) not in (ONNX, OTHER):
            raise other_kind(path, source, "not an ONNX file") from None
        raise InputError(
            f"{source}: not an ONNX file, or a damaged one: {' '.join(str(error).split())}"
        ) from None
    if not graph.nodes:
        raise InputError(
            f"{source}: not an ONNX file, or one without a network: its graph holds no node"
        )
    return graph


def files_beside(path: pathlib.Path) -> list[pathlib.Path]:
    """Return the files beside an ONNX file in which it keeps arrays.

    Raises:
        InputError: as of `read_onnx`.
    """
    arrays = read_onnx(path).arrays
    return arrays.files if isinstance(arrays, StoredArrays) else []


def graph_of(
    model: onnx.ModelProto, folder: pathlib.Path, source: str, stored_bytes: int
) -> OnnxGraph:
    """Return the graph of a model of `stored_bytes`, of which messages begin with `source`; other
    files of it are in `folder`.

    Raises:
        ValueError, TypeError, KeyError: it is damaged.
    """
    graph = model.graph
    constants = {constant.name: constant for constant in map(_array_of_file, graph.initializer)}
    for value in graph.value_info:
        if _metadata(value).get(_KIND) == "BUFFER" and (name := _text(value.name)) in constants:
            constants[name] = dataclasses.replace(constants[name], is_buffer=True)
    names = Counter(_text(tensor.name) for tensor in graph.initializer)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ValueError(f"several of its arrays are called {twice[0]!r}")
    inputs = {_text(value.name): _dimensions(value) for value in graph.input}
    arrays = StoredArrays(model, folder, source)
    nodes = tuple(_node(node, source) for node in graph.node)
    if model.producer_name == "pytorch":
        nodes = from_pytorch(nodes, [_metadata(node) for node in graph.node])
    fed = {name: sizes for name, sizes in inputs.items() if name not in constants}
    outputs = tuple(_text(value.name) for value in graph.output)
    opset = max(
        (opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")),
        default=1,
    )
    stored_bytes += arrays.other_bytes
    return OnnxGraph(source, fed, outputs, nodes, constants, arrays, stored_bytes, opset)


def _metadata(node: onnx.NodeProto | onnx.ValueInfoProto) -> dict[str, str]:
    """Return what an exporter tells of a node or a value, by the ends of its keys."""
    return {
        _text(said.key).rpartition(".")[2]: _text(said.value)
        for said in getattr(node, "metadata_props", ())
    }


def _text(text: str | bytes) -> str:
    """Return a name; protobuf gives bytes if it is not UTF-8, for which decoding raises
    ValueError.
    """
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
        Attributes({_text(attribute.name): _attribute(attribute) for attribute in node.attribute}),
        node,
    )


def _attribute(attribute: onnx.AttributeProto) -> object:
    import onnx

    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return _constant(value)
    if isinstance(value, float):
        return shortest(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(entry.decode() if isinstance(entry, bytes) else entry for entry in value)
    return value


def _array_of_file(tensor: onnx.TensorProto) -> Constant:
    """Return an array that may be a parameter, or be computed to one."""
    constant = _constant(tensor)
    return dataclasses.replace(
        constant, roots=frozenset({constant.name}) if constant.kind in _FLOATS else frozenset()
    )


def _constant(tensor: onnx.TensorProto) -> Constant:
    import onnx

    shape, name = tuple(tensor.dims), _text(tensor.name)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or not 0 <= math.prod(shape) <= FEW:
        return Constant(name, shape, None, kind=tensor.data_type)
    values = onnx.numpy_helper.to_array(tensor).ravel().tolist()
    numbers = tuple(map(shortest, values))
    return Constant(name, shape, numbers if are_numbers(numbers) else None, kind=tensor.data_type)
