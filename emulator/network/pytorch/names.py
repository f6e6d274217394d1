"""What files keep of a model of PyTorch: the table `torch` of a network's description.

It says which numbers of the model's tensors the arrays of layers are, by tensors' names. Tensors
are laid end to end; the place of each number of an array is a sum of a term for each axis, and a
term's values are written as runs of equal steps. So transposed, joined and reordered weights take a
line each; zeros that the model does not have are at -1. Tensors that no layer has whole, such as
masks and counts, are there with their values.
"""

from __future__ import annotations

import base64
import binascii
import math
import typing
import zlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from ...common import (
    InputError,
    Model,
    Names,
    NotNegative,
    as_tuple,
    read_description,
    toml_value,
    validate,
)
from ..layer import Network
from ..torch_network import TorchState

_MOST_RUNS, _MOST_BYTES = 10_000, 1 << 24
"""Of an array's terms, and of the values of a tensor: what has more is left out."""

_Kind = Literal[
    "float16", "bfloat16", "float32", "float64", "bool", "uint8", "int8", "int16", "int32", "int64"
]
Run = Annotated[tuple[int, NotNegative, int], pydantic.BeforeValidator(as_tuple)]
"""First value, number of values, step."""
Term = Annotated[tuple[Run, ...], pydantic.BeforeValidator(as_tuple)]
Terms = Annotated[tuple[Term, ...], pydantic.BeforeValidator(as_tuple)]


class NamedTensor(Model):
    """A tensor: the place of its first number, if layers have some of its numbers, and its values,
    packed, unless they have all.
    """

    dtype: _Kind
    shape: Annotated[tuple[NotNegative, ...], pydantic.BeforeValidator(as_tuple)]
    begin: NotNegative | None = None
    values: str | None = None
    counts: str | None = None
    """The layer with the averages whose mini-batches it counts."""


class TorchNames(Model):
    """The tensors of a model by name, in its order, and the arrays of layers as terms of places.

    Layers that are `frozen` had no parameter that needs gradients.
    """

    frozen: Names | None = None
    tensors: dict[str, NamedTensor]
    arrays: dict[str, dict[str, Terms]]


def names_of(state: TorchState, frozen: tuple[str, ...] = ()) -> TorchNames | None:
    """Return what files keep of a model's state; None where an array is no sum of terms."""
    arrays: dict[str, dict[str, Terms]] = {}
    held = np.zeros(state.size + 1, bool)
    for layer, own in state.places.items():
        arrays[layer] = {}
        for name, places in own.items():
            terms = _terms(places)
            if terms is None:
                return None
            arrays[layer][name] = terms
            held[places.ravel()] = True
    tensors = {}
    for key, tensor in state.tensors.items():
        begin, kind = state.begins.get(key), str(getattr(tensor, "dtype", "")).rpartition(".")[2]
        keys: dict[str, Any] = {"counts": state.counters.get(key)}
        used = held[begin : begin + tensor.numel()] if begin is not None else held[:0]
        if begin is not None and used.any():
            keys["begin"] = begin
        if not used.size or not used.all():
            is_small = kind and tensor.numel() * tensor.element_size() <= _MOST_BYTES
            if kind not in typing.get_args(_Kind) or not is_small:
                return None
            keys["values"] = _packed(tensor)
        keys |= {"dtype": kind, "shape": tuple(tensor.shape)}
        tensors[key] = NamedTensor.model_validate(keys)
    return TorchNames(frozen=frozen or None, tensors=tensors, arrays=arrays)


def to_toml(names: TorchNames) -> str:
    """Return the table as lines of TOML."""
    lines = ["", "[torch]", f"frozen = {toml_value(names.frozen)}"] if names.frozen else []
    lines += ["", "[torch.tensors]  # of the model of PyTorch, with the places of their numbers"]
    lines += [
        f"{_key(key)} = {toml_value(tensor.model_dump(exclude_none=True))}"
        for key, tensor in names.tensors.items()
    ]
    lines += ["", "[torch.arrays]  # of layers: for each axis, runs of places"]
    lines += [f"{_key(layer)} = {toml_value(own)}" for layer, own in names.arrays.items()]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return str(toml_value(key))


def torch_names(network: Network) -> TorchNames | None:
    """Return what a network's description says of the model that it was; None where it was none."""
    said = read_description(network.text).get("torch") if "torch" in network.text else None
    return None if said is None else validate(TorchNames, said, f"network {network.name}: `torch`")


def places_by(
    names: TorchNames, shapes: Mapping[str, Mapping[str, tuple[int, ...]]], blame: str
) -> dict[str, dict[str, NDArray[np.int32]]]:
    """Return the places of the numbers of each layer's arrays, which have these shapes.

    Raises:
        InputError: a file has other arrays than the layers, or places outside of its tensors.
    """
    count = sum(math.prod(shape) for own in shapes.values() for shape in own.values())
    size = max((end for _, end in _spans(names)), default=0)
    count += sum(math.prod(own.shape) for own in names.tensors.values() if own.values is not None)
    own = {layer: set(arrays) for layer, arrays in names.arrays.items() if arrays}
    if own != {layer: set(arrays) for layer, arrays in shapes.items() if arrays} or size > count:
        raise _misfit(blame)
    made: dict[str, dict[str, NDArray[np.int32]]] = {}
    for layer, arrays in names.arrays.items():
        made[layer] = {}
        for name, terms in arrays.items():
            lengths = [sum(length for _, length, _ in term) for term in terms]
            if math.prod(lengths) != math.prod(shapes[layer][name]):
                raise _misfit(blame)
            places = _places(terms)
            if places.size and not -1 <= places.min() <= places.max() < size:
                raise _misfit(blame)
            made[layer][name] = places.astype(np.int32, copy=False)
    return made


