"""LoRA: layers that rest, each with two small ones beside it that learn what is added to its
weights (Hu et al., 2022, section 4.1).

    y = W x + b + alpha / r · B (A x)

A has the window of the layer and r outputs, B is of one place. They stand before it on the chain:

    ... x -> NAME_lora_a -> NAME_lora_b (· alpha / r) -> NAME (+) -> the rest of its SFU ...
        |                                                 |
        +-------------------------------------------------+

As in PEFT, A begins uniform within 1 / √fan-in, B at 0, and all other layers rest, so that the
first mini-batch is computed as without them; afterwards W + alpha / r · B A is one layer's again.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...kernels import spelled
from ..common import InputError, did_you_mean
from .frozen import with_frozen
from .layer import FirstWeights, Layer, Network
from .operation import LayerOperation
from .operations.conv import Conv, Fc
from .operations.joins import Add
from .operations.scale import Affine

if TYPE_CHECKING:
    from .description import Description, Node

Arrays = Mapping[str, Mapping[str, NDArray[np.float32]]]
"""Arrays by layer and name."""

_KIND, _A, _B, _SCALED, _SUM = "lora", "_lora_a", "_lora_b", "_lora", "_sum"


@dataclasses.dataclass(frozen=True)
class Lora:
    """Adapters of rank `r` on the layers whose names fit `on`, times `alpha` / `r`; layers whose
    names fit `train` are trained themselves.

    Names are patterns such as `qkv*`, parted by commas. Without `alpha` the factor is 1.
    """

    r: int
    on: str
    alpha: float | None = None
    train: str = ""

    def __post_init__(self) -> None:
        if self.r < 1:
            raise ValueError(f"`r` = {self.r}: should be at least 1")
        if self.alpha is not None and not 1e-30 <= self.alpha <= 1e30:
            raise ValueError(f"`alpha` = {self.alpha:g}: should be above 0, such as {2 * self.r}")

    @property
    def factor(self) -> float:
        """The factor of what adapters add."""
        return 1.0 if self.alpha is None else self.alpha / self.r

    def __str__(self) -> str:
        alpha = "" if self.alpha is None else f",alpha={self.alpha:g}"
        train = f",train={self.train}" if self.train else ""
        return f"r={self.r}{alpha},on={self.on}{train}"


def parse_lora(text: str) -> Lora:
    """Return the adapters that a text describes: `r=8,alpha=16,on=qkv*`.

    Raises:
        ValueError: a key is missing or unknown, or its value is none.
    """
    try:
        _, keys = spelled(f"{_KIND}:{text}", {_KIND: Lora})
    except ValueError as error:
        raise ValueError(str(error).replace(f"`{_KIND}:", "`")) from None
    return Lora(**keys)


def lora_of(settings: Mapping[str, Any]) -> Lora | None:
    """Return the adapters of a run, from its keys as files have them.

    Raises:
        ValueError: they are damaged.
    """
    return parse_lora(str(settings["lora"])) if settings.get("lora") else None


def with_lora(network: Network, lora: Lora) -> Network:
    """Return a network with adapters, in which all other layers rest, but those that `train` names.

    Its text stays that of the network without them.

    Raises:
        InputError: no layer has such a name, or none that has it can be adapted.
    """
    from ..common import read_description
    from .description import Description
    from .graph import resolve

    adapted = {layer.name for layer in _adaptable(network, lora.on)}
    trained = {layer.name for layer in _named(network, lora.train, "train")} - adapted
    for head in network.heads:
        assert head.tied is not None
        if (head.name in trained) != (head.tied.name in trained):
            raise InputError(
                f"`lora`: `train` = {lora.train!r}: {head.name} has the weights of"
                f" {head.tied.name}, so they train or rest together; name both or none"
            )
    source = f"network {network.name} under `lora`"
    said = Description.model_validate(read_description(network.text))
    nodes = tuple(_with_adapters(said, network, adapted, lora))
    resolved = resolve(said.model_copy(update={"layers": nodes}), source)
    streams = {layer.name: layer.index for layer in network.layers}
    layers = tuple(_marked(layer, streams) for layer in resolved.layers)
    resting = [layer.name for layer in layers if layer.adapts is None and layer.name not in trained]
    return with_frozen(dataclasses.replace(network, layers=layers), resting)


def adapters(network: Network) -> frozenset[str]:
    """Return the names of a network's adapters."""
    return frozenset(layer.name for layer in network.layers if layer.adapts is not None)


