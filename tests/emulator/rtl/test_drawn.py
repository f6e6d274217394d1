"""Small drawn chains on Verilated devices: kernels, strides, padding, pools, clocks, links,
batches, latencies.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.plan import ChainPlan

from .chains import RELU, cluster, conv, fc, network, plan, pool, simulated

DRAWN = 20


def drawn_chain(seed: int, **settings: Any) -> tuple[ChainPlan, int]:
    """A small chain, planned with some settings, and the latency of its multiply-adds."""
    stream = np.random.default_rng(seed)

    def one_of(*values: int) -> int:
        return int(stream.choice(values))

    rows, columns = (int(size) for size in stream.integers(5, 9, 2))
    kernel = (one_of(1, 2, 3), one_of(1, 2, 3))
    first = conv(
        one_of(3, 5, 16),
        kernel,
        pad=[min(one_of(0, 1), kernel[0] - 1), min(one_of(0, 1), kernel[1] - 1)],
    )
    second = conv(
        one_of(2, 5), one_of(1, 2, 3), stride=one_of(1, 2), pad=0, bias=bool(one_of(0, 1))
    )
    layers = [first, RELU]
    if one_of(0, 1):
        layers.append(pool(2, **({"pad": 1} if one_of(0, 1) else {})))
    smallest = min(rows - kernel[0] + 1, columns - kernel[1] + 1) // (2 if len(layers) > 2 else 1)
    if smallest >= second["kernel"]:
        layers += [second, *([RELU] if one_of(0, 1) else [])]
    layers.append(fc(one_of(2, 4)))
    if one_of(0, 1):
        layers += [RELU, fc(3)]
    of = network([one_of(1, 3), rows, columns], *layers)
    boards = cluster(
        one_of(50, 60, 70), one_of(1, 8, 40), one_of(0, 30, 200), one_of(100, 150, 200)
    )
    return plan(of, boards, one_of(1, 2, 2), batch=one_of(1, 2, 3), seed=seed, **settings), one_of(
        0, 0, 0, 2
    )


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize("seed", range(DRAWN))
def test_drawn_chains(tmp_path: Path, seed: int) -> None:
    of, latency = drawn_chain(seed)
    assert simulated(of, tmp_path, latency).is_right
