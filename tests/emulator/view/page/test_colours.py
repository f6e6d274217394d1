"""The colours of twelve runs can be distinguished, with each kind of colour blindness, too; so can
their marks in grey.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import emuchain
from emuchain.emulator.view.page.parts import MOST_CURVES, CurveMark

LEAST_DISTANCE = {"none": 19.0, "protanopia": 11.5, "deuteranopia": 11.5, "tritanopia": 14.5}
"""Between any two of the twelve, by CIEDE2000; before, reds and greens came as near as 0.8."""

# Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009: what is seen with no cones of a kind, in
# linear sRGB.
SIMULATED = {
    "none": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
WHITE = np.array([0.95047, 1, 1.08883])

Colour = NDArray[np.float64]


def colours_of(scheme: str) -> dict[str, Colour]:
    """The colours of the page, in linear sRGB."""
    style = Path(emuchain.__file__).parent / "emulator/view/page/static/page.css"
    parts = style.read_text(encoding="utf-8").split("@media (prefers-color-scheme: dark)")
    found = {}
    for name, digits in re.findall(r"--([\w-]+): #(\w{6});", parts[scheme == "dark"]):
        shades = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
        found[name] = np.where(shades <= 0.04045, shades / 12.92, ((shades + 0.055) / 1.055) ** 2.4)
    return found


def lab(linear: Colour) -> Colour:
    xyz = XYZ @ np.clip(linear, 0, 1) / WHITE
    x, y, z = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(first: Colour, second: Colour) -> float:
    """CIEDE2000 of two colours in CIELAB."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    grey = 1 + 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25**7)))
    c1, c2 = np.hypot(a1 * grey, b1), np.hypot(a2 * grey, b2)
    h1, h2 = (np.degrees(np.arctan2(b, a * grey)) % 360 for a, b in ((a1, b1), (a2, b2)))
    turn = (h2 - h1 + 180) % 360 - 180
    hue = (h1 + turn / 2) % 360
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    waves = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    weight = 1 + sum(size * np.cos(np.radians(times * hue + shift)) for size, times, shift in waves)
    by_light = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    by_chroma = (c2 - c1) / (1 + 0.045 * chroma)
    by_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * weight)
    blue = (
        2
        * np.sqrt(chroma**7 / (chroma**7 + 25**7))
        * np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    )
    return float(np.sqrt(by_light**2 + by_chroma**2 + by_hue**2 - blue * by_chroma * by_hue))


def test_the_distance() -> None:
    """Of two pairs of Sharma, Wu and Dalal, Color Res. Appl. 30(1), 2005."""
    assert distance(np.array([50, 2.6772, -79.7751]), np.array([50, 0, -82.7485])) == pytest.approx(
        2.0425, abs=1e-4
    )
    assert distance(np.array([50, 2.5, 0]), np.array([73, 25, -18])) == pytest.approx(
        27.1492, abs=1e-4
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIMULATED)
def test_colours_of_runs_can_be_distinguished(scheme: str, sight: str) -> None:
    colours = colours_of(scheme)
    seen = [
        lab(SIMULATED[sight] @ colours[CurveMark.of(place).colour]) for place in range(MOST_CURVES)
    ]
    nearest = min(
        itertools.combinations(range(MOST_CURVES), 2),
        key=lambda pair: distance(*(seen[i] for i in pair)),
    )
    assert distance(*(seen[i] for i in nearest)) > LEAST_DISTANCE[sight], nearest


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_runs_stand_out_from_the_page(scheme: str) -> None:
    colours = colours_of(scheme)
    ground = XYZ[1] @ colours["page"]
    for place in range(MOST_CURVES):
        own = XYZ[1] @ colours[CurveMark.of(place).colour]
        assert (max(own, ground) + 0.05) / (min(own, ground) + 0.05) > 2.8, place


def test_marks_differ_without_colours() -> None:
    assert (
        len(
            {
                (CurveMark.of(place).symbol, CurveMark.of(place).dashes)
                for place in range(MOST_CURVES)
            }
        )
        == 12
    )
