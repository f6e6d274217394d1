"""The work of a mini-batch of a network: its recurrent layers, and between them what the GPU does."""

from __future__ import annotations

from ..common import InputError
from ..network import Layer, Network, Recurrent
from .messages import PairKey, PairStream, streams_of
from .work import Cell, OtherWork, RecurrentWork, Workload


def workload_of(network: Network, batch: int) -> Workload:
    """Return the work of a mini-batch of `batch` samples. Layers between two recurrent ones are one part.

    Raises:
        InputError: the network has no recurrent layer.
    """
    parts: list[RecurrentWork | OtherWork] = []
    others: list[Layer] = []
    for layer in network.layers:
        if isinstance(layer.operation, Recurrent):
            parts += _together(others)
            others = []
            parts.append(work_of(layer))
        else:
            others.append(layer)
    if not parts:
        raise InputError(
            f"`network` = {network.name!r}: has no recurrent layer, which a pair of a GPU and an FPGA is for; should"
            " have an lstm or a gru, or `schedule` be one of a chain, such as 'sync'"
        )
    return Workload(network.name, (*parts, *_together(others)), batch)


def pair_streams(network: Network, *, inputs_too: bool) -> dict[PairKey, PairStream]:
    """Return all streams between the devices that train a network; with `inputs_too`, I-MVM is the FPGA's."""
    return {
        PairKey(layer.index, direction, stream.content): stream
        for layer in network.layers
        if layer.operation.recurs
        for direction in range(work_of(layer).directions)
        for stream in streams_of(work_of(layer), direction, inputs_too=inputs_too)
    }


def work_of(layer: Layer) -> RecurrentWork:
    """Return the work of a recurrent layer."""
    operation = layer.operation
    assert isinstance(operation, Recurrent)
    inputs, steps, _ = layer.input
    return RecurrentWork(
        layer.name,
        Cell(operation.type),
        inputs,
        operation.units,
        steps,
        operation.projection,
        operation.directions,
        layer.reads_again and layer.needs_errors,
    )


def _together(layers: list[Layer]) -> list[OtherWork]:
    """Return layers without a state as one part, if there are any."""
    if not layers:
        return []
    name = layers[0].name + (f" to {layers[-1].name}" if len(layers) > 1 else "")
    return [OtherWork(name, sum(layer.macs for layer in layers), sum(layer.parameters for layer in layers))]