def _places(terms: Terms) -> NDArray[np.int32] | NDArray[np.int64]:
    """Return the sums of terms, in 32 bits where these hold them."""
    lines = []
    for term in terms:
        runs = [first + step * np.arange(length) for first, length, step in term]
        lines.append(np.concatenate(runs))
    most = sum(int(np.abs(line).max(initial=0)) for line in lines)
    places: NDArray[Any] = np.zeros((), np.int32 if most < 2**31 else np.int64)
    for line in lines:
        places = places[..., None] + line.astype(places.dtype)
    return places


class Places(Mapping[str, dict[str, NDArray[np.int32]]]):
    """The places of the numbers of each layer's arrays by terms; they are computed when a layer is
    looked up, and take no memory before.
    """

    def __init__(self, arrays: Mapping[str, Mapping[str, Terms]]) -> None:
        self._arrays = arrays

    def __getitem__(self, layer: str) -> dict[str, NDArray[np.int32]]:
        own = self._arrays[layer]
        return {name: _places(terms).astype(np.int32, copy=False) for name, terms in own.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _misfit(blame: str) -> InputError:
    return InputError(
        f"{blame}: its table `torch` does not fit its layers; leave the table out, or take it from"
        " `emuchain.from_torch`"
    )


def _spans(names: TorchNames) -> Iterator[tuple[int, int]]:
    for tensor in names.tensors.values():
        if tensor.begin is not None:
            yield tensor.begin, tensor.begin + math.prod(tensor.shape)


def state_by(
    names: TorchNames, shapes: Mapping[str, Mapping[str, tuple[int, ...]]], blame: str
) -> TorchState:
    """Return the state of a model that files have the names of; its trained tensors are 0.

    Raises:
        InputError: as of `places_by`, or packed values are none.
    """
    import torch

    places, tensors, begins = places_by(names, shapes, blame), {}, {}
    for key, named in names.tensors.items():
        kind = getattr(torch, named.dtype)
        if named.begin is not None:
            begins[key] = named.begin
        if named.values is None:
            tensors[key] = torch.zeros(named.shape, dtype=kind)
            continue
        count = math.prod(named.shape)
        size = count * torch.empty((), dtype=kind).element_size()
        values = bytearray(_unpacked(named.values, size, blame))
        flat = torch.frombuffer(values, dtype=kind) if count else torch.empty(0, dtype=kind)
        tensors[key] = flat.reshape(named.shape)
    counts = {key: named.counts for key, named in names.tensors.items() if named.counts}
    return TorchState(tensors, begins, places, counts)


def _packed(tensor: Any) -> str:
    import torch

    content = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return base64.b64encode(zlib.compress(content)).decode()


def _unpacked(text: str, size: int, blame: str) -> bytes:
    """Return the bytes that were packed, `size` of them.

    Raises:
        InputError: they are others.
    """
    try:
        content = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except (binascii.Error, ValueError, zlib.error):
        content = b""
    if len(content) != size or size > _MOST_BYTES:
        raise _misfit(blame)
    return content


def _terms(places: NDArray[np.int32]) -> Terms | None:
    """Return the terms of an array's axes, whose sums are its values; None if there are none, or
    they have too many runs.
    """
    if not places.size:
        return tuple(((0, length, 0),) for length in places.shape)
    made, inner = [], np.zeros((), np.int64)
    for axis in range(places.ndim):
        line = places[(0,) * axis + (slice(None),) + (0,) * (places.ndim - axis - 1)]
        values = line.astype(np.int64)
        if axis > 0:
            values -= line[0]
            inner = inner[..., None] + values
        made.append(_runs(values))
    if sum(map(len, made)) > _MOST_RUNS:
        return None
    # One index of the first axis at a time: the sum of all is as large as the array.
    firsts = places[(slice(None),) + (0,) * (places.ndim - 1)]
    if not all(
        np.array_equal(inner + first, part) for first, part in zip(firsts, places, strict=True)
    ):
        return None
    return tuple(made)


def _runs(values: NDArray[np.int64]) -> Term:
    """Return values as runs of equal steps."""
    steps, runs, first = np.diff(values), [], 0
    # A run ends where the step changes; what follows begins another one.
    changes = np.append(np.flatnonzero(np.diff(steps)) + 1, len(values) - 1)
    for end in changes.tolist():
        if end >= first:
            step = int(steps[first]) if end > first else 0
            runs.append((int(values[first]), end - first + 1, step))
            first = end + 1
    return tuple(runs)
