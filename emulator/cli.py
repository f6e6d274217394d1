"""The command line: `emuchain train | simulate | show | schedule | network | data`.

Everything that is the user's to mend ends here as one line, from rank 0, and exit status 2 on every rank.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import __version__
from ..comm.mpi import launcher_rank
from .errors import InputError

if TYPE_CHECKING:
    from ..comm.ranks import Ranks

_INPUT_STATUS, _BUG_STATUS = 2, 1


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit; the console script `emuchain`."""
    if (launcher_rank() or 0) > 0 and not os.environ.get("EMUCHAIN_DEBUG"):
        _be_silent()
    session = Session()
    try:
        if launcher_rank() is not None:
            session.join()
        status = commands.main(arguments, prog_name="emuchain", standalone_mode=False, obj=session)
        session.end(status if isinstance(status, int) else 0)
    except InputError as error:
        session.fail(f"emuchain: error: {error}", _INPUT_STATUS)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        session.end(_INPUT_STATUS)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see `{context.command_path} --help`)" if context else ""
        session.fail(f"emuchain: error: {' '.join(error.format_message().split())}{hint}", _INPUT_STATUS)
    except (KeyboardInterrupt, click.Abort):
        session.fail("emuchain: interrupted", 130)
    except Exception as error:
        session.fail_otherwise(error)


def _be_silent() -> None:
    """Only rank 0 talks."""
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends


class Session:
    """The ranks of this process, once a command has joined them, and how to leave them."""

    def __init__(self) -> None:
        self._ranks: Ranks | None = None

    def join(self) -> Ranks:
        """The ranks of this run: those of the launcher that started this process, or this process alone."""
        from ..comm.join import LaunchError, join

        if self._ranks is not None:
            return self._ranks
        try:
            self._ranks = join()
        except LaunchError as error:
            raise InputError(str(error)) from None
        return self._ranks

    def end(self, status: int) -> NoReturn:
        """All is well."""
        sys.exit(status)

    def fail(self, line: str, status: int) -> NoReturn:
        """Say why, on rank 0, and end every rank.

        Before a run all ranks fail alike, and leave MPI in order. In a run one rank fails, and stops the others.
        """
        if self._ranks is None or not self._ranks.running:
            print(line, file=sys.stderr, flush=True)
            sys.exit(status)
        self._fail_alone(line, status)

    def _fail_alone(self, line: str, status: int) -> NoReturn:
        assert self._ranks is not None
        from ..comm.ranks import Stopped, Trouble

        try:
            self._ranks.report_trouble(line, status)
        except Stopped:
            pass
        except Trouble as earlier:
            line, status = str(earlier), earlier.status
        if self._ranks.rank == 0:
            print(line, file=sys.stderr, flush=True)
            self._ranks.stop_others()
        self._leave(status)

    def fail_otherwise(self, error: Exception) -> NoReturn:
        """Rank 0's word to stop, another rank's trouble, or a bug of ours."""
        if self._ranks is not None:
            from ..comm.ranks import Stopped, Trouble

            if isinstance(error, Stopped):
                self._leave(_INPUT_STATUS)
            if isinstance(error, Trouble):
                print(str(error), file=sys.stderr, flush=True)
                self._ranks.stop_others()
                self._leave(error.status)
        if os.environ.get("EMUCHAIN_DEBUG"):
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        line = f"emuchain: internal error: {what} (EMUCHAIN_DEBUG=1 shows where; please report it)"
        if self._ranks is not None and self._ranks.size > 1:
            self._fail_alone(line, _BUG_STATUS)
        self.fail(line, _BUG_STATUS)

    def _leave(self, status: int) -> NoReturn:
        """Together, but without MPI_Finalize, which would wait for messages that nobody will take any more."""
        assert self._ranks is not None
        self._ranks.leave_together()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _all_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """One flag for each key of the configuration."""
    from .config import Config

    return _config_flags(command, list(Config.model_fields))


