"""Temporary files: where they are, and what is told of those that cannot be written."""

from __future__ import annotations

import contextlib
import errno
import pathlib
import tempfile
from collections.abc import Iterator

from .errors import InputError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
    """Return a folder of its own for temporary files, which is removed at the end of the `with`.

    Raises:
        InputError: it cannot be made, or there is no room for what is written there.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="emuchain-", ignore_cleanup_errors=True)
    except OSError as error:
        raise scratch_error(error) from None
    with folder as name:
        try:
            yield pathlib.Path(name)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise scratch_error(error) from None


def scratch_error(error: OSError) -> InputError:
    """Return the error for a temporary file that cannot be written."""
    try:
        place = f"temporary files in {tempfile.gettempdir()}"
    except OSError:
        place = "temporary files"
    return InputError(
        f"{place}: cannot be written: {error.strerror or error}; free some room, or name another folder by TMPDIR"
    )
