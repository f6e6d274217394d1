"""The content of an ONNX file as plain data.

A model's graph is a list of nodes in the order of the data flow (ONNX's IR specification,
"Graphs"). A node takes values by name and makes others. Values that no node makes are inputs of the
graph, or constants in the file: weights, biases, sometimes shapes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common import InputError
from ..shape import Shape

FEW = 16
"""Largest number of values in a constant that may hold sizes, axes or rates."""

FLOAT, INT64 = 1, 7
"""ONNX's numbers of these types."""


def are_numbers(values: tuple[Any, ...]) -> bool:
    """Return whether all values are numbers; tensors may also hold text."""
    return all(isinstance(value, (int, float)) for value in values)


def shortest(number: float) -> float:
    """Return the shortest decimal that is this number in single precision: 0.1, where a file has
    0.10000000149.
    """
    if not isinstance(number, float):
        return number
    with np.errstate(over="ignore"):
        return float(str(np.float32(number)))


@dataclasses.dataclass(frozen=True)
class Constant:
    """A tensor in the file: its shape, and its numbers if there are at most `FEW`; or what follows
    from others.

    `sizes` are numbers, and names of axes where a number is the size of one. `is_zero`, if it is
    known to hold zeros. `kind` is its ONNX type, 0 if that is not known. `roots` are the arrays of
    the file that it is computed of. `extents` stand for the shape where the size of an axis is
    open. A file may tell that it `is_buffer`, a buffer of PyTorch, which is not trained.
    """

    name: str
    shape: tuple[int, ...]
    numbers: tuple[float, ...] | None
    sizes: tuple[int | str, ...] | None = None
    is_zero: bool = False
    kind: int = 0
    roots: frozenset[str] = frozenset()
    extents: tuple[int | str, ...] | None = None
    is_buffer: bool = False

    @property
    def entries(self) -> tuple[int | str, ...] | None:
        """Sizes, or whole numbers in a row; None for anything else."""
        if self.sizes is not None or self.numbers is None or len(self.shape) > 1:
            return self.sizes
        return (
            tuple(map(int, self.numbers)) if all(isinstance(n, int) for n in self.numbers) else None
        )

    @property
    def holds_zeros(self) -> bool:
        """Whether it is known to hold zeros alone."""
        return self.is_zero or (self.numbers is not None and not any(self.numbers))


class Attributes(dict[str, Any]):
    """Attributes of a node by name, which remember those that were looked up: others change nothing
    here.
    """

    def __init__(self, attributes: Mapping[str, Any]) -> None:
        super().__init__(attributes)
        self._seen: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """See `dict`."""
        self._seen.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self._seen.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._seen.add(str(name))
        return super().__contains__(name)

    @property
    def unread(self) -> list[str]:
        """Names of those that nothing has looked up."""
        return [name for name in self.keys() if name not in self._seen]


