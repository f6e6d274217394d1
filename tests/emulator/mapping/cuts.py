"""Cuts as text, drawn at any channels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from emuchain.emulator.mapping import cut_channels
from emuchain.emulator.network import Network


def boards_of(network: Network, places: Iterable[int]) -> list[str]:
    """What each board has of the row of all channels, cut at these places."""
    inner, boards, first = set(places), list[list[str]]([[]]), 0
    for layer in network.layers:
        channels = cut_channels(layer)
        within = sorted(place - first for place in inner if first < place < first + channels)
        if first in inner:
            boards.append([])
        for number, (begin, end) in enumerate(itertools.pairwise([0, *within, channels])):
            if number:
                boards.append([])
            boards[-1].append(f"{layer.name}[{begin}:{end}]")
        first += channels
    return [" ".join(board) for board in boards]
