"""Networks from models of PyTorch in memory.

`torch.export` traces the model as in training, and PyTorch writes what it traced as a graph of
ONNX, in memory, which `onnx_import` reads. The tensors of that graph hold the numbers of their own
places in the model instead of weights, which are copied once, at the end. So the arrays that become
a layer's tell where each weight comes from, and what only moves numbers is told from what computes.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib.util
import itertools
import logging
import math
import pathlib
import sys
import traceback
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, check_names, described, typed
from .layer import Network
from .load import described_network
from .onnx_graph import OnnxGraph, Walk
from .operations.attention import Attention
from .torch_network import Arrays, TorchNetwork, TorchState, places_of, used_twice

_EXTRA = "pip install 'emuchain[torch]'"
_OFFSET = 2**30
"""Above the numbers that a graph computes with, and with room for as many as protobuf holds."""

_OF_SAMPLES = (
    "its first axis should be of samples, as in (samples, channels, rows, columns), (samples, steps,"
    " values) or (samples, symbols)"
)


@typed
def from_torch(model: Any, example: Any, *, name: str | None = None) -> TorchNetwork:
    """Return the network of a PyTorch model, which begins training with the model's weights.

    The model is traced as in training, with batch normalisation and dropout, and left as it is.

    Args:
        model: a `torch.nn.Module` whose forward takes one tensor and returns the logits.
        example: a tensor of the shape and type that the model takes, samples first. A tuple, where
            forward takes several tensors of symbols (samples, steps), such as a source and a
            target: a sample of the network is the steps of all, one after another.
        name: the network's; by default that of the model's class.

    Raises:
        InputError: PyTorch cannot export the model, or a module does what a network here cannot
            express.
    """
    torch: Any = sys.modules.get("torch")  # without it, there is no model
    if torch is None or not isinstance(model, torch.nn.Module):
        raise InputError(f"`model`: is {described(model)}; should be a torch.nn.Module")
    examples = _examples(torch, example)
    name = type(model).__name__ if name is None else name
    check_names("from_torch", (name,))
    source = f"model {name}"
    _check_packages()
    _check_tensors(torch, model, source)
    from .description import to_toml
    from .onnx_import import described as description_of
    from .onnx_import import note_of, walked, weights_of_walk
    from .pytorch.names import Places, names_of

    begins, size = _begins(torch, model)
    program = _exported(torch, model, examples, source, begins)
    graph = _numbered(_graph(program, examples[0], source), begins)
    try:
        walk = walked(graph)
        description = description_of(walk, graph, name)
    except InputError as error:
        raise InputError(f"{error}{_hint(torch, model, examples[0])}") from None
    network = described_network(description, source, note_of(walk, graph))
    _check_moves(walk, begins, source)
    places: Arrays = places_of(weights_of_walk(walk, network), _OFFSET, size)
    _check_places(network, graph, places, begins, source)
    state = {
        key: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for key, value in model.state_dict().items()
    }
    counters = _counters(state, places, begins)
    frozen = _frozen(model, begins, places, source)
    names = names_of(TorchState(state, begins, places, counters), frozen)
    if names is None and frozen:
        raise InputError(
            f"{source}: requires_grad=False of {frozen[0]} cannot be kept; call"
            f" requires_grad_(True), and give `freeze={list(frozen)}`"
        )
    if names is not None:
        places = Places(names.arrays)
    kept = TorchState(_copied(torch, state), begins, places, counters)
    text = to_toml(description.model_copy(update={"torch": names}))
    network = dataclasses.replace(network, text=text)
    own = {field.name: getattr(network, field.name) for field in dataclasses.fields(Network)}
    return TorchNetwork(**own, state=kept)


def _examples(torch: Any, example: Any) -> tuple[Any, ...]:
    """Return what a model takes: one tensor, or several of symbols.

    Raises:
        InputError: it is something else.
    """
    examples = example if isinstance(example, tuple) else (example,)
    for own in examples or (example,):
        if not isinstance(own, torch.Tensor):
            raise InputError(
                f"`example`: is {described(own)}; should be one torch.Tensor, a batch that the model"
                " takes, or a tuple of several"
            )
        if own.ndim < 2 or 0 in own.shape:
            raise InputError(f"`example`: has the shape {_shown(own.shape)}; {_OF_SAMPLES}")
        of_symbols = own.ndim == 2 and not own.is_floating_point()
        if len(examples) > 1 and not (of_symbols and len(own) == len(examples[0])):
            raise InputError(
                f"`example`: {len(examples)} tensors, one of which is {own.dtype} of"
                f" {_shown(own.shape)}; several should be whole numbers (samples, steps), of as many"
                " samples: symbols that embeddings look up"
            )
    return examples


def _copied(torch: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's state with tensors of its own, of which those that are one stay one."""
    copies: dict[Any, Any] = {}
    made = {}
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            its = _memory(value)
            value = copies[its] if its in copies and value.numel() else value.clone()
            copies[its] = value
        made[key] = value
    return made


