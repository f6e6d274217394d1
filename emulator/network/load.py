"""Networks by name: those of the zoo, and those that a TOML or ONNX file describes; and ONNX files
that are written.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..common import InputError, find, format_bytes, name_of, names, read_exact_text, typed
from .layer import Network
from .onnx_nodes import Arrays, Export, Form, Nodes
from .operation import Window
from .shape import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .description import Description

ONNX = ".onnx"
_ZOO = "network/zoo"

_OF_ONE_OUTPUT = (
    "it has one output, as of a model that gives yes or no, or a number: softmax and cross-entropy"
    " over one class have no loss, so train it with `loss` = bce or mse"
)


_CODE = re.compile(r"(?P<file>.+\.py)(?::(?P<function>.*))?", re.IGNORECASE | re.DOTALL)


class Code(NamedTuple):
    """A file, and the function in it, which is empty where none is named."""

    file: pathlib.Path
    function: str

    @property
    def blame(self) -> str:
        """What begins a message."""
        name = f"{self.file}:{self.function}" if self.function else str(self.file)
        return f"`network` = {name!r}"


def code_of(network: str) -> Code | None:
    """Return the code that a network's name names; None if it names something else."""
    named = _CODE.fullmatch(network)
    return None if named is None else Code(pathlib.Path(named["file"]), (named["function"] or ""))


def zoo() -> list[str]:
    """Return the names of the networks that come with emuchain."""
    return names(_ZOO)


@typed
def load_network(
    network: str | os.PathLike[str] | Mapping[str, Any],
    *,
    text: str | None = None,
    time_steps: int | None = None,
    symbols: Callable[[], int] | None = None,
    images: Callable[[], Shape] | None = None,
) -> Network:
    """Return a network with all shapes worked out.

    Args:
        network: a name of the `zoo`; the path of a TOML or ONNX file; or a mapping with the keys of
            such a TOML file.
        text: of a mapping, the file from which its keys are: the network's description.
        time_steps: the steps of its sequences, in place of those that its `input` says.
        images: gives the (channels, rows, columns) that it takes if it takes any, in place of those
            of its `input`.
        symbols: gives what the word "symbols" stands for in its description, in place of what its
            key `symbols` says.

    Raises:
        InputError: no such name or file, or an invalid description; `time_steps` for an input that
            is not a sequence.
    """
    from ..common import read_toml, validate
    from .description import Description, with_images, with_steps, with_symbols

    if time_steps is not None and time_steps < 1:
        raise InputError(f"`time_steps` = {time_steps}: should be at least 1")
    note = ""
    network = os.fspath(network) if isinstance(network, os.PathLike) else network
    if not isinstance(network, str):
        source = repr(network.get("name", "network"))
        description = validate(
            Description, with_images(with_symbols(network, symbols), images), source
        )
    elif code := code_of(network):
        raise InputError(
            f"{code.blame}: your own code is run by commands that train or plan a network; in Python,"
            " give its model to `emuchain.from_torch`"
        )
    else:
        path = find("network", network, _ZOO, (".toml", ONNX))
        source = str(path)
        if network.lower().endswith(ONNX):
            from .onnx_import import describe, read_onnx

            description, note = describe(read_onnx(path), name_of(path))
        else:
            said = read_toml(path)
            keys = with_images(with_symbols(said, symbols), images)
            description = validate(Description, keys, source)
            text = read_exact_text(path) if keys == said and time_steps is None else None
    if time_steps is not None:
        description = with_steps(description, time_steps)
    return described_network(description, source, note, text)


def described_network(
    description: Description, source: str, note: str, text: str | None = None
) -> Network:
    """Return the network of a description, which `text` is; `note` is what the user should know of
    its file.

    Raises:
        InputError: the description is invalid; `source` begins the message.
    """
    from .description import to_toml
    from .graph import resolve

    resolved = resolve(description, source)
    if resolved.classes == 1 and resolved.loss == "softmax":
        note = "; ".join([_OF_ONE_OUTPUT, *filter(None, [note])])
    return dataclasses.replace(resolved, text=text or to_toml(description), note=note)


def network_files(network: str) -> Iterator[pathlib.Path]:
    """Yield the files of which `load_network` reads a network.

    Raises:
        InputError: no such name or file, or an ONNX file that cannot be read.
    """
    code = code_of(network)
    yield from (
        weights_files(find("network", network, _ZOO, (".toml", ONNX)))
        if code is None
        else [code.file]
    )


