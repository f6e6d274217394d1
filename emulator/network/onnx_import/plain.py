"""What an ONNX file holds, as plain data.

A model's graph is a list of nodes in the order in which data flow (ONNX's IR specification, "Graphs"). A node takes
values by name and makes others. What no node makes is an input of the graph, or a constant that the file holds: a
weight, a bias, now and then a shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...common.errors import InputError
from ..layers import Shape

FEW = 16
"""Constants of at most so many numbers may be sizes, axes or rates."""


def are_numbers(values: tuple[Any, ...]) -> bool:
    """Whether all of them are: tensors may hold text, too."""
    return all(isinstance(value, (int, float)) for value in values)


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
        return Constant(name, (len(numbers),), numbers if are_numbers(numbers) and len(numbers) <= FEW else None)


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
