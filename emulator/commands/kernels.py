"""What has to be settled before kernels are imported, and telling people when they are compiled."""

from __future__ import annotations

import os
import pathlib
import stat
import sys
import tempfile
from collections.abc import Callable

from ... import kernels
from ..errors import InputError

_CACHE = "NUMBA_CACHE_DIR"
_FORM = "EMUCHAIN_KERNEL_FORM"


def settle() -> None:
    """Make sure that the kernels can be imported: that compiled code has a place, and that there is such a form.

    Raises:
        InputError: there is no place, or no such form.
    """
    if not any(_can_keep(place) for place in _places()):
        place = os.environ[_CACHE] = str(_temporary())
        print(f"emuchain: compiled code is kept in {place}; {_CACHE} names a better place", file=sys.stderr)
    if os.environ.get(_FORM):
        try:
            from ...kernels import form  # noqa: F401 - it looks at the variable when it is imported
        except ValueError as error:
            raise InputError(str(error)) from None


def _places() -> list[pathlib.Path]:
    """Where Numba keeps compiled code, in its order."""
    named = [pathlib.Path(os.environ[_CACHE])] if os.environ.get(_CACHE) else []
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [*named, pathlib.Path(kernels.__path__[0], "__pycache__"), pathlib.Path(home, "numba")]


def _can_keep(place: pathlib.Path) -> bool:
    """Whether files can be made in this directory, which is made if there is none."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return False
    return True


def _temporary() -> pathlib.Path:
    """A directory for temporary files that only this user can write to; the ranks of a machine share it."""
    place = pathlib.Path(tempfile.gettempdir(), f"emuchain-{os.getuid()}")
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    except OSError:
        is_ours = False
    if is_ours and _can_keep(place):
        return place
    raise InputError(
        f"nowhere to keep compiled code: {place} cannot be written to, or others can, too; let {_CACHE} name a place"
    )


def load(say: Callable[[str], None]) -> None:
    """Load all kernels; where they are not compiled yet, compile them, and say so."""
    from numba.core import event

    from ...kernels.warm import compile_all

    class Herald(event.Listener):
        told = False

        def on_start(self, _: event.Event) -> None:
            if not self.told:
                say("compiling kernels, once for this machine (about 20 s) ...")
            self.told = True

        def on_end(self, _: event.Event) -> None:
            """Nothing to say."""

    with event.install_listener("numba:compile", Herald()):
        compile_all()
