"""Clusters and boards by name: those that come with emuchain, and those that a TOML file describes.

Devices may also be known by name alone, such as GPUs with a profile of their own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...comm import Interconnect, Topology
from ..common import InputError, Note, find, names, number, read_exact_text, typed
from .board import Board
from .changes import (
    changeable_keys,
    changes_key,
    check_changes,
    with_own_keys,
    with_table_keys,
    without_ranges,
)
from .cluster import CHAIN, Cluster, Link, links_interconnect
from .constants import EXISTING, PER_DSP, ConstantRange, Existing

if TYPE_CHECKING:
    from .description import BoardDescription, ClusterDescription, NamedCluster


CLUSTERS, _BOARDS, _LINKS = "cluster/clusters", "cluster/boards", "cluster/links"


def clusters() -> list[str]:
    """Return the names of the clusters that come with emuchain."""
    return names(CLUSTERS)


def board_types() -> list[str]:
    """Return the names of the boards that come with emuchain."""
    return names(_BOARDS)


def link_kinds() -> list[str]:
    """Return the names of the kinds of links that come with emuchain."""
    return names(_LINKS)


def link_keys(kind: str) -> dict[str, Any]:
    """Return the keys of a kind of links that comes with emuchain, or that a TOML file describes.

    Raises:
        InputError: no such name or file.
    """
    from ..common import read_toml

    return read_toml(find("kind", kind, _LINKS))


def board_keys(kind: str) -> dict[str, Any]:
    """Return the keys of a board that comes with emuchain, or that a TOML file describes.

    Raises:
        InputError: no such name or file.
    """
    from ..common import read_toml

    return read_toml(find("type", kind, _BOARDS))


@typed
def load_cluster(
    cluster: str | os.PathLike[str] | Mapping[str, Any],
    changes: Mapping[str, object] | None = None,
    *,
    blame: str = "changes",
    text: str | None = None,
) -> Cluster:
    """Return a cluster.

    Args:
        cluster: one of `clusters()`; the path of a TOML file; or a mapping with the keys of such a
            file.
        changes: new values of some `settable_keys`, such as {"link.bandwidth_gbps": 10}.
        blame: beginning of messages about a change.
        text: of a mapping, the file from which its keys are: the cluster's description, if nothing
            is changed.

    Raises:
        InputError: no such name or file, or a wrong key in it or in `changes`.

    Warns:
        Note: of a constant that no hardware has (`constants.py`).
    """
    named = os.fspath(cluster) if isinstance(cluster, os.PathLike) else cluster
    described, said, source, made = _described(named, changes or {}, blame)
    loaded = _cluster(said, source, made if text is None or changes else text)
    origin = str(find("cluster", named, CLUSTERS)) if isinstance(named, str) else source
    for constant in _outside(said):
        where = (
            blame
            if changes_key(changes or {}, *constant[:3])
            else origin + _type_with(constant, described)
        )
        _note(constant, where)
    return loaded


class _Outside(NamedTuple):
    """A constant that no hardware has: its table, the number of that, its key there, its name, and
    what exists.
    """

    table: str
    place: int
    key: str
    name: str
    line: str


def _outside(said: ClusterDescription | NamedCluster) -> Iterator[_Outside]:
    """Yield the constants of a cluster that no hardware has."""
    networks = () if said.network is None else (said.network,)
    for table, several in (
        ("board", said.boards),
        ("link", said.link_tables),
        ("network", networks),
    ):
        for place, keys in enumerate(several):
            for key, value, existing in _constants_of(table, keys):
                # A latency of 0 is one that is not modelled, and no mistake.
                if value and not existing.holds(value):
                    name = f"{table}s[{place}].{key}" if len(several) > 1 else f"{table}.{key}"
                    has = f"`{name}` = {number(value)} {existing.unit}".rstrip()
                    yield _Outside(
                        table,
                        place,
                        key,
                        name,
                        f"{has}: what exists is {existing} ({existing.source})",
                    )


def _constants_of(table: str, keys: Any) -> Iterator[tuple[str, float | None, Existing]]:
    """Yield the constants that a table may have: the key, the value if it has one, and what
    exists.
    """
    for full, existing in EXISTING.items():
        named, _, key = full.partition(".")
        if named == table:
            yield key, getattr(keys, key, None), existing
    listed = getattr(keys, "multipliers", None)
    for kind, rate in () if listed is None or isinstance(listed, str) else listed:
        if rate is not None:
            yield f"multipliers.{kind}.per_dsp", rate.per_dsp, PER_DSP


def _note(constant: _Outside, where: str) -> None:
    warnings.warn(
        Note(f"{where}: {constant.line}", subject=constant.name), stacklevel=4
    )  # `typed` is between


def _type_with(constant: _Outside, described: Mapping[str, Any]) -> str:
    """Return the type of board that has a constant; empty if the cluster's own table has it."""
    table = described["boards"][constant.place] if constant.table == "board" else {}
    return (
        f", type {table['type']}"
        if "type" in table and constant.key.partition(".")[0] not in table
        else ""
    )


