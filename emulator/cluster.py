"""Clusters: boards in a 1D chain, and the links between neighbours; read from TOML.

name = "mine"
[[boards]]                    # in the order of the chain; the last one named stands for all that follow
type = "vc709"                # a board that comes with emuchain, or a TOML file; keys beside it go before its own
count = 4                     # optional: how many of these in a row
[[boards]]                    # or all keys here
name = "ours"
clock_mhz = 200
dsp = 900                     # multipliers; one does one multiply-accumulate a cycle
on_chip_memory_kbit = 16000
[links]
bandwidth_gbps = 150          # of each direction of each link
latency_ns = 1000
[resources]                   # optional: what engines and buffers are built of
alpha = 1.0
beta = 1.0
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

import pydantic

from . import shelf
from .boards import Board, Cluster, Link
from .errors import InputError
from .mapping.resources import lut_multipliers
from .network.description import NotNegative, Positive
from .validation import Model, read_toml, validate

Megahertz = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Gbps = Annotated[float, pydantic.Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Nanoseconds = Annotated[float, pydantic.Field(ge=0, le=1e12, allow_inf_nan=False)]
PositiveNumber = Annotated[float, pydantic.Field(gt=0, le=1e9, allow_inf_nan=False)]
Watts = Annotated[float, pydantic.Field(gt=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, pydantic.Field(gt=0, le=1, allow_inf_nan=False)]
Boards = Annotated[int, pydantic.Field(ge=1, le=100_000)]


class BoardDescription(Model):
    """A `[[boards]]` table, with what its `type` says of the board filled in."""

    type: str | None = None
    name: str
    clock_mhz: Megahertz
    dsp: Positive
    dsp_share: Share = 1.0
    on_chip_memory_kbit: Positive
    power_w: Watts | None = None
    lut: Positive | None = None
    ff: Positive | None = None
    bram: Positive | None = None
    bram_kbit: Annotated[int, pydantic.Field(ge=18, le=1000)] = 36
    uram: NotNegative = 0
    transceivers: Positive | None = None
    transceiver_gbps: PositiveNumber | None = None
    off_chip_memory_gbytes: PositiveNumber | None = None
    off_chip_gbytes_per_s: PositiveNumber | None = None
    source: str | None = None
    count: Boards = 1


class LinksDescription(Model):
    """The `[links]` table: every link of the chain, each direction for itself."""

    bandwidth_gbps: Gbps
    latency_ns: Nanoseconds


class ResourcesDescription(Model):
    """The `[resources]` table: what engines and buffers are built of, and what parameters move for."""

    alpha: Share = 1.0
    beta: Share = 1.0
    aim: Literal["throughput", "storage"] = "throughput"


class ClusterDescription(Model):
    """A cluster as its TOML file says it."""

    name: str
    boards: Annotated[
        tuple[BoardDescription, ...],
        pydantic.Field(min_length=1),
        pydantic.BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    ]
    links: LinksDescription
    resources: ResourcesDescription | None = None


def clusters() -> list[str]:
    """The names of the clusters that come with emuchain."""
    return shelf.names("clusters")


def board_types() -> list[str]:
    """The names of the boards that come with emuchain."""
    return shelf.names("boardlist")


def changeable_keys() -> list[str]:
    """What `load_cluster` may change: `board.KEY` on all boards, `link.KEY` on all links, `resources.KEY`."""
    boards = [f"board.{key}" for key in BoardDescription.model_fields if key not in ("name", "source", "count")]
    links = [f"link.{key}" for key in LinksDescription.model_fields]
    return [*boards, *links, *(f"resources.{key}" for key in ResourcesDescription.model_fields)]


def load_cluster(name: str, changes: dict[str, object] | None = None) -> Cluster:
    """The cluster of that name, or the one that a TOML file describes; with other values of some `changeable_keys`.

    Raises:
        InputError: no such name or file, or a key of it is wrong, or a change is.
    """
    path = shelf.find("cluster", name, "clusters")
    described = read_toml(path)
    source, said = str(path), _validated(described, str(path))
    if changes:
        source, said = "--what-if", _validated(_changed(described, changes), "--what-if")
    built_of = said.resources or ResourcesDescription()
    for place, board in enumerate(said.boards):
        if board.lut is None and min(built_of.alpha, built_of.beta) < 1:
            raise InputError(f"{source}: key `boards[{place}].lut` is missing: `resources` has {board.name} use LUTs")
    boards = tuple(_board(board, built_of.alpha) for board in said.boards for _ in range(board.count))
    link = Link(max(1, round(said.links.bandwidth_gbps * 1000)), round(said.links.latency_ns * 1000))
    text = path.read_text(encoding="utf-8")
    return Cluster(said.name, boards, link, text, built_of.alpha, built_of.beta, built_of.aim)


def _validated(described: dict[str, Any], source: str) -> ClusterDescription:
    return validate(ClusterDescription, _with_types(described, source), source)


def _changed(described: dict[str, Any], changes: dict[str, object]) -> dict[str, Any]:
    """A cluster's description with other values."""

    def of(table: str) -> dict[str, object]:
        return {key.removeprefix(table): value for key, value in changes.items() if key.startswith(table)}

    boards = [{**board, **of("board.")} for board in described["boards"]]
    resources = {**described.get("resources", {}), **of("resources.")}
    return {**described, "boards": boards, "links": {**described["links"], **of("link.")}, "resources": resources}


def _with_types(values: dict[str, Any], source: str) -> dict[str, Any]:
    """The same, with each board's keys laid over those of its `type`."""
    tables = values.get("boards")
    if not isinstance(tables, list):
        return values
    filled = []
    for place, table in enumerate(tables):
        kind = table.get("type") if isinstance(table, dict) else None
        if isinstance(kind, str):
            try:
                table = {**read_toml(shelf.find("type", kind, "boardlist")), **table}
            except InputError as error:
                raise InputError(f"{source}: boards[{place}]: {error}") from None
        filled.append(table)
    return {**values, "boards": filled}


def _board(said: BoardDescription, alpha: float) -> Board:
    off_chip = said.off_chip_memory_gbytes
    board = Board(
        name=said.name,
        period_ps=max(1, round(1e6 / said.clock_mhz)),
        dsp=said.dsp,
        on_chip_memory_bytes=said.on_chip_memory_kbit * 1000 // 8,
        power_w=said.power_w,
        dsp_share=said.dsp_share,
        lut=said.lut,
        ff=said.ff,
        bram=said.bram,
        bram_kbit=said.bram_kbit,
        uram=said.uram,
        transceivers=said.transceivers,
        transceiver_gbps=said.transceiver_gbps,
        off_chip_memory_bytes=None if off_chip is None else round(off_chip * 1e9),
        off_chip_gbytes_per_s=said.off_chip_gbytes_per_s,
    )
    return dataclasses.replace(board, lut_multipliers=lut_multipliers(board, alpha))
