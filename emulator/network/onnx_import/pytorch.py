"""What a file tells of the PyTorch model that it was exported from: which module a node was, and
what was left out.

The default exporter leaves each node's modules in its metadata, and names the rules by which it
rewrote it. The old one leaves the module's path in the node's name alone: its class follows from
the operators of that module.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Mapping, Sequence

from ...common import plural
from ..onnx_graph import OnnxNode, Walk

_CLASSES, _PATHS, _RULES = "class_hierarchy", "name_scopes", "rule_name"
"""Ends of the keys of metadata."""

_PAIRS = """
    Add=sum BatchNormalization=BatchNorm Celu=CELU Concat=cat CumSum=cumsum DepthToSpace=PixelShuffle
    Div=quotient Einsum=einsum Elu=ELU Equal=comparison Erf=GELU Gather=index Gelu=GELU Gemm=Linear GRU=GRU
    GlobalAveragePool=AdaptiveAvgPool2d GlobalMaxPool=AdaptiveMaxPool2d GridSample=grid_sample
    GroupNormalization=GroupNorm HardSigmoid=Hardsigmoid HardSwish=Hardswish InstanceNormalization=InstanceNorm
    LRN=LocalResponseNorm LSTM=LSTM LayerNormalization=LayerNorm LeakyRelu=LeakyReLU LogSoftmax=LogSoftmax
    Max=maximum Min=minimum Mish=Mish Mul=product PRelu=PReLU Pow=power RMSNormalization=RMSNorm RNN=RNN
    ReduceMax=amax ReduceMean=mean ReduceSum=sum Reshape=reshape Resize=Upsample Selu=SELU Slice=slice
    Softmax=Softmax Softplus=Softplus Softsign=Softsign SpaceToDepth=PixelUnshuffle Sub=difference Tanh=Tanh
    ThresholdedRelu=Threshold TopK=topk Transpose=permute Upsample=Upsample Where=where
    Abs=abs ArgMax=argmax Ceil=ceil Cos=cos Exp=exp Expand=expand Floor=floor Greater=comparison Less=comparison
    GreaterOrEqual=comparison LessOrEqual=comparison Log=log Neg=neg ReduceL1=norm ReduceL2=norm ReduceMin=amin
    ReduceProd=prod Round=round ScatterElements=scatter ScatterND=index Sin=sin Sqrt=sqrt Tile=repeat
    DequantizeLinear=dequantize Dropout=Dropout Flatten=Flatten QuantizeLinear=quantize Relu=ReLU Sigmoid=Sigmoid
    Squeeze=squeeze Unsqueeze=unsqueeze