def cluster_keys(
    cluster: str, changes: Mapping[str, object] | None = None, *, blame: str = "changes"
) -> dict[str, Any]:
    """Return the keys of a cluster that comes with emuchain, or that a TOML file describes, with
    those of its boards.

    Raises:
        InputError: no such name or file, or a wrong key in it or in `changes`.
    """
    described, _, source, _ = _described(cluster, changes or {}, blame)
    return _with_types(described, source)


def _described(
    cluster: str | Mapping[str, Any], changes: Mapping[str, object], blame: str
) -> tuple[dict[str, Any], ClusterDescription, str, str]:
    """Return a cluster's keys, the same validated, the beginning of messages about them, and their
    text.
    """
    from ..common import read_toml

    if isinstance(cluster, str):
        path = find("cluster", cluster, CLUSTERS)
        described, source, text = read_toml(path), str(path), read_exact_text(path)
    else:
        described, source, text = (
            dict(cluster),
            repr(cluster.get("name", "cluster")),
            _as_text(cluster),
        )
    said = _validated(described, source)
    if not changes:
        return described, said, source, text
    check_changes(changes, blame)
    described = with_own_keys(described, changes)
    described = with_table_keys(described, _validated(described, blame), changes, blame)
    return described, _validated(described, blame), blame, _as_text(described)


def cluster_files(cluster: str) -> Iterator[pathlib.Path]:
    """Yield the files of which `load_cluster` reads a cluster: its own, and those of its boards.

    Raises:
        InputError: no such name or file, or one that cannot be read.
    """
    from ..common import read_toml

    path = find("cluster", cluster, CLUSTERS)
    yield path
    described = read_toml(path)
    boards = described.get("boards")
    for board in boards if isinstance(boards, list) else ():
        if _names_type(board, "type"):
            yield find("type", board["type"], _BOARDS)
    for link in _link_tables(described):
        if _names_type(link, "kind"):
            yield find("kind", link["kind"], _LINKS)


def board_files(kind: str) -> Iterator[pathlib.Path]:
    """Yield the file from which `board_keys` reads a board.

    Raises:
        InputError: no such name or file.
    """
    yield find("type", kind, _BOARDS)


