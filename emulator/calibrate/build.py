"""A build of a design: what its reports say together (`reports.py` reads them).

One build has several reports, each of some figures; of the same figure, that of the later stage
counts. What a multiply-accumulate takes is what the kernel takes over the number of them:

    csynth:            512 products and sums --+
    routed:  kernel 2,566 DSPs, 149,486 LUTs --+--> 5.01 DSPs and 292 LUTs each
             platform  10 DSPs, 179,794 LUTs -----> shell_dsp, shell_lut
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

from ..common import InputError


class Stage(enum.IntEnum):
    """How far a design had been built when a report was written."""

    ESTIMATED = 0
    SYNTHESISED = 1
    PLACED = 2
    ROUTED = 3


@dataclasses.dataclass(frozen=True)
class Amounts:
    """DSPs, LUTs, FFs and block RAMs; None where a report does not say it. An ALM is two LUTs."""

    dsp: int | None = None
    lut: int | None = None
    ff: int | None = None
    bram: int | None = None


NOTHING = Amounts()


@dataclasses.dataclass(frozen=True)
class Report:
    """What a report says: what the kernel takes, what the shell does, and what both take together;
    the clock in MHz, the power in W, multiply-accumulates, and the DSPs of the device.
    """

    name: str
    kind: str
    stage: Stage
    kernel: Amounts = NOTHING
    shell: Amounts = NOTHING
    together: Amounts = NOTHING
    clock_mhz: float | None = None
    power_w: float | None = None
    multipliers: int | None = None
    device_dsp: int | None = None


@dataclasses.dataclass(frozen=True)
class Build:
    """What all reports of a build say together: what the kernel takes and the shell does, the clock
    in MHz, the power in W, and multiply-accumulates.

    `clock_stage` and `lut_stage` are the stages of which the clock and the kernel's LUTs are;
    `lut_stage` is None where they are those of the whole FPGA, its shell included.
    """

    kernel: Amounts
    shell: Amounts
    clock_mhz: float | None
    power_w: float | None
    multipliers: int | None
    clock_stage: Stage | None
    lut_stage: Stage | None

    def each(self, key: str) -> float | None:
        """Return how much of a resource a multiply-accumulate takes."""
        amount = getattr(self.kernel, key)
        return None if amount is None or not self.multipliers else amount / self.multipliers


def build_of(reports: Sequence[Report], multipliers: int | None = None) -> Build:
    """Return what reports of one build say together; `multipliers` goes before what they tell.

    Raises:
        InputError: they are of several builds.
    """
    kernel = _amounts(reports, "kernel", lambda report: report.kernel)
    together = _amounts(reports, "whole design", lambda report: report.together)
    if multipliers is None:
        multipliers = _latest(reports, "multipliers", lambda report: report.multipliers)
        _check_same_kernel(reports, kernel.dsp)
    whole = kernel.lut is None
    return Build(
        dataclasses.replace(together, dsp=kernel.dsp) if whole else kernel,
        _amounts(reports, "shell", lambda report: report.shell),
        _latest(reports, "clock in MHz", lambda report: report.clock_mhz),
        _latest(reports, "power in W", lambda report: report.power_w),
        multipliers,
        _last_stage(reports, lambda report: report.clock_mhz),
        _last_stage(reports, lambda report: report.kernel.lut),
    )


_SAME, _SIMILAR = 0.01, 0.25
"""Shares by which figures of one stage may differ, such as 300 MHz and 3.33 ns; and the DSPs of a
kernel before and after routing, which are 2,569 and 2,566 of one with 512 multipliers.
"""


def _amounts(reports: Sequence[Report], what: str, chosen: Callable[[Report], Amounts]) -> Amounts:
    def latest(key: str) -> int | None:
        return _latest(reports, f"{key} of the {what}", lambda report: getattr(chosen(report), key))

    return Amounts(*(latest(field.name) for field in dataclasses.fields(Amounts)))


def _last_stage(reports: Sequence[Report], figure: Callable[[Report], Any]) -> Stage | None:
    """Return the latest stage of which a report says a figure."""
    return max((report.stage for report in reports if figure(report) is not None), default=None)


def _latest(reports: Sequence[Report], what: str, figure: Callable[[Report], Any]) -> Any:
    """Return a figure of the report of the latest stage that says it; None if none does."""
    last = _last_stage(reports, figure)
    said = [(figure(report), report.name) for report in reports if report.stage is last]
    said = [(value, name) for value, name in said if value is not None]
    for value, name in said[1:]:
        if abs(value - said[0][0]) > _SAME * said[0][0]:
            raise InputError(
                f"{name}: {what}: {value:,.6g}, but {said[0][0]:,.6g} in {said[0][1]}; give the"
                " reports of one build"
            )
    return said[0][0] if said else None


def _check_same_kernel(reports: Sequence[Report], dsp: int | None) -> None:
    """Check that the report that tells the multipliers is of the kernel whose DSPs count."""
    for report in reports:
        own = report.kernel.dsp
        if report.multipliers is None or own is None or dsp is None:
            continue
        if abs(dsp - own) > _SIMILAR * own:
            raise InputError(
                f"{report.name}: {report.multipliers:,} multipliers in {own:,} DSPs, of a kernel"
                f" that takes {dsp:,} in the other reports; give the reports of one build, or all"
                " its multipliers by `--multipliers`"
            )
