"""BaPipe's Table VI: ResNet-50 at half precision, micro-batches of one sample, on VCU118 and VCU129
with 40 GB/s.
"""

from __future__ import annotations

import pytest

from emuchain.emulator.cluster import load_cluster
from emuchain.emulator.explore import Wires, data_parallel, pipelined
from emuchain.emulator.network import load_network
from emuchain.emulator.number import Storage
from emuchain.emulator.profile import BoardStages
from emuchain.emulator.schedule import pipeline_kind
from emuchain.kernels.number import FP16
from emuchain.papers.bapipe.explorer import DSP_MHZ
from emuchain.papers.constants import COUNTED


@pytest.mark.parametrize(("vcu129", "vcu118", "published"), [(0, 4, 1), (2, 2, 1.05), (4, 0, 1.14)])
def test_speedups_over_data_parallelism(vcu129: int, vcu118: int, published: float) -> None:
    """On boards as the paper counts them."""
    keys = {"board.clock_mhz": DSP_MHZ.default, "board.off_chip_gbytes_per_s": 40}
    counts = {"vcu129": vcu129, "vcu118": vcu118}
    boards = [{"type": kind, "count": count} for kind, count in counts.items() if count]
    links = {"bandwidth_gbps": 100, "latency_ns": 1000}
    described = {"name": "table 6", "boards": boards, "links": links}
    cluster = load_cluster(described, {**COUNTED, **keys})
    stages = BoardStages(load_network("resnet50"), cluster.boards, 1, Storage.all_in(FP16))
    wires = Wires(tuple(cluster.link_at(link) for link in range(3)), cluster.interconnect)
    times = {}
    for name in ("fbp-as", "1f1b-as"):
        found = pipelined(pipeline_kind(name), pipeline_kind(name).machine, stages, wires, 128)
        assert found is not None and found.time_ps is not None
        times[name] = found.time_ps
    replicated = data_parallel(stages, wires, 128)
    assert replicated.time_ps is not None
    # Equal in Table I, with equal stages; FBP-AS keeps twice the features, and more of them off
    # chip.
    assert 1 < times["fbp-as"] / times["1f1b-as"] < 1.03
    # The rate of a DSP is fitted with links that take no time, as BaPipe gives none.
    assert replicated.compute_ps / times["fbp-as"] == pytest.approx(published, rel=0.05)
    assert replicated.time_ps / times["fbp-as"] == pytest.approx(published, rel=0.06)
