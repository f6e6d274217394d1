"""All points of a sweep, in parallel; finished ones are kept in a CSV file, and a sweep resumes from there."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ....launch import Ranks, SingleProcess, WorkerLost, in_parallel, usable_cores
from ...common import InputError
from .identity import identities
from .journal import Journal
from .measure import Measured, measure, row_of
from .result import SweepResult
from .space import Space, points_of

Announce = Callable[[int, int], AbstractContextManager[Callable[[], None]]]
"""From the number of points, and of those that are there already, to what is called after each further one."""


class Interrupted(KeyboardInterrupt):
    """A sweep was interrupted after `done` of `total` points."""

    def __init__(self, done: int, total: int) -> None:
        super().__init__(done, total)
        self.done, self.total = done, total


def run_space(
    space: Space,
    epoch_images: int,
    *,
    ranks: Ranks | None = None,
    jobs: int | None = None,
    csv: pathlib.Path | None = None,
    restart: bool = False,
    announce: Announce = lambda *_: nullcontext(lambda: None),
    blame: str = "command line",
) -> SweepResult:
    """Compute all points of a sweep.

    Args:
        space: its keys and their values.
        epoch_images: images of an epoch, for its hours.
        ranks: where there are several, the others compute the points.
        jobs: number of processes otherwise; by default one for each core.
        csv: a file for the rows; points that it holds are not computed again.
        restart: whether to compute all points anew.
        announce: what reports progress.
        blame: beginning of messages about a value.

    Raises:
        InputError: a value is invalid, the file is that of another sweep or cannot be written, or a process died.
        Interrupted: by Ctrl-C; finished points are in the file.
    """
    points = points_of(space, blame)
    known = identities(points, epoch_images) if csv is not None else [""] * len(points)
    journal = None if csv is None else Journal(csv, list(space.values), known, restart=restart)
    found: list[Measured | None] = [None] * len(points)
    if journal is not None:
        found = [journal.done.get(point) for point in known]
    missing = [place for place, measured in enumerate(found) if measured is None]
    tasks = [(points[place], epoch_images) for place in missing]
    try:
        with announce(len(points), len(points) - len(missing)) as advance:
            for number, measured in in_parallel(ranks or SingleProcess(), jobs or usable_cores(), measure, tasks):
                place = missing[number]
                found[place] = measured
                if journal is not None:
                    journal.add(row_of(points[place], measured), known[place])
                advance()
        rows = [row_of(point, measured) for point, measured in zip(points, found, strict=True) if measured is not None]
        if journal is not None:
            journal.finish(rows, known)
    except KeyboardInterrupt:
        raise Interrupted(sum(measured is not None for measured in found), len(found)) from None
    except WorkerLost as error:
        raise InputError(str(error)) from None
    finally:
        if journal is not None:
            journal.close()
    nouns = {point.network.sample_noun for point in points}
    return SweepResult(space, rows, nouns.pop() if len(nouns) == 1 else "sample")
