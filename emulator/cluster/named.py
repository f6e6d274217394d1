"""Chains of devices that are known by name alone, such as GPUs with a profile of their own."""

from __future__ import annotations

import dataclasses

from ...comm import Interconnect
from ..common import find
from .cluster import Link
from .load import CLUSTERS, load_cluster

_KEYS = {"name", "count"}


@dataclasses.dataclass(frozen=True)
class NamedChain:
    """The kinds of a chain's devices, the links between neighbours, and where all exchange gradients."""

    name: str
    kinds: tuple[str, ...]
    links: tuple[Link, ...]
    interconnect: Interconnect

    def link_at(self, link: int) -> Link:
        """Return the link between devices `link` and `link + 1`; the last one is repeated."""
        return self.links[min(link, len(self.links) - 1)]

    def kind(self, device: int) -> str:
        """Return the kind of a device; the last one is repeated."""
        return self.kinds[min(device, len(self.kinds) - 1)]


def load_named(cluster: str) -> NamedChain:
    """Return the chain of a cluster, by its name or a TOML file, whose boards need no more than a name and a count.

    Raises:
        InputError: no such name or file, or a wrong key in it.
    """
    from ..inputs import read_toml, validate
    from .description import NamedCluster

    path = find("cluster", cluster, CLUSTERS)
    described = read_toml(path)
    tables = described.get("boards")
    if not isinstance(tables, list) or not all(isinstance(each, dict) and each.keys() <= _KEYS for each in tables):
        found = load_cluster(cluster)
        links = found.own_links or (found.link,)
        return NamedChain(found.name, tuple(board.name for board in found.boards), links, found.interconnect)
    said = validate(NamedCluster, described, str(path))
    links = tuple(table.link for table in said.links for _ in range(table.count))
    slowest = min(links, key=lambda link: (link.bandwidth_mbps, -link.latency_ps))
    over = Interconnect(
        slowest.bandwidth_mbps, slowest.latency_ps, slowest.packet_bytes, slowest.header_bytes, topology="chain"
    )
    kinds = tuple(board.name for board in said.boards for _ in range(board.count))
    return NamedChain(said.name, kinds, links, said.network.interconnect(over) if said.network else over)