"""

_NAMES: Mapping[str, str] = {
    "Clip": "Hardtanh or clamp",
    "MatMul": "Linear or matmul",
    "Shrink": "Hardshrink or Softshrink",
    "Split": "chunk or split",
    **dict(pair.split("=", 1) for pair in _PAIRS.split()),
}
"""What an operator is in PyTorch, if its neighbours tell nothing else."""

_OF_WINDOWS = {
    **{"AveragePool": "AvgPool", "Conv": "Conv", "ConvTranspose": "ConvTranspose"},
    **{"LpPool": "LPPool", "MaxPool": "MaxPool"},
}
"""Those of which PyTorch has one for each number of dimensions."""

_PADDING = {"reflect": "ReflectionPad2d", "edge": "ReplicationPad2d", "wrap": "CircularPad2d"}

_TOGETHER: Sequence[tuple[set[str], str]] = (
    ({"Erf"}, "GELU"),
    ({"Softplus", "Tanh"}, "Mish"),
    ({"InstanceNormalization", "Reshape"}, "GroupNorm"),
    ({"AveragePool", "Pow", "Sign"}, "LPPool2d"),
    ({"AveragePool", "Pow"}, "LocalResponseNorm"),
    ({"Pow", "ReduceMean", "Sqrt", "Sub"}, "LayerNorm"),
    ({"BatchNormalization", "ReduceMean"}, "BatchNorm"),
    ({"Greater", "Less", "Sub", "Where"}, "Softshrink"),
    ({"Greater", "Less", "Or", "Where"}, "Hardshrink"),
    ({"Sigmoid", "Split"}, "GLU"),
    ({"Gemm", "MatMul", "Softmax", "Transpose"}, "MultiheadAttention"),
    ({"Resize"}, "Upsample"),
    ({"Log", "Sigmoid"}, "LogSigmoid"),
    ({"Sub", "Tanh"}, "Tanhshrink"),
    ({"Abs", "Add", "Div"}, "Softsign"),
    ({"Mod", "Reshape"}, "Unflatten"),
)
"""What several operators are that stand in one module, or in one function, whose own they are with
Mul.
"""

_NEAR = 48
"""Nodes that stand in no module, but belong together, stand no farther from one another."""


def from_pytorch(
    nodes: Sequence[OnnxNode], metadata: Sequence[Mapping[str, str]]
) -> tuple[OnnxNode, ...]:
    """Return the nodes of a file that PyTorch exported, with what each was there."""
    paths = [_quoted(said.get(_PATHS, "")) for said in metadata]
    modules = [path[-2] if len(path) > 1 else None for path in paths]
    scopes = [
        node.name.rpartition("/")[0] if module is None else module
        for node, module in zip(nodes, modules, strict=True)
    ]
    operators: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for node, scope in zip(nodes, scopes, strict=True):
        operators[scope][node.operator] += 1
    parents = {scope[: end.start()] for scope in operators for end in re.finditer("/", scope)}
    made = []
    for place, (node, scope, said) in enumerate(zip(nodes, scopes, metadata, strict=True)):
        classes, module = _quoted(said.get(_CLASSES, "")), modules[place]
        near = range(max(0, place - _NEAR), min(len(nodes), place + _NEAR)) if scope == "" else ()
        beside = collections.Counter(nodes[other].operator for other in near if scopes[other] == "")
        name = _name(
            node,
            operators[scope] if scope else beside,
            is_module=module is None and scope not in parents,
        )
        if len(classes) > 1:
            name = _of_class(classes, name)
            if module:
                name += f" {module!r}"
        elif path := _path(scope):
            name += (
                f"{' ' if name[:1].isupper() else ' in '}{path!r}" if name else f"module {path!r}"
            )
        rule, names = said.get(_RULES, ""), [one.rpartition(".")[2] for one in classes[:-1]]
        made.append(
            dataclasses.replace(
                node, origin=name, module=module, rule=rule, belongs=unsupported(names)
            )
        )
    return tuple(made)


def unsupported(classes: Sequence[str]) -> str:
    """Return the name of the innermost unsupported construct among these classes, which are given
    from the outermost on; "" if there is none.
    """
    for own in reversed(classes):
        for pattern, words in _UNSUPPORTED.items():
            if re.search(pattern, own):
                return f"{own!r} is {words}"
    return ""


_NOT_ITSELF = r"(?!\w*(Attention|Embedding|Layer|Model|Norm|CausalLM))"
_UNSUPPORTED = {
    rf"(MoE|Moe|Experts|Router){_NOT_ITSELF}": (
        "of a mixture of experts (MoE), where a router chooses the layers that a row takes"
    ),
    rf"(Mamba|SelectiveScan|SSM){_NOT_ITSELF}": (
        "of a state-space model (Mamba), where a row's state is that of the row before, by factors"
        " of the row"
    ),
}
"""What parts of classes' names tell of modules that no network here has."""


