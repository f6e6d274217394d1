"""The tables of docs/resources.md about built multipliers: they say what the package has."""

import re
from fractions import Fraction

import pytest

from emuchain.emulator.cluster import (
    DSP_TYPES,
    FUNCTIONS,
    Fpga,
    board_keys,
    link_keys,
    link_kinds,
    load_cluster,
    peaks,
)
from emuchain.emulator.network import Recurrent, SfuOperation, operation_types

from .pages import text_of


def rows(name: str) -> list[list[str]]:
    """Return the cells of the table below a comment, without its head."""
    [found] = re.findall(
        rf"^<!-- {name} -->\n\n((?:\|.*\n)+)", text_of("docs/resources.md"), re.MULTILINE
    )
    return [cells(row) for row in found.splitlines()[2:]]


def cells(row: str) -> list[str]:
    """Return the cells of a row."""
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def test_each_implementation_is_in_the_table() -> None:
    said = []
    for types, kind, dsp, lut, ff, adds, origin, times, source in rows("implementations"):
        low, high = map(float, times.split(" to "))
        numbers = (Fraction(dsp), int(lut), int(ff), low, high)
        said += [(name, kind, *numbers, adds, origin, source) for name in types.split(", ")]
    built = []
    for name, of in DSP_TYPES.items():
        for it in of.built:
            numbers = (it.dsp, it.lut, it.ff, it.low, it.high)
            kind = f"{it.kind} dot:{it.products}" if it.products else it.kind
            built.append((name, kind, *numbers, it.adds, it.origin, it.source))
    assert sorted(said) == sorted(built)


def test_each_function_is_in_the_table() -> None:
    said = [
        (name, what, int(dsp), int(lut), int(ff), origin, source)
        for types, what, dsp, lut, ff, origin, source in rows("functions")
        for name in types.split(", ")
    ]
    built = []
    for name, cores in FUNCTIONS.items():
        for what, core in zip(("exponential", "division"), cores, strict=True):
            built.append((name, what, core.dsp, core.lut, core.ff, core.origin, core.source))
    assert sorted(said) == sorted(built)


def test_the_cores_of_links_are_in_the_table() -> None:
    said = {kind.strip("`"): (lut, ff, bram) for kind, lut, ff, bram, *_ in rows("cores")}
    for kind in link_kinds():
        keys = link_keys(kind)
        core = tuple(f"{keys.get(f'core_{key}', 0):,}" for key in ("lut", "ff", "bram"))
        assert said.get(kind, ("0",) * 3) == core


@pytest.mark.parametrize("row", rows("arithmetic"), ids=lambda row: str(row[0]))
def test_the_arithmetic_of_operations_is_in_the_table(row: list[str]) -> None:
    name, *counts, _ = row
    kind = operation_types()[name]
    if name == "attention":  # one head, whose two rows see two scores each
        counted = kind(heads=1).arithmetic((3, 2, 1), (0, 2, 1))  # type: ignore[call-arg,attr-defined]
        assert counted == (*(4 * int(count) for count in counts[:2]), 2)
        return
    each = kind.of_unit if issubclass(kind, Recurrent) else kind.of_value  # type: ignore[attr-defined]
    assert each == tuple(map(int, counts))


def test_all_other_operations_have_none() -> None:
    known = {row[0] for row in rows("arithmetic")}
    for name, kind in operation_types().items():
        if issubclass(kind, SfuOperation) and name not in known:
            assert not any(kind.of_value), name


@pytest.mark.parametrize("row", rows("peaks"), ids=lambda row: str(row[0]))
def test_what_boards_reach_is_in_the_table(row: list[str]) -> None:
    name = row[0].strip("`")
    alone = {"name": "alone", "boards": [{"type": name}]}
    board = load_cluster(alone | {"links": {"bandwidth_gbps": 1, "latency_ns": 0}}).board(0)
    assert isinstance(board, Fpga)
    known = {peak.kind: peak for peak in peaks(board)}
    widest = known["fp32"]
    assert row[1:] == [
        f"{board_keys(name)['dsp']:,}",
        board.dsp_type,
        *(f"{known[kind].multipliers:,}" for kind in ("fp32", "half", "int8")),
        f"{widest.clock_mhz:.0f}",
        f"{widest.gflops:,.0f}",
        f"{widest.low:,.0f} to {widest.high:,.0f}",
        widest.origin,
    ]
