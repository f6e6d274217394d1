"""The current folder, of which nothing is obeyed: neither programs, nor modules, nor settings of
libraries.

A `numpy.py` that lies beside a data set would be run: Python searches the current folder for
`python -m`, and the system for an empty entry of a search path. So programs are started by absolute
paths, with search paths of absolute folders, and libraries read their settings elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping

SEARCH_PATHS = (
    *("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "PERL5LIB", "PERLLIB", "PYTHONPYCACHEPREFIX"),
    *("COMPILER_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
)
"""Variables that name folders of programs and libraries, of which empty and relative ones are taken
as they come.
"""

_BOOT = (
    "import sys; sys.path[:1] = []; import runpy;"
    " runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
RUN_MODULE = ("-P", "-m") if sys.version_info >= (3, 11) else ("-c", _BOOT)
"""Words by which Python runs a module, and finds none in the current folder; `-P` is new in Python
3.11.
"""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module in this Python."""
    return [sys.executable, *RUN_MODULE, module, *arguments]


def safe_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose search paths have absolute folders alone."""
    safe = dict(environment)
    for name in SEARCH_PATHS:
        if name in safe:
            safe[name] = os.pathsep.join(filter(os.path.isabs, safe[name].split(os.pathsep)))
            if not safe[name] and name != "PATH":
                del safe[name]
    return safe


def clean_environment() -> None:
    """Make this process's own environment such a one, for what libraries start: Python's `platform`
    runs `uname`.
    """
    safe = safe_environment(os.environ)
    for name in os.environ.keys() - safe.keys():
        del os.environ[name]
    os.environ.update(safe)


def user_cache() -> str | None:
    """Return the user's folder for files that can be made again; None if there is no home, not one
    named `~` here.

    A relative one in `XDG_CACHE_HOME` does not count, as its specification says.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    folder = named if os.path.isabs(named) else os.path.expanduser(os.path.join("~", ".cache"))
    return os.path.join(folder, "emuchain") if os.path.isabs(folder) else None


def find_program(name: str) -> str | None:
    """Return the absolute path of a program, from the absolute folders of `PATH`, or as named with
    its folder.
    """
    program = shutil.which(name, path=safe_environment(os.environ).get("PATH"))
    return None if program is None else os.path.abspath(program)


@contextlib.contextmanager
def away_from(file: str) -> Iterator[None]:
    """Leave the current folder for the body, if this file is in it, which a library would read as
    its settings.

    One that has been removed is left, too: libraries ask for its name.
    """
    if not os.path.lexists(file) and _has_name():
        yield
        return
    # By a descriptor, which leads back also where the folder has been moved, or may not be read.
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC)
    try:
        os.chdir("/")
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def _has_name() -> bool:
    """Return whether the current folder is still there."""
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False
