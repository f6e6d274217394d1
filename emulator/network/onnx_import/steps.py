"""From the steps of an imported graph to a description: their order, their names, and what each takes.

ONNX lists nodes in an order in which data flow, and so does a description; but an SFU's operation moves up to the layer
that makes the last of what it takes. So a map is pooled where it is made, and less passes by other layers.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import get_args

from ...inputs.validation import validate
from ..description import Conv, Description, Fc, Operation, SfuNode
from ..graph import IMAGES, resolve
from ..layers import Shape
from .keys import Keys
from .plain import OnnxNode

_MODELS = {
    kind: model for model in (Conv, Fc, *get_args(SfuNode)) for kind in get_args(model.model_fields["type"].annotation)
}

FROM_IMAGES = -1
"""In place of a step's number: the network's inputs."""


@dataclasses.dataclass(frozen=True)
class Step:
    """An operation, the node that it comes from, and the numbers of the steps whose results it takes."""

    node: OnnxNode
    keys: Keys
    takes: tuple[int, ...]

    @property
    def opens_layer(self) -> bool:
        """Whether it has weights."""
        return self.keys["type"] in ("conv", "fc")

    @property
    def joins(self) -> bool:
        """Whether it must name what it takes."""
        return self.keys["type"] in ("add", "concat")


@dataclasses.dataclass(frozen=True)
class Expectation:
    """What a node says of the result of a step: how many channels it has, or how many values in all."""

    node: OnnxNode
    step: int
    channels: int | None
    values: int | None

    def check(self, shape: Shape) -> None:
        """Hold it against the shape that follows from the graph.

        Raises:
            InputError: it is another one.
        """
        for kind, count, found in (("channels", self.channels, shape[0]), ("values", self.values, math.prod(shape))):
            if count not in (None, found):
                maps = "x".join(map(str, shape))
                raise self.node.refusal(f"is made for {count} {kind}, but takes maps of {maps}")


def to_description(
    name: str, source: str, images: Shape, steps: Sequence[Step], output: int, expectations: Sequence[Expectation]
) -> Description:
    """The description of a network whose results are those of the step `output`.

    Raises:
        InputError: an operation has a value out of range or does not fit its input, or an expectation is wrong.
    """
    order = _order(steps)
    takers = [n for before, n in zip([FROM_IMAGES, *order], order, strict=False) if _must_name(steps[n], before)]
    ends_elsewhere = order[-1:] != [output]
    referenced = {taken for n in takers for taken in steps[n].takes} | ({output} if ends_elsewhere else set())
    names = _names({n: steps[n] for n in order if steps[n].opens_layer or n in referenced})
    operations: list[Operation | Keys] = []
    for n in order:
        keys = dict(steps[n].keys)
        if n in takers:
            keys["from"] = [names[taken] for taken in steps[n].takes]
        if n in names:
            keys["name"] = names[n]
        operations.append(validate(_MODELS[str(keys["type"])], keys, steps[n].node.where))
    operations.append({"type": "softmax", "from": names[output]} if ends_elsewhere else {"type": "softmax"})
    description = validate(Description, {"name": name, "input": images, "layers": operations}, source)
    network = resolve(description, source, [*(steps[n].node.where for n in order), f"{source}: the output"])
    shapes = dict(zip(order, (tensor.shape for tensor in network.tensors), strict=True)) | {FROM_IMAGES: images}
    for expectation in expectations:
        expectation.check(shapes[expectation.step])
    return description


def _order(steps: Sequence[Step]) -> list[int]:
    layers: list[int] = []  # of each step
    opened = -1
    for step in steps:
        opened += step.opens_layer
        layers.append(opened if step.opens_layer else max(layers[n] if n >= 0 else -1 for n in step.takes))
    return sorted(range(len(steps)), key=layers.__getitem__)


def _must_name(step: Step, before: int) -> bool:
    return step.joins or step.takes != (before,)


def _names(steps: Mapping[int, Step]) -> dict[int, str]:
    """Names after the nodes', of letters, digits, _ and -, each once."""
    names = {FROM_IMAGES: IMAGES}
    for n, step in steps.items():
        stem = re.sub(r"[^\w-]+", "_", step.node.name).strip("_") or str(step.keys["type"])
        name, count = stem, 1
        while name in names.values():
            count += 1
            name = f"{stem}_{count}"
        names[n] = name
    return names
