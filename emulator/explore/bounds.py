"""Bounds of the time of a mini-batch, over all cuts.

No cut and no synchronous schedule is below the bounds of the time of a mini-batch. Given a cut with
times t_i = F_i + B_i and messages SR_i, stage i of N does M t_i of work, begins no sooner than the
first micro-batch has come, and its last B still has to go all the way back: for every order of
actions with B in one piece,

    T >= P_i + M t_i,    P_i = sum over j < i of (t_j + 2 SR_j)                                                    (1)

    stage 0  [F]                                   [B]
    stage 1      [F]                          [B]          what stands above stage 2, with the messages between, is P_2
    stage 2          [F][F][B] ... [F][B][B]               M t_2

Over all cuts between layers: T is possible only if some cut has (1) for all i. For a given T,
dynamic programming over (stages, layers) keeps the least P with which the first stages can take the
first layers; a smaller P is never worse, so none that matters is lost. The least possible T follows
by bisection. `least_ps` is no more than F + B of any piece, whatever lies off chip.

Over all cuts at any place: let layer l have an amount v_l of work, and r_i be the most of v that
device i does in a picosecond, max over l of v_l / time of l on i. With numbers y_i >= 0 such that M
y_i + sum over k > i of y_k >= r_i for all i, all work is

    V <= sum r_i t_i <= sum_i t_i (M y_i + sum_{k>i} y_k) = sum_k y_k (M t_k + sum_{i<k} t_i)
      <= sum_k y_k (T - S_k)

where S_k are the messages in P_k; so T >= (V + sum y_k S_k) / sum y_k. From the last device to the
first, y_i takes the least value that is allowed. This holds for any v; each device's own times are
tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from .partition import Pieces

_GRID = 1 << 40
"""y is rounded up to multiples of r / _GRID, which keeps fractions short and the bound valid."""


def all_cuts_ps(pieces: Pieces, micro_batches: int, *, stored: bool) -> int:
    """Return the bound of a mini-batch over cuts at any place, in ps; with `stored` messages these
    count, too.
    """
    starts, devices = pieces.stages.starts, pieces.devices
    times = []
    for device in range(devices):
        # 1 ps at least: rates are per time.
        layers = itertools.pairwise(starts)
        times.append([max(1, pieces.least_ps(*layer, device)) for layer in layers])
    sent = [0] * devices
    if stored:
        inner = [place for place in pieces.stages.places if 0 < place < pieces.stages.end]
        for link in range(devices - 1):
            least = min(pieces.link_ps(link, place) for place in inner)
            # Features to the right, errors back.
            sent[link + 1] = sent[link] + 2 * least
    each_works = set(map(tuple, times))
    return max(_by_rates(works, times, sent, micro_batches) for works in each_works)


def _by_rates(
    works: Sequence[int], times: Sequence[Sequence[int]], sent: Sequence[int], micro_batches: int
) -> int:
    rates = []
    for layer_times in times:
        by_layer = zip(works, layer_times, strict=True)
        rates.append(max(Fraction(work, time) for work, time in by_layer))
    unit = max(rates) / (_GRID * micro_batches)
    behind, weighed = Fraction(0), Fraction(0)
    for rate, messages in zip(reversed(rates), reversed(sent), strict=True):
        exact = max(Fraction(0), (rate - behind) / micro_batches)
        own = -(-exact // unit) * unit
        behind += own
        weighed += own * messages
    return -(-(sum(works) + weighed) // behind) if behind else 0


def cuts_between_layers_ps(pieces: Pieces, micro_batches: int, *, stored: bool) -> int:
    """Return the bound of a mini-batch over cuts between layers, in ps; 0 if there are too few
    layers.
    """
    starts = pieces.stages.starts
    whole = [pieces.least_ps(0, starts[-1], device) for device in range(pieces.devices)]
    # Enough for any cut: no stage takes longer than the whole network on its device.
    high = micro_batches * max(whole) + sum(whole)
    if stored:
        longest = []
        for link in range(pieces.devices - 1):
            longest.append(max(pieces.link_ps(link, place) for place in starts))
        high += 2 * sum(longest)
    if not _is_possible(pieces, micro_batches, high, stored):
        return 0
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        if _is_possible(pieces, micro_batches, middle, stored):
            high = middle
        else:
            low = middle
    return high


def _is_possible(pieces: Pieces, micro_batches: int, time_ps: int, stored: bool) -> bool:
    """Return whether a cut between layers satisfies (1) with a time for all its stages."""
    starts, last = pieces.stages.starts, len(pieces.stages.starts) - 1
    ahead = {0: 0}
    for device in range(pieces.devices):
        least: dict[int, int] = {}
        for j, before in ahead.items():
            for k in range(j + 1, last + 1):
                own = pieces.least_ps(starts[j], starts[k], device)
                # A piece with more layers takes no less, so none of the further ends is possible.
                if before + micro_batches * own > time_ps:
                    break
                # Features to the right, errors back.
                messages = 2 * pieces.link_ps(device, starts[k]) if stored else 0
                least[k] = min(least.get(k, before + own + messages), before + own + messages)
        ahead = least
    return last in ahead
