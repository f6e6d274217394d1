"""`emuchain run`: ranks, started again when one of them dies."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType

from ...comm import LaunchError, launch_command, launch_environment, launcher_rank, passed_on
from ..common import INPUT_STATUS, InputError

_SIGNALS = signal.SIGINT, signal.SIGTERM, signal.SIGUSR1
"""Signals that end a run for good."""


def run_ranks(count: int, restarts: int, arguments: Sequence[str]) -> int:
    """Run `emuchain ARGUMENTS` on some ranks, again at most `restarts` times if it fails; return the last status.

    Raises:
        InputError: the arguments are not those of `train`, or ranks cannot be started here.
    """
    if arguments[:1] != ("train",):
        what = f"`{arguments[0]}`" if arguments else "nothing"
        raise InputError(f"`emuchain run`: {what} cannot be run again; write `emuchain run -n 4 -- train …`")
    if launcher_rank() is not None:
        raise InputError("`emuchain run` starts mpiexec itself; start it without a launcher")
    try:
        command = launch_command(count, arguments)
    except LaunchError as error:
        raise InputError(str(error)) from None
    status, signalled = _run(command)
    for restart in range(1, restarts + 1):
        if status in (0, INPUT_STATUS) or signalled:
            break
        resumed = _resumed(arguments)
        where = f"from {resumed[-1]}" if resumed else "from the beginning"
        print(f"emuchain: status {status}; restart {restart} of {restarts}, {where}", file=sys.stderr, flush=True)
        status, signalled = _run(command + resumed)
    return 128 + signalled if signalled and status else status


def _run(command: Sequence[str]) -> tuple[int, int]:
    """Run a command; return its status, and the number of the signal by which this process was told to end, or 0.

    The signal is passed on as the one that lets ranks end as they should; a second SIGINT as it is.
    """
    signalled, early = 0, list[int]()
    process: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: FrameType | None) -> None:
        nonlocal signalled
        again, signalled = signalled == signal.SIGINT, number
        sent = number if again else passed_on(number)
        if process is None:
            early.append(sent)
        else:
            process.send_signal(sent)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        # In a session of its own, so that a terminal's Ctrl-C reaches it once, by way of this process.
        process = subprocess.Popen(command, env=launch_environment(os.environ), start_new_session=True)
        for sent in early:
            process.send_signal(sent)
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return (status if status >= 0 else 128 - status), signalled


def _resumed(arguments: Sequence[str]) -> list[str]:
    """Return the flags with which a run resumes from its checkpoint, if it has written one."""
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == "--checkpoint":
            file = value if equals else "".join(arguments[place + 1 : place + 2])
            return ["--resume", file] if file and pathlib.Path(file).exists() else []
    return []
