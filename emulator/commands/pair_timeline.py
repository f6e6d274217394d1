"""`emuchain timeline` under the schedules of a GPU, alone or with an FPGA: the tasks of a mini-batch."""

from __future__ import annotations

from ..common import InputError, WholeFile
from ..config import Config
from ..plan import make_pair_plan
from ..report import draw_pair
from ..timeline import pair_gantt


def show_pair_timeline(
    config: Config, width: int, picture: WholeFile | None, *, samples_shown: str | None, all_lanes: bool
) -> None:
    """Print the chart of a mini-batch; draw it too, if asked for.

    Raises:
        InputError: a value does not suit a pair, samples or lanes are asked for, or the picture cannot be written.
    """
    for flag, given in (("samples-shown", samples_shown), ("all-lanes", all_lanes or None)):
        if given is not None:
            raise InputError(f"`--{flag}`: the timeline of a pair has the tasks of a mini-batch; leave it out")
    plan = make_pair_plan(config)
    print(plan.answer[0])
    print(f"{config.schedule.name}: {plan.answer[1]}")
    for line in pair_gantt(plan.times, width):
        print(line)
    if picture is not None:
        draw_pair(plan.times, f"{plan.title}, {config.schedule.name}", picture)
        print(f"drawn in {picture.path}")
