"""`emuchain launch`: ranks on this host or those of a host file, started again when one of them
dies.
"""

from __future__ import annotations

import math
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import click

from ...launch import (
    MOST_RANKS,
    Host,
    LaunchError,
    end_below,
    is_ignored,
    launch_command,
    launch_environment,
    launcher_rank,
    listening_below,
    passed_on,
    read_hosts,
)
from ..common import (
    INPUT_STATUS,
    InputError,
    NamedFiles,
    current_folder,
    format_bytes,
    host_room,
    plural,
    read_text,
)
from .frame.command import FileCommand, Restart
from .frame.named import HOSTS, count_option

_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP
"""Signals that end a run for good."""
_PATIENCE_S = 5.0
"""How long a launcher has to start its ranks, before it gets a signal for them; on other hosts they
are not seen.
"""
_MOST_S = 10.0
"""How long it may take from then on to end ranks on this host that it has not started by then."""
_LOOK_S = 0.05
_RANK_BYTES = 40 << 20
"""Measured: what an idle rank has for itself, without the libraries that all share."""


class LaunchCommand(FileCommand):
    """The command `launch`, which checks its files together with those of the command that it
    starts.
    """

    def check(self, ctx: click.Context, files: NamedFiles) -> None:
        """See `FileCommand`; the function gets how the command is started again."""
        super().check(ctx, files)
        # `launch` is a command of the root group, and so is the one that it starts.
        started, name, words = _started(ctx.find_root().command, ctx.params["arguments"])
        restart, takes_ranks = None, False
        if isinstance(started, FileCommand):
            with started.make_context(name, words, parent=ctx.parent) as below:
                started.prepare(below)
                started.check(below, files)
                restart, takes_ranks = started.restart(below), started.takes_ranks
        if restart is None or (ctx.params["ranks"] > 1 and not takes_ranks):
            hint = f"`{name}` has no ranks; write `emuchain {name} …`, or" if name else "should be"
            one = "; `-n 1` starts it as one process" if restart is not None else ""
            raise InputError(f"`emuchain launch`: {hint} `emuchain launch -n 4 -- train …`{one}")
        ctx.params["restart"] = restart

    def restart(self, ctx: click.Context) -> None:
        """See `FileCommand`: it starts `mpiexec` itself."""


def _started(
    root: click.Command, arguments: Sequence[str]
) -> tuple[click.Command | None, str, list[str]]:
    """Return the command that the first words name, its name, and the other words."""
    command: click.Command | None = root
    place = 0
    while isinstance(command, click.Group) and place < len(arguments):
        command, place = command.commands.get(arguments[place]), place + 1
    return command, " ".join(arguments[:place]), [*arguments[place:]]


@click.command(cls=LaunchCommand, context_settings={"ignore_unknown_options": True})
@click.option(
    "-n", "ranks", type=click.IntRange(min=1), required=True, metavar="N", help="Number of ranks."
)
@count_option("--restarts", "Start again at most N times.  [default: 0]", least=0, default=0)
@click.option(
    "--hosts", type=HOSTS, metavar="FILE", help="The hosts of the ranks, as in hostfile.example."
)
@click.argument("arguments", metavar="-- COMMAND ...", nargs=-1, type=click.UNPROCESSED)
def launch(
    ranks: int, restarts: int, hosts: str | None, arguments: tuple[str, ...], restart: Restart
) -> int:
    """Run `emuchain train` or `sweep` on several ranks, and start it again when a rank dies.

    It then resumes from the file that --checkpoint names, or --csv, once it has written it. Any
    other command is one process, on -n 1: `precision` resumes, too, and what trains nothing begins
    again.
    """
    if launcher_rank() is not None:
        raise InputError("`emuchain launch` starts mpiexec itself; start it without a launcher")
    _check_count(ranks, [] if hosts is None else _read_hosts(pathlib.Path(hosts)))
    current_folder()  # MPICH's launcher crashes without one
    try:
        command = launch_command(ranks, (), hosts)
    except LaunchError as error:
        raise InputError(str(error)) from None
    before = _state(restart.file)
    status, signalled = _run([*command, *arguments], ranks, is_here=hosts is None)
    for number in range(1, restarts + 1):
        if status in (0, INPUT_STATUS) or signalled:
            break
        goes_on = _state(restart.file) not in (None, before)
        where = (
            f"from {restart.file}"
            if goes_on
            else "as at first"
            if _resumes(arguments)
            else "from the beginning"
        )
        print(
            f"emuchain: status {status}; restart {number} of {restarts}, {where}",
            file=sys.stderr,
            flush=True,
        )
        again = (
            [word for word in arguments if word not in restart.less] + [*restart.more]
            if goes_on
            else arguments
        )
        status, signalled = _run([*command, *again], ranks, is_here=hosts is None)
    return 128 + signalled if signalled and status else status


