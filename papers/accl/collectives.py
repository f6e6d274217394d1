"""Collectives of FPGAs by ACCL+ (He et al., OSDI 2024): those at few boards are fitted, those at
more predicted.

Over RDMA, U55C boards: messages between two boards and gathers at 3 and 4 say what broadcasts,
gathers, reductions and all-to-alls take at 6 and 8. Over TCP, U280 and U250 boards: all-reduces and
all-gathers at 3 and 4 say what they take at 6 and 8.
"""

from __future__ import annotations

import statistics

from ...emulator.calibrate import Coverage, calibrate_collective
from ..claim import Measured
from ..constants import kept
from .rows import Row, chosen, compared, constants_of, mean_percent, witnesses

FEW, MORE = "3 4", "6 8"
"""Boards of the rows that are fitted, and of those that are predicted."""

TIME = "slowest_rank_median_us"
_RDMA = "bcast gather reduce alltoall"
_TCP = "allreduce allgather"


def rdma_fitted_rows(collective: str) -> list[Row]:
    """Return messages between two boards, and a collective at few; with none, messages alone.

    Raises:
        NoEvidence: the rows are not here.
    """
    rows = witnesses("accl_rdma.csv")
    few = chosen(rows, collective=collective, nodes=FEW) if collective else []
    return [*chosen(rows, collective="sendrecv"), *few]


def rdma_more_rows(collective: str) -> list[Row]:
    """Return a collective at more boards; with none, all four.

    Raises:
        NoEvidence: the rows are not here.
    """
    return chosen(witnesses("accl_rdma.csv"), collective=collective or _RDMA, nodes=MORE)


@kept
def _rdma_constants(fitted: str) -> str:
    return constants_of(rdma_fitted_rows(fitted), calibrate_collective)


@kept
def rdma(collective: str, fitted: str) -> Coverage:
    """Return how a collective at more boards, or all four, compares with what messages between two
    boards and one collective at few say; with none, messages alone.

    Raises:
        NoEvidence: the rows are not here.
    """
    return compared(_rdma_constants(fitted), rdma_more_rows(collective))


def rdma_fitted_percent() -> Measured:
    """Return the mean error of the rows that were fitted, in percent.

    Raises:
        NoEvidence: the rows are not here.
    """
    coverage = compared(_rdma_constants("gather"), rdma_fitted_rows("gather"))
    return mean_percent(coverage, f"the textbook {coverage.null_percent:.1f} %")


def rdma_percent(collective: str) -> Measured:
    """Return the mean error of a collective at more boards, or of all four, in percent, by messages
    between two boards and gathers at few; beside the textbook with constants of messages alone.

    Raises:
        NoEvidence: the rows are not here.
    """
    guess = f"the textbook by `sendrecv` alone {rdma_textbook_percent(collective):.1f} %"
    return mean_percent(rdma(collective, "gather"), guess)


def rdma_textbook_percent(collective: str) -> float:
    """Return the textbook's mean error in percent, with constants of messages alone.

    Raises:
        NoEvidence: the rows are not here.
    """
    return rdma(collective, "").null_percent


def tcp_rows(collective: str, nodes: str) -> list[Row]:
    """Return the rows over TCP of a collective, or of both, at some numbers of boards.

    Raises:
        NoEvidence: they are not here.
    """
    return chosen(witnesses("accl_tcp.csv"), collective=collective or _TCP, nodes=nodes)


@kept
def _tcp_constants() -> str:
    return constants_of(tcp_rows("", FEW), calibrate_collective)


def tcp_fitted_percent() -> Measured:
    """Return the mean error of the rows over TCP that were fitted, in percent.

    Raises:
        NoEvidence: the rows are not here.
    """
    coverage = compared(_tcp_constants(), tcp_rows("", FEW))
    return mean_percent(coverage, f"the textbook {coverage.null_percent:.0f} %")


def tcp_percent(collective: str) -> Measured:
    """Return the mean error of a collective at more boards, or of both, in percent, by few boards;
    beside the textbook, and the time of four boards.

    Raises:
        NoEvidence: the rows are not here.
    """
    coverage = compared(_tcp_constants(), tcp_rows(collective, MORE))
    textbook, four = coverage.null_percent, tcp_same_time_percent(collective)
    guesses = f"the textbook {textbook:.0f} %, the time of four boards {four:.1f} %"
    return mean_percent(coverage, guesses)


def tcp_same_time_percent(collective: str) -> float:
    """Return how far off it is on average, in percent, that more boards take the time of four; of
    sizes that four have.

    Raises:
        NoEvidence: the rows are not here.
    """
    four = {(row["collective"], row["bytes"]): float(row[TIME]) for row in tcp_rows("", "4")}
    errors = [
        abs(four[row["collective"], row["bytes"]] / float(row[TIME]) - 1)
        for row in tcp_rows(collective, MORE)
        if (row["collective"], row["bytes"]) in four
    ]
    return 100 * statistics.fmean(errors)
