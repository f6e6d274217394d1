"""Studies of trained runs: all combinations of keys' values, each trained with some seeds, in one
process or several; rows, means and standard errors.

Each run is trained alone, in one process, so that its numbers do not depend on how many there are.
Finished runs are kept in a CSV file, as those of a sweep, from which a study goes on.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from ...launch import Ranks, SingleProcess, WorkerLost, in_parallel, usable_cores
from ..cluster import changeable_keys
from ..common import Figures, InputError, Mean, format_time_ps, html_table, logger, plural
from ..config import Config, settings_config
from ..data import Dataset
from ..plan import plan_run
from ..run import Training
from ..view import new_figure, save_figure
from .sweep import INTERNAL, Announce, Interrupted, Journal, Point, Space, identities, points_of

_FILES = "out", "checkpoint", "checkpoint_every", "resume", "log", "progress"
_OF_HOST = "throttle", "stall_timeout", "rtl_device"
_MOST_SEEDS = 1000
_MEASURES = {"test_accuracy": "test accuracy", "test_loss": "test loss", "train_loss": "train loss"}


def study_keys() -> list[str]:
    """Return the keys that a study of trained runs may vary: of a run, but for its files and seed,
    and of its cluster.
    """
    without = {*_FILES, *_OF_HOST, "seed"}
    return [*(key for key in Config.model_fields if key not in without), *changeable_keys()]


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a run reached after its last epoch; where it fails, `error` is the reason and the others
    are None.

    `test_accuracy` and `test_loss` are None without a test, and the accuracy where numbers are
    predicted.
    """

    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    virtual_time_ps: int | None = None
    samples_per_s: float | None = None
    error: str | None = None


_FIGURES = tuple(field.name for field in dataclasses.fields(Trained))


def train_point(task: tuple[Point, Dataset | None]) -> Trained:
    """Train a point in this process; whatever goes wrong is its `error`, in one line."""
    point, data = task
    if point.cluster is None:
        return Trained(error=point.error)
    try:
        config = settings_config({**point.settings, "progress": "none"})
        plan = plan_run(config, 1, network=point.network, cluster=point.cluster)
        with Training(plan, SingleProcess(), None, data=data) as training:
            training.lead()
            last = training.run()[-1]
            samples = training.data.n_train
    except InputError as error:
        return Trained(error=" ".join(str(error).split()))
    except Exception as error:
        return Trained(error=" ".join(f"{INTERNAL}: {type(error).__name__}: {error}".split()))
    time_ps = last.virtual_time_ps
    return Trained(
        train_loss=last.train.mean_loss,
        test_loss=last.test.mean_loss if last.test.samples else None,
        test_accuracy=last.test.known_accuracy,
        virtual_time_ps=time_ps,
        samples_per_s=samples * config.epochs / (time_ps * 1e-12) if time_ps else None,
    )


