"""Expressions over constants: their shapes when the graph is read, and their values when weights
are.

PyTorch's exporters leave many in the file: gates of an LSTM are cut out of its weights and put in
ONNX's order, weights are transposed before a product, and normalised where they are parametrised.
ONNX's own shape inference and reference evaluator say what they make. Sizes are bound before
anything is computed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common import format_bytes
from .node import FEW, FLOAT, Constant, OnnxGraph, OnnxNode, are_numbers, shortest

_FOLDED = frozenset(
    (
        "Abs Add And Cast CastLike Clip Concat ConstantOfShape Cos CumSum Div Einsum Equal Exp Expand"
        " Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity IsNaN Less"
        " LessOrEqual Log MatMul Max Min Mod Mul Neg Not Or Pad Pow Range Reciprocal ReduceL1"
        " ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape"
        " Sigmoid Sign Sin Slice Softplus Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where"
    ).split()
)
"""Operators whose results have known sizes, and which take no longer than the sizes of inputs and
results say.
"""

_MOVES = frozenset(
    "Cast CastLike Concat Expand Flatten Gather GatherElements GatherND Identity Reshape Slice"
    " Split Squeeze Tile Transpose Unsqueeze".split()
)
"""Those that only move numbers."""

_SPARE_BYTES, _TIMES = 2**26, 8
"""Most bytes of all results: a number of its own, and a multiple of the file's size."""

_SPARE_WORK, _WORK_TIMES, _NODE_WORK = 2**30, 64, 2**15
"""Most bytes read and written, and numbers multiplied by matrices, in all, likewise; and what a
node adds by itself.
"""


