"""What training keeps of whole layers, gathered from the devices that hold parts of them, and dealt out again.

A layer's arrays do not depend on how it is cut: any mapping can go on from them. They travel layer by layer, so that
no rank ever holds those of the whole network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...comm import Ranks
from ..device import Bpram, Learnt, State
from ..mapping import Cut, Slice
from ..network import Layer

LayerState = dict[str, dict[str, NDArray[np.float32]]]
"""A layer's arrays by name, and for each the value and what updates remember of it, such as the velocity."""

_WEIGHT = "weight"  # the one array that is cut; all others belong to the SFU, which is in one piece


def gathered_state(ranks: Ranks, layer: Layer, learnt: Sequence[Learnt]) -> LayerState:
    """Return the arrays of a whole layer on rank 0, from all ranks' parts; elsewhere {}."""
    parts = [(isinstance(of, Bpram), of.part, of.state()) for of in _of_layer(layer, learnt)]
    found: LayerState = {}
    every = [each for rank_parts in ranks.gather(parts) for each in rank_parts]
    for _, part, state in sorted(every, key=lambda each: each[0]):  # stored blocks have what counts, so come last
        for name, kinds in state.items():
            arrays = found.setdefault(name, {})
            for kind, array in kinds.items():
                if name == _WEIGHT:
                    arrays.setdefault(kind, np.empty(layer.weight_shape, np.float32))[_place(part)] = array
                else:
                    arrays[kind] = array
    return found


def deal_state(ranks: Ranks, layer: Layer, learnt: Sequence[Learnt], state: State) -> None:
    """Restore all ranks' parts of a layer from its arrays on rank 0; for all ranks together."""
    own = _of_layer(layer, learnt)
    wanted = ranks.gather([(of.part, of.part.is_last and not isinstance(of, Bpram)) for of in own])
    answers = [[_part_of(state, part, with_sfu=last) for part, last in parts] for parts in wanted]
    for of, held in zip(own, ranks.deal(answers), strict=True):
        of.restore(held)


def _of_layer(layer: Layer, learnt: Sequence[Learnt]) -> list[Learnt]:
    return [of for of in learnt if of.part.layer.index == layer.index]


def _part_of(state: State, part: Slice, *, with_sfu: bool) -> State:
    place = _place(part)
    weight = {kind: np.ascontiguousarray(array[place]) for kind, array in state[_WEIGHT].items()}
    others: Mapping[str, Mapping[str, NDArray[np.float32]]] = {}
    if with_sfu:
        others = {name: kinds for name, kinds in state.items() if name != _WEIGHT}
    return {_WEIGHT: weight, **others}


def _place(part: Slice) -> tuple[slice, slice]:
    """Return where a part lies in the layer's weights (oc, ic, kh, kw)."""
    if part.is_first and part.is_last:
        return slice(None), slice(None)
    own = slice(part.begin, part.end)
    return (slice(None), own) if part.cut is Cut.ICP else (own, slice(None))