@dataclasses.dataclass(frozen=True)
class Study(Figures):
    """The runs of a study: `rows`, which `pandas.DataFrame` takes as they are, one for each
    combination of values and seed.
    """

    rows: list[dict[str, Any]]
    varied: tuple[str, ...]
    """The keys with more than one value."""

    @functools.cached_property
    def means(self) -> list[dict[str, Any]]:
        """For each combination its varied keys, the seeds that ended and failed, each measure's
        mean and standard error over seeds, and the first reason for which one failed.
        """
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[key] for key in self.varied), []).append(row)
        return [self._mean(values, rows) for values, rows in groups.items()]

    def _mean(self, values: tuple[Any, ...], rows: list[dict[str, Any]]) -> dict[str, Any]:
        ended = [row for row in rows if row["error"] is None]
        made: dict[str, Any] = dict(zip(self.varied, values, strict=True))
        made |= {"seeds": len(ended), "failed": len(rows) - len(ended)}
        for name in (*_MEASURES, "virtual_time_ps"):
            own = [row[name] for row in ended]
            is_known = bool(own) and None not in own
            mean = Mean.over(own) if is_known else None
            made[name] = None if mean is None else mean.value
            made[f"{name}_error"] = None if mean is None or math.isinf(mean.error) else mean.error
        reasons = [row["error"] for row in rows if row["error"] is not None]
        return {**made, "error": reasons[0] if reasons else None}

    @property
    def measure(self) -> str:
        """The column by which runs are compared: accuracy, or else the loss of the test, or that of
        training.
        """
        ended = [row for row in self.means if row["seeds"]]
        return next(
            (name for name in _MEASURES if ended and all(row[name] is not None for row in ended)),
            "train_loss",
        )

    @property
    def best(self) -> dict[str, Any] | None:
        """The combination with the best mean of `measure`; None if all runs fail."""
        sign = -1 if self.measure == "test_accuracy" else 1
        ended = [row for row in self.means if row[self.measure] is not None]
        return min(ended, key=lambda row: sign * row[self.measure], default=None)

    def name_of(self, row: Mapping[str, Any]) -> str:
        """Return what tells a combination from others."""
        return ", ".join(f"{key} = {row[key]}" for key in self.varied) or "the run"

    def reached(self, row: Mapping[str, Any]) -> str:
        """Return the measure of a combination, by its name."""
        return f"{_MEASURES[self.measure]} {_shown(row, self.measure)}"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns and the cells of the means, as text."""
        names = [name for name in _MEASURES if any(row[name] is not None for row in self.means)]
        columns = [*self.varied, "seeds", *(_MEASURES[name] for name in names), "virtual time"]
        rows = []
        for row in self.means:
            if row["seeds"]:
                cells = [_shown(row, name) for name in names]
                time_ps = row["virtual_time_ps"]
                cells.append("-" if time_ps is None else format_time_ps(round(time_ps)))
            else:
                cells = ["-"] * (len(names) + 1)
            seeds = f"{row['seeds']} of {row['seeds'] + row['failed']}"
            rows.append([*(str(row[key]) for key in self.varied), seeds, *cells])
        return columns, rows

    @property
    def failures(self) -> list[str]:
        """A line for each reason for which runs fail, with the first combination and seed."""
        by_reason: dict[str, list[dict[str, Any]]] = {}
        for row in self.rows:
            if row["error"] is not None:
                by_reason.setdefault(row["error"], []).append(row)
        return [
            f"{plural(len(rows), 'run')} fail{'s' if len(rows) == 1 else ''}:"
            f" {self.name_of(rows[0])}, seed {rows[0]['seed']}: {reason}"
            for reason, rows in by_reason.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        best = self.best
        return {
            **{"varied": list(self.varied), "measure": self.measure, "best": best},
            **{"means": self.means, "rows": self.rows},
        }

    def draw(self, picture: str | os.PathLike[str]) -> None:
        """Draw the mean of `measure` of each combination over its virtual time, with standard
        errors.

        Raises:
            InputError: matplotlib is missing, or the file cannot be written.
        """
        figure = new_figure(8, 5, "--plot")
        axes, scale = figure.subplots(), 100 if self.measure == "test_accuracy" else 1
        for row in self.means:
            if row[self.measure] is not None:
                error = row[f"{self.measure}_error"] or 0
                at = row["virtual_time_ps"] / 1e9, scale * row[self.measure]
                axes.errorbar(*at, yerr=scale * error, fmt="o", capsize=4, label=self.name_of(row))
        axes.set_xlabel("virtual time / ms")
        axes.set_ylabel(_MEASURES[self.measure] + (" / %" if scale == 100 else ""))
        axes.grid(alpha=0.3)
        axes.legend()
        save_figure(figure, picture, "--plot")

    def __repr__(self) -> str:
        failed = sum(row["error"] is not None for row in self.rows)
        counted = f"{plural(len(self.rows), 'run')}, {failed} failed"
        best = self.best
        if best is None:
            return f"<Study of {counted}>"
        return f"<Study of {counted}; best: {self.name_of(best)}: {self.reached(best)}>"

    def _repr_html_(self) -> str:
        columns, rows = self.table()
        return html_table(f"Study of {plural(len(self.rows), 'run')}", rows, columns)


def _shown(row: Mapping[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    error = row[f"{name}_error"]
    mean = Mean(row[name], math.inf if error is None else error)
    return f"{mean.times(100).shown(2)} %" if name == "test_accuracy" else mean.shown(4)


def run_study(
    values: Mapping[str, Any],
    seeds: int,
    settings: Mapping[str, Any] | None = None,
    *,
    data: Dataset | None = None,
    ranks: Ranks | None = None,
    jobs: int | None = None,
    csv: pathlib.Path | None = None,
    restart: bool = False,
    announce: Announce = lambda *_: nullcontext(lambda: None),
    blame: str = "command line",
) -> Study:
    """Train all combinations of values with each seed.

    Args:
        values: keys with a value or several each.
        seeds: number of seeds of each combination, from that of `settings` on.
        settings: further keys of the run, the same of all runs.
        data: a loaded data set, in place of that of the key `data`.
        ranks: where there are several, the others train.
        jobs: number of processes otherwise; by default one for each core.
        csv: a file for the rows; runs that it holds are not trained again.
        restart: whether to train all runs anew.
        announce: what reports progress.
        blame: beginning of messages about a value.

    Raises:
        InputError: a value is invalid, the file is that of another study or cannot be written, or a
            process died.
        Interrupted: by Ctrl-C; finished runs are in the file.
    """
    if not 1 <= seeds <= _MOST_SEEDS:
        raise InputError(f"`seeds` = {seeds}: should be from 1 to {_MOST_SEEDS:,}")
    space = Space.of(values, settings, blame=blame, known=study_keys())
    first = int(space.settings.get("seed", Config.model_fields["seed"].default))
    points = [
        dataclasses.replace(
            point,
            keys={**point.keys, "seed": seed},
            settings={**point.settings, "seed": seed},
        )
        for point in points_of(space, blame, with_weights=True)
        for seed in range(first, first + seeds)
    ]
    known = [""] * len(points)
    if csv is not None:
        known = identities(points, _digest_of_data(points, data))
    columns = [*space.values, "seed", *_FIGURES]
    journal = None if csv is None else Journal(csv, columns, known, Trained, restart=restart)
    runs: list[Trained | None] = [None] * len(points)
    if journal is not None:
        runs = [journal.done.get(identity) for identity in known]
    missing = [place for place, run in enumerate(runs) if run is None]

    log = logger("study")

    def row_of(place: int, run: Trained) -> dict[str, Any]:
        return {**points[place].keys, **dataclasses.asdict(run)}

    try:
        log.info("%d runs, %d of them in the file", len(points), len(points) - len(missing))
        with announce(len(points), len(points) - len(missing)) as advance:
            tasks = [(points[place], data) for place in missing]
            workers = ranks or SingleProcess()
            for number, run in in_parallel(workers, jobs or usable_cores(), train_point, tasks):
                place = missing[number]
                runs[place] = run
                if journal is not None:
                    journal.add(row_of(place, run), known[place])
                log.info("%s", row_of(place, run))
                advance()
        rows = [row_of(place, run) for place, run in enumerate(runs) if run is not None]
        if journal is not None:
            journal.finish(rows, known)
    except KeyboardInterrupt:
        raise Interrupted(sum(run is not None for run in runs), len(runs)) from None
    except WorkerLost as error:
        raise InputError(str(error)) from None
    finally:
        if journal is not None:
            journal.close()
    return Study(rows, space.varied)


def _digest_of_data(points: Sequence[Point], data: Dataset | None) -> str:
    """Return a digest of the files of data that runs name, or of a data set's labels."""
    digest = hashlib.sha256()
    if data is not None:
        digest.update(repr((data.n_train, data.shape, data.classes)).encode())
        digest.update(data.train_labels.tobytes())
        return digest.hexdigest()
    for path in sorted({str(point.settings.get("data") or "") for point in points}):
        if os.path.isfile(path):
            digest.update(pathlib.Path(path).read_bytes())
    return digest.hexdigest()
