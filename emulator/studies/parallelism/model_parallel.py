"""Model parallelism: every device computes some output channels of every layer (FPDeep, sections 2.2, 3.3).

The mini-batch goes through a layer at a time. All devices then gather its outputs, which they need as inputs of the
next layer; backwards, each device has partial sums of every input error from its output channels, and "all intermediate
results from all devices must be added up and then broadcast to every device". "It needs an additional layer for
synchronization among different channels": devices wait for it.

Devices form a chain. Gathering sends a map once over every link, and the ends wait for all channels but their own.
Summing and broadcasting sends a map twice: sums run to one end and results back, at the same time.

"For DP and MP, each FPGA must keep its own copy of the DNN model's parameters", and MP needs "to both synchronize
parameters globally and synchronize activations among channels": gradients and updates are shared out by channels, and
the new parameters are gathered. (By section 2.2, the same method distributes weights; parameters would then be stored
once and not be gathered.) "All temporal activations" are those of the whole mini-batch.
"""

from __future__ import annotations

import dataclasses

from ...mapping import Slice, cut_channels, engines_in_turn
from ...network import Layer
from .outcome import Outcome
from .workload import Workload, input_bytes, output_bytes, parameter_bytes


def model_parallel(workload: Workload, devices: int) -> Outcome:
    """Return the outcome of an iteration: channels / devices of each layer on each device, one more on the first ones.

    Raises:
        InputError: a board has too few multipliers.
    """
    layers, batch, others = workload.network.layers, workload.batch, devices - 1
    iteration_ps = footprint = 0
    for layer in layers:
        shares = [_share(layer, devices, device) for device in range(devices)]
        iteration_ps += batch * max(_sample_ps(workload, device, layer, share) for device, share in enumerate(shares))
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
    """Return a device's part of a layer: a layer with fewer output channels."""
    channels = layer.channels // devices + (device < layer.channels % devices)
    makes = dataclasses.replace(layer.makes, shape=(channels, *layer.output[1:]))
    return dataclasses.replace(layer, operation=layer.operation.with_channels(channels), makes=makes)


def _part(count: int, channels: int, layer: Layer) -> int:
    """Return the share of `count` bytes that belongs to `channels` of a layer's output channels, rounded up."""
    return -(-count * channels // layer.channels)


def _sample_ps(workload: Workload, device: int, layer: Layer, share: Layer) -> int:
    """Return the time of FP, EB and PG of one sample, one after another, in ps; each unit needs all units' states."""
    board = workload.cluster.board(device)
    own = Slice(layer, 0, share.channels) if layer.operation.recurs else Slice(share, 0, cut_channels(share))
    return engines_in_turn(own, board).sample_ps_in_turn