def without_lora(network: Network) -> Network:
    """Return the network that adapters were added to; its layers rest as they did beside them."""
    from ..common import read_description
    from .load import load_network

    if not adapters(network):
        return network
    resting = {layer.name: layer.frozen for layer in network.layers}
    layers = [
        dataclasses.replace(layer, frozen=resting[layer.name])
        for layer in load_network(read_description(network.text)).layers
    ]
    return dataclasses.replace(network, layers=tuple(layers))


def merged(weights: Arrays, network: Network, lora: Lora) -> dict[str, dict[str, Any]]:
    """Return the weights of the network without adapters that computes what a network with them
    does: W + alpha / r · B A, in double precision, rounded once.
    """
    made: dict[str, dict[str, Any]] = {}
    for layer in network.layers:
        if layer.adapts is not None:
            continue
        own = made[layer.name] = dict(weights.get(layer.name, {}))
        if layer.name + _A in weights:
            a, b = (weights[layer.name + end]["weight"].astype(np.float64) for end in (_A, _B))
            added = lora.factor * (b.reshape(len(b), -1) @ a.reshape(len(a), -1))
            own["weight"] = (own["weight"] + added.reshape(own["weight"].shape)).astype(np.float32)
    return made


def adapter_tensors(weights: Arrays, network: Network) -> dict[str, NDArray[np.float32]]:
    """Return adapters as PEFT's tensors, of the network that they were added to: A and B of a
    module, whose path is that in the model of PyTorch that it was, or the layer's name.
    """
    made: dict[str, NDArray[np.float32]] = {}
    modules = _modules(network)
    for layer in network.layers:
        path, is_flat = modules.get(layer.name, (layer.name, isinstance(layer.operation, Fc)))
        for end, key in ((_A, "lora_A"), (_B, "lora_B")):
            if layer.name + end in weights:
                array = weights[layer.name + end]["weight"]
                flat = array.reshape(len(array), -1) if is_flat else array
                made[f"base_model.model.{path}.{key}.weight"] = np.ascontiguousarray(flat)
    return made


def _modules(network: Network) -> dict[str, tuple[str, bool]]:
    """Return the modules of PyTorch whose weights layers have, in the order of these, and whether
    they are matrices.
    """
    from .pytorch.names import torch_names

    names, made = torch_names(network), dict[str, tuple[str, bool]]()
    if names is None:
        return made
    tensors = {own.begin: (key, own.shape) for key, own in names.tensors.items()}
    for layer in network.layers:
        terms = names.arrays.get(layer.name, {}).get("weight", ())
        if any(
            len(runs) > 1 for runs in terms
        ):  # a part of a tensor, or several, or in other order
            continue
        key, shape = tensors.get(sum(first for ((first, _, _),) in terms), ("", ()))
        if key.endswith(".weight") and math.prod(shape) == layer.weights:
            made[layer.name] = key.removesuffix(".weight"), len(shape) == 2
    return made


def _named(network: Network, patterns: str, key: str) -> list[Layer]:
    """Return the layers whose names fit one of some patterns.

    Raises:
        InputError: one fits none.
    """
    layers: dict[str, Layer] = {}
    for pattern in filter(None, patterns.split(",")):
        fit = _fitting(network, pattern)
        if not fit:
            names = [layer.name for layer in network.layers]
            stems = [f"{name.rstrip('0123456789')}*" for name in names]
            hint = did_you_mean(pattern, [*names, *stems])
            known = ", ".join(names)
            raise InputError(
                f"`lora`: `{key}` = {pattern!r}: {network.name} has no layer of such a name;"
                f" {hint}its layers are {known if len(known) < 200 else known[:200] + '…'}"
            )
        layers.update((layer.name, layer) for layer in fit)
    return [*layers.values()]


