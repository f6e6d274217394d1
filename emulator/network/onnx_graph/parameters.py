"""Which node trains which array of the file: here each has its own.

Exporters of PyTorch merge arrays that are equal: zeros, ones, and what was copied. Those become copies again; what is
one parameter in PyTorch cannot be trained by two layers here.
"""

from __future__ import annotations

import math

from ...common import InputError
from .node import Constant, OnnxGraph, OnnxNode

_MERGED_VALUES = 1024
"""PyTorch's default exporter merges no larger arrays."""


class Parameters:
    """The constants that nodes take as parameters so far; `copies` of them are arrays that were merged."""

    def __init__(self, graph: OnnxGraph) -> None:
        self.copies = 0
        self.names: list[str] = []
        self._graph = graph
        self._users: dict[str, tuple[OnnxNode, int]] = {}
        self._are_constant: dict[str, bool] = {}

    def use(self, node: OnnxNode, place: int, constant: Constant) -> None:
        """Record that a node takes a constant at a place as its parameter.

        Raises:
            InputError: another node, or this at another place, takes the same parameter.
        """
        self.names.append(constant.name)
        for root in sorted(constant.roots):
            self.copies += root not in self._users and root not in self._graph.constants  # it is made by Identity
            user, at = self._users.setdefault(root, (node, place))
            if (user, at) == (node, place):
                continue
            if self._is_constant(root):
                self.copies += constant.name == root
            elif self._is_copy(root, user, node):
                self.copies += 1
            else:
                shown = f"{root!r}" if root == constant.name else f"{root!r}, of which {constant.name!r} is made,"
                raise node.refusal(
                    f"shares its weights {shown} with another node, {user.name!r}; here each layer has its own"
                )

    def _is_constant(self, root: str) -> bool:
        """Return whether all numbers of an array are equal, as PyTorch begins with zeros and ones."""
        if root not in self._are_constant:
            try:
                array = self._graph.arrays[root]
                self._are_constant[root] = array.size > 0 and bool((array == array.flat[0]).all())
            except (KeyError, InputError):
                self._are_constant[root] = False
        return self._are_constant[root]

    def _is_copy(self, root: str, user: OnnxNode, node: OnnxNode) -> bool:
        """Return whether two modules of PyTorch had an array each that were equal.

        Its default exporter keeps the name of the first of them; one parameter of several modules is called after the
        last.
        """
        stored = self._graph.constants.get(root)
        if stored is None or node.module is None or user.module is None or node.module == user.module:
            return False
        if math.prod(stored.shape) > _MERGED_VALUES or node.module == "":
            return False
        return len(stored.shape) < 2 or root.rpartition(".")[0] == user.module