def _planning_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that matter where nothing is trained."""
    from .config import RUN_ONLY_KEYS, Config

    return _config_flags(command, [key for key in Config.model_fields if key not in RUN_ONLY_KEYS])


def _config_flags(command: Callable[..., Any], keys: Sequence[str]) -> Callable[..., Any]:
    """Give a command a flag for each of these keys of the configuration; those that are set arrive as a dictionary."""
    import functools
    import typing

    from .config import Config

    @functools.wraps(command)
    def wrapped(config_file: str | None, **flags: Any) -> Any:
        given = {key: flags.pop(key) for key in keys}
        chosen = {key: value for key, value in given.items() if value is not None and value != ()}
        return command(config_file=config_file, flags=chosen, **flags)

    for key in reversed(keys):
        field = Config.model_fields[key]
        kind = _flag_type(typing.get_type_hints(Config, include_extras=False)[key])
        default = "" if field.default in (None, ()) else f"  [default: {field.default}]"
        wrapped = click.option(
            f"--{key.replace('_', '-')}",
            key,
            type=kind,
            default=None,
            metavar=_metavar(kind),
            help=f"{(field.description or '').replace('`', '')}{default}",
            callback=_numbers if key == "learning_rate_steps" else None,
        )(wrapped)
    return click.argument("config_file", metavar="[CONFIG.toml]", required=False)(wrapped)


def _flag_type(hint: Any) -> Any:
    import typing

    choices = [arg for arg in typing.get_args(hint) if isinstance(arg, str)]
    if choices:
        return click.Choice(choices)
    kinds = {hint, *typing.get_args(hint)}
    return int if int in kinds and tuple not in {typing.get_origin(hint)} else float if float in kinds else str


def _metavar(kind: Any) -> str | None:
    return None if isinstance(kind, click.Choice) else {int: "N", float: "X"}.get(kind, "WORD")


def _numbers(_: Any, __: Any, value: str | None) -> tuple[int, ...] | None:
    """10,20 as a tuple."""
    if value is None:
        return None
    try:
        return tuple(int(number) for number in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of epochs such as 10,20") from None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="emuchain")
def commands() -> None:
    """An emulator of FPGA clusters that train neural networks.

    Run it alone, or under mpiexec with one emulated FPGA on each rank.
    """


@commands.command()
@_all_flags
@click.pass_obj
def train(session: Session, config_file: str | None, flags: dict[str, Any]) -> None:
    """Train a network on the chain: real numbers, virtual time.

    Every key of CONFIG.toml has its flag, and a flag overrides the file.
    """
    from .commands.train import run_training

    run_training(session.join(), config_file, flags)


@commands.command()
@_planning_flags
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(config_file: str | None, flags: dict[str, Any], as_json: bool) -> None:
    """The virtual time and figures of a run, without its numerics.

    Takes the keys of `train`; gives the same figures to the picosecond. With --samples, no data is needed.
    """
    from .commands.simulate import run_simulation

    run_simulation(config_file, flags, as_json)


@commands.command()
@click.argument("file", metavar="RUN.h5")
def show(file: str) -> None:
    """Print a results file for people."""
    from .commands.show import show_results

    show_results(file)


@commands.command()
@_planning_flags
@click.option("--steps", type=click.IntRange(min=1), default=2, help="How many mini-batches to print.  [default: 2]")
@click.option("--check", metavar="FILE", help="Dry-run a schedule in a file instead, as printed by this command.")
def schedule(config_file: str | None, flags: dict[str, Any], steps: int, check: str | None) -> None:
    """Print a run's schedule, or check one: every device's actions in order."""
    from .commands.schedule import check_schedule, print_schedule

    if check is not None:
        check_schedule(check)
    else:
        print_schedule(config_file, flags, steps)


@commands.command()
@click.argument("name", required=False)
def network(name: str | None) -> None:
    """Describe a network, or list those that come with emuchain."""
    from .commands.network import show_network

    show_network(name)


def _mount() -> None:
    from .data.cli import data

    commands.add_command(data)


_mount()
