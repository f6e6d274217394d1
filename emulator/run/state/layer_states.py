"""Whole layers, gathered from the devices that hold parts of them, and distributed again: weights
alone, or all state.

A layer's arrays do not depend on how it is cut: any mapping can resume from them. They travel layer
by layer, so that no rank ever holds those of the whole network.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....kernels.optimizers import optimizer_kind
from ....launch import Ranks
from ...device import (
    MASTER,
    TURNED,
    Bpram,
    Learnt,
    SliceNumerics,
    State,
    joined_weights,
    named_weights,
)
from ...mapping import Cut, Slice
from ...network import Layer, Network
from ...number import Precision
from ..results import Weights

if TYPE_CHECKING:
    from ...config import Config, Settings

LayerState = dict[str, dict[str, NDArray[np.float32]]]
"""A layer's arrays by name, and for each the value and what updates remember of it, such as the
velocity.
"""

Read = Callable[[Layer, int, str, str, tuple[int, ...]], NDArray[np.float32]]
"""Function that returns one of a layer's arrays, from the replica, and its name, kind and shape."""

_VALUE = "value"
_WEIGHT, _BIAS = "weight", "bias"
_OF_WEIGHTS = MASTER, TURNED


def kept_kinds(config: Config | Settings, precision: Precision) -> tuple[str, ...]:
    """Return what training keeps of each array that is learnt in a precision: its value, a master
    copy, what EB reads, if it was rounded by chance, and what updates remember.
    """
    master = (MASTER,) if precision.has_copies else ()
    turned = (TURNED,) if precision.turns_by_chance else ()
    return _VALUE, *master, *turned, *optimizer_kind(config.optimizer).states


def gathered_weights(ranks: Ranks, network: Network, slices: Iterable[SliceNumerics]) -> Weights:
    """Return all layers' weights (oc, ic, kh, kw), and the arrays of their SFUs, on rank 0, from
    all ranks' slices.
    """
    held = [(part.part, part.weights(), part.arrays()) for part in slices]
    gathered: Weights = {}
    for part, weight, others in itertools.chain.from_iterable(ranks.gather(held)):
        whole = gathered.setdefault(part.layer.name, {})
        for name, array in {_WEIGHT: weight, **others}.items():
            if name not in whole:
                whole[name] = np.empty(_whole_shape(part, name, array.shape), np.float32)
            whole[name][_place(part, name)] = array  # copied: it goes on being trained
    for layer in network.layers:
        if not layer.has_weights and layer.name in gathered:
            del gathered[layer.name]["weight"]
        if layer.operation.recurs and layer.name in gathered:
            gathered[layer.name].update(named_weights(layer, gathered[layer.name].pop("weight")))
    return gathered


def gathered_state(
    ranks: Ranks, layer: Layer, learnt: Sequence[Learnt], *, whole: bool = True
) -> LayerState:
    """Return the arrays of a whole layer on rank 0, from all ranks' parts; elsewhere {}.

    Unless `whole`, only moving averages are taken, which replicas have of their own samples.
    """
    own = [holder for holder in learnt if holder.part.layer.index == layer.index]
    parts = [
        (isinstance(holder, Bpram), holder.part, holder.state() if whole else _averages(holder))
        for holder in own
    ]
    whole_layer: LayerState = {}
    every = [rank_part for rank_parts in ranks.gather(parts) for rank_part in rank_parts]
    for _, part, state in sorted(
        every, key=lambda entry: entry[0]
    ):  # stored blocks have what counts, so come last
        for name, kinds in state.items():
            arrays = whole_layer.setdefault(name, {})
            for kind, array in kinds.items():
                if kind not in arrays:
                    arrays[kind] = np.empty(_whole_shape(part, name, array.shape), np.float32)
                arrays[kind][_place(part, name)] = array
    return whole_layer


def add_shares(state: LayerState, other: LayerState) -> None:
    """Add what another replica's updates keep of a layer to `state`, in place: each has zeros but
    for its share.
    """
    for name, kinds in other.items():
        for kind, array in kinds.items():
            if kind != _VALUE:
                # Bits, since a sum would turn -0.0 into 0.0.
                own = state[name][kind].view(np.uint32)
                own |= array.view(np.uint32)