def _path(scope: str) -> str:
    """Return the path of a module whose operators the old exporter calls SCOPE/OPERATOR."""
    parts: list[str] = []
    for part in filter(None, scope.split("/")):
        if parts and part.startswith(
            f"{parts[-1]}."
        ):  # the third of a Sequential, such as net/net.2
            parts.pop()
        parts.append(part)
    return ".".join(parts)


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def _of_class(classes: Sequence[str], name: str) -> str:
    """Return the class of the innermost module; with what it does there if it is none of PyTorch's
    own.
    """
    path, _, own = classes[-2].rpartition(".")
    if path.startswith("torch.nn.") and path != "torch.nn.modules.container":
        return repr(own.removeprefix("Parametrized").lstrip("_"))[1:-1]
    function = classes[-1].split(".")[1] if classes[-1].count(".") else classes[-1]
    return repr(f"{name or function} in {own}")[1:-1]


def _name(node: OnnxNode, operators: collections.Counter[str], *, is_module: bool) -> str:
    """Return what a node is in PyTorch, from its operator and those beside it, which may be all
    those of a module.
    """
    for together, name in _TOGETHER:
        if operators.keys() >= together and (is_module or node.operator in (*together, "Mul")):
            return name
    if (
        node.operator in ("Slice", "Concat") and operators["Slice"] == 2 * operators["Concat"] >= 4
    ):  # both ends, joined
        return "Conv2d" if operators["Conv"] else "CircularPad2d"
    if node.operator == "Pad" and operators.keys() & {"Conv", "ConvTranspose"}:
        return "Conv2d"
    if node.operator == "Pad":
        return _PADDING.get(
            str(node.attributes.get("mode", "constant")), "ZeroPad2d, ConstantPad2d or pad"
        )
    if node.operator in _OF_WINDOWS:
        kernel = node.attributes.get("kernel_shape", (1, 1))
        return f"{_OF_WINDOWS[node.operator]}{len(kernel) if isinstance(kernel, tuple) else 2}d"
    return _NAMES.get(node.operator, "")


def of_export(walk: Walk) -> list[str]:
    """Return what the user should know of what the export left out, merged or computed."""
    layers_of = [node for node in walk.nodes if node.operator in _LAYERS]
    nodes = collections.Counter((_LAYERS[node.operator], _lost(node)) for node in layers_of)
    said = []
    for lost, text in _LOST.items():
        layers = [layer for layer in dict.fromkeys(_LAYERS.values()) if nodes[layer, lost]]
        if layers:
            counts = [plural(nodes[layer, lost], layer) for layer in layers]
            said.append(text.format(" and ".join(counts)))
    computed = sum(map(walk.expressions.is_arithmetic, walk.parameters.names))
    if said:
        said.append("docs/configuration.md says how to keep them")
    if walk.parameters.copies:
        said.append(
            f"{plural(walk.parameters.copies, 'use')} of arrays that the export merged, because"
            " they are equal, became copies, trained apart"
        )
    if computed:
        said.append(
            f"{plural(computed, 'array')} of weights are computed from others in the file, as"
            " weight_norm does, and trained as they are"
        )
    return said


_LAYERS = {"Conv": "convolution", "Gemm": "fully connected layer"}
_LOST = {
    "norm": "its export folded batch normalisation into {}, which are trained without",
    "bias": "its export left out zero biases of {}, which are trained without",
    "perhaps a bias": "biases of {} are not in the file: they are zero, or were none",
}
"""What is said of layers that lost something."""


def _lost(node: OnnxNode) -> str:
    """Return what the export left out of a layer.

    PyTorch's default exporter tells it in the rules by which it rewrote a node; it gives
    convolutions without biases zeros as such, and takes them away again. The old one gives names of
    its own to weights and biases that it computed, and leaves those of parameters as they were.
    """
    computed = [name.startswith("onnx::Conv_") for name in node.inputs[1:3]]
    if "FuseBatchNorm" in node.rule or (node.operator == "Conv" and computed == [True, True]):
        return "norm"
    if "RemoveOptionalBias" in node.rule:
        return "bias" if node.operator == "Gemm" else "perhaps a bias"
    return ""
