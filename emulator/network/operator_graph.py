"""The operator graph: training's operators, their operations, and the tensors between them (FPDeep,
sections 3.1, 3.2).

"Each node o_i is an operator, and each edge (o_i, o_j) is a tensor that is an output of o_i and an
input of o_j. Each node has a weight Op(o_m)." Here each layer has three operators, FP, EB and PG.
In the coarse graph a layer is one node, and all edges run one way; the mapping cuts it between
layers, then along channels.
"""

from __future__ import annotations

import dataclasses
import enum
import functools

from .layer import Network
from .shape import Shape

OPERATIONS_PER_MAC = 2
"""A multiply and an add."""


class Phase(enum.Enum):
    """A phase of training in a layer: forward propagation, error back-propagation, parameter
    gradients.
    """

    FP = "FP"
    EB = "EB"
    PG = "PG"


TRAINING_OPERATIONS_PER_MAC = OPERATIONS_PER_MAC * len(Phase)
"""Training operations for each MAC of FP; FPDeep counts EB of the first layer too, although it is
not computed.
"""


@dataclasses.dataclass(frozen=True)
class Operator:
    """One phase of a layer, and its operations for one sample."""

    layer: str
    phase: Phase
    operations: int

    def __str__(self) -> str:
        return f"{self.phase.value} of {self.layer}"


@dataclasses.dataclass(frozen=True)
class Edge:
    """Maps (channels, rows, columns) that one operator makes and another takes."""

    source: Operator
    target: Operator
    shape: Shape


@dataclasses.dataclass(frozen=True)
class OperatorGraph:
    """All operators in the order of the layers, and all edges."""

    operators: tuple[Operator, ...]
    edges: tuple[Edge, ...]

    @property
    def operations(self) -> int:
        """Number of operations to train on one sample."""
        return sum(operator.operations for operator in self.operators)

    def layer_operations(self, layer: str) -> dict[Phase, int]:
        """Return the operations of a layer, a node of the coarse graph, by phase."""
        return self._by_layer.get(layer, {})

    @functools.cached_property
    def _by_layer(self) -> dict[str, dict[Phase, int]]:
        by_layer: dict[str, dict[Phase, int]] = {}
        for operator in self.operators:
            by_layer.setdefault(operator.layer, {})[operator.phase] = operator.operations
        return by_layer


def operator_graph(network: Network) -> OperatorGraph:
    """Return the operator graph of a training step.

    FP takes the outputs of earlier layers; so does PG, with the output errors that EB of later
    layers makes. A layer that takes only images has no EB, unless it is recurrent. The loss, which
    turns outputs into errors, is not an operator.
    """
    operators = {
        (layer.index, phase): Operator(
            layer.name,
            phase,
            OPERATIONS_PER_MAC * (layer.eb_macs if phase is Phase.EB else layer.macs),
        )
        for layer in network.layers
        for phase in Phase
        if {Phase.FP: True, Phase.EB: layer.has_eb, Phase.PG: layer.has_pg}[phase]
    }
    makers = _makers(network)
    edges = []
    for layer in network.layers:
        # A set has no order of its own, and edges should come in the same one each time.
        for maker in sorted(makers[layer.reads.number]):
            fp = operators[maker, Phase.FP]
            takers = (operators.get((layer.index, phase)) for phase in (Phase.FP, Phase.PG))
            edges += [Edge(fp, taker, layer.input) for taker in takers if taker is not None]
            # EB makes errors of the layer's inputs, the maker's outputs: its EB and PG take them.
            for phase in (Phase.EB, Phase.PG):
                if (maker, phase) in operators:
                    edges.append(
                        Edge(operators[layer.index, Phase.EB], operators[maker, phase], layer.input)
                    )
    return OperatorGraph(tuple(operators.values()), tuple(edges))


def _makers(network: Network) -> dict[int, set[int]]:
    """Return for each tensor the layers whose outputs reach it through SFUs."""
    makers: dict[int, set[int]] = {0: set()}
    for layer in network.layers:
        makers[layer.makes.number] = {layer.index}
        for step in layer.sfu:
            makers[step.makes.number] = set().union(
                *(makers[tensor.number] for tensor in step.reads)
            )
    return makers
