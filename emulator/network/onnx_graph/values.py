"""Values of an ONNX graph, the steps that make them, and what nodes expect of them.

Which node trains which array of the file: here each has its own. Exporters of PyTorch merge arrays
that are equal:
zeros, ones, and what was copied. Those become copies again; what is one parameter in PyTorch cannot
be trained by two layers here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common import InputError
from ..shape import Shape, shown
from .node import Constant, OnnxGraph, OnnxNode

Keys = Mapping[str, object]
"""The keys of an operation, as in a TOML file."""

FROM_IMAGES = -1
"""The network's inputs, in place of a step's number."""

CELLS = -2
"""The last cells of an LSTM, which no operation takes, in place of the number of a step whose last
state it is.
"""


Axes = tuple[str, ...]
"""Names of axes, in order. Rows are time steps; `directions` are those of a recurrent layer, `last`
is one step.

Axes of an input that is not images have their places as names, until a node says what they are.
"""

MAPS: Axes = ("samples", "channels", "rows", "columns")
LINES: Axes = ("samples", "channels", "rows")
"""Maps of one column, without an axis for it: of convolutions and pools over one axis."""
FLAT: Axes = ("samples", "values")
CHANNELS_LAST: Axes = ("samples", "rows", "columns", "channels")
ONE = "one"
"""An axis that is none of those of maps."""


def shown_axes(axes: Axes) -> str:
    """Return axes as text for messages; those of an input that nothing names, by their number."""
    if any(axis.isdigit() for axis in axes):
        return (
            f"{len(axes)} axes (those of neither images nor a sequence of an LSTM, a GRU or"
            " attention)"
        )
    return " x ".join(axes)


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation of type `kind`, with its keys, the node that it comes from, and the steps whose
    results it takes.

    `order` is that of `Value`, of the first result that it takes. `arrays` are the values of the
    graph that its parameters are, by the names by which `Operation.from_arrays` takes them.

    A step that was `merged` into another one is part of no network. One of `parts` has the output
    channels of these in a row, and of that row those at the places `channels`. One that is `tied`
    has the weights of that embedding. The file has its inputs' channels in an order of its own, where
    `inputs` is given: these, by their numbers here.
    """

    node: OnnxNode
    kind: type[Any]
    keys: Keys
    takes: tuple[int, ...]
    order: Axes | None = None
    arrays: Mapping[str, str] = dataclasses.field(default_factory=dict)
    merged: bool = False
    parts: tuple[Step, ...] = ()
    channels: tuple[int, ...] = ()
    tied: int | None = None
    inputs: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a node expects of the result of a step: a number of channels, of values in all, or of
    time steps.
    """

    node: OnnxNode
    step: int
    channels: int | None
    values: int | None
    steps: int | None = None

    def check(self, shape: Shape) -> None:
        """Check the expectation against the shape that follows from the graph.

        Raises:
            InputError: they differ.
        """
        wanted = ("channels", self.channels, shape[0]), ("values", self.values, math.prod(shape))
        for kind, count, actual in (*wanted, ("time steps", self.steps, shape[1])):
            if count not in (None, actual):
                raise self.node.refusal(
                    f"is made for {count} {kind}, but takes maps of {shown(shape)}"
                )


class MixedTokens(Exception):
    """A layer over tokens, in a graph whose pixels or steps were not taken as rows of a sequence
    from the start.
    """


@dataclasses.dataclass(frozen=True, eq=False)
class Apart:
    """Maps whose axes a node took apart: at each place behind samples, which value of a sample,
    counted channel by channel, stands there.
    """

    node: OnnxNode
    places: NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Value:
    """The result of a step, as maps or as one row of values; `is_closed` after softmax, when
    nothing may take it.

    With `axes`, a sequence or maps with their axes in this order. A recurrent layer's last state
    has the steps of all layers that it is of in `state`. A row of values has the axes that it was
    made of in `order`. With `pads`, zeros that the node `padded_by` put above, left, below and
    right of maps, which the next window has to take in. A value for each channel that the node
    `spread_by` repeats is to be a factor. Of the network's symbols, it may be `rows`: the first one,
    and how many. The file has its channels in another order, if `channels` are given: these, by
    their numbers here. Axes of maps that a node took apart are to be put together again.
    """

    step: int
    is_flat: bool = False
    is_closed: bool = False
    axes: Axes | None = None
    state: tuple[int, ...] = ()
    order: Axes | None = None
    pads: tuple[int, int, int, int] | None = None
    padded_by: OnnxNode | None = None
    spread_by: OnnxNode | None = None
    rows: tuple[int, int] | None = None
    channels: tuple[int, ...] | None = None
    apart: Apart | None = None

    def with_axes(self, axes: Axes) -> Value:
        """Return the value with these axes; one value of each channel for each sample is a row of
        values.
        """
        if axes == ("samples", "channels"):
            return dataclasses.replace(self, is_flat=True, axes=None)
        is_maps = len(axes) == 4 and all(
            own in (ONE, name) for own, name in zip(axes, MAPS, strict=True)
        )
        return dataclasses.replace(self, is_flat=False, axes=None if is_maps else axes)


_MERGED_VALUES = 1024
"""PyTorch's default exporter merges no larger arrays."""


