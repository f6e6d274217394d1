"""What all ranks of `emuchain.train` do alike: a failure of one of them ends all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..launch import Ranks, Stopped
from .common import BUG_STATUS, INPUT_STATUS, InputError

T = TypeVar("T")


def on_all(ranks: Ranks, prepare: Callable[[], T]) -> T:
    """Call `prepare` on every rank and return its result; if it fails on any rank, raise on all."""
    made: T
    own: Exception | None = None
    try:
        made = prepare()
    except Exception as error:
        own = error
    failures = [each for each in ranks.share(None if own is None else (str(own), _status_of(own))) if each is not None]
    if not failures:
        return made
    ranks.free()
    raise own or failure_of(*failures[0])


def _status_of(error: Exception) -> int:
    return INPUT_STATUS if isinstance(error, InputError) else BUG_STATUS


def failure_of(line: str, status: int) -> Exception:
    """Return the exception for a failure of another rank."""
    return InputError(line) if status == INPUT_STATUS else RuntimeError(f"another rank failed: {line}")


def stop_others(ranks: Ranks, error: Exception) -> None:
    """Stop the other ranks, so that none waits for this one, which has failed."""
    if ranks.rank == 0:
        ranks.stop_others(_status_of(error), str(error))
        return
    try:
        ranks.report_failure(str(error), _status_of(error))
    except Stopped:
        pass
