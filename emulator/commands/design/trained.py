"""`emuchain study train`: a network trained with all combinations of values of any keys, and some
seeds.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import click

from ... import view
from ...common import InputError, plural
from ...config import roles
from ..frame.command import Answer, json_option, plot_option, set_option
from ..frame.kernels import load, starting
from ..frame.named import PICTURE, Named, NumberOfSeeds, count_option, switch
from ..frame.output import tell
from .study import study
from .sweep import SweepCommand

if TYPE_CHECKING:
    from ...studies import Study
    from ..frame.session import Session

_INTERRUPTED_STATUS = 130
_LISTS = (
    "resize",
    "crop",
    "mean",
    "std",
    "augment",
    "new_layers",
    "freeze",
    "class_weights",
    "target_columns",
)
"""Keys whose values are lists, which `--set` gives: the commas of flags are between values."""


class StudyTrainCommand(SweepCommand):
    """A command with a flag for each key that a study of trained runs can vary."""

    def key_names(self) -> list[str]:
        """See `SweepCommand`."""
        from ...studies import study_keys

        return [key for key in study_keys() if key not in _LISTS]


@click.command(cls=StudyTrainCommand)
@click.argument("network", type=Named(roles.NETWORKS))
@click.option(
    "--seeds",
    type=NumberOfSeeds(min=1),
    default=3,
    metavar="N",
    help="Seeds of each combination.  [default: 3]",
)
@plot_option("Draw accuracies, or losses, over virtual time.")
@click.option(
    "--csv",
    type=PICTURE,
    metavar="FILE.csv",
    help="Write all runs; an interrupted study resumes from this file.",
)
@switch("--restart", "Start the CSV file over.")
@json_option()
@set_option
@count_option("--jobs", "Number of processes.  [default: one for each core]")
@click.pass_obj
def train(
    session: Session,
    network: str,
    swept: dict[str, tuple[Any, ...]],
    settings: dict[str, Any],
    seeds: int,
    jobs: int | None,
    **how: Any,
) -> Answer | int:
    """Train NETWORK with all combinations of values of any keys, each with some seeds.

    Keys take lists and ranges, as for `emuchain sweep`: --schedule sync,1f1b-as --precision
    fp32,bf16. The answer has means and standard errors over seeds. A run that fails does not end
    the others: its reason is said.

    Under mpiexec, the ranks but the first train, on any hosts.
    """
    with starting():
        from ...studies import run_study
        from ...studies.sweep import Interrupted

    ranks = session.join()
    if jobs is not None and ranks.size > 1:
        raise InputError(f"`jobs` = {jobs}: under mpiexec the ranks train; leave it out")
    load(tell)
    announce = functools.partial(view.point_progress, "study")
    values = {"network": tuple(network.split(",")), **swept}
    try:
        made = run_study(values, seeds, settings, ranks=ranks, jobs=jobs, announce=announce, **how)
    except Interrupted as interrupted:
        csv = how["csv"]
        kept = (
            "" if csv is None else f"; they are kept in {csv}, from which the same command resumes"
        )
        done = f"interrupted after {interrupted.done} of {interrupted.total} runs{kept}"
        print(f"emuchain: {done}", file=sys.stderr, flush=True)
        return _INTERRUPTED_STATUS
    if made.best is None:
        raise InputError(f"all {plural(len(made.rows), 'run')} fail; {made.failures[0]}")
    return Answer(lambda: _print(made, seeds), made.to_dict, made.draw)


study.add_command(train)


def _print(made: Study, seeds: int) -> None:
    best = made.best
    assert best is not None
    columns, rows = made.table()
    lines = [
        f"best: {made.name_of(best)}: {made.reached(best)}",
        f"mean ± standard error of {plural(seeds, 'seed')}",
        *made.failures,
    ]
    view.print_answer(lines)
    view.table("Runs", columns, rows, left=made.varied)
