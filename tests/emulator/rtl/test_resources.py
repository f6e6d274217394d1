"""What a device takes by its cells, in parts, and what the plan says of it."""

from emuchain.emulator.cluster import Resources
from emuchain.emulator.rtl import Rtl, sources
from emuchain.emulator.rtl.resources import (
    CONTROL,
    MEMORIES,
    PARTS,
    SFU,
    TILES,
    UPDATE,
    DeviceResources,
    all_cells,
    cells_by_part,
    planned_resources,
    resources_of,
)

from .chains import TWO_LAYERS, cluster, plan

MODULES = {
    "\\device0": {"\\slice": 2, "$paramod\\bias\\LANES=s32'1": 1, "LUT2": 5},
    "\\slice": {
        "$paramod$a1\\tile": 3,
        "row_ram": 1,
        "$paramod\\update\\LANES=s32'1": 1,
        "FDRE": 7,
    },
    "$paramod$a1\\tile": {"fp32_fma": 2, "SRL16E": 1},
    "\\fp32_fma": {"DSP48E1": 2, "LUT6": 10},
    "\\row_ram": {"RAMB36E1": 1, "RAM32M": 2},
    "$paramod\\update\\LANES=s32'1": {"fp32_fma": 1},
    "$paramod\\bias\\LANES=s32'1": {"$paramod$a1\\tile": 1, "row_ram": 1},
}
"""A device of two slices; those of its modules without parameters are named without a backslash
where they are used.
"""


def test_cells_are_counted() -> None:
    """Carry chains, wide multiplexers and inverters take no LUT; memories of LUTs do."""
    cells = {
        "CARRY4": 3,
        "DSP48E1": 2,
        "FDRE": 5,
        "FDSE": 1,
        "INV": 4,
        "LUT2": 3,
        "LUT6": 7,
        "MUXF7": 2,
    }
    cells |= {"RAM32M": 2, "RAMB18E1": 1, "RAMB36E1": 3, "SRL16E": 2}
    assert resources_of(cells) == Resources(lut=3 + 7 + 2 * 4 + 2, ff=6, bram_banks=7, dsp=2)


def test_a_module_counts_as_often_as_it_is_used() -> None:
    """Tiles and memories within the update or the SFU are theirs."""
    parts = {
        part: resources_of(cells) for part, cells in cells_by_part(MODULES, "\\device0").items()
    }
    assert parts == {
        CONTROL: Resources(lut=5, ff=2 * 7),
        TILES: Resources(lut=2 * 3 * (2 * 10 + 1), dsp=2 * 3 * 2 * 2),
        MEMORIES: Resources(lut=2 * 2 * 4, bram_banks=2 * 2),
        UPDATE: Resources(lut=2 * 10, dsp=2 * 2),
        SFU: Resources(lut=2 * 10 + 1 + 2 * 4, bram_banks=2, dsp=2 * 2),
    }
    assert resources_of(all_cells(MODULES, "\\device0")) == sum(parts.values(), Resources())


def test_every_module_of_a_part_is_there() -> None:
    """A module that is renamed does not become control unseen."""
    assert set(PARTS) <= {source.stem for source in sources()}


def test_the_plan_has_engines_and_buffers() -> None:
    """Together they are the resources that `plan` shows; DSPs are the engines' alone."""
    rtl = Rtl.of(plan(TWO_LAYERS, cluster(40), 2))
    for layout, design in zip(rtl.plan.layout().devices, rtl.devices, strict=True):
        engines, buffers = planned_resources(layout)
        tiles = [
            engine.tiles * of.layer.engine_view.tile
            for of in design.slices
            for engine in (of.fp, of.eb, of.pg)
            if engine is not None
        ]
        assert DeviceResources(0, {}, engines, buffers).planned == layout.resources
        assert engines.dsp == sum(tiles) > 0
        assert (buffers.dsp, engines.bram_banks) == (0, 0)
