"""Frozen layers: those that a run leaves as they are, and the tensors whose errors nothing then
needs.

Nothing that is learnt lies before a *fixed* tensor: it comes from the images, or from other fixed
tensors, by what is frozen or has no parameters. So no errors go back to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..common import InputError, did_you_mean
from .layer import Layer, Network
from .shape import Tensor


def with_frozen(network: Network, names: Sequence[str]) -> Network:
    """Return the network with layers frozen: each name is that of a layer, or of a range of them,
    FIRST:LAST.

    Raises:
        InputError: there is no such layer, a range is empty, nothing is left to train, or tied
            weights are half frozen.
    """
    if not names:
        return network
    frozen = named_layers(network, names, "freeze")
    for head in network.heads:
        assert head.tied is not None
        if (head.name in frozen) != (head.tied.name in frozen):
            raise InputError(
                f"`freeze`: {head.name} has the weights of {head.tied.name}, so they train or rest"
                " together; freeze both or none"
            )
    # Tensor 0 holds the images, to which no errors go back.
    fixed = {0}
    layers = [_marked(layer, frozen, fixed) for layer in network.layers]
    if not any(layer.learns for layer in layers):
        raise InputError(
            f"`freeze`: no parameters of {network.name} are left to train; leave one of its"
            " layers out"
        )
    return dataclasses.replace(network, layers=tuple(layers))


def named_layers(network: Network, names: Sequence[str], key: str) -> set[str]:
    """Return the names of the layers that a key lists, by name or in ranges FIRST:LAST.

    Raises:
        InputError: there is no such layer, or a range is empty.
    """
    listed = set[str]()
    for name in names:
        ends = [name] if name in {layer.name for layer in network.layers} else name.split(":")
        blame = f"`{key}` = {name!r}"
        if len(ends) > 2:
            raise InputError(
                f"{blame}: should be a layer, or FIRST:LAST in the order of the network"
            )
        listed.update(layer.name for layer in layers_between(network, ends[0], ends[-1], blame))
    return listed


def layers_between(network: Network, first: str, last: str, blame: str) -> tuple[Layer, ...]:
    """Return the layers from one of a name to another.

    Raises:
        InputError: there is no such layer, or the last comes before the first.
    """
    places = {layer.name: layer.index for layer in network.layers}
    for end in (first, last):
        if end not in places:
            known = ", ".join(places)
            raise InputError(
                f"{blame}: {network.name} has no layer {end!r}; {did_you_mean(end, places)}its"
                f" layers are {known if len(known) < 200 else known[:200] + '…'}"
            )
    if places[last] < places[first]:
        raise InputError(
            f"{blame}: {last} comes before {first}; should be FIRST:LAST in the order of the"
            " network"
        )
    return network.layers[places[first] : places[last] + 1]


def _marked(layer: Layer, frozen: set[str], fixed: set[int]) -> Layer:
    """Return a layer that is frozen if its name is, with its fixed tensors marked; add those that
    it makes to these.
    """
    rests = layer.name in frozen
    if layer.reads.number in fixed and (rests or not (layer.has_weights or layer.bias)):
        fixed.add(layer.makes.number)
    for step in layer.sfu:
        learns = not rests and step.operation.parameters(step.output) > 0
        if not learns and all(tensor.number in fixed for tensor in step.reads):
            fixed.add(step.makes.number)

    def tensor(given: Tensor) -> Tensor:
        return (
            dataclasses.replace(given, fixed=True)
            if given.number in fixed and not given.is_images
            else given
        )

    return dataclasses.replace(layer.with_tensors(tensor), frozen=rests)
