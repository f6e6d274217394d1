"""Gradients of tied weights: a table's rows, from the embedding to the head, and back, once for each mini-batch.

A mark ("tied", to, link, head, mini-batch, row) is a row's arrival at the other end of a link, to the right (1) or to
the left (-1).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .described import VALUE_BYTES, numbered, up
from .events import Mark, Process

if TYPE_CHECKING:
    from .event_simulation import Chain


def tied_processes(chain: Chain) -> Iterator[Process]:
    """The processes of each direction of each link that a table crosses."""
    for head, embedding_on, head_on in _tied(chain):
        for link in range(embedding_on[0], head_on[-1]):
            yield _rows(chain, head, 1, link, [link] if link in embedding_on else [], link == embedding_on[0])
            yield _rows(chain, head, -1, link, [link + 1] if link + 1 in head_on else [], link + 1 == head_on[-1])


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


def _tied(chain: Chain) -> Iterator[tuple[str, list[int], list[int]]]:
    """Each head that has the weights of an embedding, the devices of the embedding, and those of the head."""
    for name, made in chain.maps.items():
        if table := made.operation.get("tied"):
            both = chain.maps[table].layer, made.layer
            ends = [[part.device for held in chain.devices for part in held if part.layer == n] for n in both]
            yield name, ends[0], ends[1]


def _row_ps(chain: Chain, head: str, link: int) -> int:
    features = chain.maps[chain.maps[head].operation["tied"]].channels
    return up(
        8 * 10**6 * VALUE_BYTES * features, round(1000 * numbered(chain.cluster["links"], link)["bandwidth_gbps"])
    )


def _rows(chain: Chain, head: str, to: int, link: int, adds: list[int], begins: bool) -> Process:
    """The rows of a table on a link: each waits for the one before it, its arrival, and what the sender `adds`."""
    row_ps = _row_ps(chain, head, link)
    latency_ps = round(1000 * numbered(chain.cluster["links"], link)["latency_ns"])
    for number, row in itertools.product(range(len(chain.mini_batches)), range(chain.maps[head].channels)):
        needs: list[Mark] = [("gradients", device, number) for device in adds]
        if not begins:
            needs.append(("tied", to, link - to, head, number, row))
        yield needs
        yield row_ps
        chain.happen(("tied", to, link, head, number, row), latency_ps)
