"""Calibrated constants as the TOML files of emuchain: a board, a cluster, a profile. `[uncertainty]` has the ranges.

Each is read back as commands will read it, before any of it is written.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..cluster import load_cluster
from ..common import InputError, name_of, read_description, toml_value
from ..network import load_network, zoo
from ..profile import profile_of
from .board import BoardFit, cluster_of
from .constants import Constant, Evidence
from .layers import LayerTime, ProfileFit

_HELD_BY_EFFICIENCY = ("board.clock_mhz", "board.dsp", "board.dsp_share")
"""Constants of which products measure the product with efficiency, whose range is that of all of them."""

_OF_NETWORK = ("output_bytes", "feature_bytes", "parameter_bytes")
"""Keys of a profile's layers that are left to the network."""


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


def read_back_cluster(toml: str, blame: str) -> None:
    """Check that commands take the file of a cluster.

    Raises:
        InputError: they would refuse it; `blame` are the measurements.
    """
    _check(lambda: load_cluster(read_description(toml)), blame)


def read_back_board(toml: str, blame: str) -> None:
    """Check that commands take the file of a board; it raises as `read_back_cluster`."""
    _check(lambda: load_cluster(cluster_of(read_description(toml), "board")), blame)


def read_back_profile(toml: str, blame: str) -> None:
    """Check that commands take the file of a profile, as far as its network is known; it raises likewise."""
    said = read_description(toml)
    network = load_network(said["name"]) if said["name"] in zoo() else None
    if network is None:
        said["layers"] = [{**layer, **dict.fromkeys(_OF_NETWORK, 0)} for layer in said["layers"]]
    _check(lambda: profile_of(said, network, "the profile"), blame)


def _check(read: Callable[[], object], blame: str) -> None:
    try:
        read()
    except InputError as error:
        raise InputError(f"{blame}: what follows from these rows is refused by all who read it: {error}") from None
