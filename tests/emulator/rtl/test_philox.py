"""The RTL's Philox4x32-10: published known answers, the kernel's words, and its cycles."""

import numpy as np
import pytest

from emuchain.kernels.quantise import PhiloxStream, philox

from .conftest import BuildStream, Records, Stream

pytestmark = pytest.mark.slow

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]
"""Random123's kat_vectors."""

CYCLES = 10
RESET, START = 1, 2
DONE, READY = 1, 2

BENCH = """module stream (input logic clk, input logic [223:0] in, output logic [159:0] out);
    logic done, ready;
    philox core (
        .clk, .reset(in[0]), .start(in[1]), .counter(in[159:32]), .key(in[223:160]), .ready, .done, .words(out[159:32])
    );
    assign out[31:0] = {30'd0, ready, done};
endmodule
"""


@pytest.fixture(scope="module")
def core(build_stream: BuildStream) -> Stream:
    """Philox; a record has reset and start, a counter and a key, and comes out as done and ready,
    and words.
    """
    return build_stream(BENCH)


def sent(
    counters: list[tuple[int, ...]], keys: list[tuple[int, ...]], every: int = CYCLES
) -> Records:
    """Return records with a counter and its key each `every` clocks after a reset; what stands
    between is not taken.
    """
    records = np.full((1 + every * len(counters) + 1, 7), 0xDEADBEEF, np.uint32)
    records[:, 0] = 0
    records[0, 0] = RESET
    for i, (counter, key) in enumerate(zip(counters, keys, strict=True)):
        records[1 + every * i] = (START, *counter, *key)
    return records


@pytest.mark.parametrize("every", [CYCLES, CYCLES + 3])
def test_known_answers_in_ten_cycles(core: Stream, every: int) -> None:
    came = core(sent([counter for counter, _, _ in KNOWN], [key for _, key, _ in KNOWN], every))
    is_done = np.flatnonzero(came[1:, 0] & DONE) + 1
    assert list(is_done) == [1 + every * i + CYCLES for i in range(len(KNOWN))]
    assert [tuple(map(int, came[clock, 1:])) for clock in is_done] == [
        words for _, _, words in KNOWN
    ]


def test_a_counter_is_taken_when_it_is_ready(core: Stream) -> None:
    """`start` all the time: a counter every ten cycles, and none between."""
    records = sent([(i, 0, 0, 0) for i in range(30)], [(7, 8)] * 30, every=1)
    came = core(records)
    assert list(np.flatnonzero(came[1:-1, 0] & READY)) == [0, 10, 20]
    assert [tuple(map(int, came[clock, 1:])) for clock in (11, 21)] == [
        philox((i, 0, 0, 0), (7, 8)) for i in (0, 10)
    ]


def test_words_are_the_kernels(core: Stream) -> None:
    """Of drawn counters and keys, and of a tensor that is rounded."""
    draw = np.random.default_rng(11)
    counters = [tuple(map(int, row)) for row in draw.integers(0, 1 << 32, (500, 4))]
    keys = [tuple(map(int, row)) for row in draw.integers(0, 1 << 32, (500, 2))]
    came = core(sent(counters, keys))[1 + CYCLES :: CYCLES, 1:]
    assert [tuple(map(int, row)) for row in came] == [
        philox(counter, key)  # type: ignore[arg-type]
        for counter, key in zip(counters, keys, strict=True)
    ]
    stream = PhiloxStream(seed=(7 << 32) + 5, tensor=3, purpose=9, number=(2 << 32) + 1)
    came = core(sent([(i, 3 * 256 + 9, 1, 2) for i in range(64)], [(5, 7)] * 64))[
        1 + CYCLES :: CYCLES, 1:
    ]
    assert (came.reshape(-1) == stream.words(0, 256)).all()
