"""Roundings against gfloat, a slow reference of many formats, where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from emuchain.kernels.number import BlockGrid, Rounding, number_format
from emuchain.kernels.quantise import on_grid

gfloat: Any = pytest.importorskip(
    "gfloat", reason="gfloat, the peer of these tests, is not installed"
)
formats: Any = pytest.importorskip("gfloat.formats")

FORMATS = {
    "fp8-e4m3": "format_info_ocp_e4m3",
    "fp8-e5m2": "format_info_ocp_e5m2",
    "bf16": "format_info_bfloat16",
    "fp16": "format_info_binary16",
    "mxfp6-e2m3": "format_info_ocp_e2m3",
    "mxfp6-e3m2": "format_info_ocp_e3m2",
    "mxfp4": "format_info_ocp_e2m1",
}
MODES = {Rounding.EVEN: "TiesToEven", Rounding.AWAY: "TiesToAway", Rounding.ZERO: "TowardZero"}


@pytest.mark.parametrize("rounding", MODES)
@pytest.mark.parametrize("name", FORMATS)
def test_all_upper_halves_and_what_is_between_them(name: str, rounding: Rounding) -> None:
    upper = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    values = np.concatenate([upper | np.uint32(lower) for lower in (0, 1, 0x7FFF, 0x8000)]).view(
        np.float32
    )
    finite = values[np.isfinite(values)]
    grid = number_format(name).grid
    grid = grid.element if isinstance(grid, BlockGrid) else grid
    assert grid is not None
    mode = getattr(gfloat.RoundMode, MODES[rounding])
    with np.errstate(all="ignore"):
        expected = gfloat.round_ndarray(
            getattr(formats, FORMATS[name]), finite.astype(np.float64), mode, not grid.overflows
        )
    assert np.array_equal(on_grid(finite, grid, rounding), expected.astype(np.float32))