def _check_packages() -> None:
    """Check that there is what PyTorch's exporter needs, and not in its middle."""
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise InputError(f"from_torch: needs the package {package}: {_EXTRA}")


def _check_tensors(torch: Any, model: Any, source: str) -> None:
    """Check that all parameters are there, and of layers that are known: PyTorch takes some apart."""
    for name, module in model.named_modules():
        if type(module) is torch.nn.RNN:
            raise InputError(f"{source}, RNN {name!r}: is not supported; use nn.LSTM or nn.GRU")
    for key, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise InputError(
                f"{source}: the parameter {key!r} has no shape yet; call the model once with the"
                " example"
            )


def _frozen(
    model: Any,
    begins: Mapping[str, int],
    places: Arrays,
    source: str,
) -> tuple[str, ...]:
    """Return the layers none of whose parameters needs gradients.

    Raises:
        InputError: some parameters of a layer need gradients, and some do not.
    """
    if all(own.requires_grad for own in model.parameters()):
        return ()
    size = max((begins[key] + own.numel() for key, own in model.named_parameters()), default=0)
    rests, trains = np.zeros(size, bool), np.zeros(size, bool)
    for key, parameter in model.named_parameters():
        own = trains if parameter.requires_grad else rests
        own[begins[key] : begins[key] + parameter.numel()] = True
    frozen = []
    for layer, arrays in places.items():
        numbers = [own[(own >= 0) & (own < size)] for own in arrays.values()]
        if not any(rests[own].any() for own in numbers):
            continue
        if any(trains[own].any() for own in numbers):
            [key, *_] = [
                key
                for key, own in model.named_parameters()
                if not own.requires_grad
                and any((places == begins[key]).any() for places in numbers)
            ]
            raise InputError(
                f"{source}: the parameter {key!r} has requires_grad=False, but others of layer"
                f" {layer} train; here a layer, with its normalisation, trains or rests: call"
                " requires_grad_ for all of them"
            )
        frozen.append(layer)
    return tuple(frozen)


