"""What has RTL: kinds of layers, and settings of a plan."""

from __future__ import annotations

from ..common import InputError
from ..mapping import steps_before_sending
from ..network import Layer
from ..network.operations.conv import Conv
from ..network.operations.fc import Fc
from ..network.operations.pool import MaxPool
from ..network.operations.relu import Relu
from ..plan import ChainPlan

KINDS = "conv (without groups), fc, relu, max-pool (windows that do not overlap), softmax"
"""What has RTL; the loss, softmax with cross-entropy, is computed on the host."""


def check(plan: ChainPlan) -> None:
    """Check that all of a plan has RTL.

    Raises:
        InputError: it has not; the message says what has.
    """
    config, timing = plan.config, plan.timing
    plan.needs_rows("RTL")
    for layer in plan.network.layers:
        _check_layer(layer)
    if any(steps_before_sending(layer, plan.cluster.link.share) for layer in plan.network.layers):
        raise InputError('`share` = "paths" in `[links]`: RTL pools after a layer\'s last slice; leave `share` out')
    if config.schedule.name != "sync":
        raise InputError(f"`schedule` = {config.schedule.name!r}: RTL supports one schedule, 'sync'")
    if config.optimizer != "sgd":
        raise InputError(f"`optimizer` = {config.optimizer!r}: RTL supports one optimiser, 'sgd'")
    if plan.missing_bytes or timing.blocks or any(plan.off_chip_bytes):
        beyond = sum(plan.off_chip_bytes) + plan.missing_bytes
        what = f"{beyond:,} bytes do not fit on chip" if beyond else "parameters do not fit on the boards that use them"
        raise InputError(
            f"{plan.network.name} on {plan.devices} x {plan.cluster.boards[0].name}: {what}, but RTL keeps all of a"
            " device's data there; use more devices, larger boards, or a smaller network"
        )


def _check_layer(layer: Layer) -> None:
    operations = [layer.operation, *(step.operation for step in layer.sfu)]
    for operation in operations:
        if not _has_rtl(operation):
            raise InputError(f"{layer.name}: {_said(operation)} has no RTL; these have: {KINDS}")
    names = [layer.makes.number, *(step.makes.number for step in layer.sfu)]
    reads = [step.reads[0].number for step in layer.sfu]
    if layer.bypass or layer.reads_again or reads != names[:-1] or [t.number for t in layer.hands_on] != names[-1:]:
        raise InputError(f"{layer.name}: maps that bypass a layer have no RTL; layers in one row have, of {KINDS}")


def _has_rtl(operation: object) -> bool:
    if isinstance(operation, Conv):
        return operation.groups == 1
    if isinstance(operation, MaxPool):
        return all(step >= kernel for step, kernel in zip(operation.step, operation.kernel, strict=True))
    return isinstance(operation, (Fc, Relu))


def _said(operation: object) -> str:
    kind = str(getattr(operation, "type", operation))
    if isinstance(operation, Conv):
        return f"{kind} in {operation.groups} groups"
    return f"{kind} with windows that overlap" if isinstance(operation, MaxPool) else kind
