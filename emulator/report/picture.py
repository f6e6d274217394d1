"""Creating and saving pictures with matplotlib, which is an extra."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from ..common import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float, flag: str, layout: Literal["tight", "constrained"] = "tight") -> Figure:
    """Return an empty figure of `width` x `height` inches; an error names `flag` as what asked for it.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(f"`{flag}` needs matplotlib: pip install 'emuchain[plot]'") from None
    return Figure(figsize=(width, height), layout=layout)


def save_figure(figure: Figure, path: str | os.PathLike[str], where: str, dpi: int = 110) -> None:
    """Write a figure to `path`, whose extension sets the format; `where` begins an error message.

    Raises:
        InputError: the file cannot be written, or the format is unknown.
    """
    try:
        figure.savefig(path, dpi=dpi)
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: cannot be written: {error}") from None
