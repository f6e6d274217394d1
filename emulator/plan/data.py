"""The data set that a plan's configuration names, checked against its network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..common import InputError
from ..data import Dataset, describe_data, load_data
from ..network import Shape
from .plan import Plan


def training_data(plan: Plan) -> Dataset:
    """Load the data set, limited to the configured number of samples.

    Raises:
        InputError: the data set is missing or damaged, or its images or classes do not match the network.
    """
    config = plan.config
    with _about_data(config.data):
        data = load_data(config.data)
    check_data(plan, data.shape, data.n_classes)
    if config.samples is not None:
        data = data.first(config.samples)
    return data if config.test_samples is None else data.test_first(config.test_samples)


def epoch_samples(plan: Plan) -> int:
    """Return the number of samples in an epoch; with `samples` and without `data`, no data set is needed.

    Raises:
        InputError: the data set is missing, does not fit the network, or has too few samples.
    """
    config = plan.config
    if config.samples is not None and "data" not in config.model_fields_set:
        return config.samples
    with _about_data(config.data):
        available, _, shape, classes = describe_data(config.data)
    try:
        check_data(plan, shape, classes)
    except InputError as error:
        raise InputError(f"{error}; with `samples` and without `data`, a run can be planned without images") from None
    if config.samples is not None and config.samples > available:
        raise InputError(f"`samples` = {config.samples}: but {config.data} has {available} training images")
    return config.samples or available


def check_data(plan: Plan, shape: Shape, classes: int) -> None:
    """Check that a plan's network takes images of this shape and has this number of classes.

    Raises:
        InputError: the shape or the number of classes differs.
    """
    network, source = plan.network, plan.config.data
    if shape != network.input:
        raise InputError(
            f"`data` = {source!r}: images are {_size(shape)}, but network {network.name} takes {_size(network.input)}"
        )
    if classes != network.classes:
        raise InputError(
            f"`data` = {source!r}: has {classes} classes, but network {network.name} has {network.classes} outputs"
        )


@contextlib.contextmanager
def _about_data(where: str) -> Iterator[None]:
    """Prefix errors about a data set with the configuration key that names it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"`data` = {where!r}: {error}") from None


def _size(shape: Shape) -> str:
    return "x".join(map(str, shape))
