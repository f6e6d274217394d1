"""The tables of docs/resources.md about built multipliers: they say what the package has."""

import re
from fractions import Fraction

import pytest

from emuchain.emulator.cluster import DSP_TYPES, Fpga, board_keys, load_cluster, peaks

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
            built.append((name, it.kind, *numbers, it.adds, it.origin, it.source))
    assert sorted(said) == sorted(built)


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
