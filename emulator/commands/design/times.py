"""Times of stages and links, as flags say them: one for all, or a list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ...common import InputError, plural

if TYPE_CHECKING:
    from ...schedule import Fold

_NUMBER = re.compile(r"(\d{1,12}(\.\d{0,12})?|\.\d{1,12})([eE][+-]?\d{1,2})?", re.ASCII)
_DIGITS = 12
"""Of a time, ahead of the decimal point and behind it."""


def times_of(flags: Mapping[str, Any], fold: Fold) -> Sequence[Sequence[Fraction]]:
    """Return F, B, the part of B for gradients, R, O, and SR of each stage."""
    forward, backward = (_by_stage(flags, name, fold) for name in ("forward", "backward"))
    for name, times in (("forward", forward), ("backward", backward)):
        if not all(times):
            raise InputError(f"`{name}` = {flags[name]!r}: must be more than 0")
    if flags["gradient"] is None:
        gradient = [time / 2 for time in backward]
    else:
        gradient = _by_stage(flags, "gradient", fold)
    for stage, (part, whole) in enumerate(zip(gradient, backward, strict=True)):
        if part > whole:
            at = f" (stage {stage})" if "," in flags["gradient"] + flags["backward"] else ""
            raise InputError(
                f"`gradient` = {flags['gradient']}: is part of `backward` = {flags['backward']}{at}"
            )
    again = forward if flags["recompute"] is None else _by_stage(flags, "recompute", fold)
    offload = _by_stage({"offload": flags["offload"] or "0"}, "offload", fold)
    return forward, backward, gradient, again, offload, _by_link(flags["transfer"], fold.count)


def _by_stage(flags: Mapping[str, Any], name: str, fold: Fold) -> list[Fraction]:
    """Return the time of each stage: of one value, or one for each device, each chunk has an equal
    part.
    """
    times, devices, chunks = _list(flags[name], name), fold.devices, fold.chunks
    if len(times) not in (1, devices, fold.count):
        places = (
            plural(devices, "stage")
            if chunks == 1
            else f"{plural(devices, 'device')}, or of {plural(fold.count, 'stage')}"
        )
        raise InputError(
            f"`{name}` = {flags[name]!r}: has {plural(len(times), 'value')}; must be one, or one"
            f" for each of {places}"
        )
    if len(times) == fold.count and len(times) > 1:
        return times
    of_devices = times * devices if len(times) == 1 else times
    return [of_devices[fold.device(stage)] / chunks for stage in range(fold.count)]


def _by_link(text: str, stages: int) -> list[Fraction]:
    """Return the time of a message behind each stage; that of the last is not used."""
    times = _list(text, "transfer")
    if len(times) not in (1, stages - 1, stages):
        raise InputError(
            f"`transfer` = {text!r}: has {plural(len(times), 'value')}; must be one, or one for"
            f" each link of {plural(stages, 'stage')}"
        )
    if len(times) == 1:
        return times * stages
    return [*times[: stages - 1], times[stages - 2]]


def _list(text: str, name: str) -> list[Fraction]:
    return [number_of(entry, name) for entry in text.split(",")]


def number_of(text: str, name: str) -> Fraction:
    value = Fraction(text.strip()) if _NUMBER.fullmatch(text.strip()) else Fraction(-1)
    if not 0 <= value < 10**_DIGITS or (value * 10**_DIGITS).denominator > 1:
        raise InputError(
            f"`{name}` = {text!r}: must be a number that is not negative, such as 3, 2.5 or 2e-3,"
            f" of at most {_DIGITS} digits ahead of the decimal point and {_DIGITS} behind it"
        )
    return value
