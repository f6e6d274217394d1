"""The commands with their arguments and flags: those of this file, and those that other files
define.

What a command needs is imported when it is called. `SECTIONS` lists all by what they are for.
"""

from __future__ import annotations

import errno
import importlib
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from ... import __version__
from ...kernels import offered
from ..common import IMAGENET_IMAGES, InputError, check_start
from .design.sweep import is_range, sweep_devices
from .frame import output
from .frame.command import Answer, FileGroup, json_option, plot_option, set_option
from .frame.flags import (
    RUNS,
    PlanningCommand,
    TrainingCommand,
    full_option,
    range_option,
    traced,
    with_precision,
)
from .frame.kernels import starting
from .frame.named import (
    NETWORK,
    OUTPUT,
    RTL,
    SCHEDULE,
    WAVES,
    WHAT_IF,
    NumberOfSeeds,
    cluster_option,
    count_option,
    profile_option,
    switch,
    word_option,
)
from .frame.session import Session

if TYPE_CHECKING:
    from ..config import Config
    from ..run import Runs


_NO_INT = re.compile(
    r"'(?P<said>[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\d{1,3}(?:,\d{3})+)(?:[eE][+-]?\d{1,2})?)' is not a"
    r" valid integer",
    re.ASCII,
)
_DEFINES = re.compile(r"^@click\.(command|group)\(", re.MULTILINE)


SECTIONS = {
    "Design": ("plan", "simulate", "sweep", "explore", "timeline", "schedule", "pipeline", "study"),
    "Train": ("train", "launch", "precision"),
    "Results": ("show", "report", "evaluate", "generate", "export", "retime"),
    "What there is": ("network", "cluster", "data"),
    "Hardware": ("rtl", "calibrate", "bench"),
    "Papers": ("validate",),
}
"""The commands of each section of the help."""


