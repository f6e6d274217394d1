"""A part of a network as a network of its own."""

from __future__ import annotations

import dataclasses

from ..errors import InputError
from ..layers import Network


def section(network: Network, first: str, last: str) -> Network:
    """The layers from `first` to `last`; nobody needs the errors of what enters it.

    Raises:
        InputError: the network has no such layers in this order.
    """
    names = [layer.name for layer in network.layers]
    for name in (first, last):
        if name not in names:
            raise InputError(f"`layers` = '{first}:{last}': {network.name} has no {name}; it has {', '.join(names)}")
    begin, end = names.index(first), names.index(last)
    if begin > end:
        raise InputError(f"`layers` = '{first}:{last}': {first} comes after {last} in {network.name}")
    layers = tuple(
        dataclasses.replace(layer, index=index) for index, layer in enumerate(network.layers[begin : end + 1])
    )
    return dataclasses.replace(network, name=f"{network.name} {first}:{last}", input=layers[0].input, layers=layers)
