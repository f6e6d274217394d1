"""Networks: layers and tensors, their description as TOML, ONNX or a model of PyTorch, and the
zoo.
"""

from .formats import engine_classes, with_formats
from .from_torch import from_torch
from .frozen import layers_between, named_layers, with_frozen
from .layer import Layer, Network, Start
from .load import code_of, load_network, network_files, onnx_image, onnx_weights, weights_files, zoo
from .lora import (
    Lora,
    adapter_tensors,
    adapters,
    lora_of,
    merged,
    parse_lora,
    with_lora,
    without_lora,
)
from .operation import (
    Arithmetic,
    EngineView,
    LayerOperation,
    Operation,
    RowMap,
    SfuOperation,
    SfuStep,
    Window,
    operation_types,
)
from .operations.recurrent import BIASES, Recurrent
from .operator_graph import (
    OPERATIONS_PER_MAC,
    TRAINING_OPERATIONS_PER_MAC,
    OperatorGraph,
    Phase,
    operator_graph,
)
from .pytorch.code import network_of_code
from .pytorch.states import network_module, rested_layers, trained_state, weights_by_names
from .shape import Shape, Tensor
from .torch_network import TorchNetwork, frozen_names
from .unit import NORMAL_DEVIATION, ActivationUnit, Site, Training, Unit

__all__ = [
    "BIASES",
    "NORMAL_DEVIATION",
    "OPERATIONS_PER_MAC",
    "TRAINING_OPERATIONS_PER_MAC",
    "ActivationUnit",
    "Arithmetic",
    "EngineView",
    "Layer",
    "LayerOperation",
    "Lora",
    "Network",
    "Operation",
    "OperatorGraph",
    "Phase",
    "Recurrent",
    "RowMap",
    "SfuOperation",
    "SfuStep",
    "Shape",
    "Site",
    "Start",
    "Tensor",
    "TorchNetwork",
    "Training",
    "Unit",
    "Window",
    "adapter_tensors",
    "adapters",
    "code_of",
    "engine_classes",
    "from_torch",
    "frozen_names",
    "layers_between",
    "load_network",
    "lora_of",
    "merged",
    "named_layers",
    "network_files",
    "network_module",
    "network_of_code",
    "onnx_image",
    "onnx_weights",
    "operation_types",
    "operator_graph",
    "parse_lora",
    "rested_layers",
    "trained_state",
    "weights_by_names",
    "weights_files",
    "with_formats",
    "with_frozen",
    "with_lora",
    "without_lora",
    "zoo",
]
