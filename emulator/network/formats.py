"""Formats by layer: which of a run's formats each layer and each tensor has.

A map is in the format of the layer that makes it, images in that of the first layer; all that reads
it takes it as it is. So engines multiply numbers of two formats where these meet.
"""

from __future__ import annotations

import dataclasses

from ..number import Classes, Precision, joint_class, joint_classes
from .frozen import named_layers
from .layer import Layer, Network
from .shape import Tensor


def with_formats(network: Network, precision: Precision, phase: int = 0) -> Network:
    """Return the network with the formats of a run marked that its layers and tensors have in one
    of its phases (`Precision.phases`), and with the engines that these have in all.

    Raises:
        InputError: there is no such layer, or a range is empty.
    """
    phases = [own for _, own in precision.phases]
    if not any(own.layers for own in phases):
        return network
    marked = _marked(network, phases[phase])
    threes = _layer_classes(network, precision)
    classes = list(dict.fromkeys(threes))
    numbered = (
        dataclasses.replace(layer, classes=classes.index(three))
        for layer, three in zip(marked.layers, threes, strict=True)
    )
    return dataclasses.replace(network, layers=tuple(numbered))


def _marked(network: Network, precision: Precision) -> Network:
    """Return the network with the formats of a phase marked."""
    formats = dict.fromkeys((layer.name for layer in network.layers), 0)
    for number, (name, _) in enumerate(precision.layers, 1):
        formats.update(dict.fromkeys(named_layers(network, [name], "precision.layer"), number))
    of_tensors = {0: formats[network.layers[0].name]}
    for layer in network.layers:
        made = layer.makes, *(step.makes for step in layer.sfu)
        of_tensors.update((tensor.number, formats[layer.name]) for tensor in made)
    of_errors = {layer.reads.number: formats[layer.name] for layer in network.layers}

    def marked(tensor: Tensor) -> Tensor:
        number = tensor.number
        return dataclasses.replace(
            tensor, formats=of_tensors[number], error_formats=of_errors.get(number, 0)
        )

    layers = [
        dataclasses.replace(layer.with_tensors(marked), formats=formats[layer.name])
        for layer in network.layers
    ]
    return dataclasses.replace(network, layers=tuple(layers))


def _layer_classes(network: Network, precision: Precision) -> list[Classes]:
    """Return the classes of each layer's engines, which are built once, for all phases of a run."""
    made: list[Classes] = []
    for _, own in precision.phases:
        threes = [_classes_of(layer, own) for layer in _marked(network, own).layers]
        made = [*map(joint_classes, made, threes)] if made else threes
    return made


def engine_classes(network: Network, precision: Precision) -> tuple[str, ...]:
    """Return the classes of multipliers of FP, EB and PG that the layers of a network need, as
    `with_formats` numbers them; in threes, each of them once.
    """
    if not any(own.layers for _, own in precision.phases):
        return precision.multipliers_of(attends=network.attends)
    threes = dict.fromkeys(_layer_classes(network, precision))
    return tuple(kind for three in threes for kind in three)


def _classes_of(layer: Layer, precision: Precision) -> Classes:
    own, attends = precision.of(layer.formats), not layer.has_weights
    forward, back, gradient = own.reading(precision.of(layer.reads.formats)).multipliers_of(
        attends=attends
    )
    if not attends and not layer.operation.recurs:
        return forward, back, gradient
    # Probabilities and states are activations of its own.
    made = own.multipliers_of(attends=attends)
    return joint_class(forward, made[0]), joint_class(back, made[1]), joint_class(gradient, made[2])
