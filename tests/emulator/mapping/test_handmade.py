"""Cuts made by hand: what they spell, what is refused, and that any mapping has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError
from emuchain.emulator.mapping import HandmadeCut, Slice, cut_channels
from emuchain.emulator.network import Network, load_network

from .cuts import boards_of

NETWORK = load_network("quick-cifar")
"""Cut at 32, 32, 64, 128 and 128 channels: conv1, conv2, conv3, fc1, fc2."""


def pieces(text: str) -> list[list[tuple[str, int, int]]]:
    """What each board has: names of layers, first channels and ends."""
    mapping = HandmadeCut.of(text).mapping(NETWORK)
    return [
        [(part.layer.name, part.begin, part.end) for part in slices] for slices in mapping.devices
    ]


def test_whole_layers_and_channels() -> None:
    assert pieces("conv1:conv2 | conv3[:30%] | conv3[30%:] fc1 fc2") == [
        [("conv1", 0, 32), ("conv2", 0, 32)],
        [("conv3", 0, 19)],  # 19.2 of 64
        [("conv3", 19, 64), ("fc1", 0, 128), ("fc2", 0, 128)],
    ]
    assert pieces("conv1:conv3 fc1[0:64]|fc1[64:] fc2")[1] == [("fc1", 64, 128), ("fc2", 0, 128)]
    assert pieces("conv1 conv2[0:4] conv2[4:32] conv3:fc2") == [
        [("conv1", 0, 32), ("conv2", 0, 32), ("conv3", 0, 64), ("fc1", 0, 128), ("fc2", 0, 128)]
    ]


@pytest.mark.parametrize(
    ("share", "channels"),
    [("1.5625%", 1), ("4.6875%", 2), ("50%", 16), ("33.333%", 11), ("98%", 31)],
)
def test_shares_meet_at_the_nearest_channel(share: str, channels: int) -> None:
    [[first], [second, *_]] = pieces(f"conv1[:{share}] | conv1[{share}:] conv2:fc2")
    assert first[2] == second[1] == channels


@given(st.data())
def test_every_mapping_is_spelt_and_read(data: st.DataObject) -> None:
    ends = [cut_channels(layer) for layer in NETWORK.layers]
    inner = data.draw(st.sets(st.integers(1, sum(ends) - 1), max_size=8))
    cut = HandmadeCut.of(boards_of(NETWORK, inner))
    mapping = cut.mapping(NETWORK)
    assert len(mapping.devices) == len(inner) + 1
    again = HandmadeCut.of_mapping(mapping)
    assert again.mapping(NETWORK) == mapping == HandmadeCut.of(str(again)).mapping(NETWORK)
    held = [part for slices in mapping.devices for part in slices]
    assert sum(part.channels for part in held) == sum(ends)


def test_a_file(tmp_path: Path) -> None:
    cut = HandmadeCut.of("conv1:conv3 | fc1 | fc2")
    path = tmp_path / "cut.toml"
    path.write_text(cut.toml())
    assert HandmadeCut.of(str(path)) == cut
    assert HandmadeCut.of(str(path)).file == str(path)


BAD = {
    "gap": ("conv1 | conv3:fc2", "conv2 is on no board"),
    "gap of channels": (
        "conv1:conv2 conv3[:20] | conv3[30:] fc1 fc2",
        "channels 20 to 30 of conv3 are on no board",
    ),
    "gap at the start": ("conv2:fc2", "conv1 is on no board"),
    "gap at the end": ("conv1:fc1", "fc2 is on no board"),
    "channels missing at the end": (
        "conv1:fc1 | fc2[:100]",
        "channels 100 to 128 of fc2 are on no board",
    ),
    "overlap": (
        "conv1:conv2 conv3[:20] | conv3[10:] fc1 fc2",
        "channels 10 to 20 of conv3 are on board 0 and again on board 1",
    ),
    "a layer twice": (
        "conv1:conv2 | conv2:fc2",
        "channels 0 to 32 of conv2 are on board 0 and again on board 1",
    ),
    "out of order": (
        "conv1 | conv3 | conv2 fc1 fc2",
        (
            "conv3 on board 1 comes before conv2 on board 2; boards hold layers in order: conv1,"
            " conv2, conv3, fc1, fc2"
        ),
    ),
    "out of order on a board": (
        "conv2 conv1 | conv3:fc2",
        "conv2 on board 0 comes before conv1 on board 0; boards",
    ),
    "the last one first": (
        "fc2 | conv1:fc1",
        "fc2 on board 0 comes before conv1 on board 1; boards hold layers in",
    ),
    "channels out of order": (
        "conv1[4:] | conv1[:4] conv2:fc2",
        (
            "conv1[4:32] on board 0 comes before conv1[0:4] on board 1; boards hold channels in"
            " order, from 0 on"
        ),
    ),
    "out of order, and a gap": (
        "conv2 | conv1 fc1 fc2",
        "conv2 on board 0 comes before conv1 on board 1; boards",
    ),
    "backwards": ("conv3:conv1 fc1 fc2", "conv1 comes before conv3"),
    "an empty board": ("conv1:fc2 | ", "board 1 has nothing, behind fc2"),
    "no channels": ("conv1[3:3] conv2:fc2", "conv1[3:3]: no channels, or more than there are"),
    "too many channels": ("conv1:conv3[:99]", "should be NAME, FIRST:LAST or NAME[BEGIN:END]"),
    "more than there are": (
        "conv1:conv2 conv3[:99] fc1 fc2",
        "conv3 is cut at 64 input channels, counted from 0",
    ),
    "a word for a channel": (
        "conv1[:all] conv2:fc2",
        "'all' should be a channel or a share, such as 30%",
    ),
    "unknown layer": ("konv1 conv2:fc2", "did you mean `conv1`?"),
    "nothing": ("", "conv1 is on no board"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], name: str
) -> None:
    text, message = BAD[name]
    with pytest.raises((InputError, ValueError)) as error:
        HandmadeCut.of(text).mapping(NETWORK)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "content", ["", "boards = 3", "bords = []", "boards = ['a']\nmore = 1", "boards = [1]"]
)
def test_files_that_are_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "cut.toml"
    path.write_text(content)
    with pytest.raises(
        (InputError, ValueError), match="should have one key, `boards`|should be FILE.toml"
    ):
        HandmadeCut.of(str(path))


def test_slices_are_those_of_the_network() -> None:
    network: Network = load_network("vgg16-cifar")
    [slices] = HandmadeCut.of("conv1_1:fc8").mapping(network).devices
    assert slices == tuple(Slice(layer, 0, cut_channels(layer)) for layer in network.layers)
