"""Clusters: boards in a 1D chain, and the links between neighbours; read from TOML.

name = "mine"
[[boards]]                    # in the order of the chain; the last one named stands for all that follow
name = "VC709"
clock_mhz = 200
dsp = 3600                    # multipliers; one does one multiply-accumulate a cycle
on_chip_memory_kbit = 52920
power_w = 31.6                # optional: what the board draws
count = 4                     # optional: how many of these in a row
[links]
bandwidth_gbps = 150          # of each direction of each link
latency_ns = 1000
"""

from __future__ import annotations

from typing import Annotated, Any

import pydantic

from . import shelf
from .boards import Board, Cluster, Link
from .description import Positive
from .validation import Model, read_toml, validate

Megahertz = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Gbps = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Nanoseconds = Annotated[float, pydantic.Field(ge=0, le=1e12, allow_inf_nan=False)]
Watts = Annotated[float, pydantic.Field(gt=0, le=1e6, allow_inf_nan=False)]
Boards = Annotated[int, pydantic.Field(ge=1, le=100_000)]


class BoardDescription(Model):
    """A `[[boards]]` table."""

    name: str
    clock_mhz: Megahertz
    dsp: Positive
    on_chip_memory_kbit: Positive
    power_w: Watts | None = None
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


def changeable_keys() -> list[str]:
    """What `load_cluster` may change: `board.KEY` on all boards, `link.KEY` on all links."""
    boards = [f"board.{key}" for key in BoardDescription.model_fields if key not in ("name", "count")]
    return [*boards, *(f"link.{key}" for key in LinksDescription.model_fields)]


def load_cluster(name: str, changes: dict[str, object] | None = None) -> Cluster:
    """The cluster of that name, or the one that a TOML file describes; with other values of some `changeable_keys`.

    Raises:
        InputError: no such name or file, or a key of it is wrong, or a change is.
    """
    path = shelf.find("cluster", name, "clusters")
    described = read_toml(path)
    said = validate(ClusterDescription, described, str(path))
    if changes:
        said = validate(ClusterDescription, _changed(described, changes), "--what-if")
    boards = tuple(
        Board(b.name, max(1, round(1e6 / b.clock_mhz)), b.dsp, b.on_chip_memory_kbit * 1000 // 8, b.power_w)
        for b in said.boards
        for _ in range(b.count)
    )
    link = Link(max(1, round(said.links.bandwidth_gbps * 1000)), round(said.links.latency_ns * 1000))
    return Cluster(said.name, boards, link, path.read_text(encoding="utf-8"))


def _changed(described: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """A cluster's description with other values."""

    def of(table: str) -> dict[str, object]:
        return {key.removeprefix(table): value for key, value in changes.items() if key.startswith(table)}

    boards = [{**board, **of("board.")} for board in described["boards"]]
    return {**described, "boards": boards, "links": {**described["links"], **of("link.")}}
