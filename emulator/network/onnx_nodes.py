"""Nodes and arrays of an ONNX graph that is written, the form of each value there, and what an
operation writes.

Nodes that have weights are called as the layers, so that an import gives these the same names.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .shape import Shape, Tensor

Arrays = Mapping[str, NDArray[np.float32]]


class Form(enum.Enum):
    """The axes of a value, after samples."""

    MAPS = "channels, rows, columns"
    STEPS = "rows, channels"
    ROW = "values"
    SYMBOLS = "rows"
    TABLE = "buckets, heads, a table of terms of scores"


class Nodes:
    """Nodes and arrays, and what each tensor of the network is called; every value has a form."""

    def __init__(self, network: str, blame: str) -> None:
        self.made: list[Any] = []
        self.arrays: list[Any] = []
        self._names: dict[int, str] = {}
        self._forms: dict[str, tuple[Form, Shape]] = {}
        self._masks: set[str] = set()
        self._tables: dict[int, str] = {}
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

    def add(
        self, operator: str, inputs: Sequence[str], made: str, name: str = "", **keys: Any
    ) -> str:
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

    def join_table(self, tensor: Tensor, table: str, rows: str) -> None:
        """Record that a tensor is the rows of a table of terms, which a file has as an array, and
        others.
        """
        self.name(tensor, rows, Form.STEPS)
        self._tables[tensor.number] = table

    def table(self, tensor: Tensor) -> str:
        """Return the table whose rows a tensor begins with.

        Raises:
            InputError: it does not begin with those of a `score-table`.
        """
        if tensor.number not in self._tables:
            raise self.refusal("attention whose table of terms no `score-table` makes")
        return self._tables[tensor.number]

    def later(self, rows: int) -> str:
        """Return the mask of keys behind a query, -inf in place of 0, which all causal attention of
        `rows` shares.
        """
        return self._once(f"later.{rows}", np.triu(np.full((rows, rows), -np.inf, np.float32), 1))

    def distance(self, rows: int) -> str:
        """Return how far queries are from keys, which all attention of `rows` shares."""
        far = np.abs(np.arange(rows)[:, None] - np.arange(rows))
        return self._once(f"distance.{rows}", far.astype(np.float32))

    def _once(self, name: str, array: NDArray[Any]) -> str:
        if name not in self._masks:
            self._masks.add(name)
            self.array(name, array)
        return name

    def row(self, x: str, name: str) -> str:
        """Return a value as one row for each sample, channel by channel; where it has another form,
        called `name`.
        """
        form, shape = self._forms[x]
        if form is Form.ROW:
            return x
        if form is Form.STEPS and shape[1] > 1:
            x = self.add("Transpose", [x], f"{name}/channels", perm=[0, 2, 1])
        self._forms[name] = Form.ROW, (math.prod(shape), 1, 1)
        return self.add("Flatten", [x], name, axis=1)

    def steps(self, x: str, name: str) -> str:
        """Return a value as a sequence, the columns of each channel side by side; if it is maps,
        called `name`.
        """
        form, (channels, rows, columns) = self._forms[x]
        if form is Form.STEPS:
            return x
        if form is not Form.MAPS:
            raise self.refusal("a sequence of one row of values")
        turned = self.add("Transpose", [x], f"{name}/rows", perm=[0, 2, 1, 3])
        self._forms[name] = Form.STEPS, (channels * columns, rows, 1)
        return self.add(
            "Reshape", [turned, self.numbers(f"{name}.shape", 0, rows, channels * columns)], name
        )

    def refusal(self, what: str) -> InputError:
        """Return the error for what ONNX, or its import, has no words for."""
        return InputError(
            f"{self._blame}: {self._network} has {what}, which ONNX files cannot hold; a"
            " .safetensors file takes all weights"
        )


@dataclasses.dataclass(frozen=True)
class Export:
    """One operation on its way into a file: of a type and a layer, it reads the values `taken`, and
    makes `result`.

    Its node is called `name`, and so begin the names of its arrays. Names of its weights in `held`,
    those of its layer, end in `end`.
    """

    nodes: Nodes
    type: str
    layer: str
    reads: Sequence[Tensor]
    makes: Tensor
    name: str
    result: str
    held: Arrays
    end: str = ""

    @property
    def taken(self) -> list[str]:
        """Names of the values that it reads."""
        return [self.nodes.of(tensor.number) for tensor in self.reads]

    @property
    def x(self) -> str:
        """The name of the one value that it reads."""
        [name] = self.taken
        return name

    @property
    def form(self) -> Form:
        """The one form of the values that it reads.

        Raises:
            InputError: they differ in it.
        """
        forms = {self.nodes.form(name) for name in self.taken}
        if len(forms) > 1:
            raise self.refusal(f"{self.type} of values with other axes ({self.layer})")
        return forms.pop()

    def expect(self, *forms: Form) -> None:
        """Raise InputError if the values that it reads have none of these forms."""
        if self.form not in forms:
            raise self.refusal(f"{self.type} on {self.form.value} ({self.layer})")

    def weight(self, key: str, change: Callable[[NDArray[Any]], NDArray[Any]] = np.asarray) -> str:
        """Add the weights of this name, changed; return what the array is called."""
        return self.nodes.array(f"{self.name}.{key}", change(self.held[f"{key}{self.end}"]))

    def biases(self) -> list[str]:
        """Add the biases, if there are any; return what the arrays are called."""
        return [self.weight("bias")] if "bias" in self.held else []

    def number(self, key: str, number: float) -> str:
        """Add a float32 number; return what the array is called."""
        return self.nodes.array(f"{self.name}.{key}", np.array(number, np.float32))

    def write(self, operator: str, *arrays: str, **keys: Any) -> None:
        """Add a node, of all values that it reads and some arrays, whose result has the form of the
        values.
        """
        self.write_of(self.taken, operator, *arrays, form=self.form, **keys)

    def write_of(
        self, values: Sequence[str], operator: str, *arrays: str, form: Form, **keys: Any
    ) -> None:
        """Add a node, of these values and arrays, whose result has the form `form`."""
        self.nodes.add(operator, [*values, *arrays], self.result, self.name, **keys)
        self.nodes.name(self.makes, self.result, form)

    def refusal(self, what: str) -> InputError:
        """Return the error for what ONNX, or its import, has no words for."""
        return self.nodes.refusal(what)
