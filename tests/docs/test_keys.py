"""The tables of keys in docs/configuration.md: they say what the models of runs, networks and
clusters accept.
"""

import re
from typing import Any

import pytest

from emuchain.emulator.cluster.board_description import NextMeasurementDescription, RangeDescription
from emuchain.emulator.cluster.description import (
    CollectivesDescription,
    FpgaDescription,
    GpuDescription,
    LinksDescription,
    MachineDescription,
    NetworkDescription,
    ProtocolDescription,
    ResourcesDescription,
    WithLinks,
)
from emuchain.emulator.common import Model, model_of
from emuchain.emulator.config import GROUPS, Config
from emuchain.emulator.faults import BoardDeath, BoardFault, FaultsDescription, FlipFault, LinkFault
from emuchain.emulator.network import operation_types
from emuchain.emulator.network.description import Description, node_model
from emuchain.emulator.profile import DeviceTable, LayerTable, ProfileDescription, TimesTable

from .pages import text_of

PAGE = "docs/configuration.md"
_TABLE = re.compile(
    r"^<!-- keys of (?P<models>[\w, \[\]-]+) -->\n\n(?P<rows>(?:^\|.*\n)+)", re.MULTILINE
)

MODELS: dict[str, type[Model]] = {
    **{f"[{group}]": Config for group in GROUPS},
    "a network": Description,
    "a cluster": WithLinks,
    "an FPGA board": model_of(FpgaDescription),
    "a GPU board": model_of(GpuDescription),
    "links": LinksDescription,
    "a machine": MachineDescription,
    "resources": ResourcesDescription,
    "an interconnect": NetworkDescription,
    "faults": FaultsDescription,
    "a slow board": model_of(BoardFault),
    "a bad link": model_of(LinkFault),
    "flips": model_of(FlipFault),
    "a death": model_of(BoardDeath),
    "a range": RangeDescription,
    "a next measurement": NextMeasurementDescription,
    "collectives": CollectivesDescription,
    "a protocol": ProtocolDescription,
    "a profile": ProfileDescription,
    "a profiled device": DeviceTable,
    "a profiled layer": LayerTable,
    "times": TimesTable,
    **{name: node_model(kind) for name, kind in operation_types().items()},
}
"""By the words of the comment above a table; operations by their `type`."""

COMMON = "every operation"
"""The table of the keys that operations have in common."""


def tables() -> dict[str, list[list[str]]]:
    """Return the tables of keys: for the words above each its rows, without the head."""
    return {
        match["models"]: [
            [cell.strip() for cell in row.strip("|").split(" | ")]
            for row in match["rows"].splitlines()[2:]
        ]
        for match in _TABLE.finditer(text_of(PAGE))
    }


def kind_of(schema: dict[str, Any]) -> str:
    """Return the type of a key, as the page says it."""
    if "anyOf" in schema:
        return next(kind_of(choice) for choice in schema["anyOf"] if choice.get("type") != "null")
    if "$ref" in schema:
        return "table"
    if "additionalProperties" in schema:
        is_text = schema["additionalProperties"] == {"type": "string"}
        return "table of strings" if is_text else "table of tables"
    choices = schema.get(
        "enum", schema.get("choices", [schema["const"]] if "const" in schema else [])
    )
    if choices:
        return " or ".join(f'`"{value}"`' for value in choices)
    if schema["type"] == "array":
        if "prefixItems" not in schema:
            items = schema["items"]
            if items == {"type": "string"}:
                return "string, or array of string"
            return (
                "array of tables"
                if "$ref" in items or "oneOf" in items
                else f"array of {kind_of(items)}"
            )
        item, *others = map(kind_of, schema["prefixItems"])
        if set(others) != {item}:
            return f"pair of {' and '.join([item, *others])}"
        count = len(schema["prefixItems"])
        return f"{item}, or an array of two" if count == 2 else f"array of {count}: {item}"
    bounds = [
        f"{sign} {number(schema[name])}"
        for name, sign in (
            ("minimum", ">="),
            ("exclusiveMinimum", ">"),
            ("maximum", "<="),
            ("exclusiveMaximum", "<"),
            ("multipleOf", "a multiple of"),
        )
        if name in schema
    ]
    return " ".join([schema["type"], ", ".join(bounds)]).strip()


def number(value: float) -> str:
    """Return a bound as the page says it."""
    return "2^63" if value == 1 << 63 else f"{value:g}"


def default_of(name: str, schema: dict[str, Any], model_schema: dict[str, Any]) -> str:
    """Return the default of a key, as the page says it."""
    if name in model_schema.get("required", ()):
        return "required"
    value = schema["default"]
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"`{value[0]}`" if len(set(value)) == 1 else f"`{value}`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{str(value).lower()}`"


def rows_of(model: type[Model]) -> dict[str, list[str]]:
    """Return the cells of each key: its name, type and default, and its meaning where the model
    says it.
    """
    schema = model.model_json_schema()
    return {
        key: [
            f"`{key}`",
            kind_of(of),
            default_of(key, of, schema),
            *([of["description"]] if model is Config else []),
        ]
        for key, of in schema["properties"].items()
    }


def common_rows() -> list[list[str]]:
    """Return the rows that all operations share which do not join others' results."""
    of_each = [rows_of(node_model(kind)) for kind in operation_types().values() if not kind.joins]
    return [row for row in of_each[0].values() if all(row in rows.values() for rows in of_each[1:])]


def expected_rows(models: str) -> list[list[str]]:
    """Return the rows of the table with these words above it; of operations of one table, their
    types together.
    """
    if models == COMMON:
        return common_rows()
    first, *others = models.split(", ")
    rows = rows_of(MODELS[first])
    if MODELS[first] is Config:
        rows = {key: rows[key] for key in GROUPS[first.strip("[]")]}
    for other in others:
        found = rows_of(MODELS[other])
        rows["type"][1] += f" or {found['type'][1]}"
        found["type"] = rows["type"]
        assert found == rows, (
            f"{first} and {other} have other keys, and so need tables of their own"
        )
    return [
        row for row in rows.values() if first not in operation_types() or row not in common_rows()
    ]


@pytest.mark.parametrize("models", tables())
def test_every_key_is_explained(models: str) -> None:
    expected, found = expected_rows(models), tables()[models]
    assert all(len(row) == 4 and row[3] for row in found), "each key has its meaning"
    compared = [row[: len(expected[0])] for row in found]
    assert compared == expected, f"{PAGE}, keys of {models}, should read:\n" + "\n".join(
        f"| {' | '.join(row)} |" for row in expected
    )


def test_everything_has_a_table() -> None:
    named = [name for models in tables() for name in models.split(", ")]
    assert sorted(named) == sorted([*MODELS, COMMON])
