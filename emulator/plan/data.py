"""The network, the cluster, its faults and the data set that a run's configuration names, and
whether they match.

Of the network, a run may freeze layers and draw some anew beside the weights of a file; and a loss
that slices of the classifier compute in parts goes together with some keys only. Faults are read
where the configuration or the cluster has them, and held against boards and links.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..cluster import Cluster, load_cluster
from ..common import InputError, plural
from ..data import Dataset, Reading, describe_data, is_text, load_data, symbol_count
from ..faults import Faults
from ..mapping import Slice
from ..network import (
    Network,
    Shape,
    TorchNetwork,
    code_of,
    frozen_names,
    load_network,
    named_layers,
    network_of_code,
    with_formats,
    with_frozen,
    with_lora,
)
from ..network.operations.normalisation import BatchNorm
from .fit import check_fits, fitted
from .plan import ChainPlan, Plan
from .zero import check_micro_batches

if TYPE_CHECKING:
    from ..config import Config


def network_of(
    network: str | os.PathLike[str] | Mapping[str, Any] | Network,
    time_steps: int | None = None,
    data: str | None = None,
    reading: Reading | None = None,
    *,
    sizes: str | None = None,
    seed: int = 1,
) -> Network:
    """Return a network with `time_steps`, if given, and the symbols or images of its data, by
    default built-in ones; a model of the user's
    own code takes samples of these `sizes`, and PyTorch draws its weights by the `seed`.

    Raises:
        InputError: there is no such network; it does not take sequences, or is loaded and has other
            time steps; there is no such text.
    """
    if isinstance(network, Network):
        if time_steps not in (None, network.input[1]):
            raise InputError(
                f"`time_steps` = {time_steps}: but {network.name} is loaded, with"
                f" {network.input[1]} of them; give the network by its name, or the number to"
                " `load_network`"
            )
        return network
    named = os.fspath(network) if isinstance(network, str | os.PathLike) else ""
    if code := code_of(named):
        if time_steps is not None:
            raise InputError(f"`time_steps` = {time_steps}: {named} takes the steps of `input`")
        return network_of_code(code, sizes, seed)
    if sizes is not None:
        raise InputError(
            f"`input` = {sizes!r}: is for a model of your own code, FILE.py:FUNCTION; other networks"
            " say their inputs"
        )
    text, images = (data, None) if data is not None and is_text(data) else (None, data)
    of_text = (lambda: _symbols(text or "text", reading or Reading())) if images is None else None
    of_images = (lambda: _images(images or "shapes", reading)) if text is None else None
    return load_network(network, time_steps=time_steps, symbols=of_text, images=of_images)


def configured_network(config: Config) -> Network:
    """Return the network that a configuration names, as `network_of` does."""
    return network_for(config, config.network)


def network_for(
    config: Config, network: str | os.PathLike[str] | Mapping[str, Any] | Network
) -> Network:
    """Return a network under a configuration, as `network_of` does."""
    keys: dict[str, Any] = {"sizes": config.input, "seed": config.seed}
    return network_of(network, config.time_steps, config.data, Reading.of(config), **keys)


def cluster_of(config: Config, what_if: Mapping[str, object] | None = None) -> Cluster:
    """Return a run's cluster, with the values that the configuration changes, and those of a
    `--what-if`.

    Raises:
        InputError: there is no such cluster, or a changed value is invalid.
    """
    changes = {**(config.changes or {}), **(what_if or {})}
    return load_cluster(config.cluster, changes, blame="--what-if" if what_if else "--set")


def _images(where: str, reading: Reading | None) -> Shape:
    with _about_data(where):
        return describe_data(where, reading=reading)[2]


def _symbols(where: str, reading: Reading) -> int:
    with _about_data(where):
        return symbol_count(where, reading.tokenizer, masks=reading.masked_share > 0)


def data_of(plan: Plan) -> str:
    """Return the name of a plan's data set: that of the configuration, or the built-in one that
    suits the network.
    """
    return plan.config.data or ("text" if plan.network.takes_sequence else "shapes")


def training_data(plan: Plan) -> Dataset:
    """Load the data set, limited to the configured number of samples.

    Raises:
        InputError: the data set is missing or damaged, or its images or classes do not match the
            network.
    """
    config, where = plan.config, data_of(plan)
    with _about_data(where):
        lines = config.text_samples == "lines"
        enough = config.samples, config.test_samples
        data = load_data(
            where, plan.network.input[1], lines=lines, reading=Reading.of(config), enough=enough
        )
    return limited(plan, fitted(plan.network, data, where))


def limited(plan: Plan, data: Dataset) -> Dataset:
    """Return a data set with only the first samples, where the configuration says how many.

    Raises:
        InputError: there are fewer.
    """
    config = plan.config
    if config.samples is not None:
        data = data.first(config.samples)
    return data if config.test_samples is None else data.test_first(config.test_samples)


def epoch_samples(plan: Plan) -> int:
    """Return the number of samples in an epoch; with `samples` and without `data`, no data set is
    needed.

    Raises:
        InputError: the data set is missing, does not fit the network, or has too few samples.
    """
    config, where = plan.config, data_of(plan)
    if config.samples is not None and config.data is None:
        return config.samples
    with _about_data(where):
        lines = config.text_samples == "lines"
        steps, reading = plan.network.input[1], Reading.of(config)
        said = describe_data(where, steps, lines=lines, reading=reading)
    try:
        check_fits(plan.network, where, said)
    except InputError as error:
        raise InputError(
            f"{error}; with `samples` and without `data`, a run can be planned without data"
        ) from None
    available = said.n_train
    if config.samples is not None and config.samples > available:
        raise InputError(
            f"`samples` = {config.samples}: but {where} has {available} training"
            f" {plan.network.sample_noun}s"
        )
    check_micro_batches(config, plan.replicas, config.samples or available)
    return config.samples or available


def fitting_data(plan: Plan, data: Dataset) -> Dataset:
    """Return a loaded data set as the plan's network takes its images, values or text, and its
    loss the targets.

    Raises:
        InputError: the network does not take them.
    """
    return fitted(plan.network, data, data.name)


def check_normalised(plan: Plan, samples: int) -> None:
    """Check that each mini-batch of an epoch has two values or more of all that batch normalisation
    normalises.

    Raises:
        InputError: a mini-batch has a single value, which has no variance (PyTorch refuses it,
            too).
    """
    config, replicas = plan.config, plan.replicas
    least = min(config.batch, samples % config.batch or config.batch, samples) // replicas
    for layer in plan.network.layers if least == 1 else ():
        for step in layer.sfu:
            if (
                isinstance(step.operation, BatchNorm)
                and not layer.frozen
                and math.prod(step.makes.shape[1:]) == 1
            ):
                key = (
                    f"`batch` = {config.batch}"
                    if config.batch // replicas == 1
                    else f"`samples` = {samples:,}"
                )
                part = "mini-batch of a replica" if replicas > 1 else "mini-batch"
                raise InputError(
                    f"{key}: leaves a {part} with one sample, and so one value for each channel of"
                    f" {step.makes.name}, whose variance batch normalisation needs; give it two"
                    " samples or more"
                )


@contextlib.contextmanager
def _about_data(where: str) -> Iterator[None]:
    """Prefix errors about a data set with the configuration key that names it."""
    try:
        yield
    except InputError as error:
        raise InputError(f"`data` = {where!r}: {error}") from None


def check_loss(config: Config, network: Network) -> None:
    """Check that a configuration suits the network's loss.

    Raises:
        InputError: slices compute parts of the loss, and labels are smoothed, or there are no
            slices; or a key is of another loss.
    """
    weights = config.class_weights
    losses = {"label_smoothing": ("softmax",), "class_weights": ("softmax", "bce")}
    for key, suited in losses.items():
        if getattr(config, key) and network.loss not in suited:
            raise InputError(f"`{key}` is of classes, and `loss` is {network.loss}; leave it out")
    if weights and (len(weights) != network.classes or not any(weights)):
        raise InputError(
            f"`class_weights`: {plural(len(weights), 'number')}, but {network.name} has"
            f" {plural(network.classes, 'class')}; give one for each, not all 0"
        )
    if weights and (config.label_smoothing or network.layers[-1].vocabulary_parallel):
        raise InputError(
            "`class_weights`: go with neither `label_smoothing` nor `vocabulary_parallel`; leave"
            " one out"
        )
    if not network.layers[-1].vocabulary_parallel:
        return
    if config.schedule.offload is not None:
        raise InputError(
            f"`schedule` = {config.schedule.name!r}: a GPU has all logits, and {network.name}"
            " divides its loss among devices of a chain; leave `vocabulary_parallel` out of its"
            " softmax"
        )
    if config.label_smoothing:
        raise InputError(
            f"`label_smoothing` = {config.label_smoothing:g}: needs the sum of all logits, which"
            " devices do not send where `vocabulary_parallel` = true; should be 0"
        )


def tuned(config: Config, network: Network) -> Network:
    """Return the network with the loss, with the adapters, and with the layers frozen and in
    formats of their own, that a configuration names.

    Raises:
        InputError: it names no such layers, or new ones without `init`, or one of two layers that
            share weights; or layers to freeze beside adapters, under which all others rest.
    """
    if config.loss is not None:
        if config.loss != "softmax" and network.layers[-1].vocabulary_parallel:
            raise InputError(
                f"`loss` = {config.loss!r}: slices of {network.name} compute parts of softmax;"
                " leave `vocabulary_parallel` out"
            )
        network = dataclasses.replace(network, loss=config.loss)
    drawn = drawn_layers(config, network)
    begins = isinstance(network, TorchNetwork) or config.init is not None
    if drawn and not begins and config.resume is None:
        raise InputError(
            f"`new_layers` = {','.join(config.new_layers)!r}: without `init`, the seed draws all"
            " layers; add `init`, a file with the weights of the others"
        )
    for head in network.heads:
        assert head.tied is not None
        if (head.name in drawn) != (head.tied.name in drawn):
            raise InputError(
                f"`new_layers`: {head.name} has the weights of {head.tied.name}; name both or none"
            )
    if config.lora is not None and config.freeze:
        raise InputError(
            f"`freeze` = {','.join(config.freeze)!r}: with `lora` all layers rest but adapters, and"
            " those that its `train` names; leave `freeze` out"
        )
    if config.lora is not None:
        network = with_lora(network, config.lora)
    else:
        network = with_frozen(network, config.freeze or frozen_names(network))
    return with_formats(network, config.precision)


def drawn_layers(config: Config, network: Network) -> frozenset[str]:
    """Return the layers whose first weights the seed draws although others come from a file.

    Raises:
        InputError: there is no such layer.
    """
    return frozenset(named_layers(network, config.new_layers, "new_layers"))


def faults_of(config: Config, cluster: Cluster) -> Faults:
    """Return the faults of the file that the configuration names; without one, those of the
    cluster.

    Raises:
        InputError: the file cannot be read, or something in it is wrong.
    """
    if config.faults is None:
        return cluster.faults
    from ..faults import load_faults  # with pydantic, which ranks that follow do without

    return load_faults(config.faults)


def check_faults(
    faults: Faults, config: Config, held: Sequence[Sequence[Slice]], replicas: int, boards: int
) -> None:
    """Check that all boards and links that faults name are there, and that they can have them.

    Raises:
        InputError: one is not, or boards step together through a recurrent layer.
    """
    if not faults:
        return
    source = config.faults or config.cluster
    nodes = replicas * boards
    for name, board in _boards(faults):
        if board >= nodes:
            known = f"boards 0 to {nodes - 1}" if nodes > 1 else "only board 0"
            raise InputError(
                f"{source}: `{name}.board` = {board}: there is no such board; this run has {known}"
            )
    for name, link in _links(faults):
        if link >= nodes - 1 or (link + 1) % boards == 0:
            known = (
                "this run's boards have no chain"
                if boards == 1
                else f"link n joins boards n and n + 1 of {nodes}"
            )
            chains = f", and each chain has {boards}" if replicas > 1 and boards > 1 else ""
            raise InputError(
                f"{source}: `{name}.link` = {link}: there is no such link; {known}{chains}"
            )
    if any(flips.of == "gradients" for flips in faults.flips) and replicas == 1:
        raise InputError(
            f"{source}: `faults.flips` = gradients: a single chain exchanges none; should be"
            " `replicas` > 1"
        )
    _check_recurrent(source, held)


def check_deaths(faults: Faults, plan: ChainPlan) -> None:
    """Check that a chain can go on without the boards that die.

    Raises:
        InputError: there are several chains, a board dies twice, all die, or times depend on what a
            codec saves.
    """
    config, exchange = plan.config, plan.data_parallel
    source = config.faults or config.cluster
    boards = [death.board for death in faults.deaths]
    twice = [board for board, count in collections.Counter(boards).items() if count > 1]
    if exchange.replicas > 1:
        raise InputError(
            f"{source}: `faults.deaths`: only a single chain can be cut again over the boards that"
            f" are left, but there are {exchange.replicas} replicas; should be `replicas` = 1, and"
            " a schedule such as 'sync' or 'fpdeep'"
        )
    if twice:
        raise InputError(
            f"{source}: `faults.deaths`: board {twice[0]} dies twice; each may be listed once"
        )
    if len(boards) == plan.devices:
        raise InputError(
            f"{source}: `faults.deaths`: no board is left; at least one of {plan.devices} should"
            " live"
        )
    if exchange.codec.compresses and plan.timing.blocks:
        raise InputError(
            f"{source}: `faults.deaths`: what is lost follows from times that are known beforehand,"
            f" and `compress` = {str(exchange.codec)!r} makes them depend on gradients; leave one"
            " of them out"
        )


def _check_recurrent(source: str, held: Sequence[Sequence[Slice]]) -> None:
    for left, (slices, behind) in enumerate(itertools.pairwise(held)):
        layer = slices[-1].layer
        if layer.operation.recurs and layer.index == behind[0].layer.index:
            raise InputError(
                f"{source}: `faults`: boards {left} and {left + 1} step together through"
                f" {layer.name}, so a fault of only one of them cannot be modelled; should be"
                " `stages` = 'layers'"
            )


def _boards(faults: Faults) -> list[tuple[str, int]]:
    slow = [(f"faults.boards[{place}]", fault.board) for place, fault in enumerate(faults.boards)]
    slow += [(f"faults.deaths[{place}]", death.board) for place, death in enumerate(faults.deaths)]
    flips = [
        (f"faults.flips[{place}]", fault.board)
        for place, fault in enumerate(faults.flips)
        if fault.board is not None
    ]
    return [*slow, *flips]


def _links(faults: Faults) -> list[tuple[str, int]]:
    links = [(f"faults.links[{place}]", fault.link) for place, fault in enumerate(faults.links)]
    flips = [
        (f"faults.flips[{place}]", fault.link)
        for place, fault in enumerate(faults.flips)
        if fault.link is not None
    ]
    return [*links, *flips]