class Parameters:
    """The constants that nodes take as parameters so far; `copies` of them are arrays that were
    merged.
    """

    def __init__(self, graph: OnnxGraph) -> None:
        self.copies = 0
        self.names: list[str] = []
        self._graph = graph
        self._users: dict[str, tuple[OnnxNode, int]] = {}
        self._are_constant: dict[str, bool] = {}
        self._wholes = {
            part: node.inputs[0]
            for node in graph.nodes
            if node.operator == "Split"
            for part in node.outputs
        }
        self._split: dict[str, tuple[OnnxNode, int]] = {}

    def use(self, node: OnnxNode, place: int, constant: Constant) -> None:
        """Record that a node takes a constant at a place as its parameter.

        Raises:
            InputError: another node, or this at another place, takes the same parameter.
        """
        self.names.append(constant.name)
        for root in sorted(constant.roots):
            is_new = root not in self._users and root not in self._graph.constants
            self.copies += is_new and root not in self._wholes  # it is made by Identity
            user, at = self._users.setdefault(root, (node, place))
            whole = self._wholes.get(root)
            if whole is not None:
                self._split[whole] = node, place
            user, at = self._users.get(whole or "", self._split.get(root, (user, at)))
            if (user, at) == (node, place):
                continue
            if user.operator == "Gather" and node.operator in ("MatMul", "Gemm"):
                continue  # a head that may be tied to the embedding
            if self._is_constant(root):
                self.copies += constant.name == root
            elif self._is_copy(root, user, node):
                self.copies += 1
            else:
                shown = (
                    f"{root!r}"
                    if root == constant.name
                    else f"{root!r}, of which {constant.name!r} is made,"
                )
                raise node.refusal(
                    f"shares its weights {shown} with another node, {user.name!r}; here each layer"
                    " has its own"
                )

    def _is_constant(self, root: str) -> bool:
        """Return whether all numbers of an array are equal, as PyTorch begins with zeros and
        ones.
        """
        if root not in self._are_constant:
            try:
                array = self._graph.arrays[root]
                self._are_constant[root] = array.size > 0 and bool((array == array.flat[0]).all())
            except (KeyError, InputError):
                self._are_constant[root] = False
        return self._are_constant[root]

    def _is_copy(self, root: str, user: OnnxNode, node: OnnxNode) -> bool:
        """Return whether two modules of PyTorch had an array each that were equal.

        Its default exporter keeps the name of the first of them; one parameter of several modules
        is called after the last.
        """
        stored = self._graph.constants.get(root)
        if (
            stored is None
            or node.module is None
            or user.module is None
            or node.module == user.module
        ):
            return False
        if math.prod(stored.shape) > _MERGED_VALUES or node.module == "":
            return False
        return len(stored.shape) < 2 or root.rpartition(".")[0] == user.module