def _shown(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"


def _exported(
    torch: Any, model: Any, examples: Sequence[Any], source: str, begins: Container[str]
) -> Any:
    """Return the model in ONNX's form, as in training, of a copy in single precision on the CPU;
    without the numbers of tensors that layers may have.

    Raises:
        InputError: PyTorch cannot copy or export it.
    """
    from .onnx_import.pytorch import unsupported

    try:
        copied = copy.deepcopy(model, _without_numbers(torch, model)).cpu().float().train()
    except Exception as error:  # a module may forbid it in any way
        raise InputError(
            f"{source}: cannot be copied: {_first_line(error)}; give a model that copy.deepcopy"
            " copies"
        ) from None
    given = [example.detach().cpu() for example in examples]
    given = [own.float() if own.is_floating_point() else own for own in given]
    if len(given[0]) == 1:  # batch normalisation takes none of it, and it leaves no trace in shapes
        given = [torch.cat([own, own]) for own in given]
    try:
        with _quiet(), torch.random.fork_rng(devices=[]):
            program = torch.onnx.export(
                copied, tuple(given), dynamo=True, optimize=False, verbose=False
            )
    except Exception as error:  # of any kind, as of the model's own code
        paths = {id(module): path for path, module in copied.named_modules()}
        path, cause = _culprit(error, paths)
        where = f", in {type(copied.get_submodule(path)).__name__} {path!r}" if path else ""
        parts = path.split(".") if path else []
        outer = [copied.get_submodule(".".join(parts[:n])) for n in range(len(parts) + 1)]
        if belongs := unsupported([type(module).__name__ for module in outer]):
            raise InputError(
                f"{source}{where}: PyTorch cannot export it; {belongs}, which is not supported"
            ) from None
        raise InputError(
            f"{source}{where}: PyTorch cannot export it: {_first_line(cause)}; torch.export.export"
            f"(model.train(), (example,)) should work{_hint(torch, model, examples[0])}"
        ) from None
    _let_share(torch, program.model.graph.initializers, model)
    return _without_data(program, begins)


def _without_numbers(torch: Any, model: Any) -> dict[int, Any]:
    """Return parameters of zeros that a copy of a model has in place of its own: pages of zeros
    take no memory until they are written.
    """
    made = {}
    for parameter in model.parameters():
        if type(parameter) is torch.nn.Parameter and parameter.is_floating_point():
            zeros = torch.from_numpy(np.zeros(tuple(parameter.shape), np.float32))
            made[id(parameter)] = torch.nn.Parameter(zeros, parameter.requires_grad)
            vars(made[id(parameter)]).update(vars(parameter))
    return made


def _let_share(torch: Any, arrays: Any, model: Any) -> None:
    """Let the graph of a copy take the copy's parameter where it takes the model's own: closures,
    such as a head by lambda, hold the model, of which they were made.
    """
    from onnxscript import ir

    keys = {_memory(own): key for key, own in model.named_parameters()}
    for name, value in [*arrays.items()]:
        tensor = getattr(value.const_value, "raw", None)
        key = keys.get(_memory(tensor)) if isinstance(tensor, torch.Tensor) else None
        if key in arrays and key != name:
            ir.convenience.replace_all_uses_with(value, arrays[key])
            del arrays[name]


def _memory(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _without_data(program: Any, names: Container[str]) -> Any:
    """Return the graph of ONNX of an exported model, with types and sizes alone of the tensors of
    these names.
    """
    from onnxscript import ir

    for name, value in program.model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and name in names:
            value.const_value = ir.ExternalTensor(
                "model", 0, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name
            )
    return ir.to_proto(program.model)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what PyTorch's exporter says of itself."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _culprit(error: BaseException, paths: Mapping[int, str]) -> tuple[str, BaseException]:
    """Return the path of the innermost module in whose code an error arose, and the first cause."""
    path, cause, after = "", error, error.__cause__ or error.__context__
    while True:
        for frame, _ in traceback.walk_tb(cause.__traceback__):
            path = paths.get(id(frame.f_locals.get("self")), path)
        if after is None:
            return path, cause
        cause, after = after, after.__cause__ or after.__context__


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return " ".join(lines[0].split())[:200].rstrip(".") if lines else type(error).__name__


def _hint(torch: Any, model: Any, example: Any) -> str:
    """Return what is perhaps wrong with an example that a model did not take, or nothing."""
    nn = torch.nn
    of_images = any(isinstance(module, nn.Conv2d | nn.BatchNorm2d) for module in model.modules())
    if of_images and example.ndim != 4:
        return (
            f"; `example` is {_shown(example.shape)}: images are (samples, channels, rows, columns)"
        )
    return ""


def _graph(model: Any, example: Any, source: str) -> OnnxGraph:
    """Return the graph, whose nodes are called as their modules.

    Raises:
        InputError: the model's result has no samples first.
    """
    from .onnx_import import graph_of

    stored_bytes = 4 * sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    graph = graph_of(model, pathlib.Path(), source, stored_bytes)
    for value in model.graph.output:
        made = [size.dim_value for size in value.type.tensor_type.shape.dim]
        if made[:1] != [max(2, len(example))]:
            raise InputError(
                f"{source}: makes {_shown(made)} of an `example` of {_shown(example.shape)};"
                f" {_OF_SAMPLES}, and so should that of the result"
            )
    nodes = (dataclasses.replace(node, name=node.module or node.name) for node in graph.nodes)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _begins(torch: Any, model: Any) -> tuple[dict[str, int], int]:
    """Return the first place of each tensor that layers may have, and the number of places."""
    tensors = dict(model.named_parameters(remove_duplicate=False))
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            own = {"running_mean": module.running_mean, "running_var": module.running_var}
            tensors |= {
                f"{path}.{key}" if path else key: value
                for key, value in own.items()
                if value is not None
            }
    begins, firsts, size = dict[str, int](), dict[int, int](), 0
    for key, tensor in tensors.items():
        begins[key] = firsts.setdefault(id(tensor), size)
        size = max(size, begins[key] + tensor.numel())
    return begins, size


def _numbered(graph: OnnxGraph, begins: Mapping[str, int]) -> OnnxGraph:
    """Return the graph with the places of numbers in place of these."""
    own = {name: constant for name, constant in graph.constants.items() if name in begins}
    constants = {
        name: dataclasses.replace(constant, numbers=None) for name, constant in own.items()
    }
    numbers = _Numbers(graph.arrays, own, begins)
    return dataclasses.replace(graph, constants={**graph.constants, **constants}, arrays=numbers)


class _Numbers(Mapping[str, NDArray[Any]]):
    """The arrays of a graph, of which those of the model hold places; each is made when looked
    up.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], own: Mapping[str, Any], begins: Mapping[str, int]
    ) -> None:
        self._arrays, self._own, self._begins = arrays, own, begins

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._own:
            return self._arrays[name]
        shape, begin = self._own[name].shape, _OFFSET + self._begins[name]
        end = begin + math.prod(shape)
        kind = np.int32 if end < 2**31 else np.int64
        return np.arange(begin, end, dtype=kind).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _check_moves(walk: Walk, begins: Mapping[str, int], source: str) -> None:
    """Check that weights are only moved, so that they can be put back."""
    for name in walk.parameters.names:
        constant = walk.constants[name]
        if walk.expressions.is_arithmetic(name):
            roots = " and ".join(repr(root) for root in sorted(constant.roots & begins.keys()))
            raise InputError(
                f"{source}: weights are computed of the parameter {roots}, as weight_norm does; here"
                " they are parameters themselves: call remove_parametrizations, or make one of them"
            )


def _check_places(
    network: Network,
    graph: OnnxGraph,
    places: Arrays,
    begins: Mapping[str, int],
    source: str,
) -> None:
    """Check that each number of layers is one of the model's, but for biases that softmax does not
    see, and each parameter that is used is a layer's.
    """
    unseen = _unseen_biases(network)
    for layer, arrays in places.items():
        for name, own in arrays.items():
            lacking = own < 0
            if name == "bias" and layer in unseen:
                lacking &= ~unseen[layer]
            if lacking.any():
                raise InputError(
                    f"{source}: `{name}` of layer {layer}, which is trained here, is no parameter of"
                    " the model; give the module one, as affine=True and bias=True do, or make its"
                    " buffer an nn.Parameter"
                )
    heads = {head.name for head in network.heads}
    size = max(int(own.max(initial=0)) for arrays in places.values() for own in arrays.values())
    apart = {layer: arrays for layer, arrays in places.items() if layer not in heads}
    twice = used_twice(apart, size + 1)
    if twice is not None:
        key = max((begin, key) for key, begin in begins.items() if begin <= twice)[1]
        raise InputError(
            f"{source}: the parameter {key!r} is that of several layers, which is supported for an"
            " embedding and the layer over its symbols; give each its own"
        )
    reached = np.zeros(2 + max(size, *begins.values()), bool)
    for arrays in places.values():
        for own in arrays.values():
            reached[own] = True
    taken = {name for node in graph.nodes for name in node.inputs}
    for key, begin in begins.items():
        shape = graph.constants[key].shape if key in graph.constants else ()
        count = int(np.prod(shape, dtype=np.int64))
        if key in taken and not reached[begin : begin + count].any():
            raise InputError(
                f"{source}: the parameter {key!r} is used where no layer here has weights; leave it"
                " out, or make it a buffer that is not trained"
            )


def _unseen_biases(network: Network) -> dict[str, NDArray[np.bool_]]:
    """Return which biases are those of keys of attention alone, by layer."""
    unseen = {}
    for layer, after in itertools.pairwise(network.layers):
        attention, reads = after.operation, after.reads.number
        if isinstance(attention, Attention) and reads == layer.makes.number in after.read_once:
            unseen[layer.name] = attention.are_keys(layer.output)
    return unseen


def _counters(
    state: Mapping[str, Any],
    places: Arrays,
    begins: Mapping[str, int],
) -> dict[str, str]:
    """Return the counts of mini-batches of batch normalisation, with the layer that has its
    averages.
    """
    averages = {
        int(own.ravel()[0]): layer
        for layer, arrays in places.items()
        for name, own in arrays.items()
        if name.startswith("mean") and own.size
    }
    counters = {}
    for key in state:
        path, _, own = key.rpartition("num_batches_tracked")
        mean = begins.get(f"{path}running_mean")
        if own == "" and key.endswith("num_batches_tracked") and mean in averages:
            counters[key] = averages[mean]
    return counters