def make_whole(states: Sequence[LayerState]) -> None:
    """Give all replicas, of which each keeps a share of what updates keep of a layer, all of it, in
    place.
    """
    first, *others = states
    for other in others:
        add_shares(first, other)
    for other in others:
        for name, kinds in other.items():
            other[name] = {**first[name], _VALUE: kinds[_VALUE]}


def deal_state(
    ranks: Ranks,
    layer: Layer,
    learnt: Sequence[Learnt],
    read: Read,
    kinds: Sequence[str],
    replica: int = 0,
    *,
    whole: bool = True,
) -> None:
    """Restore all ranks' parts of a replica's layer from arrays that rank 0 reads; for all ranks
    together.

    `kinds` are what is kept of each parameter; of moving averages, there is the value alone. Unless
    `whole`, only averages are the replica's own, and parameters those of the first.
    """
    if layer.frozen:  # updates remember nothing of it
        kinds = [kind for kind in kinds if kind in (_VALUE, MASTER, TURNED)]
    if not layer.has_eb or layer.operation.looks_up:
        kinds = [kind for kind in kinds if kind != TURNED]
    own = [holder for holder in learnt if holder.part.layer.index == layer.index]
    wanted = ranks.gather(
        [(holder.part, _shapes(holder.state()), {*holder.averages}) for holder in own]
    )
    once = functools.cache(read)

    def answer(part: Slice, shapes: Mapping[str, tuple[int, ...]], averages: set[str]) -> State:
        state: LayerState = {}
        for name, shape in shapes.items():
            source = replica if whole or name in averages else 0
            kept = (
                (_VALUE,)
                if name in averages
                else [kind for kind in kinds if name == _WEIGHT or kind not in _OF_WEIGHTS]
            )
            for kind in kept:
                array = once(layer, source, name, kind, _whole_shape(part, name, shape))
                state.setdefault(name, {})[kind] = np.ascontiguousarray(array[_place(part, name)])
        return state

    answers = [[*itertools.starmap(answer, requests)] for requests in wanted]
    for holder, held in zip(own, ranks.deal(answers), strict=True):
        holder.restore(held)


def deal_weights(
    ranks: Ranks,
    network: Network,
    learnt: Sequence[Sequence[Learnt]],
    weights: Weights | None,
    drawn: Collection[str] = (),
) -> None:
    """Make all replicas' parts begin with the weights that rank 0 has; for all ranks together.

    Elsewhere `weights` are None. Layers that are `drawn` have theirs from the seed. Updates
    remember nothing yet.
    """

    def read(layer: Layer, _: int, name: str, *__: object) -> NDArray[np.float32]:
        assert weights is not None
        arrays = weights[layer.name]
        return (
            joined_weights(layer, arrays)
            if name == _WEIGHT and layer.operation.recurs
            else arrays[name]
        )

    for layer in (layer for layer in network.layers if layer.name not in drawn):
        for replica, own in enumerate(learnt):
            deal_state(ranks, layer, own, read, (_VALUE,), replica)


def _averages(holder: Learnt) -> State:
    return {name: versions.state() for name, versions in holder.averages.items()}


def _shapes(state: State) -> dict[str, tuple[int, ...]]:
    return {name: kinds[_VALUE].shape for name, kinds in state.items()}


def _whole_shape(part: Slice, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a layer's array, of which a part has one of `shape`."""
    if name == _WEIGHT:
        return part.layer.weight_shape
    return (part.layer.channels,) if _is_cut(part, name) else shape


def _is_cut(part: Slice, name: str) -> bool:
    """Return whether parts have their own channels of an array; all others belong to the SFU, which
    is in one piece.
    """
    return name == _WEIGHT or (name == _BIAS and part.layer.vocabulary_parallel)


def _place(part: Slice, name: str) -> tuple[slice, ...]:
    """Return where a part's array lies in the layer's: weights are (oc, ic, kh, kw)."""
    if (part.is_first and part.is_last) or not _is_cut(part, name):
        return (slice(None),)
    own = slice(part.begin, part.end)
    return (slice(None), own) if part.cut is Cut.ICP else (own,)
