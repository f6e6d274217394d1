"""Model parallelism: every device computes some output channels of every layer (FPDeep, sections 2.2, 3.3).

The mini-batch goes through a layer at a time. Then its outputs are gathered by all devices, which need them as inputs
of the next layer; backwards, each device has from its output channels a part of the sum of every input error, and "all
intermediate results from all devices must be added up and then broadcast to every device". "It needs an additional
layer for synchronization among different channels": a device waits for it.

Devices stand in a chain. Gathering a map takes it once over every link, and the ends wait for all but their own
channels. To add a map up and broadcast it takes it twice: sums run to one end and results back, at the same time.

"For DP and MP, each FPGA must keep its own copy of the DNN model's parameters", and MP needs "to both synchronize
parameters globally and synchronize activations among channels": gradients and updates are shared out by channels, and
the new parameters are gathered. (Section 2.2 says of the same method that weights are distributed; then parameters
would be stored once, and not be gathered.) "All temporal activations" are those of the whole mini-batch.
"""

from __future__ import annotations

import dataclasses

from ...mapping.engines import engines_in_turn
from ...mapping.slices import Slice, cut_channels
from ...network.layers import Layer
from .outcome import Outcome
from .workload import Workload, input_bytes, output_bytes, parameter_bytes


def model_parallel(workload: Workload, devices: int) -> Outcome:
    """An iteration in which each device has channels / devices of each layer, the first ones one more.

    Raises:
        InputError: a board has too few multipliers.
    """
    layers, batch, others = workload.network.layers, workload.batch, devices - 1
    iteration_ps = footprint = 0
    for layer in layers:
        shares = [_share(layer, devices, device) for device in range(devices)]
        iteration_ps += batch * max(_sample_ps(workload, device, share) for device, share in enumerate(shares))
        if others:
            gathered = batch * output_bytes(layer) + parameter_bytes(layer)
            lacked = _part(gathered, layer.channels - shares[-1].channels, layer)
            summed = batch * input_bytes(layer) if layer.needs_errors else 0
            iteration_ps += workload.transfer_ps(lacked, 2 * others)  # outputs, and later parameters
            iteration_ps += workload.transfer_ps(summed, 2 * others) if summed else 0
            footprint += others * (gathered + 2 * summed)
    own = [
        sum(_part(parameter_bytes(layer), _share(layer, devices, device).channels, layer) for layer in layers)
        for device in range(devices)
    ]
    return Outcome(
        devices,
        iteration_ps,
        workload.utilisation(devices, iteration_ps),
        tuple(workload.parameter_bytes + gradients + batch * workload.activation_bytes for gradients in own),
        footprint,
    )


def _share(layer: Layer, devices: int, device: int) -> Layer:
    """A device's part of a layer: a layer with fewer output channels."""
    channels = layer.channels // devices + (device < layer.channels % devices)
    makes = dataclasses.replace(layer.makes, shape=(channels, *layer.output[1:]))
    return dataclasses.replace(layer, channels=channels, makes=makes)


def _part(count: int, channels: int, layer: Layer) -> int:
    """What so many of a layer's output channels have of `count` bytes."""
    return -(-count * channels // layer.channels)


def _sample_ps(workload: Workload, device: int, share: Layer) -> int:
    """FP, EB and PG of one sample, one after another."""
    board = workload.cluster.board(device)
    whole = Slice(share, 0, cut_channels(share))
    return engines_in_turn(whole, board).sample_cycles_in_turn * board.period_ps
