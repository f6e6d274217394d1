"""Clusters: boards in a 1D chain, and the links between neighbours; read from TOML.

name = "mine"
[[boards]]                    # in the order of the chain; the last one named stands for all that follow
name = "VC709"
clock_mhz = 200
dsp = 3600                    # multipliers; one does one multiply-accumulate a cycle
on_chip_memory_kbit = 52920
count = 4                     # optional: how many of these in a row
[links]
bandwidth_gbps = 150          # of each direction of each link
latency_ns = 1000
"""

from __future__ import annotations

from typing import Annotated

import pydantic

from . import shelf
from .boards import Board, Cluster, Link
from .description import Positive
from .validation import Model, read_toml, validate

Megahertz = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Gbps = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Nanoseconds = Annotated[float, pydantic.Field(ge=0, le=1e12, allow_inf_nan=False)]
Boards = Annotated[int, pydantic.Field(ge=1, le=100_000)]


class BoardDescription(Model):
    """A `[[boards]]` table."""

    name: str
    clock_mhz: Megahertz
    dsp: Positive
    on_chip_memory_kbit: Positive
    count: Boards = 1


class LinksDescription(Model):
    """The `[links]` table: every link of the chain, each direction for itself."""

    bandwidth_gbps: Gbps
    latency_ns: Nanoseconds


class ClusterDescription(Model):
    """A cluster as its TOML file says it."""

    name: str
    boards: Annotated[
        tuple[BoardDescription, ...],
        pydantic.Field(min_length=1),
        pydantic.BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    ]
    links: LinksDescription


def clusters() -> list[str]:
    """The names of the clusters that come with emuchain."""
    return shelf.names("clusters")


def load_cluster(name: str) -> Cluster:
    """The cluster of that name, or the one that a TOML file describes.

    Raises:
        InputError: no such name or file, or a key of it is wrong.
    """
    path = shelf.find("cluster", name, "clusters")
    said = validate(ClusterDescription, read_toml(path), str(path))
    boards = tuple(
        Board(b.name, max(1, round(1e6 / b.clock_mhz)), b.dsp, b.on_chip_memory_kbit * 1000 // 8)
        for b in said.boards
        for _ in range(b.count)
    )
    link = Link(max(1, round(said.links.bandwidth_gbps * 1000)), round(said.links.latency_ns * 1000))
    return Cluster(said.name, boards, link, path.read_text(encoding="utf-8"))
