"""Data parallelism: every device trains the whole network on its part of the mini-batch (FPDeep, sections 1, 3.3).

"Each FPGA executes all layers of the CNN … in sequential order, a layer at a time": FP of all its samples layer by
layer, then EB and PG backwards, each with all multipliers of the board. Switching engines between layers costs nothing,
nor do loads and stores off chip; both favour this method ("the FPGA needs to be reconfigured repeatedly").

"Each FPGA must keep its own copy of the DNN model's parameters. Also, all temporal activations must be maintained in
local memory": those of all its samples, since a layer ends before the next begins.

"It only synchronizes the model's parameters after all workers finished their jobs", in a "centralized burst": device 0
takes the gradients of all others through its link, and then sends the parameters to each.
"""

from __future__ import annotations

from ...mapping import Slice, cut_channels, engines_in_turn
from .outcome import Outcome
from .workload import Workload


def data_parallel(workload: Workload, devices: int) -> Outcome:
    """Return the outcome of an iteration: batch / devices samples on each device, one more on the first ones.

    Raises:
        InputError: a board has too few multipliers.
    """
    layers, cluster = workload.network.layers, workload.cluster
    samples = [workload.batch // devices + (device < workload.batch % devices) for device in range(devices)]
    parameters = workload.parameter_bytes
    compute_ps = 0
    for board in {cluster.board(device) for device in range(devices)}:
        engines = [engines_in_turn(Slice(layer, 0, cut_channels(layer)), board) for layer in layers]
        most = max(count for device, count in enumerate(samples) if cluster.board(device) == board)
        compute_ps = max(compute_ps, most * sum(held.sample_ps_in_turn for held in engines))
    others = devices - 1
    synchronise_ps = 2 * workload.transfer_ps(others * parameters) if others else 0
    iteration_ps = compute_ps + synchronise_ps
    return Outcome(
        devices,
        iteration_ps,
        workload.utilisation(devices, iteration_ps),
        tuple(2 * parameters + count * workload.activation_bytes for count in samples),
        2 * others * parameters,
    )
