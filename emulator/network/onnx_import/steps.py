"""Conversion of an imported graph's steps to a description: their order, names and inputs.

ONNX lists nodes in the order of the data flow, and so does a description; but an SFU's operation moves up to the layer
that makes the last of its inputs. So a map is pooled where it is made, and less bypasses other layers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...inputs import validate
from ..description import Description, Node, node
from ..graph import IMAGES, resolve
from ..onnx_graph import FROM_IMAGES, Expectation, Step
from ..operation import LayerOperation
from ..operations.normalisation import Softmax
from ..shape import Shape


def to_description(
    name: str, source: str, images: Shape, steps: Sequence[Step], output: int, expectations: Sequence[Expectation]
) -> Description:
    """Return the description of a network whose results are those of the step `output`.

    Raises:
        InputError: an operation has a value out of range or does not fit its input, or an expectation is wrong.
    """
    order = in_order(steps)
    takers = [n for before, n in zip([FROM_IMAGES, *order], order, strict=False) if _must_name(steps[n], before)]
    ends_elsewhere = order[-1:] != [output]
    referenced = {taken for n in takers for taken in steps[n].takes} | ({output} if ends_elsewhere else set())
    names = _names({n: steps[n] for n in order if _opens_layer(steps[n]) or n in referenced})
    nodes: list[Node] = []
    for n in order:
        keys: dict[str, Any] = dict(steps[n].keys)
        if n in takers:
            keys["from"] = [names[taken] for taken in steps[n].takes]
        if n in names:
            keys["name"] = names[n]
        nodes.append(node(steps[n].kind, keys, steps[n].node.where))
    nodes.append(Node(Softmax(), source=(names[output],) if ends_elsewhere else None))
    empty = validate(Description, {"name": name, "input": images, "layers": []}, source)
    description = empty.model_copy(update={"layers": tuple(nodes)})
    network = resolve(description, source, [*(steps[n].node.where for n in order), f"{source}: the output"])
    begins = list(itertools.takewhile(lambda n: not _opens_layer(steps[n]), order))
    found = [*(network.entry for _ in begins), *(tensor.shape for tensor in network.tensors)]
    shapes = dict(zip(order, found, strict=True)) | {FROM_IMAGES: images}
    for expectation in expectations:
        expectation.check(shapes[expectation.step])
    return description


def in_order(steps: Sequence[Step]) -> list[int]:
    """Return the numbers of steps in the order of the description, in which an SFU's follow their layer."""
    layers: list[int] = []  # of each step
    opened = -1
    for step in steps:
        opened += _opens_layer(step)
        layers.append(opened if _opens_layer(step) else max(layers[n] if n >= 0 else -1 for n in step.takes))
    return sorted(range(len(steps)), key=layers.__getitem__)


def _opens_layer(step: Step) -> bool:
    return issubclass(step.kind, LayerOperation)


def _must_name(step: Step, before: int) -> bool:
    return step.kind.joins or step.takes != (before,)


def _names(steps: Mapping[int, Step]) -> dict[int, str]:
    """Return unique names after the nodes', of letters, digits, _ and -."""
    names = {FROM_IMAGES: IMAGES}
    for n, step in steps.items():
        stem = re.sub(r"[^\w-]+", "_", step.node.name).strip("_") or step.kind.type
        name, count = stem, 1
        while name in names.values():
            count += 1
            name = f"{stem}_{count}"
        names[n] = name
    return names
