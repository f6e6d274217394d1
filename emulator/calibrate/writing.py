"""Calibrated constants as the TOML files of emuchain: a board, a cluster, a profile. `[uncertainty]` has the ranges."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..common import name_of, toml_value
from .board import BoardFit
from .constants import Constant, Evidence
from .layers import LayerTime, ProfileFit

_HELD_BY_EFFICIENCY = ("board.clock_mhz", "board.dsp", "board.dsp_share")
"""Constants of which products measure the product with efficiency, whose range is that of all of them."""


def cluster_toml(path: pathlib.PurePath, board: str, constants: Sequence[Constant], evidence: Evidence) -> str:
    """Return the file of a cluster of boards of one type, whose links have the constants `link.KEY`."""
    links = {constant.key.removeprefix("link."): constant.value for constant in constants}
    return "\n".join(
        [
            f"# Links as measured ({evidence}); `emuchain calibrate link` wrote this file.",
            f"name = {toml_value(name_of(path))}",
            "",
            "[[boards]]",
            f"type = {toml_value(board)}",
            "",
            "[links]",
            *_keys(links),
            *_uncertainty(constants, evidence, {}),
            "",
        ]
    )


def board_toml(fit: BoardFit) -> str:
    """Return the file of a board: the keys of its type, with the constants in their place."""
    measured = {constant.key.removeprefix("board."): constant.value for constant in fit.constants}
    keys = {**fit.keys, **measured}
    before = keys.pop("uncertainty", {})
    if "efficiency" in measured:
        before = {key: entry for key, entry in before.items() if key not in _HELD_BY_EFFICIENCY}
        before["board.clock_mhz"] = _entry(keys["clock_mhz"], keys["clock_mhz"], fit.evidence)
    return "\n".join(
        [
            f"# {', '.join(measured)} as measured ({fit.evidence}); `emuchain calibrate board` wrote this file.",
            *_keys(keys),
            *_uncertainty(fit.constants, fit.evidence, before),
            "",
        ]
    )


def profile_toml(fit: ProfileFit) -> str:
    """Return the file of a profile, for `emuchain explore NETWORK --profile FILE`; bytes are those of the network."""
    lines = [
        f"# Layers as measured ({fit.evidence}); `emuchain calibrate board` wrote this file.",
        f"name = {toml_value(fit.network)}",
        "",
        f"[devices.{toml_value(fit.device)}]",
    ]
    layers: dict[str, list[LayerTime]] = {}
    for time in fit.times:
        layers.setdefault(time.layer, []).append(time)
    for layer, times in layers.items():
        lines += ["", "[[layers]]", f"name = {toml_value(layer)}", "times = ["]
        lines += [f"  {toml_value(_times(fit.device, time))}," for time in times] + ["]"]
    return "\n".join([*lines, ""])


def _times(device: str, time: LayerTime) -> dict[str, Any]:
    said: dict[str, Any] = {"device": device, "micro_batch": time.samples}
    said |= {"forward_us": time.forward_us, "backward_us": time.backward_us}
    return said if time.gradient_us is None else {**said, "gradient_us": time.gradient_us}


def _uncertainty(constants: Sequence[Constant], evidence: Evidence, before: Mapping[str, Any]) -> list[str]:
    """Return the table of ranges; those that the file had `before` stay where nothing was measured anew."""
    ranges: dict[str, Any] = dict(before)
    for constant in constants:
        ranges[constant.key] = _entry(constant.range.low, constant.range.high, evidence)
    return ["", "[uncertainty]", *(f"{json.dumps(key)} = {toml_value(keys)}" for key, keys in ranges.items())]


def _entry(low: float, high: float, evidence: Evidence) -> dict[str, Any]:
    return {"low": low, "high": high, "class": "measured", "from": str(evidence), "date": evidence.date}


def _keys(values: Mapping[str, Any]) -> list[str]:
    """Return lines of keys; tables, such as a board's `multipliers`, stand in one line."""
    return [f"{key} = {toml_value(value)}" for key, value in values.items()]