def _cluster(said: ClusterDescription, source: str, text: str) -> Cluster:
    from .board_description import constant_ranges
    from .description import FpgaDescription, MachineDescription, ResourcesDescription

    built_of = said.resources or ResourcesDescription()
    for place, board in enumerate(said.boards):
        if (
            isinstance(board, FpgaDescription)
            and board.lut is None
            and min(built_of.alpha, built_of.beta) < 1
        ):
            raise InputError(
                f"{source}: key `boards[{place}].lut` is missing: `resources` has {board.name} use"
                " LUTs"
            )
    cores = _cores(said)
    kinds = [
        _board(board, built_of.alpha, cores, f"{source}: boards[{place}]")
        for place, board in enumerate(said.boards)
    ]
    ranges = constant_ranges(said.uncertainty, changeable_keys(), _values(said), source)
    kinds = [
        dataclasses.replace(kind, ranges=_board_ranges(board, ranges, f"{source}: boards[{place}]"))  # type: ignore[type-var]  # all kinds are dataclasses
        for place, (kind, board) in enumerate(zip(kinds, said.boards, strict=True))
    ]
    boards = tuple(
        kind for kind, board in zip(kinds, said.boards, strict=True) for _ in range(board.count)
    )
    links, laid = said.all_links, said.link_tables[0].laid
    cluster = Cluster(
        said.name, boards, links[0], text, built_of.alpha, built_of.beta, built_of.aim
    )
    cluster = dataclasses.replace(
        cluster, ranges=tuple(entry for entry in ranges if not entry.key.startswith("board."))
    )
    executes = said.machine or MachineDescription()
    cluster = dataclasses.replace(
        cluster, engines=executes.engines, transport=executes.transport, topology=laid
    )
    if said.faults is not None:
        cluster = dataclasses.replace(cluster, faults=said.faults.faults)
    if len(set(links)) > 1:
        cluster = dataclasses.replace(cluster, own_links=links)
    if said.network is None:
        return cluster
    over = said.network.interconnect(
        links_interconnect(boards, cluster.slowest_link, cluster.topology)
    )
    return dataclasses.replace(cluster, own_interconnect=over)


def _as_text(described: Mapping[str, Any]) -> str:
    """Return a description as JSON; dates of measurements are written as in TOML."""
    return json.dumps(described, indent=2, default=str)


def _values(said: ClusterDescription) -> dict[str, list[Any]]:
    """Return the values of a cluster's constants by key, one of each board or table of links that
    has it.
    """
    tables: list[tuple[str, object]] = [("board", board) for board in said.boards]
    tables += [("link", links) for links in said.link_tables]
    tables += [("network", said.network)] if said.network is not None else []
    values: dict[str, list[Any]] = {}
    for table, described in tables:
        for key, value in vars(described).items():
            values.setdefault(f"{table}.{key}", []).append(value)
    return values


def _board_ranges(
    board: BoardDescription, ranges: tuple[ConstantRange, ...], source: str
) -> tuple[ConstantRange, ...]:
    """Return the ranges of a board's constants: those of the cluster, then its own."""
    from .board_description import constant_ranges

    studied = set(changeable_keys())
    keys = [key for field in dataclasses.fields(board) if (key := f"board.{field.name}") in studied]
    values = {f"board.{key}": [value] for key, value in vars(board).items()}
    own = constant_ranges(board.uncertainty, keys, values, source)
    return (*(entry for entry in ranges if entry.key in keys), *own)


def _cores(said: ClusterDescription) -> dict[str, int]:
    """Return what the cores of a board's links take, each as much as the largest.

    All boards have those of a board between two others: they are built alike.
    """
    tables = said.link_tables
    of_board = tables[0].laid.links_of_node
    return {key: of_board * max(table.core[key] for table in tables) for key in tables[0].core}


def _board(said: BoardDescription, alpha: float, cores: Mapping[str, int], source: str) -> Board:
    try:
        board = said.board(alpha)
        return board.beside(**cores) if any(cores.values()) else board
    except ValueError as error:
        raise InputError(f"{source}: {error}") from None


def _validated(described: dict[str, Any], source: str) -> ClusterDescription:
    from ..common import validate
    from .description import WithLinks, WithLinkTables

    model: type[ClusterDescription] = (
        WithLinkTables if isinstance(described.get("links"), list) else WithLinks
    )
    return validate(model, _with_types(described, source), source)