class Expressions:
    """The nodes that compute constants from others, and the values of constants when these are
    asked for.
    """

    def __init__(self, graph: OnnxGraph) -> None:
        self._opset, self._arrays = graph.opset, graph.arrays
        self._most_bytes = _SPARE_BYTES + _TIMES * graph.stored_bytes
        self._most_work = _SPARE_WORK + _WORK_TIMES * graph.stored_bytes
        self._bytes = self._work = 0
        self._made_by: dict[str, OnnxNode] = {}
        self._arithmetic: set[str] = set()
        self._multiples: dict[str, tuple[str, float]] = {}
        self._values: dict[str, NDArray[Any]] = {}

    def add(self, node: OnnxNode, constants: Sequence[Constant | None]) -> list[Constant] | None:
        """Return what a node computes of the constants that it takes, by outputs; None if that
        cannot be known.

        Raises:
            InputError: it computes too much.
        """
        if node.operator not in _FOLDED or any(
            constant is None and name for constant, name in _named(node, constants)
        ):
            return None
        if node.operator == "CastLike" and (like := constants[1]) is not None and like.kind:
            node = node.replaced("Cast", node.inputs[:1], node.outputs[0], to=like.kind)
            constants = constants[:1]
        given = {
            name: constant for constant, name in _named(node, constants) if constant is not None
        }
        if not all(constant.kind and _is_plain(constant) for constant in given.values()):
            return None
        if "..." in str(node.attributes.get("equation", "")):
            return None
        for name, factor in _multiple(node, given).values():
            if factor == 1 and all(
                len(own.shape) <= len(given[name].shape) for own in given.values()
            ):
                node = node.replaced("Identity", [name], node.outputs[0])  # as torch.addcmul has it
        inferred = self._inferred(node, given)
        if inferred is None:
            return None
        made = [Constant(name, shape, None, kind=kind) for name, (kind, shape) in inferred.items()]
        self._check(node, [given[name] for name in node.inputs if name], made)
        self._values.update(
            {
                name: _array(constant)
                for name, constant in given.items()
                if constant.numbers is not None
            }
        )
        roots = frozenset[str]().union(*(constant.roots for constant in given.values()))
        self._made_by.update(dict.fromkeys(inferred, node))
        if roots:
            self._multiples.update(_multiple(node, given))
        if roots and (node.operator not in _MOVES or not self._arithmetic.isdisjoint(given)):
            self._arithmetic.update(inferred)
        made = [dataclasses.replace(constant, roots=roots) for constant in made]
        are_few = all(math.prod(constant.shape) <= FEW for constant in made)
        if are_few and all(constant.numbers is not None for constant in given.values()):
            made = self._with_numbers(node, given, made)
        return made

    def is_arithmetic(self, name: str) -> bool:
        """Return whether a constant is computed of the file's arrays by more than moves of
        numbers.
        """
        return name in self._arithmetic

    def multiple(self, name: str) -> tuple[str, float]:
        """Return the constant that was multiplied by a number to make another one, and the number;
        that constant and 1 if it was not.
        """
        return self._multiples.get(name, (name, 1.0))

    def value(self, name: str) -> NDArray[Any]:
        """Return the value of a constant, of the file or computed.

        Raises:
            InputError: it is in another file that cannot be read, or cannot be computed.
            KeyError: there is none of this name.
        """
        todo = [name]
        while todo:
            node = self._made_by.get(todo[-1])
            if todo[-1] in self._values or (node is None and todo[-1] in self._arrays):
                todo.pop()
                continue
            if node is None:
                raise KeyError(todo[-1])
            missing = [
                given
                for given in node.inputs
                if given in self._made_by and given not in self._values
            ]
            if missing:
                todo += missing
                continue
            given = {name: self._known(name) for name in node.inputs if name}
            self._values.update(self._computed(node, given))
        return self._known(name)

    def with_array(self, name: str, root: str, array: NDArray[Any]) -> NDArray[Any]:
        """Return the value that a constant has with another array in place of one of the file.

        Raises:
            InputError: it cannot be computed.
            KeyError: there is none of this name.
        """
        known, todo = {root: array}, [name]
        while todo:
            node = self._made_by.get(todo[-1])
            if todo[-1] in known or node is None:
                last = todo.pop()
                known.setdefault(last, known[last] if last in known else self._known(last))
                continue
            missing = [given for given in node.inputs if given and given not in known]
            if missing:
                todo += missing
                continue
            known.update(self._computed(node, {own: known[own] for own in node.inputs if own}))
        return known[name]

    def factors(self, name: str) -> tuple[str, ...]:
        """Return the two constants whose product another one is; none if it is no product."""
        node = self._made_by.get(name)
        return node.inputs if node is not None and node.operator == "Mul" else ()

    def applied(
        self, nodes: Sequence[OnnxNode], x: NDArray[Any], constants: Mapping[str, Constant]
    ) -> NDArray[Any]:
        """Return what nodes, in order, make of an array that the first of them takes, and of
        constants.

        Raises:
            InputError: that cannot be computed.
        """
        known: dict[str, NDArray[Any]] = {nodes[0].inputs[0]: x}
        for node in nodes:
            for name in {*node.inputs} - {*known, ""}:
                own = constants[name]
                known[name] = self.value(name) if own.numbers is None else _array(own)
            given = {name: known[name] for name in node.inputs if name}
            known.update(self._computed(node, given))
        return known[nodes[-1].outputs[0]]

    def forget(self) -> None:
        """Free the values that were computed; they are computed again when they are asked for."""
        for name in self._made_by:
            self._values.pop(name, None)

    def _known(self, name: str) -> NDArray[Any]:
        return self._values[name] if name in self._values else self._arrays[name]

    def _inferred(
        self, node: OnnxNode, given: Mapping[str, Constant]
    ) -> dict[str, tuple[int, tuple[int, ...]]] | None:
        """Return type and shape of a node's outputs; None if not all are known."""
        from onnx import defs, helper, shape_inference

        kinds = {constant.kind for constant in given.values()}
        mixed = node.operator == "Einsum" and len(kinds) > 1  # as PyTorch's exporter may leave it
        types = {
            name: helper.make_tensor_type_proto(FLOAT if mixed else constant.kind, constant.shape)
            for name, constant in given.items()
        }
        data = {
            name: _tensor(constant)
            for name, constant in given.items()
            if constant.numbers is not None
        }
        try:
            schema = defs.get_schema(node.operator, self._opset, "")
            opsets = [helper.make_opsetid("", self._opset)]
            made = shape_inference.infer_node_outputs(
                schema, node.proto, types, data, opset_imports=opsets
            )
        except Exception:  # it has errors of many kinds, as the evaluator below
            return None
        inferred = {}
        for name in filter(None, node.outputs):
            if name not in made or not made[name].HasField("tensor_type"):
                return None
            tensor = made[name].tensor_type
            shape = tuple(
                size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim
            )
            if (
                not tensor.HasField("shape")
                or min(shape, default=0) < 0
                or not _is_number(tensor.elem_type)
            ):
                return None
            inferred[name] = tensor.elem_type, shape
        return inferred or None

    def _check(self, node: OnnxNode, taken: Sequence[Constant], made: Sequence[Constant]) -> None:
        """Count what a node computes; refuse it if that is too much with what others do."""
        self._bytes += sum(map(_bytes, made))
        self._work += _NODE_WORK + sum(map(_bytes, [*taken, *made]))
        if node.operator == "MatMul" and taken[0].shape:
            self._work += math.prod(made[0].shape) * taken[0].shape[-1]
        if node.operator == "Einsum":
            self._work += _products(str(node.attributes.get("equation", "")), taken)
        if self._bytes > self._most_bytes or self._work > self._most_work:
            raise node.refusal(
                f"computes constants beyond {format_bytes(self._most_bytes)} in all, or by too many"
                f" operations for this file: {made[0].name!r} has the sizes {list(made[0].shape)}"
            )

    def _with_numbers(
        self, node: OnnxNode, given: Mapping[str, Constant], made: Sequence[Constant]
    ) -> list[Constant]:
        values = self._computed(node, {name: _array(constant) for name, constant in given.items()})
        constants = []
        for constant in made:
            numbers = tuple(map(shortest, values[constant.name].ravel().tolist()))
            constants.append(
                dataclasses.replace(constant, numbers=numbers if are_numbers(numbers) else None)
            )
        return constants

    def _computed(
        self, node: OnnxNode, given: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[Any]]:
        from onnx.reference import ReferenceEvaluator

        if node.operator == "Einsum" and len({array.dtype for array in given.values()}) > 1:
            given = {name: array.astype(np.float32) for name, array in given.items()}
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = ReferenceEvaluator(node.proto, opsets={"": self._opset}).run(
                    None, dict(given)
                )
            return {
                name: np.asarray(array)
                for name, array in zip(node.outputs, results, strict=True)
                if name
            }
        except Exception as error:
            raise node.refusal(
                f"cannot be computed: {' '.join(str(error).split())[:200]}"
            ) from None


