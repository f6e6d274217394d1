"""Products of two maps in ONNX files become `multiply`; test_multiply.py compares what they
compute.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .onnx_models import Graph, ending, load, small

PRODUCTS: dict[str, Callable[[], Graph]] = {
    "product of maps": lambda: small(lambda g: g.node("Mul", g.last, g.node("Relu"))),
    "product by another map's sigmoid": lambda: small(
        lambda g: g.node("Mul", g.node("Relu"), g.node("Sigmoid", g.nodes[-2].output[0]))
    ),
    "sigmoid that others take": lambda: small(
        lambda g: g.node("Add", g.node("Mul", g.last, g.node("Sigmoid")), g.nodes[-2].output[0])
    ),
    "sigmoid that others take as a row": lambda: ending(
        lambda g: g.node("Flatten", g.node("Sigmoid"), name="row"),
        lambda g: g.node("Mul", g.node("Flatten", g.nodes[0].output[0]), g.nodes[-2].output[0]),
        lambda g: g.node("Add", g.last, g.node("Flatten", g.nodes[1].output[0])),
        lambda g: g.fc("fc", 256, 5),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_taken(tmp_path: Path, name: str) -> None:
    """By other steps than activations that are products, of two maps of one shape."""
    network = load(tmp_path, PRODUCTS[name]())
    steps = [step for layer in network.layers for step in layer.sfu]
    [product] = [step for step in steps if step.operation.type == "multiply"]
    one, other = product.reads
    assert one.shape == other.shape == product.output
    kinds = {step.operation.type for step in steps}
    assert not kinds & {"silu", "hard-swish"} and ("sigmoid" in kinds) == ("sigmoid" in name)