def _with_types(values: dict[str, Any], source: str) -> dict[str, Any]:
    """Return the description, with each board's keys overriding those of its `type`, and each
    link's those of its `kind`, whose ranges are the cluster's where all links have that kind.
    """
    filled = {**values}
    if isinstance(values.get("boards"), list):
        filled["boards"] = [
            _with_type(table, "board", "type", board_keys, f"{source}: boards[{place}]")
            for place, table in enumerate(values["boards"])
        ]
    own = _link_tables(values)
    links = [_with_type(table, "link", "kind", link_keys, f"{source}: links") for table in own]
    if links == own:
        return filled
    filled["links"] = links if isinstance(values["links"], list) else links[0]
    kinds = {table["kind"] if _names_type(table, "kind") else None for table in own}
    ranges = [
        table.pop("uncertainty", {})
        for table, before in zip(links, own, strict=True)
        if _names_type(table, "kind") and "uncertainty" not in before
    ]
    given = values.get("uncertainty", {})
    if len(kinds) == 1 and ranges and isinstance(given, dict):
        # A value that one link has of its own is not that of the kind.
        kept = set(ranges[0]).intersection(*ranges)
        filled["uncertainty"] = {key: ranges[0][key] for key in ranges[0] if key in kept} | given
    return filled


def _link_tables(values: Mapping[str, Any]) -> list[Any]:
    links = values.get("links")
    return links if isinstance(links, list) else [links]


def _names_type(table: Any, key: str) -> bool:
    return isinstance(table, dict) and isinstance(table.get(key), str)


def _with_type(
    table: Any, name: str, key: str, keys_of: Callable[[str], dict[str, Any]], where: str
) -> Any:
    """Return a table's keys over those of the type that it names under `key`; so are ranges, but
    those of the type's values that are not kept.

    Raises:
        InputError: there is no such type.
    """
    if not _names_type(table, key):
        return table
    try:
        keys = keys_of(table[key])
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    kept = without_ranges(keys, {f"{name}.{own}" for own in table})
    filled = {**kept, **table}
    if isinstance(kept.get("uncertainty"), dict) and isinstance(table.get("uncertainty"), dict):
        filled["uncertainty"] = {**kept["uncertainty"], **table["uncertainty"]}
    return filled


_KEYS = {"name", "count"}


@dataclasses.dataclass(frozen=True)
class NamedChain:
    """The kinds of a chain's devices, the links between neighbours, and where all exchange
    gradients.
    """

    name: str
    kinds: tuple[str, ...]
    links: tuple[Link, ...]
    interconnect: Interconnect
    topology: Topology = CHAIN

    def link_at(self, link: int) -> Link:
        """Return the link between devices `link` and `link + 1`; the last one is repeated."""
        return self.links[min(link, len(self.links) - 1)]

    def kind(self, device: int) -> str:
        """Return the kind of a device; the last one is repeated."""
        return self.kinds[min(device, len(self.kinds) - 1)]


def load_named(cluster: str) -> NamedChain:
    """Return the chain of a cluster, by its name or a TOML file, whose boards need no more than a
    name and a count.

    Raises:
        InputError: no such name or file, or a wrong key in it.
    """
    from ..common import read_toml, validate
    from .description import NamedCluster

    path = find("cluster", cluster, CLUSTERS)
    described = read_toml(path)
    tables = described.get("boards")
    if not isinstance(tables, list) or not all(
        isinstance(entry, dict) and entry.keys() <= _KEYS for entry in tables
    ):
        loaded = load_cluster(cluster)
        links = loaded.own_links or (loaded.link,)
        kinds = tuple(board.name for board in loaded.boards)
        return NamedChain(loaded.name, kinds, links, loaded.interconnect, loaded.topology)
    said = validate(NamedCluster, described, str(path))
    for constant in _outside(said):
        _note(constant, str(path))
    links = tuple(table.link for table in said.links for _ in range(table.count))
    # As `Cluster.slowest_link`: the lowest bandwidth, and of equal ones the highest latency.
    slowest = min(links, key=lambda link: (link.bandwidth_mbps, -link.latency_ps))
    over = Interconnect(
        slowest.bandwidth_mbps,
        slowest.latency_ps,
        slowest.packet_bytes,
        slowest.header_bytes,
        topology=said.links[0].laid,
        cost=slowest.cost,
    )
    kinds = tuple(board.name for board in said.boards for _ in range(board.count))
    over = said.network.interconnect(over) if said.network else over
    return NamedChain(said.name, kinds, links, over, said.links[0].laid)
