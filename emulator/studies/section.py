"""A section of a network as a separate network."""

from __future__ import annotations

import dataclasses

from ..common import InputError
from ..network import Layer, Network, Tensor


def section(network: Network, first: str, last: str) -> Network:
    """Return the layers from `first` to `last` as a network; the map that enters them replaces the images.

    Raises:
        InputError: the network has no such layers in this order, or a shortcut or branch crosses an end.
    """
    where = f"`layers` = '{first}:{last}'"
    names = [layer.name for layer in network.layers]
    for name in (first, last):
        if name not in names:
            raise InputError(f"{where}: {network.name} has no {name}; it has {', '.join(names)}")
    begin, end = names.index(first), names.index(last)
    if begin > end:
        raise InputError(f"{where}: {first} comes after {last} in {network.name}")
    inside = network.layers[begin : end + 1]
    for name, crossing in ((first, inside[0].takes), (last, inside[-1].hands_on)):
        if len(crossing) > 1:
            raise InputError(f"{where}: more than one map passes at {name}; begin and end where no branch is open")
    entry = inside[0].reads
    layers = tuple(_moved(layer, index, entry) for index, layer in enumerate(inside))
    return dataclasses.replace(network, name=f"{network.name} {first}:{last}", input=entry.shape, layers=layers)


def _moved(layer: Layer, index: int, entry: Tensor) -> Layer:
    """Return the layer at `index` of the section, whose entry becomes tensor 0."""

    def renamed(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(Tensor(0, tensor.shape) if tensor == entry else tensor for tensor in tensors)

    return dataclasses.replace(
        layer,
        index=index,
        reads=renamed((layer.reads,))[0],
        bypass=renamed(layer.bypass),
        hands_on=renamed(layer.hands_on),
        sfu=tuple(dataclasses.replace(step, reads=renamed(step.reads)) for step in layer.sfu),
    )
