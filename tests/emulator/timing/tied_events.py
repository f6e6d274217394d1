"""What crosses the chain once for each mini-batch: tables of tied weights, and the norm of
gradients.

A mark ("tied", to, link, head, mini-batch, row) is a row's arrival at the other end of a link, to
the right (1) or to the left (-1); so is ("norm", to, link, mini-batch).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .described import VALUE_BYTES, numbered, up, wire_bytes
from .events import Mark, Process

if TYPE_CHECKING:
    from .event_simulation import Chain


def tied_processes(chain: Chain) -> Iterator[Process]:
    """The processes of each direction of each link that a table crosses."""
    for head, embedding_on, head_on in _tied(chain):
        for left, right in itertools.pairwise(sorted({*embedding_on, *head_on})):
            for to, begin, end, adding in (
                (1, left, right, embedding_on),
                (-1, right, left, head_on),
            ):
                first, last = (left, right - 1) if to == 1 else (right - 1, left)
                hops, before = len(chain.laid.way(begin, end)), first - to
                for place in range(hops):
                    at = last if place + 1 == hops else first + to * place
                    begins = begin == (embedding_on[0] if to == 1 else head_on[-1]) and not place
                    yield _rows(
                        chain,
                        head,
                        to,
                        at,
                        [begin] if begin in adding and not place else [],
                        begins,
                        before,
                    )
                    before = at


def tables_from_afar(chain: Chain, device: int, number: int) -> list[Mark]:
    """The marks of the last rows that a device's update waits for."""
    found: list[Mark] = []
    for head, embedding_on, head_on in _tied(chain):
        last = chain.maps[head].channels - 1
        if device in head_on and device > embedding_on[0]:
            found.append(("tied", 1, device - 1, head, number, last))
        if device in embedding_on and device < head_on[-1]:
            found.append(("tied", -1, device, head, number, last))
    return found


def tied_ps(chain: Chain) -> int:
    """The time of the slowest link for the longest table; 0 if there is none."""
    return max(
        (
            chain.maps[head].channels * _row_ps(chain, head, link)
            for head, embedding_on, head_on in _tied(chain)
            for link in range(embedding_on[0], head_on[-1])
        ),
        default=0,
    )


def norm_processes(chain: Chain) -> Iterator[Process]:
    """The processes of each direction of each link for the norm of gradients: sums to the right,
    the total back.
    """
    last = len(chain.devices) - 1
    for link in range(last if chain.clips else 0):
        yield _numbers(chain, link, 1, lambda number, link=link: _sum(chain, link, number))
        yield _numbers(
            chain,
            link,
            -1,
            lambda number, link=link: (
                _sum(chain, last, number) if link + 1 == last else [("norm", -1, link + 1, number)]
            ),
        )


def norm_total(chain: Chain, device: int, number: int) -> list[Mark]:
    """The marks after which a device has the sum of all squares."""
    last = len(chain.devices) - 1
    if not chain.clips:
        return []
    return _sum(chain, last, number) if device == last else [("norm", -1, device, number)]


def _sum(chain: Chain, device: int, number: int) -> list[Mark]:
    """The marks after which a device has the sum of its own squares and those before it."""
    own: list[Mark] = [("gradients", device, number), *tables_from_afar(chain, device, number)]
    return [*own, ("norm", 1, device - 1, number)] if device else own


def _numbers(chain: Chain, link: int, to: int, needs: Callable[[int], list[Mark]]) -> Process:
    """A number in double precision for each mini-batch."""
    table = numbered(chain.cluster["links"], link)
    row_ps = up(
        8 * 10**6 * wire_bytes(table, 2 * VALUE_BYTES), round(1000 * table["bandwidth_gbps"])
    )
    for number in range(len(chain.mini_batches)):
        yield needs(number)
        yield row_ps
        chain.happen(("norm", to, link, number), round(1000 * table["latency_ns"]))


def _tied(chain: Chain) -> Iterator[tuple[str, list[int], list[int]]]:
    """Each head that has the weights of an embedding, the devices of the embedding, and those of
    the head.
    """
    for name, made in chain.maps.items():
        if table := made.operation.get("tied"):
            both = chain.maps[table].layer, made.layer
            ends = [
                [part.device for held in chain.devices for part in held if part.layer == n]
                for n in both
            ]
            yield name, ends[0], ends[1]


def _row_ps(chain: Chain, head: str, link: int) -> int:
    features = chain.maps[chain.maps[head].operation["tied"]].channels
    table = numbered(chain.cluster["links"], link)
    size = wire_bytes(table, VALUE_BYTES * features)
    return up(8 * 10**6 * size, round(1000 * table["bandwidth_gbps"]))


def _rows(
    chain: Chain, head: str, to: int, link: int, adds: list[int], begins: bool, before: int
) -> Process:
    """The rows of a table on a link: each waits for the one before it, its arrival from the link
    `before`, and what the sender `adds`.
    """
    row_ps = _row_ps(chain, head, link)
    latency_ps = round(1000 * numbered(chain.cluster["links"], link)["latency_ns"])
    for number, row in itertools.product(
        range(len(chain.mini_batches)), range(chain.maps[head].channels)
    ):
        needs: list[Mark] = [("table", device, number) for device in adds]
        if not begins:
            needs.append(("tied", to, before, head, number, row))
        yield needs
        yield row_ps
        chain.happen(("tied", to, link, head, number, row), latency_ps)
