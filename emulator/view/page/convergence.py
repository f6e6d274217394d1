"""Convergence: accuracy and loss of all runs, by epoch and by virtual time."""

from __future__ import annotations

from collections.abc import Sequence

from ..tables import epoch_rows
from .numbers import finite, with_micro
from .parts import Chart, Key, Section, Table
from .source import Run

_MEASURES = {"accuracy": "Accuracy", "loss": "Loss"}


def convergence(runs: Sequence[Run]) -> Section | None:
    """Return the section; None if no run has finished an epoch. One run is drawn with its training curves."""
    shown = [(number, run) for number, run in enumerate(runs) if run.results.epochs]
    if not shown:
        return None
    charts = []
    alone = len(runs) == 1
    for measure, title in _MEASURES.items():
        for over, axis in (("epoch", "epochs"), ("virtual_time_ps", "virtual time")):
            curves = [
                {
                    "run": run.name,
                    "colour": f"run-{number}",
                    "dashed": kind == "train",
                    "kind": "training" if kind == "train" else "test",
                    "x": [int(x) for x in run.results.history[over]],
                    "y": [finite(y) for y in run.results.history[f"{kind}_{measure}"]],
                }
                for number, run in shown
                for kind in (("train", "test") if alone else ("test",))
            ]
            data = {"over": over, "measure": measure, "curves": curves}
            of = title if alone else f"Test {title.lower()}"
            charts.append(Chart("curves", f"{of} over {axis}", data, is_wide=False))
    tables = tuple(_history(run, alone) for _, run in shown)
    return Section("Convergence", _said(shown), tuple(charts), tables, legend=_legend(shown, alone))


def _legend(shown: Sequence[tuple[int, Run]], alone: bool) -> tuple[Key, ...]:
    if alone:
        return Key("test", "run-0", "line"), Key("training", "run-0", "dashes")
    return tuple(Key(run.name, f"run-{number}", "line") for number, run in shown)


def _said(shown: Sequence[tuple[int, Run]]) -> str:
    said = []
    for _, run in shown[:1] if len(shown) == 1 else ():
        history = run.results.history
        first, last = history["train_loss"][0], history["train_loss"][-1]
        fell = f"The training loss went from {first:.3f} in the first epoch to {last:.3f} in the last. "
        said.append(fell if len(history["epoch"]) > 1 else f"The training loss is {last:.3f} after one epoch. ")
    return "".join(said) + "Virtual time is that of the emulated cluster; evaluation takes none of it."


def _history(run: Run, alone: bool) -> Table:
    rows = [[*row[:6], with_micro(row[6]), row[7]] for row in epoch_rows(run.results.history)]
    columns = ["epoch", "learning rate", "loss", "accuracy", "test loss", "test accuracy", "virtual time", "host time"]
    return Table("Every epoch" if alone else f"Every epoch of {run.name}", columns, rows)