class CommandGroup(FileGroup):
    """The group of all commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first words name; the name of one in a group says where it
        is.
        """
        groups = [
            (name, command)
            for name, command in self.commands.items()
            if isinstance(command, click.Group)
        ]
        for name, group in groups:
            if args[0] in group.commands and args[0] not in self.commands:
                raise click.UsageError(
                    f"No such command '{args[0]}'. Did you mean '{name} {args[0]}'?", ctx
                )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands section by section; those of none stand last."""
        listed = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in listed)
        longest = max(map(len, self.commands))
        for title, names in {**SECTIONS, "Others": others}.items():
            known = [(name, self.commands[name]) for name in names if name in self.commands]
            rows = [
                (name.ljust(longest), command.get_short_help_str(formatter.width - 6 - longest))
                for name, command in known
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def run(arguments: Sequence[str], session: Session) -> int:
    """Run the command that the arguments name; return the exit status.

    Raises:
        InputError: the arguments are invalid, or the command cannot be carried out with them.
    """
    stdout = sys.stdout
    try:
        with output.notes():
            status = commands.main(
                list(arguments), prog_name="emuchain", standalone_mode=False, obj=session
            )
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return 2
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see `{context.command_path} --help`)" if context else ""
        raise InputError(f"{' '.join(_explained(error).format_message().split())}{hint}") from None
    except SystemExit:
        # Where output is read no further, click wraps it and exits with 1.
        if sys.stdout is not stdout:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None
        raise
    except click.Abort:
        raise KeyboardInterrupt from None
    return status if isinstance(status, int) else 0


def _explained(error: click.ClickException) -> click.ClickException:
    """Return an error that says of a whole number in another spelling, such as 1e9, how it is
    written.
    """
    match = _NO_INT.match(error.message)
    if match is None or not isinstance(error, click.BadParameter) or error.param is None:
        return error
    value = Fraction(match["said"].replace(",", ""))
    if value.denominator > 1:
        return error
    try:
        error.param.type.convert(str(value), error.param, error.ctx)
    except click.BadParameter as other:
        return other
    return click.BadParameter(
        f"'{match['said']}' must be written as {value}.", error.ctx, error.param
    )


def defined_commands() -> list[click.Command]:
    """Return the commands that files define, here or below, and in the commands.py of other rooms;
    and extensions'.

    A file that defines commands has click's decorators, and is quick to import; others are not
    imported.
    """
    own, root = pathlib.Path(__file__), pathlib.Path(__file__).parents[2]
    modules = []
    for path in [*sorted(own.parent.rglob("*.py")), *sorted(root.glob("*/commands.py"))]:
        if path != own and _DEFINES.search(path.read_text(encoding="utf-8")):
            names = path.relative_to(root).with_suffix("").parts
            modules.append(importlib.import_module(".".join([__package__.split(".")[0], *names])))
    things = [*(value for module in modules for value in vars(module).values()), *offered()]
    values = [value for value in things if isinstance(value, click.Command)]
    below = [
        sub for value in values if isinstance(value, click.Group) for sub in value.commands.values()
    ]
    return [value for value in values if value not in below]


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="emuchain")
def commands() -> None:
    """An emulator of FPGA clusters that train neural networks.

    Run it alone, or under mpiexec with one emulated FPGA on each rank.
    """
    check_start()  # before the flags of a command, some of which follow from what needs libraries


class TrainCommand(TrainingCommand):
    """The command `train`: one run, or one with each of some seeds, perhaps with a control beside
    it.
    """

    takes_ranks = True

    def runs(self, ctx: click.Context, given: Config) -> Runs:
        """See `TrainingCommand`."""
        from ..run import ALONE, changes_beside, runs_of, seed_variants

        seeds, control = ctx.params["seeds"], ctx.params["control"]
        variants = ALONE if seeds is None else seed_variants(given, seeds)
        return runs_of(given, variants, changes_beside(control=control))


@commands.command(cls=TrainCommand)
@click.option(
    "--seeds",
    type=NumberOfSeeds(min=1),
    metavar="N",
    help=(
        "Train once with each of N seeds from --seed on; say mean and standard error. Each has"
        " files of its own."
    ),
)
@switch("--control", "Train once more without codec, and say what the codec changes.")
@full_option
@traced
@click.pass_obj
@click.decorators.pass_meta_key(RUNS)
def train(
    runs: Runs,
    session: Session,
    config_file: str | None,
    flags: dict[str, Any],
    full: bool,
    control: bool,
    seeds: int | None,
    **trace: str | None,
) -> None:
    """Train a network on the chain: real numbers, virtual time.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Every key of CONFIG.toml has its flag,
    and a flag overrides the file.
    """
    ranks = session.join_watched()
    with starting():
        from ..run import StoppedRun
        from .train import run_training, show_stopped, train_seeds

    try:
        if seeds is None:
            run_training(ranks, runs, config_file, flags, full, trace, control=control)
        else:
            train_seeds(ranks, runs, config_file, flags, {"full": full, **trace}, control=control)
    except StoppedRun as stopped:
        several = (
            [] if seeds is None else ["--seeds", str(seeds), "--seed", str(runs.configs[0].seed)]
        )
        show_stopped(stopped, runs, ["train", *several, *(["--control"] if control else [])])
        session.end(stopped.status)


@commands.command(cls=PlanningCommand, sweeps=True)
@click.option(
    "--what-if",
    type=WHAT_IF,
    multiple=True,
    metavar="KEY=VALUE",
    help=(
        "Compare with another value: link.bandwidth_gbps=250, board.dsp, devices, …; may be"
        " repeated."
    ),
)
@count_option(
    "--epoch-images",
    "Images of an epoch in the steady state.  [default: those of the data set; in JSON ImageNet's"
    " 1281167]",
)
@profile_option("FILE.toml", "Measured times of layers, on boards that take actions as a whole.")
@json_option()
@plot_option("Draw how busy engines and links are.")
@full_option
@range_option
@traced
@click.pass_obj
def simulate(
    session: Session,
    config_file: str | None,
    flags: dict[str, Any],
    what_if: tuple[str, ...],
    epoch_images: int | None,
    profile: str | None,
    full: bool,
    ranged: bool,
    **trace: str | None,
) -> Answer | int:
    """Simulate the virtual time of a run, and the use of its devices and links, without training.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Takes the keys of `train`, and agrees
    with it to the picosecond. With --samples, no data is needed. With several numbers of --devices,
    prints what `sweep` finds.
    """
    if is_range(flags):
        traces = {f"--{key.replace('_', '-')}": value for key, value in trace.items()}
        alone = {"--what-if": what_if, "--profile": profile, **traces}
        return sweep_devices(
            session,
            config_file,
            flags,
            full=full,
            ranged=ranged,
            epoch_images=epoch_images or IMAGENET_IMAGES,
            alone=alone,
        )
    with starting():
        from .design.simulate import run_simulation

    return run_simulation(config_file, flags, what_if, epoch_images, full, trace, ranged, profile)


@commands.command(cls=PlanningCommand)
@word_option("--samples-shown", "FIRST-LAST", "Samples to show, counted from 0.  [default: 0-7]")
@count_option("--width", "Columns.  [default: the terminal's, or 80]", least=40, most=10_000)
@switch("--all-lanes", "One line per engine and stream, instead of FP, EB and PG of each device.")
@plot_option("Draw the chart, as SVG, PDF or PNG.", "FILE.svg")
def timeline(
    config_file: str | None,
    flags: dict[str, Any],
    samples_shown: str | None,
    width: int | None,
    all_lanes: bool,
) -> Answer:
    """Show a chart of what the devices do with the first samples, and when.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Only as many samples are simulated as
    the chart needs.
    """
    with starting():
        from .design.timeline import run_timeline

    return run_timeline(config_file, flags, samples_shown, width, all_lanes)


@commands.command(
    cls=PlanningCommand,
    meant=dict.fromkeys(("--forward", "--backward", "--plot"), "emuchain pipeline"),
)
@count_option("--steps", "Mini-batches to print.  [default: 2; CSV: 1]", metavar="K")
@count_option(
    "--micro-batches",
    "Print only the order of M micro-batches a mini-batch on --devices, without a network.",
    metavar="M",
)
@switch("--list", "List all schedules, a line for each.", "lists")
@switch("--csv", "Print a mini-batch as CSV, as PyTorch's schedules read it.", "as_csv")
@switch("--text", "With --check, print the file's schedule as text.", "as_text")
@click.option(
    "--check",
    type=SCHEDULE,
    metavar="FILE",
    help="Dry-run the schedule in a file instead; --csv or --text also print it.",
)
def schedule(
    config_file: str | None,
    flags: dict[str, Any],
    steps: int | None,
    micro_batches: int | None,
    lists: bool,
    as_csv: bool,
    as_text: bool,
    check: str | None,
) -> Answer:
    """Print a run's schedule, or check one: every device's actions in order.

    NETWORK comes with emuchain, or is a TOML or ONNX file.
    """
    with starting():
        from .design.schedule import (
            checked_schedule,
            list_schedules,
            order_of,
            print_schedule,
            run_schedule,
        )

    if lists:
        if (
            config_file is not None
            or flags
            or steps
            or micro_batches
            or as_csv
            or as_text
            or check is not None
        ):
            raise click.UsageError("--list takes nothing else")
        return Answer(list_schedules)
    if as_csv and as_text:
        raise click.UsageError("--csv and --text: give one of them")
    if check is not None:
        if config_file is not None or flags or steps is not None or micro_batches is not None:
            raise click.UsageError(
                "--check takes a file, and --csv or --text; leave out everything else"
            )
        return checked_schedule(check, "csv" if as_csv else "text" if as_text else None)
    steps = steps or (1 if as_csv else 2)
    if micro_batches is None:
        actions = run_schedule(config_file, flags, steps)
    else:
        actions = order_of(config_file, flags, micro_batches, steps)
    return Answer(lambda: print_schedule(actions, as_csv))


@commands.command(cls=PlanningCommand, sweeps=True)
@json_option()
@plot_option("Draw each device's multipliers, block RAM and look-up tables by layer.")
@click.option(
    "--save", type=OUTPUT, metavar="FILE.toml", help="Write the cut, to edit and give as --cut."
)
@full_option
@range_option
@click.pass_obj
def plan(
    session: Session,
    config_file: str | None,
    flags: dict[str, Any],
    full: bool,
    ranged: bool,
    save: str | None,
) -> Answer | int:
    """Show NETWORK's layout on a cluster: slices, engines, resources, memory, links, and what
    limits the rate.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Takes the keys of `train`. With several
    numbers of --devices, prints what `sweep` finds.
    """
    if is_range(flags):
        return sweep_devices(
            session, config_file, flags, full=full, ranged=ranged, alone={"--save": save}
        )
    with starting():
        from .design.plan import show_plan

    return show_plan(config_file, flags, save, full=full, ranged=ranged)


@commands.command()
@click.argument("network", type=NETWORK)
@cluster_option("vc709")
@count_option("--devices", "Number of FPGAs.  [default: 1]", default=1)
@click.option(
    "--out", type=RTL, required=True, metavar="DIR", help="The folder for the SystemVerilog files."
)
@count_option("--batch", "Samples of a mini-batch.  [default: 2]")
@click.option(
    "--learning-rate", type=float, metavar="X", help="Learning rate of the update.  [default: 0.01]"
)
@with_precision
@set_option
@click.option(
    "--seed",
    type=int,
    metavar="N",
    help="Seed of weights, and of what a simulation draws.  [default: 0]",
)
@count_option(
    "--fma-latency",
    "Latency of a multiply-add in cycles; with 0, rows take as long as in the time model. "
    " [default: 0]",
    least=0,
    most=16,
    default=0,
)
@switch("--simulate", "Train two mini-batches with Verilator, and compare bits and cycles.")
@click.option(
    "--waves",
    type=WAVES,
    metavar="FILE.vcd",
    help="Write the simulation's waveforms, one file per device.",
)
@switch(
    "--synthesise",
    "Synthesise with Yosys and compare its resources with the plan's; takes minutes.",
)
def rtl(
    out: str, fma_latency: int, simulate: bool, waves: str | None, synthesise: bool, **flags: Any
) -> Answer:
    """Write SystemVerilog for each device of NETWORK's plan, and simulate it against the emulator.

    NETWORK comes with emuchain, or is a TOML or ONNX file. Its layers may be conv, fc, relu,
    max-pool and softmax. The schedule is sync. A simulation needs Verilator and a C++ compiler; it
    fails if a single bit or cycle is wrong.
    """
    given = {key: value for key, value in flags.items() if value not in (None, {})}
    with starting():
        from .rtl import write_rtl

    return write_rtl(given, out, fma_latency, simulate, waves, synthesise)


for command in defined_commands():
    commands.add_command(command)
