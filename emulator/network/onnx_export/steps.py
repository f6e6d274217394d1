"""Nodes of the operations of special function units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..layer import SfuStep
from ..operation import SfuOperation
from ..operations.batch_norm import BatchNorm
from ..operations.dropout import Dropout
from ..operations.joins import Add, Concat
from ..operations.leaky_relu import LeakyRelu
from ..operations.lrn import Lrn
from ..operations.pool import AveragePool, MaxPool
from ..operations.relu import Relu
from ..operations.relu6 import LIMIT, Relu6
from ..operations.sequence import LastStep, Sequence
from ..operations.sigmoid import HardSigmoid, Sigmoid
from ..operations.silu import HardSwish, Silu
from .nodes import Arrays, Form, Nodes

_NORMAL = ("scale", "shift", "mean", "variance")
_MAPS_ALONE = (AveragePool, Lrn, MaxPool)
_OPERATORS: Mapping[type[SfuOperation], str] = {
    Add: "Add",
    AveragePool: "AveragePool",
    BatchNorm: "BatchNormalization",
    Concat: "Concat",
    Dropout: "Dropout",
    HardSigmoid: "HardSigmoid",
    HardSwish: "HardSwish",
    LeakyRelu: "LeakyRelu",
    Lrn: "LRN",
    MaxPool: "MaxPool",
    Relu: "Relu",
    Relu6: "Clip",
    Sigmoid: "Sigmoid",
}


def add_step(nodes: Nodes, step: SfuStep, name: str, layer: str, weights: Arrays, end: str) -> None:
    """Add the nodes of an operation; `end` is that of the names of a batch normalisation's `weights` of a layer.

    Raises:
        InputError: ONNX has no words for it.
    """
    of, taken = step.operation, [nodes.of(tensor.number) for tensor in step.reads]
    forms = {nodes.form(each) for each in taken}
    if isinstance(of, Sequence):
        nodes.name(step.makes, nodes.steps(taken[0], name), Form.STEPS)
        return
    if isinstance(of, LastStep):
        sequence = nodes.steps(taken[0], f"{name}/steps")
        nodes.add("Gather", [sequence, nodes.array(f"{name}.place", np.array(-1))], name, axis=1)
        nodes.name(step.makes, name, Form.ROW)
        return
    if len(forms) > 1:
        raise nodes.refusal(f"{of.type} of values with other axes ({layer})")
    [form] = forms
    of_steps = isinstance(of, BatchNorm) and form is Form.STEPS
    if of_steps or (isinstance(of, _MAPS_ALONE) and form is not Form.MAPS):
        raise nodes.refusal(f"{of.type} on {form.value} ({layer})")
    if isinstance(of, Lrn) and of.size % 2 == 0:
        raise nodes.refusal(f"lrn with an even size ({layer})")
    if isinstance(of, Silu):
        share = nodes.add("Sigmoid", taken, f"{name}/share")
        nodes.add("Mul", [*taken, share], name)
    elif type(of) in _OPERATORS:
        if isinstance(of, BatchNorm):
            taken += [nodes.array(f"{name}.{key}", weights[f"{key}{end}"]) for key in _NORMAL]
        elif isinstance(of, Relu6):
            taken += [nodes.array(f"{name}.{at:g}", np.array(at, np.float32)) for at in (0.0, LIMIT)]
        elif isinstance(of, Dropout):
            taken.append(nodes.array(f"{name}.rate", np.array(of.rate, np.float32)))
        nodes.add(_OPERATORS[type(of)], taken, name, **_keys(of, form))
    else:
        raise nodes.refusal(f"{of.type} ({layer})")
    nodes.name(step.makes, name, form)


def _keys(of: SfuOperation, form: Form) -> dict[str, Any]:
    """Return the attributes of an operation's node."""
    found: Mapping[type[SfuOperation], Callable[[Any], dict[str, Any]]] = {
        AveragePool: lambda of: {**_window(of), "count_include_pad": int(of.count_include_pad)},
        BatchNorm: lambda of: {"epsilon": of.epsilon, "momentum": 1 - of.momentum},
        Concat: lambda of: {"axis": 2 if form is Form.STEPS else 1},
        HardSigmoid: lambda of: {"alpha": 1 / 6, "beta": 0.5},
        LeakyRelu: lambda of: {"alpha": of.slope},
        Lrn: lambda of: {"size": of.size, "alpha": of.alpha, "beta": of.beta, "bias": of.k},
        MaxPool: _window,
    }
    return found[type(of)](of) if type(of) in found else {}


def _window(of: Any) -> dict[str, Any]:
    return {"kernel_shape": of.kernel, "strides": of.step, "pads": of.pad * 2}
