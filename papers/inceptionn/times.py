"""Training time: Tables I and II, Figs. 3, 12, 13 and 15, and the costs of section VIII-D."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ...kernels.number import FP32
from ..claim import Measured
from .evidence import (
    EXCHANGES,
    NETWORKS,
    RATIOS,
    TRAINED,
    WORKERS,
    Exchange,
    cluster_network,
    exchange_ps,
    less_percent,
    times,
    values,
)

LARGE = ("alexnet", "resnet50", "vgg16")
SCALED = tuple(range(4, 9))
"""Fig. 15: 4 to 8 workers."""
_FOUR = "AlexNet, HDC, ResNet-50, VGG-16"
EXTRA_EPOCHS = 2
"""Section VIII-B: one or two more epochs."""


def speedup(name: str, extra_epochs: int = 0) -> float:
    """Return the speed-up of INC+C over WA; in Fig. 13, INC+C trains for more epochs."""
    trained = TRAINED[name]
    epochs = trained["iterations"] * trained["node_batch"] * WORKERS / trained["images"]
    return times(name, "WA").total / times(name, "INC+C").total * epochs / (epochs + extra_epochs)


def exchange_seconds(name: str, exchange: Exchange, workers: int) -> float:
    """Return the time of communication and gradient sum of one iteration (Fig. 15)."""
    return exchange_ps(cluster_network(), exchange, values(name), workers) * 1e-12


def all_networks(part: str) -> Measured:
    """Return a part's share of each network's time in percent."""
    all_times = [times(name, "WA") for name in NETWORKS]
    return Measured([100 * getattr(seconds, part) / seconds.total for seconds in all_times], _FOUR)


def range_of(figure: str) -> Measured:
    """Return the least and the most of all networks: of `speedup`, or of the `reduction` of
    communication.
    """
    measure = {"speedup": speedup, "reduction": _reduction}[figure]
    figures = [measure(name) for name in NETWORKS]
    return Measured(
        [min(figures), max(figures)], f"{_FOUR}: {', '.join(f'{figure:.3g}' for figure in figures)}"
    )


def _reduction(name: str) -> float:
    return less_percent(times(name, "INC+C").communicate, times(name, "WA").communicate)


def best_of_wa() -> Measured:
    """Measure the most communication that compression saves an aggregator."""
    percents = [
        less_percent(times(name, "WA+C").communicate, times(name, "WA").communicate)
        for name in NETWORKS
    ]
    return Measured(
        max(percents), f"{_FOUR}: {', '.join(f'{percent:.1f}' for percent in percents)}"
    )


def order(*exchanges: Exchange) -> Measured:
    """Count the networks for which total times do not fall in this order."""
    totals_by_network = []
    for name in NETWORKS:
        totals_by_network.append([times(name, exchange).total for exchange in exchanges])
    return Measured(
        sum(totals != sorted(totals, reverse=True) for totals in totals_by_network),
        f"networks, of {len(NETWORKS)}",
    )


def less_to_sum() -> Measured:
    """Measure the ring's gradient sums over the aggregator's."""
    shares = [times(name, "INC").gradient_sum / times(name, "WA").gradient_sum for name in NETWORKS]
    return Measured(shares, f"gradient sum of INC over WA: {_FOUR}")


def share_grows() -> Measured:
    """Measure communication's share with twice the workers, and with nodes twice as fast, over that
    of Table II.
    """
    now, more = times("alexnet", "WA"), times("alexnet", "WA", 2 * WORKERS)
    share = now.communicate / now.total
    faster = now.communicate / (now.total - now.node / 2)
    return Measured(
        [more.communicate / more.total / share, faster / share],
        "AlexNet: 8 workers; nodes twice as fast",
    )


def ratio_not_time() -> Measured:
    """Measure the communication time of INC+C at the ratio of 2^-6 over that at 2^-10."""
    ratios = (RATIOS["alexnet"], 12.34)
    shares = [
        100 * times("alexnet", "INC+C", WORKERS, r).communicate / times("alexnet", "WA").communicate
        for r in ratios
    ]
    how = (
        f"{shares[1]:.1f} % of WA's against {shares[0]:.1f} %, for AlexNet's ratios in Table III,"
        " 12.3 and 5.6"
    )
    return Measured(shares[1] / shares[0], how)


def scaled() -> Measured:
    """Measure what INC+C saves by the paper's method: the link's time over the ratio, plus the
    engines' time.
    """
    interconnect, saved = cluster_network(), {}
    for name in NETWORKS:
        message_bytes = FP32.bytes_of(values(name) // WORKERS)
        link_ps = interconnect.transfer_ps(message_bytes)
        engines_ps = interconnect.engines.time_ps(message_bytes, int(message_bytes / RATIOS[name]))
        saved[name] = less_percent(link_ps / RATIOS[name] + engines_ps, link_ps)
    how = (
        f"ResNet-50, Table III's ratio; {_FOUR}:"
        f" {', '.join(f'{percent:.1f}' for percent in saved.values())}"
    )
    return Measured(saved["resnet50"], how)


def _line(exchange: Exchange, name: str) -> np.ndarray:
    return np.array([exchange_seconds(name, exchange, workers) for workers in SCALED])


def linear() -> Measured:
    """Measure the largest deviation of exchange times from a straight line, as a share."""
    worst = []
    for name in NETWORKS:
        seconds = _line("WA", name)
        straight = np.polyval(np.polyfit(SCALED, seconds, 1), SCALED)
        worst.append(float(np.abs(seconds / straight - 1).max()))
    growth = ", ".join(f"{_line('WA', name)[-1] / _line('WA', name)[0]:.2f}" for name in NETWORKS)
    return Measured(
        worst, f"4 to 8 workers, largest deviation from a line; 8 over 4: {growth} ({_FOUR})"
    )


def flat() -> Measured:
    """Measure the growth of the ring's exchange time from 4 workers to 8."""
    growths = [float(_line("INC", name)[-1] / _line("INC", name)[0]) for name in LARGE]
    hdc = _line("INC", "hdc")
    return Measured(
        growths, f"8 over 4 workers: AlexNet, ResNet-50, VGG-16; HDC {hdc[-1] / hdc[0]:.2f}"
    )


