"""Nodes and arrays of an ONNX graph so far, and the form that each value of it has there."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common import InputError
from ..layer import Network, Tensor
from ..shape import Shape

Arrays = Mapping[str, NDArray[np.float32]]


class Form(enum.Enum):
    """The axes of a value, after samples."""

    MAPS = "channels, rows, columns"
    STEPS = "rows, channels"
    ROW = "values"
    SYMBOLS = "rows"


class Nodes:
    """Nodes and arrays, and what each tensor of the network is called; every value has a form."""

    def __init__(self, network: Network, blame: str) -> None:
        self.made: list[Any] = []
        self.arrays: list[Any] = []
        self._names: dict[int, str] = {}
        self._forms: dict[str, tuple[Form, Shape]] = {}
        self._network, self._blame = network, blame

    def begin(self, name: str, form: Form, shape: Shape) -> str:
        """Name the network's input, or what it becomes at once, of (channels, rows, columns)."""
        self._names[0], self._forms[name] = name, (form, shape)
        return name

    def of(self, number: int) -> str:
        """Return what a tensor of the network is called."""
        return self._names[number]

    def form(self, name: str) -> Form:
        """Return the form of a value."""
        return self._forms[name][0]

    def name(self, tensor: Tensor, name: str, form: Form) -> None:
        """Record what a tensor is called, and its form."""
        self._names[tensor.number], self._forms[name] = name, (form, tensor.shape)

    def add(self, operator: str, inputs: Sequence[str], made: str, name: str = "", **keys: Any) -> str:
        """Add a node; return the name of its result."""
        from onnx import helper

        self.made.append(helper.make_node(operator, inputs, [made], name=name or made, **keys))
        return made

    def array(self, name: str, array: NDArray[Any]) -> str:
        """Add an array of the file; return its name."""
        from onnx import numpy_helper

        self.arrays.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def numbers(self, name: str, *numbers: int) -> str:
        """Add sizes, axes or places."""
        return self.array(name, np.array(numbers, np.int64))

    def row(self, x: str, name: str) -> str:
        """Return a value as one row for each sample, channel by channel; where it has another form, called `name`."""
        form, shape = self._forms[x]
        if form is Form.ROW:
            return x
        if form is Form.STEPS and shape[1] > 1:
            x = self.add("Transpose", [x], f"{name}/channels", perm=[0, 2, 1])
        self._forms[name] = Form.ROW, (math.prod(shape), 1, 1)
        return self.add("Flatten", [x], name, axis=1)

    def steps(self, x: str, name: str) -> str:
        """Return a value as a sequence, the columns of each channel side by side; if it is maps, called `name`."""
        form, (channels, rows, columns) = self._forms[x]
        if form is Form.STEPS:
            return x
        if form is not Form.MAPS:
            raise self.refusal("a sequence of one row of values")
        turned = self.add("Transpose", [x], f"{name}/rows", perm=[0, 2, 1, 3])
        self._forms[name] = Form.STEPS, (channels * columns, rows, 1)
        return self.add("Reshape", [turned, self.numbers(f"{name}.shape", 0, rows, channels * columns)], name)

    def refusal(self, what: str) -> InputError:
        """Return the error for what ONNX, or its import, has no words for."""
        return InputError(
            f"{self._blame}: {self._network.name} has {what}, which ONNX files cannot hold; a .safetensors file takes"
            " all weights"
        )
