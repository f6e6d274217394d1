"""Slices: input or output channels, and how uneven shares are."""

from __future__ import annotations

import pytest

from emuchain.emulator.mapping import Cut, Slice, imbalance, partition

from .networks import board, cluster, fc, network


def test_imbalance_by_hand() -> None:
    assert imbalance([3, 2, 4]) == 0.5 + 0 + 1
    assert imbalance([7]) == 0


@pytest.mark.parametrize(
    ("ins", "outs", "expected"),
    [
        (3, 64, Cut.OCP),
        (15, 16, Cut.OCP),
        (1, 2, Cut.OCP),
        (16, 64, Cut.ICP),
        (64, 10, Cut.ICP),
        (15, 15, Cut.ICP),  # output channels would be no more
        (15, 2, Cut.ICP),
        (1, 1, Cut.ICP),
    ],
)
def test_few_input_channels_make_ocp(ins: int, outs: int, expected: Cut) -> None:
    layer = network((ins, 1, 1), fc(outs)).layers[0]
    [[part]] = partition(network((ins, 1, 1), fc(outs)), cluster(board(100)), 1).devices
    assert part.cut is expected
    assert (part.begin, part.end) == (0, outs if expected is Cut.OCP else ins)
    middle = Slice(layer, 0, 1)
    assert (len(middle.in_channels), len(middle.out_channels)) == (
        (ins, 1) if expected is Cut.OCP else (1, outs)
    )
