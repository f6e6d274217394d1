"""Whether a network takes the samples and the targets of a data set, and these as it takes them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, plural
from ..data import Dataset, Description, LazyImages, as_shape, takes_shape
from ..network import Network, Shape


def fitted(network: Network, data: Dataset, name: str) -> Dataset:
    """Return a data set with samples and targets as a network and its loss take them.

    Raises:
        InputError: the network does not take them; the message names the data set by `name`.
    """
    check_fits(network, name, Description.of(data))
    if data.is_text:
        return (
            data.last_labels() if network.result_steps == 1 and data.train_labels.ndim > 1 else data
        )
    if network.loss == "softmax" and data.by_targets and not (data.train_labels >= 0).any():
        raise InputError(f"`data` = {name!r}: has no target: all classes are negative")
    if network.loss == "bce":
        _check_shares(name, data)
    channels_first = "inputs" in network.channels_first
    symbols = data.symbols if _looks_up(network, data.shape, data.symbols) else 0

    def images(own: Any) -> Any:
        if not data.symbols:
            return _fitted_images(own, network, by_steps=data.by_steps)
        if symbols:
            return own
        rows = own[:, 0, :, :, None].astype(np.float32)
        return as_shape(rows, network.input, channels_first=channels_first)

    def targets(own: NDArray[Any]) -> NDArray[Any]:
        if network.loss == "softmax":
            own = np.maximum(own, -1)
            return own.reshape(len(own), -1) if own.ndim > 2 else own
        if own.ndim == 4:  # maps: outputs have their channels last
            own = own.transpose(0, 2, 3, 1)
        elif own.ndim == 3 and _are_channels_first(network, own.shape[1:]):
            own = own.transpose(0, 2, 1)
        return np.ascontiguousarray(own.reshape(len(own), -1), np.float32)

    return dataclasses.replace(
        data,
        train_images=images(data.train_images),
        test_images=images(data.test_images),
        train_labels=targets(data.train_labels),
        test_labels=targets(data.test_labels),
        symbols=symbols,
    )


def _are_channels_first(network: Network, shape: tuple[int, ...]) -> bool:
    """Return whether targets of such a shape, (steps, channels) or (channels, steps), are the
    latter.
    """
    steps, channels = network.result_steps, network.classes
    return shape == (channels, steps) and (steps != channels or "results" in network.channels_first)


def _fitted_images(own: Any, network: Network, *, by_steps: bool) -> Any:
    channels_first = "inputs" in network.channels_first
    turned = by_steps and channels_first
    if tuple(own.shape[1:]) == network.input and not turned:
        return own
    if isinstance(own, LazyImages):
        pictures: Any = own.pictures
        read = dataclasses.replace(pictures, shape=network.input, channels_first=channels_first)
        return dataclasses.replace(own, pictures=read, size=network.input[1:])
    if turned:
        own = own.swapaxes(1, 2)
    return np.ascontiguousarray(as_shape(own, network.input, channels_first=channels_first))


def _check_shares(name: str, data: Dataset) -> None:
    for own in (data.train_labels, data.test_labels):
        if (own < 0).any() or (own > 1).any():
            raise InputError(
                f"`data` = {name!r}: `loss` = bce takes targets from 0 to 1, and here they are"
                f" {np.nanmin(own):g} to {np.nanmax(own):g}"
            )


def _looks_up(network: Network, shape: Shape, symbols: int) -> bool:
    """Return whether a network takes symbols as such: it looks them up, or has a channel for
    each.
    """
    channels, steps, _ = network.input
    fits = shape[1] == steps and symbols <= channels
    by_channel = network.takes_sequence and network.entry == network.input and channels > 1
    return bool(symbols) and fits and (network.takes_symbols or by_channel)


def check_fits(network: Network, name: str, said: Description) -> None:
    """Check that a network takes the samples of a data set, and its loss the targets.

    Raises:
        InputError: it does not.
    """
    source = f"`data` = {name!r}"
    if said.differs and (taker := _by_place(network)):
        raise InputError(
            f"{source}: samples differ in length, and {taker} takes the same rows of each; give"
            " samples of one length (`text_samples` = windows)"
        )
    if network.loss == "softmax" and said.n_classes == network.classes == 1 and not said.numbers:
        raise InputError(
            f"{source}: has one class, and network {network.name} one output: there is nothing to"
            " learn, and every sample's loss is 0; give data of two classes or more"
        )
    if said.symbols and not said.by_targets:
        if network.loss != "softmax":
            raise InputError(
                f"{source}: is a text, whose symbols are classes, and `loss` is {network.loss};"
                " should be softmax"
            )
        _check_text(network, source, said.shape)
        return
    _check_inputs(network, source, said)
    if network.loss == "softmax":
        _check_classes(network, source, said)
    else:
        _check_numbers(network, source, said)


def _by_place(network: Network) -> str:
    """Return the first operation that takes rows by their places in each sample, as cross-attention
    does; "" if there is none.
    """
    for layer in network.layers:
        for operation in (layer.operation, *(step.operation for step in layer.sfu)):
            of_rows = operation.type == "rows" or getattr(operation, "axis", None) == "rows"
            if of_rows or getattr(operation, "keys", None):
                return f"`{operation.type}` of layer {layer.name}"
    return ""


def _check_inputs(network: Network, source: str, said: Description) -> None:
    if said.symbols:
        values = said.shape[1], 1, 1
        if _looks_up(network, said.shape, said.symbols) or (
            not network.takes_symbols and takes_shape(values, network.input)
        ):
            return
        wanted = f"takes {_size(network.input)}"
        if network.takes_symbols:
            wanted = f"looks up {network.input[0]:,} symbols at {plural(network.input[1], 'step')}"
        raise InputError(
            f"{source}: inputs are whole numbers up to {said.symbols - 1:,} of"
            f" {plural(said.shape[1], 'step')}, but network {network.name} {wanted}"
        )
    if network.takes_symbols and (said.by_targets or said.shape == network.input):
        has = "inputs that are no whole numbers" if said.by_targets else "images"
        raise InputError(
            f"{source}: has {has}, but network {network.name} looks up symbols; give it"
            + (" numbers of symbols (N, steps)" if said.by_targets else " a text")
        )
    if said.shape != network.input and not (
        said.by_targets and takes_shape(said.shape, network.input)
    ):
        noun = "inputs" if said.by_targets else "images"
        raise InputError(
            f"{source}: {noun} are {_size(said.shape)}, but network {network.name} takes"
            f" {_size(network.input)}"
        )


def _check_classes(network: Network, source: str, said: Description) -> None:
    if said.numbers:
        raise InputError(
            f"{source}: targets are floats, but the loss of network {network.name} is softmax, for"
            " classes; give `loss` = mse, or bce for labels of yes or no; or classes as whole"
            " numbers"
        )
    steps = math.prod(said.targets)
    if steps == 1 and network.result_steps > 1:
        rows, columns = network.layers[-1].feeds[1:]
        results, advice = f"{rows} steps", 'put {type = "last-step"} before its last layer'
        if network.has_map_results:
            results, advice = f"{rows}x{columns} pixels", "end with fc or global-average-pool"
        raise InputError(
            f"{source}: has a label for each image, but network {network.name} has results for each"
            f" of its {results}; {advice}"
        )
    if steps not in (1, network.result_steps) or (steps > 1 and network.result_steps == 1):
        raise InputError(
            f"{source}: has {steps:,} labels for each sample, but network {network.name} has"
            f" {plural(network.result_steps, 'result')}"
        )
    fits = said.n_classes == network.classes
    if said.by_targets:
        fits = said.n_classes <= network.classes
    if not fits:
        advice = ""
        if network.classes == 1:
            advice = "; a network needs an output for each class"
        elif steps > 1 and said.n_classes > network.classes:
            advice = "; labels that are left out should be below 0, such as -100"
        raise InputError(
            f"{source}: has {plural(said.n_classes, 'class')}, but network {network.name} has"
            f" {plural(network.classes, 'output')}{advice}"
        )


def _check_numbers(network: Network, source: str, said: Description) -> None:
    values, outputs = math.prod(said.targets), network.classes * network.result_steps
    if values != outputs:
        shape = " x ".join(map(str, said.targets)) or "one"
        classes = said.n_classes == network.classes and values == 1 and not said.numbers
        raise InputError(
            f"{source}: has {plural(values, 'number')} for each sample ({shape}), but network"
            f" {network.name} has {plural(outputs, 'output')}, and `loss` = {network.loss} takes"
            " one for each" + ("; of classes, leave `loss` out" if classes else "")
        )


def _check_text(network: Network, source: str, shape: Shape) -> None:
    """Check a network against a text of this shape; it may have channels and outputs for more
    symbols.
    """
    symbols, steps, _ = shape
    should = f"its `input` should be [{symbols}, {steps}, 1], and its outputs as many as symbols"
    if not network.takes_sequence or network.entry != network.input:
        raise InputError(
            f"{source}: is a text, but network {network.name} takes images of"
            f" {_size(network.input)}; {should}"
        )
    if symbols > min(network.input[0], network.classes):
        raise InputError(
            f"{source}: has {symbols:,} symbols, but network {network.name} takes"
            f" {network.input[0]:,} and has {network.classes:,} outputs; {should}"
        )
    if network.result_steps not in (1, steps):
        raise InputError(
            f"{source}: has {plural(steps, 'step')}, but network {network.name} has results for"
            f" {network.result_steps:,}; it"
            " should have one for each step, or one in all"
        )


def _size(shape: Shape) -> str:
    return "x".join(map(str, shape))
