"""The RTL's multiply-adds of integers against NumPy's, with every latency side by side."""

import numpy as np
import pytest

from .conftest import BuildStream

WIDTHS, LATENCIES = (4, 8, 9, 16), (0, 1, 2, 3, 5)


@pytest.mark.slow
def test_integers_are_numpys(build_stream: BuildStream) -> None:
    """All pairs of eight bits, and drawn ones; sums of 32 bits wrap."""
    body = "".join(
        f"    int32_fma #(.WIDTH({width}), .LATENCY({latency})) w{width}_l{latency} (.clk,"
        f" .a(in[0+:{width}]), .b(in[16+:{width}]), .c(in[63:32]),"
        f" .y(out[{32 * (i * len(LATENCIES) + j)}+:32]));\n"
        for i, width in enumerate(WIDTHS)
        for j, latency in enumerate(LATENCIES)
    )
    last = 32 * len(WIDTHS) * len(LATENCIES) - 1
    ports = f"input logic clk, input logic [63:0] in, output logic [{last}:0] out"
    send = build_stream(f"module stream ({ports});\n{body}endmodule\n")
    draw = np.random.default_rng(4)
    pairs = (np.arange(1 << 16) & 0xFF) | (np.arange(1 << 16) >> 8) << 16
    factors = np.concatenate([pairs, draw.integers(0, 1 << 32, 1 << 16)]).astype(np.uint32)
    addends = draw.integers(0, 1 << 32, factors.size, np.uint32)
    addends[:4] = 0x7FFFFFFF, 0x80000000, 0, 0xFFFFFFFF
    came = send(np.stack([factors, addends], axis=1)).reshape(-1, len(WIDTHS), len(LATENCIES))
    for i, width in enumerate(WIDTHS):
        a, b = (
            ((factors >> np.uint32(begin)) << np.uint32(32 - width)).view(np.int32) >> (32 - width)
            for begin in (0, 16)
        )
        expected = a * b + addends.view(np.int32)
        for j, latency in enumerate(LATENCIES):
            made = came[latency:, i, j].view(np.int32)
            assert (made == expected[: len(made)]).all(), (width, latency)
