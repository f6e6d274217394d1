"""What travels between neighbours: the streams of a link, by hand."""

from __future__ import annotations

from emuchain.emulator.mapping import DataPath, Mapping, Slice, Stream, streams
from emuchain.emulator.network import Network

from .networks import conv, fc, max_pool, network


def on_link(found: Network, *devices: tuple[int, int, int]) -> tuple[Stream, ...]:
    """The streams of link 0, with devices that hold (layer, begin, end)."""
    mapping = Mapping(
        found, tuple((Slice(found.layers[index], low, high),) for index, low, high in devices)
    )
    return streams(mapping, 0)


TRAFFIC = network((16, 5, 6), conv(20, 3), conv(4, 2), conv(7), fc(9))


def test_traffic_within_icp() -> None:
    """conv2 has 20 channels of 3x4 as input, 4 of 2x3 as output; the left device holds input
    channels 0 … 12.
    """
    assert on_link(TRAFFIC, (1, 0, 13), (1, 13, 20)) == (
        Stream(DataPath.ACTIVATIONS, 1, 7, 3, 4, begin=13),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 2, 4, 2, 3),
        Stream(DataPath.OUTPUT_ERRORS, 2, 4, 2, 3),
        Stream(DataPath.INPUT_ERRORS, 1, 7, 3, 4),
    )


def test_traffic_within_icp_does_not_depend_on_where_the_layer_ends() -> None:
    """The right device passes on what is for those beyond it."""
    assert on_link(TRAFFIC, (1, 0, 13), (1, 13, 14)) == on_link(TRAFFIC, (1, 0, 13), (1, 13, 20))


def test_traffic_of_the_first_layer_has_no_input_errors() -> None:
    assert on_link(TRAFFIC, (0, 0, 1), (0, 1, 16)) == (
        Stream(DataPath.ACTIVATIONS, 0, 15, 5, 6, begin=1),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 1, 20, 3, 4),
        Stream(DataPath.OUTPUT_ERRORS, 1, 20, 3, 4),
    )


def test_traffic_within_ocp() -> None:
    """conv3 has 4 channels of 2x3 as input, of which all go on, and 7 as output, of which those
    done go on.
    """
    assert on_link(TRAFFIC, (2, 0, 5), (2, 5, 7)) == (
        Stream(DataPath.ACTIVATIONS, 2, 4, 2, 3),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 3, 5, 2, 3),
        Stream(DataPath.OUTPUT_ERRORS, 3, 5, 2, 3),
        Stream(DataPath.INPUT_ERRORS, 2, 4, 2, 3),
    )


def test_traffic_at_the_boundary_of_two_layers() -> None:
    """Activations after the SFU one way, their errors the other way."""
    assert on_link(TRAFFIC, (1, 0, 20), (2, 0, 7)) == (
        Stream(DataPath.ACTIVATIONS, 2, 4, 2, 3),
        Stream(DataPath.INPUT_ERRORS, 2, 4, 2, 3),
    )
    pooled = network((16, 4, 4), conv(2), max_pool(2, 4), fc(3))
    assert on_link(pooled, (0, 0, 16), (1, 0, 3)) == (
        Stream(DataPath.ACTIVATIONS, 2, 2, 2, 1),
        Stream(DataPath.INPUT_ERRORS, 2, 2, 2, 1),
    )


def test_traffic_of_a_fully_connected_layer() -> None:
    """7 channels of 2x3 as input, of which all go on (OCP: 9 outputs), and outputs of one value."""
    assert on_link(TRAFFIC, (3, 0, 2), (3, 2, 9)) == (
        Stream(DataPath.ACTIVATIONS, 3, 7, 2, 3),
        Stream(DataPath.PARTIAL_ACTIVATIONS, 4, 2, 1, 1),
        Stream(DataPath.OUTPUT_ERRORS, 4, 2, 1, 1),
        Stream(DataPath.INPUT_ERRORS, 3, 7, 2, 3),
    )


def test_bytes_of_a_stream() -> None:
    stream = Stream(DataPath.ACTIVATIONS, 0, 3, 5, 7)
    assert (stream.row_bytes, stream.sample_bytes) == (84, 420)


def test_forward_paths_are_1_2_and_5() -> None:
    """Those of FPDeep; of the two that gather a recurrent layer's states, errors run to the
    right.
    """
    of_fpdeep = [path for path in DataPath if not path.is_of_states]
    assert {path.value for path in of_fpdeep} == {1, 2, 3, 4, 5, 6}
    assert {path.value for path in of_fpdeep if path.is_forward} == {1, 2, 5}
    assert {path.value: path.is_forward for path in DataPath if path.is_of_states} == {
        7: False,
        8: True,
    }
