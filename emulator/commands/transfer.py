"""Progress of a transfer: a bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..data import Progress

_MEGA = 1_000_000
_STEP = 25  # percent between two plain lines


@contextmanager
def reported() -> Iterator[Progress]:
    """Yield a `progress` for `fetch_data` that prints on standard error."""
    if sys.stderr.isatty():
        with _bars() as progress:
            yield progress
    else:
        yield _lines()


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:

        def progress(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=total)

        yield progress


def _lines() -> Progress:
    """Return a `progress` that prints a line for each quarter of a file."""
    quarters: dict[str, int] = {}

    def progress(name: str, done: int, total: int | None) -> None:
        quarter = 100 * done // total // _STEP if total else 0
        if quarter > quarters.get(name, -1):
            quarters[name] = quarter
            size = f"{done / _MEGA:.1f} of {total / _MEGA:.1f} MB" if total else f"{done / _MEGA:.1f} MB"
            print(f"{name}: {size}", file=sys.stderr, flush=True)

    return progress
