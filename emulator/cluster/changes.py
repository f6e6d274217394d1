"""Changed values of a cluster's keys, as if its file had them.

`board.KEY` is a key of all boards whose kind has it, `boards[1].KEY` one of the second `[[boards]]`
table, and so are `link.KEY` and `links[1].KEY`; `machine.KEY`, `resources.KEY`, `network.KEY` and
`faults.KEY` are those of these tables, and `cluster.KEY` those of the file itself, such as
`cluster.name`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..common import InputError, did_you_mean, plural

if TYPE_CHECKING:
    from .description import ClusterDescription, FpgaDescription, GpuDescription

_NOT_STUDIED = (
    *("kind", "name", "multipliers", "source", "count", "uncertainty"),
    *("next_measurement", "collectives"),
)
"""Keys of boards and links that no study changes."""
_OPTIONAL = ("machine", "resources", "network", "faults")
"""Tables that a cluster may lack."""
_NESTED = "multipliers"
"""The key of a board that is a table of tables."""
_KEY = re.compile(
    r"(?P<table>board|link)s?(?:\[(?P<number>\d+)\])?\.(?P<key>.+)|(?P<other>\w+)\.(?P<of_other>.+)"
)


class _Place(NamedTuple):
    """A table, the number of one of several or None for all, and the key in it."""

    table: str
    number: int | None
    key: str


def changeable_keys() -> list[str]:
    """Return the keys that a study may change: `board.KEY`, `link.KEY`, `machine.KEY`, …."""
    return [
        f"{table}.{key}"
        for table, keys in _tables().items()
        for key in keys
        if _is_studied(table, key)
    ]


def settable_keys() -> list[str]:
    """Return all keys that `load_cluster` takes as changes, those of all boards and links without
    numbers.
    """
    return [f"{table}.{key}" for table, keys in _tables().items() for key in keys]


def is_settable(key: str) -> bool:
    """Return whether `load_cluster` takes a key as one that changes."""
    place = _place(key)
    if place is None:
        return False
    named = place.key.partition(".")[0] if _nests(place) else place.key
    return f"{place.table}.{named}" in settable_keys()


def check_changes(keys: Iterable[str], blame: str) -> None:
    """Check that a cluster has such keys.

    Raises:
        InputError: one is unknown.
    """
    for key in keys:
        if not is_settable(key):
            known = settable_keys()
            hint = did_you_mean(key, known)
            raise InputError(f"{blame}: unknown key `{key}`; {hint}known keys: {', '.join(known)}")


def changes_key(changes: Iterable[str], table: str, number: int, key: str) -> bool:
    """Return whether changes have a key of a table, or of the one with this number."""
    places = {_known_place(change) for change in changes}
    return _Place(table, None, key) in places or _Place(table, number, key) in places


def with_own_keys(described: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return a cluster's description with the changed keys of the file itself."""
    return {**described, **_changes_of("cluster", changes)}


def with_table_keys(
    described: dict[str, Any], said: ClusterDescription, changes: Mapping[str, object], blame: str
) -> dict[str, Any]:
    """Return a cluster's description with the changed keys of its tables; boards take those that
    their kind has.

    Args:
        described: the description.
        said: the same, validated.
        changes: values by key.
        blame: beginning of messages.

    Raises:
        InputError: no board has one of these keys, or there is no table of such a number.
    """
    keys_of = [_keys(board) for board in said.boards]
    _check_kinds(said.name, keys_of, changes, blame)
    boards = []
    for number, (board, keys) in enumerate(zip(described["boards"], keys_of, strict=True)):
        values = _changes_of("board", changes, number)
        known = {k: v for k, v in values.items() if k.partition(".")[0] in keys}
        boards.append(_changed(board, known))
    tables = described["links"]
    several = tables if isinstance(tables, list) else [tables]
    _check_numbers("boards", len(boards), changes, blame)
    _check_numbers("links", len(several), changes, blame)
    links = []
    for number, table in enumerate(several):
        values = _changes_of("link", changes, number)
        if "kind" in values and {"bandwidth_gbps", "latency_ns"} <= table.keys():
            raise InputError(
                f"{blame}: `link.kind` has no effect: links of {said.name} have `bandwidth_gbps` and"
                " `latency_ns` of their own; change these"
            )
        links.append({**table, **values})
    optional = {
        table: {**(described.get(table) or {}), **_changes_of(table, changes)}
        for table in _OPTIONAL
    }
    more = {table: keys for table, keys in optional.items() if keys or table in described}
    kept = {
        **described,
        "boards": boards,
        "links": links if isinstance(tables, list) else links[0],
        **more,
    }
    return without_ranges(
        kept, [f"{place.table}.{place.key}" for place in map(_known_place, changes)]
    )