def _named(
    node: OnnxNode, constants: Sequence[Constant | None]
) -> list[tuple[Constant | None, str]]:
    return list(zip(constants, node.inputs, strict=True))


def _products(equation: str, taken: Sequence[Constant]) -> int:
    """Return how many products a sum by Einstein's convention computes."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    sizes = dict[str, int]()
    for term, constant in zip(terms, taken, strict=True):
        sizes.update(zip(term, constant.shape, strict=True))
    return math.prod(sizes.values())


def _multiple(node: OnnxNode, given: Mapping[str, Constant]) -> dict[str, tuple[str, float]]:
    """Return the array and the number that a node multiplies, by its output; nothing where it does
    something else.
    """
    arrays = [name for name in node.inputs if given[name].roots]
    others = [given[name].numbers for name in node.inputs if not given[name].roots]
    if node.operator != "Mul" or len(arrays) != 1 or others[0] is None or len(others[0]) != 1:
        return {}
    return {node.outputs[0]: (arrays[0], float(others[0][0]))} if others[0][0] else {}


def _is_plain(constant: Constant) -> bool:
    """Return whether a constant is numbers alone, none of them the size of an axis that is open."""
    return constant.sizes is None or constant.numbers is not None


@functools.cache
def _dtype(kind: int) -> np.dtype[Any]:
    from onnx import helper

    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


def _is_number(kind: int) -> bool:
    try:
        return _dtype(kind).kind in "biuf"
    except KeyError:
        return False


def _array(constant: Constant) -> NDArray[Any]:
    return np.array(constant.numbers, _dtype(constant.kind)).reshape(constant.shape)


def _tensor(constant: Constant) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(_array(constant), constant.name)


def _bytes(constant: Constant) -> int:
    return math.prod(constant.shape) * _dtype(constant.kind).itemsize
