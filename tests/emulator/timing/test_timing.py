"""The constants of virtual time: shares of a link, and the interval at which samples enter."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from emuchain.comm import MessageCost
from emuchain.emulator.cluster import Cluster, Link
from emuchain.emulator.mapping import DataPath, Stream, partition, path_row_ps
from emuchain.emulator.timing import Timing

from ..mapping.networks import Operation, board, channels_to_cut, conv, fc, max_pool, network

FORWARD = [DataPath.ACTIVATIONS, DataPath.PARTIAL_ACTIVATIONS]
BACKWARD = [DataPath.OUTPUT_ERRORS, DataPath.INPUT_ERRORS]
SIZES = st.integers(1, 300)


@given(
    st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=4, max_size=4),
    st.integers(1, 400_000),
    st.sampled_from([0, 1, 66]),
    st.sampled_from([1, 64, 1448]),
)
def test_paths_share_a_direction_by_their_bytes(
    maps: list[tuple[int, int, int]], mbps: int, header: int, packet: int
) -> None:
    """So each path of a direction takes as long for a sample as the direction's bytes at full
    bandwidth.

    Those of headers among them: one for each packet of each row.
    """
    paths = [Stream(path, 0, *size) for path, size in zip([*FORWARD, *BACKWARD], maps, strict=True)]
    for direction in (paths[:2], paths[2:]):
        rows = [(s.rows, 4 * s.channels * s.columns) for s in direction]
        sample_ps = (
            8
            * sum(count * (size + header * math.ceil(size / packet)) for count, size in rows)
            * 1e6
            / mbps
        )
        for stream in direction:
            row_ps = path_row_ps(
                Link(mbps, 0, header_bytes=header, packet_bytes=packet), stream, tuple(paths)
            )
            assert isinstance(row_ps, int)
            assert (
                sample_ps / stream.rows * (1 - 1e-12)
                <= row_ps
                < sample_ps / stream.rows * (1 + 1e-12) + 1
            )


def test_a_single_path_has_the_whole_bandwidth() -> None:
    stream = Stream(DataPath.ACTIVATIONS, 0, 5, 3, 7)
    back = Stream(DataPath.INPUT_ERRORS, 0, 5, 3, 7)
    assert (
        path_row_ps(Link(1000, 10**6), stream, (stream, back)) == 4 * 5 * 7 * 8 * 1000
    )  # 1 Gb/s is 1000 ps a bit


@st.composite
def chains(draw: st.DrawFn) -> Timing:
    """A few layers on a few boards of unlike kinds, with any link."""
    channels = st.sampled_from([1, 2, 3, 5, 16, 20])
    rows = draw(st.integers(3, 7))
    operations: list[Operation] = []
    for _ in range(draw(st.integers(1, 2))):
        kernel = draw(st.sampled_from([1, 3]))
        operations.append(conv(draw(channels), kernel, pad=kernel // 2))
    if draw(st.booleans()):
        operations.append(max_pool(2, 2))
    found = network((draw(channels), rows, draw(st.integers(3, 7))), *operations, fc(2))
    boards = tuple(
        board(
            draw(st.integers(120, 2000)), draw(st.integers(1, 20)) * 1000, on_chip_memory_bytes=1000
        )
        for _ in range(draw(st.integers(1, 3)))
    )
    link = Link(
        draw(st.integers(10, 200_000)),
        draw(st.integers(0, 2000)) * 1000,
        header_bytes=draw(st.sampled_from([0, 66])),
        packet_bytes=draw(st.sampled_from([64, 1448])),
        cost=draw(st.sampled_from([MessageCost(((1, 70_000), (99, 900_000)))])),
    )
    cluster = Cluster("c", boards, link)
    return Timing.of(
        partition(found, cluster, draw(st.integers(1, min(5, sum(channels_to_cut(found)))))),
        cluster,
    )


@given(chains())
def test_the_interval_is_the_time_of_the_slowest_resource_for_a_sample(timing: Timing) -> None:
    slowest_ps = 1
    for held in timing.engines:
        for engines in held:
            for engine in (engines.fp, engines.eb, engines.pg):
                if engine is not None:
                    slowest_ps = max(slowest_ps, engine.rows * engine.row_ps)
    for link, streams in enumerate(timing.links):
        for stream in streams:
            slowest_ps = max(slowest_ps, stream.rows * timing.path(link, stream).row_ps)
    assert timing.interval_ps == slowest_ps


@given(chains())
def test_each_device_sends_on_the_streams_of_its_links(timing: Timing) -> None:
    devices = len(timing.mapping.devices)
    for device in range(devices):
        links = timing.clock(device).links
        right = (
            {s.key for s in timing.links[device] if s.path in FORWARD}
            if device + 1 < devices
            else set()
        )
        left = {s.key for s in timing.links[device - 1] if s.path in BACKWARD} if device else set()
        assert set(links) == right | left
        assert all(
            resource.latency_ps == timing.cluster.link.latency_ps for resource in links.values()
        )
