"""Weights of files (results, checkpoints, safetensors, ONNX), checked against the network, and into
files.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cluster import load_cluster
from ...common import (
    BROKEN_ZIP,
    CHECKPOINT,
    HDF5_HEAD,
    ONNX,
    SAFETENSORS,
    TORCH,
    FileKind,
    InputError,
    WholeFile,
    escaped,
    kind_named,
    kind_of,
    open_file,
    plural,
    read_description,
    unlike,
)
from ...config import settings_config
from ...device import MASTER, array_shapes, named_weights
from ...faults import Faults, described_faults
from ...network import (
    Layer,
    Lora,
    Network,
    adapter_tensors,
    adapters,
    load_network,
    lora_of,
    merged,
    onnx_image,
    onnx_weights,
    rested_layers,
    trained_state,
    weights_by_names,
    with_formats,
    with_lora,
    without_lora,
)
from ..results import Results, Weights, read_results
from .checkpoint_file import CheckpointReader
from .torch_files import TORCH_ENDINGS, read_torch, torch_image


def fitted(given: Weights, network: Network, blame: str, drawn: Collection[str] = ()) -> Weights:
    """Return all arrays of a network, each as the network has it; `blame` begins messages.

    Of layers that are `drawn` there are none, whatever is given; what is given of unknown layers
    may then be what they stand for. A weight of fewer dimensions, such as the (outputs, inputs) of
    PyTorch's `Linear`, is one of the same order.

    Raises:
        InputError: an array is missing, has another shape or type, is not finite, or belongs to no
            layer.
    """
    if not any(given.values()):
        raise InputError(
            f"{blame}: holds no weights; results files have those of the last epoch that was"
            " finished"
        )
    wanted = [layer for layer in network.layers if layer.name not in drawn]
    fits = {
        layer.name: _of_layer(given.get(layer.name, {}), layer, network, blame) for layer in wanted
    }
    for name in () if drawn else given:
        if name not in fits and given[name]:
            layers = ", ".join(fits)
            raise InputError(
                f"{blame}: has weights of layer {_named(name)}, which {network.name} does not have;"
                f" its layers are {layers if len(layers) < 100 else layers[:100] + '…'}"
            )
    return fits


def _with_one_table(
    given: Weights, network: Network, blame: str, drawn: Collection[str] = ()
) -> Weights:
    """Return what `fitted` does, if layers that are tied, but those that are `drawn`, have one
    table each.

    Raises:
        InputError: as of both.
    """
    fits = fitted(given, network, blame, drawn)
    if all(head.name in fits for head in network.heads):
        check_tied(network, lambda layer: fits[layer.name]["weight"], blame)
    return fits


def check_tied(
    network: Network, weight: Callable[[Layer], NDArray[np.float32]], blame: str
) -> None:
    """Check that layers that are tied have one table, which files hold twice; `blame` begins
    messages.

    Raises:
        InputError: two have tables that differ, which would be trained apart.
    """
    for head in network.heads:
        assert head.tied is not None
        table, other = (
            weight(layer).reshape(layer.weight_shape[:2]) for layer in (head.tied, head)
        )
        differ = int((other != table.T).sum())
        if differ:
            raise InputError(
                f"{blame}: {head.name} has the weights of {head.tied.name}, but `weight` of both"
                f" differ in {differ:,} of {plural(table.size, 'number')}; give both the same"
                " table, or a network that does not tie them"
            )


def check_tied_in(reader: CheckpointReader, network: Network, blame: str) -> None:
    """Check the layers of a checkpoint as `check_tied` does."""
    check_tied(
        network,
        lambda layer: reader.of_layer(layer, 0, "weight", "value", layer.weight_shape),
        blame,
    )


def _of_layer(
    arrays: dict[str, np.ndarray], layer: Layer, network: Network, blame: str
) -> dict[str, np.ndarray]:
    shapes = array_shapes(layer)
    where = f"layer {layer.name} of {network.name}"
    fits = {}
    for name, shape in shapes.items():
        if name not in arrays:
            has = f"only {', '.join(map(_named, arrays))}" if arrays else "none of its arrays"
            raise InputError(f"{blame}: lacks `{name}` {_sizes(shape)} of {where}, and has {has}")
        array = arrays[name]
        flat = name == "weight" and array.shape == (shape[0], math.prod(shape[1:]))
        if array.shape != shape and not flat:
            raise InputError(
                f"{blame}: `{name}` of {where} is {_sizes(array.shape)}; it should be"
                f" {_sizes(shape)}"
            )
        if array.dtype != np.float32:
            raise InputError(f"{blame}: `{name}` of {where} is {array.dtype}; it should be float32")
        if not np.isfinite(array).all():
            raise InputError(f"{blame}: `{name}` of {where} has values that are not finite numbers")
        fits[name] = np.ascontiguousarray(array.reshape(shape))
    for name in arrays:
        if name not in shapes:
            raise InputError(
                f"{blame}: has `{_named(name)}` of {where}, which has only {', '.join(shapes)}"
            )
    return fits


def _named(name: str) -> str:
    return " ".join(escaped(name[:80]).split())


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "a number"


def read_safetensors(path: str | os.PathLike[str], blame: str) -> Weights:
    """Return the arrays of a file by layer and name, which the last dot of each key parts; `blame`
    begins messages.

    Raises:
        InputError: the file cannot be read, or is not a safetensors file.
    """
    of_numpy, failure = _library(blame)
    try:
        open_file(path).close()  # a regular file
        arrays = of_numpy.load_file(path)
    except (OSError, ValueError, KeyError, TypeError, failure) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise InputError(f"{blame}: not a readable safetensors file: {reason[:200]}") from None
    weights: Weights = {}
    for key, array in arrays.items():
        layer, _, name = key.rpartition(".")
        weights.setdefault(layer, {})[name] = array
    return weights


def safetensors_image(weights: Weights, network: Network, blame: str) -> bytes:
    """Return the content of a file with a network's weights.

    Raises:
        InputError: the package safetensors is not installed.
    """
    of_numpy, _ = _library(blame)
    arrays = {
        f"{layer.name}.{name}": _as_torch(layer, name, array)
        for layer in network.layers
        for name, array in weights[layer.name].items()
    }
    image: bytes = of_numpy.save(arrays, {"network": network.name})
    return image


def _as_torch(layer: Layer, name: str, array: np.ndarray) -> np.ndarray:
    """Return an array in PyTorch's layout: that of `Linear` is (outputs, inputs), channel after
    channel.
    """
    flat = name == "weight" and layer.operation.type == "fc"
    return np.ascontiguousarray(array.reshape(len(array), -1) if flat else array)


def _library(blame: str) -> tuple[Any, type[Exception]]:
    try:
        import safetensors.numpy
    except ImportError:
        raise InputError(
            f"{blame}: safetensors files need the package safetensors: pip install"
            " 'emuchain[safetensors]'"
        ) from None
    return safetensors.numpy, safetensors.SafetensorError


_RUNS = "a results file (.h5) or a checkpoint (.ckpt)"
_NO_RUN = "neither a results file (.h5) nor a checkpoint (.ckpt)"
_KINDS = "a results file (.h5), a checkpoint (.ckpt), .safetensors, .onnx or .pt"


@dataclasses.dataclass(frozen=True)
class RunWeights:
    """The weights of a run, with what it trained and how: the keys of its configuration, and its
    network.

    It had trained `epochs` of `epoch_steps` mini-batches, and `steps` of the next one. Adapters
    that it trained are merged into the weights, and stand in `adapters`, too.
    """

    weights: Weights
    settings: dict[str, Any]
    network: Network
    epochs: int
    steps: int = 0
    epoch_steps: int = 0
    adapters: Weights = dataclasses.field(default_factory=dict)

    def merged(self, lora: Lora | None) -> RunWeights:
        """Return the same run with these adapters, which the network has, merged."""
        if lora is None:
            return self
        return dataclasses.replace(
            self,
            weights=merged(self.weights, self.network, lora),
            network=without_lora(self.network),
            adapters={name: self.weights[name] for name in sorted(adapters(self.network))},
        )


def read_weights(path: str, network: Network, blame: str, drawn: Collection[str] = ()) -> Weights:
    """Return the weights of a file for all layers of a network that are not `drawn`; `blame` begins
    messages.

    Raises:
        InputError: the file cannot be read, or its arrays are not those of the network.
    """
    kind = _kind(path, blame, _KINDS)
    if kind is None:
        results = read_results(pathlib.Path(path), blame, f"not {_KINDS}")
        own = run_weights_of(results, blame) if results.config.get("lora") else results
        return _with_one_table(own.weights, network, blame, drawn)
    if kind in (CHECKPOINT, BROKEN_ZIP):
        run = _of_checkpoint(path, blame, masters=True)
        return _with_one_table(run.weights, network, blame, drawn)
    if kind == SAFETENSORS or path.lower().endswith(".safetensors"):
        return _with_one_table(_of_safetensors(path, network, blame), network, blame, drawn)
    if kind == TORCH or path.lower().endswith(TORCH_ENDINGS):
        shapes = {layer.name: array_shapes(layer) for layer in network.layers}
        given = weights_by_names(read_torch(path, blame), network, shapes, blame)
        return _with_one_table(given, network, blame, drawn)
    if kind == ONNX or path.lower().endswith(".onnx"):
        return _with_one_table(_of_onnx(path, blame), network, blame, drawn)
    raise unlike(kind, path, blame, f"not {_KINDS}")


def read_run_weights(path: str) -> RunWeights:
    """Return the weights of a results file or a checkpoint with the run that they are of.

    Raises:
        InputError: the file is neither, cannot be read, or holds no weights.
    """
    kind = _kind(path, path, _RUNS)
    if kind is None:
        return run_weights_of(read_results(pathlib.Path(path), denial=_NO_RUN), path)
    if kind not in (CHECKPOINT, BROKEN_ZIP):
        raise unlike(kind, path, path, _NO_RUN)
    run = _of_checkpoint(path, path)
    return dataclasses.replace(run, weights=fitted(run.weights, run.network, path))


def _of_safetensors(path: str, network: Network, blame: str) -> Weights:
    """Return the weights of a file by layer and name, or by the names of the network's model of
    PyTorch.
    """
    by_layer = read_safetensors(path, blame)
    layers = {layer.name for layer in network.layers}
    if "torch" not in network.text or layers & by_layer.keys() == by_layer.keys():
        return by_layer
    given = {
        f"{path}.{name}" if path else name: array
        for path, own in by_layer.items()
        for name, array in own.items()
    }
    shapes = {layer.name: array_shapes(layer) for layer in network.layers}
    return weights_by_names(given, network, shapes, blame)


def _kind(path: str, blame: str, wanted: str) -> FileKind | None:
    """Return what a file is; None of HDF5, which `read_results` tells apart."""
    try:
        with open_file(path) as file:
            is_hdf5 = file.read(len(HDF5_HEAD)) == HDF5_HEAD
        return None if is_hdf5 else kind_of(path)
    except FileNotFoundError:
        is_network = kind_named(path) == "network"
        why = "a network, which has no weights yet" if is_network else "no such file"
        how = f", as `emuchain train {path} --out run.h5` writes it" if is_network else ""
        raise InputError(f"{blame}: {why}; it should be {wanted}{how}") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{blame}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _of_onnx(path: str, blame: str) -> Weights:
    try:
        return onnx_weights(path)
    except InputError as error:
        raise InputError(f"{blame}: {str(error).removeprefix(f'{path}: ')}") from None


def run_weights_of(results: Results, blame: str = "results") -> RunWeights:
    """Return the weights of results with the run that they are of; `blame` begins messages.

    Raises:
        InputError: they are damaged, or hold no weights.
    """
    try:
        text = results.descriptions["network.toml"]
        keys = {name: _plain(value) for name, value in results.config.items()}
        network, lora = load_network(read_description(text)), lora_of(keys)
        network = network if lora is None else with_lora(network, lora)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{blame}: a results file that is damaged: {' '.join(str(error).split())[:200]}"
        ) from None
    fits = fitted(results.weights, network, blame)
    if network.heads and not _faults_of(results, blame).flipping("weights"):
        check_tied(network, lambda layer: fits[layer.name]["weight"], blame)
    batches = -(-int(keys["samples"]) // int(keys["batch"]))
    run = RunWeights(fits, keys, network, results.epochs, epoch_steps=batches)
    return run.merged(lora)


def _faults_of(results: Results, blame: str) -> Faults:
    """Return the faults that a run had."""
    text = results.descriptions
    if "faults.json" in text:
        return described_faults(text["faults.json"], blame)
    return load_cluster(read_description(text["cluster.toml"])).faults


def _plain(value: Any) -> Any:
    """Return a key's value as a configuration takes it; results have lists as arrays, and none as
    an empty text.
    """
    return tuple(value.tolist()) if hasattr(value, "tolist") else None if value == "" else value


def _of_checkpoint(path: str, blame: str, *, masters: bool = False) -> RunWeights:
    """Return the weights of a checkpoint: those that engines read, or those that updates change,
    the `masters`, where these are others.
    """
    with CheckpointReader(path, blame) as reader:
        with reader.reading():
            network = load_network(read_description(reader.text["network"]))
            config = settings_config(dict(reader.text["config"]), reader.text.get("schedule"))
            network = network if config.lora is None else with_lora(network, config.lora)
            network = with_formats(network, config.precision)
            epochs, steps = map(int, reader.text["position"])
            is_faulty = bool(
                network.heads and described_faults(reader.text["faults"], blame).flipping("weights")
            )
        if not is_faulty:
            check_tied_in(reader, network, blame)
        weights: Weights = {}
        for layer in network.layers:
            own = weights[layer.name] = {}
            has_copies = config.precision.of(layer.formats).has_copies
            kind = MASTER if masters and has_copies else "value"
            shapes = array_shapes(layer)
            others = {name: shape for name, shape in shapes.items() if not _is_cut(name)}
            if layer.has_weights:
                whole = reader.of_layer(layer, 0, "weight", kind, layer.weight_shape)
                own |= named_weights(layer, whole) if layer.operation.recurs else {"weight": whole}
            own |= {
                name: reader.of_layer(layer, 0, name, "value", shape)
                for name, shape in others.items()
            }
        samples = int(reader.text.get("samples") or config.samples or 0)
        batches = -(-samples // config.batch)
        run = RunWeights(weights, config.model_dump(), network, epochs, steps, batches)
        return run.merged(config.lora)


def _is_cut(name: str) -> bool:
    """Return whether an array is a part of what checkpoints have as `weight`."""
    return name == "weight" or name.endswith(("_l0", "_l0_reverse"))


_IMAGES = {
    ".safetensors": safetensors_image,
    ".onnx": onnx_image,
    **dict.fromkeys(TORCH_ENDINGS, torch_image),
}


class WeightsFile:
    """A file for weights, which this process alone writes from now on; `as_torch`, whatever its
    name ends in, with a state_dict of PyTorch, or with the `adapter` of a run alone.

    Raises:
        InputError: its name has another ending, or it cannot be written.
    """

    def __init__(
        self, out: str | os.PathLike[str], *, as_torch: bool = False, adapter: bool = False
    ) -> None:
        self._blame, self._adapter = f"`out` = {os.fspath(out)!r}", adapter
        image: Any = next(
            (make for ending, make in _IMAGES.items() if os.fspath(out).lower().endswith(ending)),
            None,
        )
        if as_torch:
            if image not in (None, torch_image):
                raise InputError(
                    f"{self._blame}: a state_dict of PyTorch goes into a file such as weights.pt"
                )
            image = torch_image
        if adapter and image is not safetensors_image:
            raise InputError(f"{self._blame}: adapters go into a file such as adapter.safetensors")
        if image is None:
            raise InputError(f"{self._blame}: its name should end in {' or '.join(_IMAGES)}")
        self._image = image
        self._file = WholeFile(out, example="weights.safetensors")

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, run: RunWeights) -> int:
        """Write the weights of a run; return the bytes that they take.

        Raises:
            InputError: the file cannot be written, a package is missing, or the form has no words
                for the network.
        """
        if self._adapter:
            content = self._adapter_image(run)
            self._file.write(content)
            return len(content)
        if self._image is onnx_image:  # where they have one table
            check_tied(run.network, lambda layer: run.weights[layer.name]["weight"], self._blame)
        state = self._state(run) if self._image is torch_image else None
        content = (
            self._image(run.weights, run.network, self._blame)
            if state is None
            else torch_image(state)
        )
        self._file.write(content)
        return len(content)

    def _adapter_image(self, run: RunWeights) -> bytes:
        """Return the content of a file with the adapters of a run, by PEFT's names."""
        lora, (of_numpy, _) = lora_of(run.settings), _library(self._blame)
        if lora is None:
            raise InputError(
                f"{self._blame}: the run trained no adapters; train with `lora`, or leave"
                " `adapter` out for all weights"
            )
        said = {"network": run.network.name, "lora": str(lora)}
        image: bytes = of_numpy.save(adapter_tensors(run.adapters, run.network), said)
        return image

    def _state(self, run: RunWeights) -> dict[str, Any]:
        """Return the weights of a run by PyTorch's names."""
        steps = run.epochs * run.epoch_steps + run.steps
        rested = rested_layers(run.network, run.settings.get("freeze"))
        return trained_state(run.network, run.weights, steps, rested, self._blame)