def _resumes(arguments: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == "--resume" for word in arguments)


def _state(file: str | None) -> tuple[int, ...] | None:
    """Return what changes of a file when a run writes it; None where there is none."""
    try:
        status = None if file is None else os.stat(file)
    except (OSError, ValueError):
        return None
    return status and (status.st_ino, status.st_mtime_ns, status.st_size)


def _check_count(count: int, hosts: Sequence[Host]) -> None:
    """Check that each host can have its share of the ranks.

    Raises:
        InputError: it cannot.
    """
    of_host = math.ceil(count / max(1, len(hosts)))
    if of_host > MOST_RANKS:
        raise InputError(
            f"`-n` = {count}: is {of_host:,} ranks a host, and one takes at most {MOST_RANKS:,};"
            " give as many ranks as there are cores: each emulates several devices"
        )
    room = host_room()
    if all(host.is_here for host in hosts) and count * _RANK_BYTES > room.free_bytes:
        raise InputError(
            f"`-n` = {count}: {plural(count, 'rank')} need {format_bytes(count * _RANK_BYTES)} of"
            f" memory to start, and {room.limit} {format_bytes(room.free_bytes)}; give as many"
            " ranks as there are cores: each emulates several devices"
        )


def _read_hosts(file: pathlib.Path) -> list[Host]:
    """Return the hosts of a host file.

    Raises:
        InputError: it cannot be read, names none, or one that cannot be reached.
    """
    try:
        return read_hosts(read_text(file))
    except LaunchError as error:
        raise InputError(f"`hosts` = {str(file)!r}: {error}") from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"`hosts` = {str(file)!r}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _run(command: Sequence[str], ranks: int, *, is_here: bool) -> tuple[int, int]:
    """Run a command; return its status, and the number of the signal by which this process was
    asked to end, or 0.

    The signal is passed on as the one that lets ranks end as they should, once they take signals: a
    launcher drops those that come before it has started them, and Python itself says more than a
    line where one interrupts its start. A second SIGINT is passed on as it is. Where all ranks are
    here, a launcher that goes on starting them is killed.
    """
    # a signal comes   while ranks start                                     once all listen
    #   all are here   sent when they listen, or _PATIENCE_S after the       sent at once
    #                  start; then all are killed _MOST_S later
    #   other hosts    sent _PATIENCE_S after the start, as their ranks are not seen; nothing is killed
    signalled = list[int]()
    heard = [number for number in _SIGNALS if not is_ignored(number)]
    before = {
        number: signal.signal(number, lambda number, _: signalled.append(number))
        for number in heard
    }
    try:
        # In a session of its own, so that a terminal's Ctrl-C reaches it once, by way of this
        # process.
        process = subprocess.Popen(
            command, env=launch_environment(os.environ), start_new_session=True
        )
        until_s, sent, kill_s = time.monotonic() + _PATIENCE_S, 0, math.inf
        while (status := _ended(process)) is None:
            if len(signalled) > sent:
                started = listening_below(process.pid) >= ranks
                if started or time.monotonic() > until_s:
                    kill_s = (
                        math.inf
                        if started or not is_here
                        else min(kill_s, time.monotonic() + _MOST_S)
                    )
                    number = signalled[sent]
                    is_second = sent > 0 and signalled[sent - 1] == signal.SIGINT
                    process.send_signal(number if is_second else passed_on(number))
                    sent += 1
            if time.monotonic() > kill_s:
                kill_s = math.inf
                end_below(process.pid)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return (status if status >= 0 else 128 - status), signalled[-1] if signalled else 0


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Return the status of a process, after waiting a little for its end; None if it still runs."""
    try:
        return process.wait(_LOOK_S)
    except subprocess.TimeoutExpired:
        return None
