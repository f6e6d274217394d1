"""Which layers' features B recomputes from what arrives at them, so that less is kept from F to B
(Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost").

A device keeps what arrives at the first of recomputed layers that follow one another on it. B does
their F again before it begins, with the same weights and the same numbers; or R does, where the
schedule has it as an action of its own, of the micro-batches that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..common import InputError, did_you_mean
from ..faults import Faults
from ..mapping import Slice, activation_bytes, cut_channels
from ..network import Layer, Network
from ..profile import DoesNotFit
from ..schedule import Engines, Machine, Transport
from .stages import PlannedStages

if TYPE_CHECKING:
    from ..config import Config

Make = Callable[[frozenset[int]], PlannedStages]
"""From recomputed layers to the stages."""


def recomputing(config: Config, network: Network, make: Make) -> PlannedStages:
    """Return the stages with the layers recomputed that a configuration says; `auto` are as few as
    make all data fit, those first that keep the most bytes for each multiply-accumulate. A schedule
    with R recomputes all where the configuration says nothing.

    Raises:
        InputError: a layer is unknown, the run does not allow it, or data do not fit.
    """
    if not _recomputes(config):
        return make(frozenset())
    _check(config)
    if config.recompute != "auto":
        text = "all" if config.recompute == "none" else config.recompute
        return make(recomputed_layers(text, network))
    layers = sorted(network.layers, key=_gain, reverse=True)
    # More recomputed layers never need more memory, but for what arrives at them.
    enough, too_few = len(layers), -1
    while enough - too_few > 1:
        count = (enough + too_few) // 2
        try:
            make(frozenset(layer.index for layer in layers[:count]))
            enough = count
        except DoesNotFit:
            too_few = count
    return make(frozenset(layer.index for layer in layers[:enough]))


def check_recompute(config: Config, faults: Faults) -> None:
    """Check that recomputed features are those of F.

    Raises:
        InputError: bits flip.
    """
    if _recomputes(config) and faults.flips:
        raise InputError(
            f"{_blame(config)}`faults.flips` change what F and what B compute; leave one of them"
            " out"
        )


def check_rows_kept(config: Config) -> None:
    """Check that nothing is recomputed, or moved to the host, on boards that stream rows.

    Raises:
        InputError: something is.
    """
    if config.schedule.offloads:
        raise InputError(
            f"`schedule` = {config.schedule.name!r} has O and L: boards that stream rows keep what B"
            " needs; needs `engines` = 'turns' or 'split'"
        )
    if _recomputes(config):
        raise InputError(
            f"{_blame(config)}boards that stream rows keep what B needs, as their engines of F are"
            " busy with later samples; needs `engines` = 'turns' or 'shared'"
        )


def check_moves(config: Config, machine: Machine) -> None:
    """Check that boards of a machine have a queue for O and L, and that their numbers can be moved.

    Raises:
        InputError: they do not.
    """
    if not config.schedule.offloads:
        return
    blame = f"`schedule` = {config.schedule.name!r} has O and L: "
    if machine.engines is Engines.SHARED or machine.transport is Transport.STREAMED:
        raise InputError(
            f"{blame}needs `engines` = 'turns' or 'split', with messages stored or hidden"
        )
    if config.rtl_device is not None:
        raise InputError(f"{blame}a device in RTL keeps what B needs; leave out `rtl_device`")


def _recomputes(config: Config) -> bool:
    return config.recompute != "none" or config.schedule.recomputes


def _blame(config: Config) -> str:
    """Return how a message begins: with the key that says to recompute."""
    if config.recompute == "none":
        return f"`schedule` = {config.schedule.name!r} has R: "
    return f"`recompute` = {config.recompute!r}: "


def _check(config: Config) -> None:
    blame = _blame(config)
    if not config.schedule.aligned:
        raise InputError(
            f"{blame}`schedule` = {config.schedule.name!r} has F and B of a sample use different"
            " weights; should be one such as 'sync' or '1f1b-sno'"
        )
    if config.rtl_device is not None:
        raise InputError(f"{blame}a device in RTL keeps what B needs; leave out `rtl_device`")


def recomputed_layers(text: str, network: Network) -> frozenset[int]:
    """Return the layers that text names, by index; or `all`.

    Raises:
        InputError: a layer is unknown.
    """
    if text == "all":
        return frozenset(layer.index for layer in network.layers)
    index = {layer.name: layer.index for layer in network.layers}
    chosen = set()
    for name in text.replace(",", " ").split():
        if name not in index:
            hint = did_you_mean(name, index)
            raise InputError(
                f"`recompute` = {text!r}: {network.name} has no layer {name!r}; {hint}should be"
                " names of layers, all, auto or none"
            )
        chosen.add(index[name])
    return frozenset(chosen)


def _gain(layer: Layer) -> float:
    """Return the bytes that a layer keeps for each multiply-accumulate of its F."""
    whole = Slice(layer, 0, cut_channels(layer))
    return activation_bytes(whole) / max(1, whole.macs)