def without_ranges(described: dict[str, Any], changed: Iterable[str]) -> dict[str, Any]:
    """Return a description without the ranges of keys that are changed: they are of other
    values.
    """
    ranges = described.get("uncertainty")
    if not isinstance(ranges, dict):
        return described
    return {
        **described,
        "uncertainty": {key: entry for key, entry in ranges.items() if key not in changed},
    }


def _tables() -> dict[str, Sequence[str]]:
    """Return the keys of each table."""
    from .description import (
        BOARD_KINDS,
        FaultsDescription,
        LinksDescription,
        MachineDescription,
        NetworkDescription,
        ResourcesDescription,
        WithLinks,
    )

    boards = dict.fromkeys(field.name for kind in BOARD_KINDS for field in dataclasses.fields(kind))
    return {
        "board": [*boards],
        "link": [*LinksDescription.model_fields],
        "machine": [*MachineDescription.model_fields],
        "resources": [*ResourcesDescription.model_fields],
        "network": [*NetworkDescription.model_fields],
        "faults": [*FaultsDescription.model_fields],
        "cluster": [*WithLinks.model_fields],
    }


def _is_studied(table: str, key: str) -> bool:
    return table not in ("faults", "cluster") and (
        table not in ("board", "link") or key not in _NOT_STUDIED
    )


def _nests(place: _Place) -> bool:
    return place.table == "board" and place.key.startswith(f"{_NESTED}.")


def _place(key: str) -> _Place | None:
    """Return where a key stands; None if it is spelt as no key of a cluster."""
    spelt = _KEY.fullmatch(key)
    if spelt is None:
        return None
    if spelt["table"] is None:
        return _Place(spelt["other"], None, spelt["of_other"])
    return _Place(
        spelt["table"], None if spelt["number"] is None else int(spelt["number"]), spelt["key"]
    )


def _known_place(key: str) -> _Place:
    place = _place(key)
    assert place is not None  # see `check_changes`
    return place


def _changes_of(
    table: str, changes: Mapping[str, object], number: int | None = None
) -> dict[str, object]:
    """Return the changed keys of a table; of several, those of all first, then those of table
    `number` alone.
    """
    placed = [(_known_place(key), value) for key, value in changes.items()]
    for_all = {
        place.key: value for place, value in placed if place.table == table and place.number is None
    }
    alone = {
        place.key: value
        for place, value in placed
        if place.table == table and number is not None and place.number == number
    }
    return {**for_all, **alone}


def _changed(board: dict[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return a board's table with changed keys; those of its multipliers may be of a table in a
    table.
    """
    changed = {**board, **{key: value for key, value in changes.items() if "." not in key}}
    for key, value in changes.items():
        if "." in key:
            nested, *path, last = key.split(".")
            before = changed.get(nested)
            table = changed[nested] = dict(before) if isinstance(before, Mapping) else {}
            for name in path:
                inner = table.get(name)
                table[name] = table = dict(inner) if isinstance(inner, dict) else {}
            table[last] = value
    return without_ranges(changed, [f"board.{key}" for key in changes])


def _keys(board: FpgaDescription | GpuDescription) -> set[str]:
    """Return the keys that a description of this kind of board has."""
    return {field.name for field in dataclasses.fields(board)}


def _check_kinds(
    name: str, keys_of: Sequence[set[str]], changes: Iterable[str], blame: str
) -> None:
    """Check that some board of the cluster `name` has each changed key; `keys_of` are the keys of
    each board.
    """
    for key in changes:
        place = _known_place(key)
        boards = keys_of if place.number is None else keys_of[place.number : place.number + 1]
        if (
            place.table == "board"
            and boards
            and not any(place.key.partition(".")[0] in keys for keys in boards)
        ):
            raise InputError(f"{blame}: `{key}`: no board of {name} is of a kind that has this key")


def _check_numbers(tables: str, count: int, changes: Iterable[str], blame: str) -> None:
    """Check that there are tables of the numbers that keys give."""
    for key in changes:
        place = _known_place(key)
        if f"{place.table}s" == tables and place.number is not None and place.number >= count:
            raise InputError(
                f"{blame}: `{key}`: the cluster has {plural(count, 'table')} `[[{tables}]]`,"
                f" counted from 0; should be at most {tables}[{count - 1}]"
            )