def _fitting(network: Network, pattern: str) -> list[Layer]:
    return [layer for layer in network.layers if fnmatch.fnmatchcase(layer.name, pattern)]


def _adaptable(network: Network, patterns: str) -> list[Layer]:
    """Return the layers that fit some patterns and can be adapted.

    Raises:
        InputError: a pattern fits no layer, or none that can be.
    """
    layers = _named(network, patterns, "on")
    for pattern in filter(None, patterns.split(",")):
        why = {layer.name: _why_not(layer) for layer in _fitting(network, pattern)}
        if all(why.values()):
            name = next(iter(why))
            raise InputError(
                f"`lora`: `on` = {pattern!r}: {name} {why[name]}; only fc and conv without"
                " `groups`, of weights of their own, have adapters"
            )
    return [layer for layer in layers if not _why_not(layer)]


def _why_not(layer: Layer) -> str:
    """Return why a layer cannot be adapted, or nothing."""
    if not isinstance(layer.operation, Conv | Fc):
        return f"is of type {layer.operation.type}"
    if layer.operation.groups > 1:
        return "is a convolution in groups"
    if layer.tied is not None:
        return f"has the weights of {layer.tied.name}"
    return "computes its part of the loss (`vocabulary_parallel`)" * layer.vocabulary_parallel


def _with_adapters(
    description: Description, network: Network, adapted: set[str], lora: Lora
) -> list[Node]:
    """Return the operations of a description with adapters, under names that are the network's.

    What took the result of a layer that has them takes the sum.
    """
    from .description import Node
    from .graph import IMAGES

    layers, sums, nodes = iter(network.layers), dict[str, str](), list[Node]()
    for node in description.layers:
        operation = node.operation
        source = None if node.source is None else tuple(sums.get(own, own) for own in node.source)
        name = next(layers).name if isinstance(operation, LayerOperation) else node.name
        if name is None or name not in adapted:
            nodes.append(Node(operation, name, source))
            continue
        if source is None and nodes and nodes[-1].name is None:
            nodes[-1] = dataclasses.replace(nodes[-1], name=f"{name}_x")
        latest = nodes[-1].name if nodes else IMAGES
        taken = source or (latest or IMAGES,)
        assert isinstance(operation, Conv | Fc)
        first, second = _pair(operation, lora.r)
        nodes += [Node(first, name + _A, taken), Node(second, name + _B)]
        if lora.factor != 1:
            nodes.append(Node(Affine(factor=lora.factor), name + _SCALED))
        added = nodes[-1].name or ""
        nodes += [Node(operation, name, taken), Node(Add(), name + _SUM, (name, added))]
        sums[name] = name + _SUM
    return nodes


def _pair(operation: Conv | Fc, r: int) -> tuple[LayerOperation, LayerOperation]:
    """Return the operations of an adapter: with the layer's window, and of one place."""
    if isinstance(operation, Fc):
        return Fc(features=r, bias=False), Fc(features=operation.features, bias=False)
    first = dataclasses.replace(operation, channels=r, bias=False, cut=None)
    return first, Conv(channels=operation.channels, kernel=(1, 1), bias=False)


def _marked(layer: Layer, streams: Mapping[str, int]) -> Layer:
    """Return a layer with the random stream that it has in the network without adapters, or as one
    of these.
    """
    if layer.name in streams:
        return dataclasses.replace(layer, own_stream=streams[layer.name])
    start: FirstWeights = "uniform" if layer.name.endswith(_A) else "zero"
    name = layer.name.removesuffix(_A).removesuffix(_B)
    stream = len(streams) + layer.index
    return dataclasses.replace(layer, adapts=name, start=start, own_stream=stream)
