"""Pictures: where matplotlib, which is an extra, meets the file system."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..common.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float, flag: str, layout: Literal["tight", "constrained"] = "tight") -> Figure:
    """An empty figure, in inches; `flag` is what asked for it.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(f"`{flag}` needs matplotlib: pip install 'emuchain[plot]'") from None
    return Figure(figsize=(width, height), layout=layout)


def save(figure: Figure, path: str | os.PathLike[str], where: str, dpi: int = 110) -> None:
    """Write a figure; the ending of the file's name says its format. `where` begins the message of an error.

    Raises:
        InputError: the file cannot be written, or there is no such format.
    """
    try:
        figure.savefig(path, dpi=dpi)
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: cannot be written: {error}") from None
