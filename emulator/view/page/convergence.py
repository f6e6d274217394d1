"""Convergence: accuracy and loss of all runs over epochs and over virtual time; of seeds the mean, with a band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...common import Mean
from ..tables import epoch_rows
from .group import Group
from .parts import Chart, CurveMark, Key, Section, Table, finite, share_text, time_text, with_micro

_MEASURES = {"accuracy": "Accuracy", "loss": "Loss"}
_COLUMNS = ["epoch", "learning rate", "loss", "accuracy", "test loss", "test accuracy", "virtual time", "host time"]


def convergence(groups: Sequence[Group]) -> Section | None:
    """Return the section; None if no run has finished an epoch. One run is drawn with its training curves."""
    shown = [(place, group) for place, group in enumerate(groups) if group.epochs]
    if not shown:
        return None
    charts = []
    is_alone = len(groups) == 1
    kinds = ("train", "test") if is_alone else ("test",)
    for measure, title in _MEASURES.items():
        for over, axis in (("epoch", "epochs"), ("virtual_time_ps", "virtual time")):
            curves = [_curve(group, place, kind, measure, over) for place, group in shown for kind in kinds]
            data = {"over": over, "measure": measure, "curves": curves}
            heading = title if is_alone else f"Test {title.lower()}"
            charts.append(Chart("curves", f"{heading} over {axis}", data, is_wide=False))
    tables = tuple(_history(group, is_alone) for _, group in shown)
    said = _said([group for _, group in shown])
    return Section("Convergence", said, tuple(charts), tables, legend=_keys(shown, is_alone))


def _curve(group: Group, place: int, kind: str, measure: str, over: str) -> dict[str, Any]:
    """Return a curve's points, how it is drawn, and of several seeds its band."""
    mark, means = CurveMark.of(place), group.curve(f"{kind}_{measure}")
    curve: dict[str, Any] = {
        "run": group.name,
        "colour": mark.colour,
        "symbol": mark.symbol,
        "dashes": mark.dashes,
        "dashed": kind == "train",
        "kind": "training" if kind == "train" else "test",
        "x": [round(mean.value) for mean in group.curve(over)],
        "y": [finite(mean.value) for mean in means],
    }
    if group.has_seeds:
        curve |= {
            "seeds": len(group.runs),
            "low": [finite(mean.value - mean.error) for mean in means],
            "high": [finite(mean.value + mean.error) for mean in means],
        }
    return curve


def _keys(shown: Sequence[tuple[int, Group]], is_alone: bool) -> tuple[Key, ...]:
    if is_alone:
        seeds = _seeds(shown[0][1])
        return Key(f"test{seeds}", "run-0", "line"), Key(f"training{seeds}", "run-0", "dashes")
    return tuple(Key.of_curve(f"{group.name}{_seeds(group)}", place) for place, group in shown)


def _seeds(group: Group) -> str:
    return f", n = {len(group.runs)}" if group.has_seeds else ""


def _said(groups: Sequence[Group]) -> str:
    said = []
    if len(groups) == 1:
        losses = groups[0].curve("train_loss")
        first, last = _loss_text(losses[0], 3), _loss_text(losses[-1], 3)
        fell = f"The training loss went from {first} in the first epoch to {last} in the last. "
        said.append(fell if len(losses) > 1 else f"The training loss is {last} after one epoch. ")
    if any(group.has_seeds for group in groups):
        said.append("Lines are means over n seeds, bands ± their standard errors. ")
    for group in groups:
        most = max(run.results.epochs for run in group.runs)
        if group.epochs < most:
            said.append(f"Of {group.name}, {group.epochs} of {most} epochs are shown, which all seeds have finished. ")
    return "".join(said) + "Virtual time is that of the emulated cluster; evaluation takes none of it."


def _history(group: Group, is_alone: bool) -> Table:
    title = "Every epoch" if is_alone else f"Every epoch of {group.name}"
    if not group.has_seeds:
        rows = [[*row[:6], with_micro(row[6]), row[7]] for row in epoch_rows(group.first.results.history)]
        return Table(title, _COLUMNS, rows)
    names = ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "virtual_time_ps", "host_time_s")
    curves = zip(*(group.curve(name) for name in names), strict=True)
    history = group.first.results.history
    rows = [
        [
            str(history["epoch"][place]),
            f"{history['learning_rate'][place]:g}",
            _loss_text(loss, 4),
            share_text(accuracy),
            _loss_text(test_loss, 4),
            share_text(test_accuracy),
            time_text(time_ps),
            f"{host_s.value:.1f} s",
        ]
        for place, (loss, accuracy, test_loss, test_accuracy, time_ps, host_s) in enumerate(curves)
    ]
    return Table(f"{title}: mean of {len(group.runs)} seeds ± standard error", _COLUMNS, rows)


def _loss_text(loss: Mean, digits: int) -> str:
    return f"{loss.value:.{digits}f}" if math.isinf(loss.error) else loss.shown(digits)
