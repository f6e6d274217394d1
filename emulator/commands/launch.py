"""`emuchain launch`: ranks on this host or those of a host file, started again when one of them dies."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from ...launch import LaunchError, launch_command, launch_environment, launcher_rank, listening_below, passed_on
from ..common import INPUT_STATUS, InputError, current_folder, read_text

_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1
"""Signals that end a run for good."""
_PATIENCE_S = 5.0
"""How long a launcher has to start its ranks, before it gets a signal for them; on other hosts they are not seen."""
_LOOK_S = 0.05


def launch_ranks(count: int, restarts: int, hosts: str | None, arguments: Sequence[str]) -> int:
    """Run `emuchain ARGUMENTS` on some ranks, again at most `restarts` times if it fails; return the last status.

    The ranks are on this host, or on those of the host file `hosts`.

    Raises:
        InputError: the arguments are not those of `train`, the host file cannot be read, or ranks cannot be started
            here, as in a folder that is gone.
    """
    if arguments[:1] != ("train",):
        what = f"`{arguments[0]}`" if arguments else "nothing"
        raise InputError(f"`emuchain launch`: {what} cannot be run again; write `emuchain launch -n 4 -- train …`")
    if launcher_rank() is not None:
        raise InputError("`emuchain launch` starts mpiexec itself; start it without a launcher")
    if hosts is not None:
        _check_hosts(pathlib.Path(hosts))
    current_folder()  # MPICH's launcher crashes without one
    try:
        command = launch_command(count, arguments, hosts)
    except LaunchError as error:
        raise InputError(str(error)) from None
    status, signalled = _run(command, count)
    for restart in range(1, restarts + 1):
        if status in (0, INPUT_STATUS) or signalled:
            break
        resumed = _resumed(arguments)
        where = f"from {resumed[-1]}" if resumed else "from the beginning"
        print(f"emuchain: status {status}; restart {restart} of {restarts}, {where}", file=sys.stderr, flush=True)
        status, signalled = _run(command + resumed, count)
    return 128 + signalled if signalled and status else status


def _check_hosts(file: pathlib.Path) -> None:
    """Check that a host file names a host.

    Raises:
        InputError: it cannot be read, or names none.
    """
    try:
        lines = read_text(file).splitlines()
    except (OSError, ValueError) as error:
        raise InputError(
            f"`hosts` = {str(file)!r}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None
    if not any(line.partition("#")[0].strip() for line in lines):
        raise InputError(f"`hosts` = {str(file)!r}: names no host; should have a line for each, such as `node1:2`")


def _run(command: Sequence[str], ranks: int) -> tuple[int, int]:
    """Run a command; return its status, and the number of the signal by which this process was told to end, or 0.

    The signal is passed on as the one that lets ranks end as they should, once they take signals: a launcher drops
    those that come before it has started them, and Python itself says more than a line where one interrupts its start.
    A second SIGINT is passed on as it is.
    """
    signalled = list[int]()
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: signalled.append(number)) for number in heard}
    try:
        # In a session of its own, so that a terminal's Ctrl-C reaches it once, by way of this process.
        process = subprocess.Popen(command, env=launch_environment(os.environ), start_new_session=True)
        until_s, sent = time.monotonic() + _PATIENCE_S, 0
        while (status := _ended(process)) is None:
            if len(signalled) > sent and (time.monotonic() > until_s or listening_below(process.pid) >= ranks):
                number = signalled[sent]
                is_second = sent > 0 and signalled[sent - 1] == signal.SIGINT
                process.send_signal(number if is_second else passed_on(number))
                sent += 1
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


def _resumed(arguments: Sequence[str]) -> list[str]:
    """Return the flags with which a run resumes from its checkpoint, if it has written one."""
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == "--checkpoint":
            file = value if equals else "".join(arguments[place + 1 : place + 2])
            return ["--resume", file] if file and pathlib.Path(file).exists() else []
    return []