def weights_files(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yield a file of a network or of weights, and those beside it in which an ONNX file keeps
    arrays.

    Raises:
        InputError: an ONNX file cannot be read.
    """
    file = pathlib.Path(path)
    yield file
    if file.suffix.lower() == ONNX:
        from .onnx_import import files_beside

        yield from files_beside(file)


def onnx_weights(path: str) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the weights of an ONNX file by layer and name; layers have the names that
    `load_network` gives them.

    Raises:
        InputError: the file cannot be read, describes no network, or computes its weights.
    """
    from .onnx_import import read_onnx, weights_of

    file = pathlib.Path(path)
    return weights_of(read_onnx(file), name_of(file))


_OPSET, _IR = 17, 8
_OUTPUT = "logits"
_MOST_BYTES = 2**31 - 2**24
"""The most that protobuf takes, with room for nodes and names."""


def onnx_image(weights: Mapping[str, Arrays], network: Network, blame: str) -> bytes:
    """Return the content of an ONNX file, which `onnx_import` reads again: the network up to its
    logits.

    Each operation writes its own nodes (`Operation.to_onnx`), with `weights` by layer and name.
    Samples are any number; `blame` begins messages.

    Raises:
        InputError: the package onnx is not installed, or an operation cannot be exported.
    """
    try:
        from onnx import TensorProto, helper
    except ImportError:
        raise InputError(
            f"{blame}: ONNX files need the package onnx: pip install 'emuchain[onnx]'"
        ) from None
    size = sum(array.nbytes for arrays in weights.values() for array in arrays.values())
    if size > _MOST_BYTES:
        raise InputError(
            f"{blame}: {network.name} has {format_bytes(size)} of weights, and an ONNX file at most"
            f" {format_bytes(_MOST_BYTES)}; a .safetensors file takes them"
        )
    nodes = Nodes(network.name, blame)
    name, form, sizes = _input(network, nodes)
    taken = nodes.begin(name, form, network.entry if form is Form.STEPS else network.input)
    if network.entry[0] != network.input[0]:
        nodes.begin(nodes.steps(taken, "sequence"), Form.STEPS, network.entry)
    elif network.entry != network.input:
        sizes_around = zip(network.entry[1:], network.input[1:], network.corner, strict=True)
        behind = (size - own - before for size, own, before in sizes_around)
        pads = nodes.numbers("zeros.pads", 0, 0, *network.corner, 0, 0, *behind)
        nodes.begin(nodes.add("Pad", [taken, pads], "zeros"), Form.MAPS, network.entry)
    for layer in network.layers:
        operation, held, learners = layer.operation, weights[layer.name], 0
        made = f"{layer.name}/made"
        operation.to_onnx(
            Export(
                nodes,
                operation.type,
                layer.name,
                (layer.reads,),
                layer.makes,
                layer.name,
                made,
                held,
            )
        )
        for place, step in enumerate(layer.sfu):
            own = f"{layer.name}/{place}"
            learners += step.operation.parameters(step.output) > 0
            end = str(learners) * (learners > 1)
            step.operation.to_onnx(
                Export(
                    nodes,
                    step.operation.type,
                    layer.name,
                    step.reads,
                    step.makes,
                    own,
                    own,
                    held,
                    end,
                )
            )
    [results] = network.layers[-1].hands_on
    last, steps = nodes.of(results.number), network.result_steps
    axes: list[str | int] = ["samples", *([steps] if steps > 1 else []), network.classes]
    if network.has_map_results:
        logits, axes = last, ["samples", *network.layers[-1].feeds]
    else:
        logits = nodes.steps(last, _OUTPUT) if steps > 1 else nodes.row(last, _OUTPUT)
    kind = TensorProto.INT64 if form is Form.SYMBOLS else TensorProto.FLOAT
    model = helper.make_model(
        helper.make_graph(
            nodes.made,
            network.name,
            [helper.make_tensor_value_info(name, kind, ["samples", *sizes])],
            [helper.make_tensor_value_info(logits, TensorProto.FLOAT, axes)],
            nodes.arrays,
        ),
        producer_name="emuchain",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    image: bytes = model.SerializeToString()
    return image


def _input(network: Network, nodes: Nodes) -> tuple[str, Form, tuple[int, ...]]:
    """Return the name, the form and the sizes of the network's input: symbols, a sequence, or
    maps.
    """
    takers = [layer for layer in network.layers if layer.reads.is_images]
    if network.takes_symbols:
        return "symbols", Form.SYMBOLS, (network.input[1],)
    each_row = Window((1, 1), (1, 1), (0, 0))
    in_place = all(layer.window == each_row for layer in takers)
    mixes_tokens = not all(layer.has_weights for layer in network.layers) or any(
        step.operation.collects_map for layer in network.layers for step in layer.sfu
    )
    are_tokens = in_place and network.input[2] == 1 and mixes_tokens
    if (network.layers[0].operation.recurs or are_tokens) and network.entry == network.input:
        channels, steps, _ = network.input
        return "steps", Form.STEPS, (steps, channels)
    return "images", Form.MAPS, network.input
