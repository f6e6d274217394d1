"""A cut made by hand as `emuchain plan` shows it: beside the automatic one, and as a file to edit."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

from ..common import InputError, WholeFile, encoded, number, plural
from ..mapping import HandmadeCut, cut_channels
from ..plan import ChainPlan, make_plan
from ..run import steady_rate
from ..view import Line


def save_cut(plan: ChainPlan, file: WholeFile) -> None:
    """Write a plan's cut into a file, and read it as `--cut` does.

    Raises:
        InputError: it cannot be written, or `--cut` would not take it.
    """
    file.write(encoded(cut_file(plan)))
    again = HandmadeCut.of(str(file.path))
    if again.mapping(plan.network).devices != plan.mapping.devices:
        raise InputError(f"{again.blame}: is another cut than the one that was saved there; save it again")


def cut_file(plan: ChainPlan) -> str:
    """Return the content of the file of a plan's cut."""
    counts = ", ".join(f"{layer.name} {cut_channels(layer)}" for layer in plan.network.layers)
    about = (
        f"{plan.network.name} over {plural(plan.stage_count, 'board')}, in the order of the chain. One has layers,"
        f" such as `conv1:conv3`, or channels, such as `conv4[0:20]` or `conv4[:30%]`, of these: {counts}."
    )
    return "\n".join([*textwrap.wrap(about, 100, initial_indent="# ", subsequent_indent="# "), plan.cut.toml()])


class CutComparison(NamedTuple):
    """The rate of a cut made by hand, and of the automatic one, or why there is none; in samples per second."""

    rate: float
    automatic: float | None
    failure: str

    @classmethod
    def of(cls, plan: ChainPlan) -> CutComparison:
        """Return what the automatic cut of the same run reaches."""
        try:
            automatic = make_plan(plan.config.model_copy(update=_automatic(plan)), 1, timing_only=True)
        except InputError as error:
            return cls(steady_rate(plan), None, str(error))
        return cls(steady_rate(plan), steady_rate(automatic), "")

    def line(self, noun: str) -> Line:
        """Return the comparison as a line."""
        if self.automatic is None:
            return Line(f"automatic cut: none; {self.failure}")
        ratio = self.rate / self.automatic
        compared = "as fast as this one" if ratio == 1 else f"this one is {number(ratio)} times as fast"
        return Line(f"automatic cut: {number(self.automatic)} {noun}s/s; {compared}")


def _automatic(plan: ChainPlan) -> dict[str, object]:
    """Return the keys with which the same run has an automatic cut."""
    return {"cut": None, "devices": plan.devices}


def cut_as_json(plan: ChainPlan, beside: CutComparison | None) -> dict[str, Any]:
    """Return a plan's cut, and the rate of the automatic one beside one made by hand."""
    if beside is None:
        return {"cut": list(map(" ".join, plan.cut.boards))}
    return {"cut": list(map(" ".join, plan.cut.boards)), "automatic": {"images_per_s": beside.automatic}}