def below() -> Measured:
    """Measure the ring's exchange time over the aggregator's."""
    ratios = [float((_line("INC", name) / _line("WA", name)).max()) for name in NETWORKS]
    return Measured(ratios, f"INC over WA, the most of 4 to 8 workers: {_FOUR}")


def over_formula(exchange: Exchange) -> Measured:
    """Measure the exchange time over the printed formula's, with full-duplex links and packets
    without overhead.
    """
    interconnect = dataclasses.replace(
        cluster_network(), packet_overhead_bytes=0, packet_stack_ps=0, blocking=False
    )
    count = values("alexnet") // 64 * 64
    size = FP32.bytes_of(count)
    alpha, n_beta, n_gamma = (
        interconnect.latency_ps,
        interconnect.transfer_ps(size),
        interconnect.sum_ps(size),
    )
    ratios = []
    for p in (4, 8, 16):
        if exchange == "WA":
            log = math.log2(p)
            printed = (1 + log) * alpha + (p + log) * n_beta + (p - 1) * n_gamma
        else:
            printed = 2 * (p - 1) * alpha + 2 * (p - 1) / p * n_beta + (p - 1) / p * n_gamma
        ratios.append(exchange_ps(interconnect, exchange, count, p) / printed)
    return Measured(ratios, "AlexNet's size, 4, 8 and 16 workers, over the formula")


def first_term() -> Measured:
    """Measure the latency's share of the exchange time."""
    without = dataclasses.replace(cluster_network(), latency_ps=0)
    shares = [
        1
        - exchange_ps(without, exchange, values(name))
        / exchange_ps(cluster_network(), exchange, values(name))
        for name in LARGE
        for exchange in EXCHANGES[::2]
    ]
    return Measured(max(shares), "the largest of AlexNet, ResNet-50, VGG-16, WA and INC")


def ratio_of_wire() -> Measured:
    """Measure the aggregator's bytes on the wire over the ring's."""
    interconnect = dataclasses.replace(
        cluster_network(),
        packet_overhead_bytes=0,
        packet_stack_ps=0,
        blocking=False,
        latency_ps=0,
        sum_ps_per_kbyte=0,
    )
    aggregator, ring = (exchange_ps(interconnect, exchange, 10**6) for exchange in ("WA", "INC"))
    return Measured(aggregator / ring, "n beta alone, links that send and receive at once")