@dataclasses.dataclass(frozen=True)
class OnnxNode:
    """An operator with the names of its inputs and outputs; an optional input that is not given is
    "".

    `proto` is the node in ONNX's own form. Where PyTorch exported the file, `origin` says what the
    node was there; `module` is the path of its module and `rule` what the exporter rewrote, both if
    the exporter left them. `belongs` names the unsupported construct that the node is part of, if
    any.
    """

    source: str
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: Any = dataclasses.field(default=None, repr=False, compare=False)
    origin: str = ""
    module: str | None = None
    rule: str = ""
    belongs: str = ""

    @property
    def where(self) -> str:
        """The beginning of messages about this node."""
        origin = f", PyTorch's {self.origin}" if self.origin else ""
        return f"{self.source}: node {self.name!r} ({repr(self.operator)[1:-1]}){origin}"

    @property
    def operands(self) -> tuple[str, ...]:
        """The inputs of which it takes the numbers, and not the shape or the type alone."""
        return self.inputs[: {"Shape": 0, "CastLike": 1}.get(self.operator)]

    def refusal(self, problem: str) -> InputError:
        """Return an error about this node."""
        belongs = f"; {self.belongs}, which is not supported" if self.belongs else ""
        return InputError(f"{self.where}: {problem}{belongs}")

    def integers(self, attribute: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return an attribute that is a list of integers.

        Raises:
            InputError: it is something else.
        """
        value = self.attributes.get(attribute, default)
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise self.refusal(f"`{attribute}` should be a list of integers")
        return value

    def integer(self, attribute: str, default: int) -> int:
        """Return an attribute that is an integer.

        Raises:
            InputError: it is something else.
        """
        value = self.attributes.get(attribute, default)
        if not isinstance(value, int):
            raise self.refusal(f"`{attribute}` should be an integer")
        return value

    def number(self, attribute: str, default: float) -> float:
        """Return an attribute that is a number.

        Raises:
            InputError: it is something else.
        """
        value = self.attributes.get(attribute, default)
        if not isinstance(value, float):
            raise self.refusal(f"`{attribute}` should be a number")
        return value

    def has_input(self, place: int) -> bool:
        """Return whether an optional input is given."""
        return len(self.inputs) > place and self.inputs[place] != ""

    def replaced(self, operator: str, inputs: Sequence[str], output: str, **keys: Any) -> OnnxNode:
        """Return a node in its place, of another operator."""
        from onnx.helper import make_node

        return dataclasses.replace(
            self,
            operator=operator,
            inputs=tuple(inputs),
            outputs=(output,),
            attributes={
                key: tuple(value) if isinstance(value, list) else value
                for key, value in keys.items()
            },
            proto=make_node(operator, list(inputs), [output], **keys),
        )

    def constant(self) -> Constant:
        """Return the result of a Constant operator."""
        [value, *_] = [*self.attributes.values(), None]
        name = "".join(self.outputs[:1])
        if isinstance(value, Constant):
            return dataclasses.replace(value, name=name)
        numbers = value if isinstance(value, tuple) else (value,)
        shape = (len(numbers),) if isinstance(value, tuple) else ()
        if not are_numbers(numbers) or len(numbers) > FEW:
            return Constant(name, shape, None)
        return Constant(
            name, shape, numbers, kind=INT64 if all(isinstance(n, int) for n in numbers) else FLOAT
        )


@dataclasses.dataclass(frozen=True)
class OnnxGraph:
    """Nodes and constants; `inputs` has the dimensions of each input, None where one is not fixed.

    `arrays` reads the constants' values when they are looked up, of `stored_bytes` in all. `opset`
    is the version of the operators.
    """

    source: str
    inputs: Mapping[str, tuple[int | None, ...]]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Constant]
    arrays: Mapping[str, NDArray[Any]] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )
    stored_bytes: int = 0
    opset: int = 1

    @property
    def known(self) -> dict[str, Constant]:
        """The constants of the file, and those that nodes are."""
        nodes = (node for node in self.nodes if node.operator == "Constant")
        return {**self.constants, **{node.outputs[0]: node.constant() for node in nodes}}

    @property
    def makers(self) -> dict[str, OnnxNode]:
        """The node that makes each value."""
        return {name: node for node in self.nodes for name in node.outputs}

    @property
    def fixed(self) -> set[str]:
        """The names of all constants, computed ones, too."""
        names = {*self.constants, ""}
        for node in self.nodes:
            taken = {*node.operands}
            if node.operator in ("Constant", "Shape") or (taken and taken <= names):
                names.update(node.outputs)
        return names

    def sizes(self, name: str) -> tuple[int, ...]:
        """Return the numbers of a shape, 0 for a size that is computed, such as that of samples; none
        if it is no shape.
        """
        makers, known = self.makers, self.known

        def sizes_of(own: str) -> tuple[int, ...]:
            maker, constant = makers.get(own), known.get(own)
            if maker is not None and maker.operator == "Concat":
                return tuple(size for part in maker.inputs for size in sizes_of(part))
            entries = (0,) if constant is None else constant.entries or ()
            return tuple(entry for entry in entries if isinstance(entry, int))

        return sizes_of(name)

    @property
    def input_sizes(self) -> tuple[int | None, ...]:
        """The dimensions of the only input; () if there is not exactly one."""
        return next(iter(self.inputs.values())) if len(self.inputs) == 1 else ()

    @property
    def images(self) -> tuple[int | None, Shape]:
        """The number of samples in the graph's input, None if it is not fixed, and the shape of
        each.

        Raises:
            InputError: there is not exactly one input, or it is not images of a fixed size.
        """
        if len(self.inputs) != 1:
            names = ", ".join(map(repr, self.inputs))
            are_weights = any(name.endswith((".weight", ".bias")) for name in self.inputs)
            hint = ", and weights stored in the file (export_params=True)" if are_weights else ""
            raise InputError(
                f"{self.source}: {len(self.inputs)} inputs: {names}; there should be one{hint}"
            )
        [(name, sizes)] = self.inputs.items()
        match sizes:
            case samples, int(channels), int(rows), int(columns):
                return samples, (channels, rows, columns)
        shown_sizes = "x".join("?" if size is None else str(size) for size in sizes)
        raise InputError(
            f"{self.source}: the input {name!r} is {shown_sizes or 'without a shape'}; it should be"
            " samples x channels x rows x columns, and all but the first fixed"
        )
