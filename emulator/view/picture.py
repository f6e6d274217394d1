"""Creating and saving pictures with matplotlib, which is an extra, and axes that can be read."""

from __future__ import annotations

import contextlib
import io
import math
import os
import pathlib
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

from ...kernels import away_from
from ..common import InputError, WholeFile, escaped, write_whole

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_FEWEST_TICKS = 3
_ALIKE = 2e-3
"""Share by which curves may differ that look the same."""
_STEP, _WIDEST = 1.6, 3.5


def new_figure(
    width: float, height: float, flag: str, layout: Literal["tight", "constrained"] = "tight"
) -> Figure:
    """Return an empty figure of `width` x `height` inches; an error names `flag` as what asked for
    it.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        with away_from("matplotlibrc"):
            from matplotlib.figure import Figure
    except ImportError:
        raise InputError(f"`{flag}` needs matplotlib: pip install 'emuchain[plot]'") from None
    return Figure(figsize=(width, height), layout=layout)


def picture_file(
    path: str | os.PathLike[str] | None, flag: str
) -> AbstractContextManager[WholeFile | None]:
    """Return the file of a picture, if one is wanted, before the work whose outcome it shows.

    Raises:
        InputError: matplotlib is not installed, the format is unknown, or the file cannot be
            written.
    """
    if path is None:
        return contextlib.nullcontext()
    known = new_figure(1, 1, flag).canvas.get_supported_filetypes()
    path = pathlib.Path(path)
    if path.suffix.removeprefix(".").lower() not in known:
        raise InputError(
            f"`{flag}` {path}: the end of a picture's name is one of .{', .'.join(sorted(known))}"
        )
    return WholeFile(path, flag, f"picture{path.suffix}")


def save_figure(
    figure: Figure,
    path: str | os.PathLike[str],
    flag: str,
    dpi: int = 110,
    creator: str | None = None,
) -> None:
    """Write a figure to `path`, whose extension sets the format; an error names `flag` as what
    asked for it.

    The same figure gives the same file again, as SVG and PDF have no date; they name their
    `creator`. Characters that cannot be drawn, which names of files may have, are spelled out.

    Raises:
        InputError: the file cannot be written, or the format is unknown.
    """
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_text(escaped(text.get_text()))
    kind = pathlib.Path(path).suffix.lower()
    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(kind)
    content = io.BytesIO()
    try:
        for text in figure.findobj(Text):  # names are no formulas; those of ticks are made below
            assert isinstance(text, Text)
            text.set(text=escaped(text.get_text()), parse_math=False, usetex=False)
        with (
            warnings.catch_warnings(),
            rc_context(
                {"svg.hashsalt": "emuchain", "text.parse_math": False, "text.usetex": False}
            ),
        ):
            warnings.filterwarnings(
                "ignore", "Glyph "
            )  # of a name: boxes stand for letters that the font lacks
            form = kind.removeprefix(".") or None
            made = {"Creator": creator} if creator else {}
            figure.savefig(
                content, format=form, dpi=dpi, metadata={dated: None, **made} if dated else None
            )
    except ValueError as error:
        raise InputError(f"`{flag}` = '{path}': cannot be written: {error}") from None
    write_whole(path, content.getvalue(), flag, f"picture{kind}")


def coinciding(curves: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[list[int]]:
    """Return the places of curves, each with x and y, in groups that cannot be distinguished in a
    picture.
    """
    groups: list[list[int]] = []
    for place, (x, y) in enumerate(curves):
        for group in groups:
            x0, y0 = curves[group[0]]
            if [*x] == [*x0] and all(
                math.isclose(a, b, rel_tol=_ALIKE) for a, b in zip(y, y0, strict=True)
            ):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups


def nested_widths(count: int) -> list[float]:
    """Return the widths of lines, the widest first: where lines meet, those drawn before show on
    both sides.
    """
    step = min(_STEP, _WIDEST / max(1, count - 1))
    return [1 + step * (count - 1 - place) for place in range(count)]


def whole_ticks(axis: Axis) -> None:
    """Put an axis's ticks at whole numbers, for what is counted: boards, workers, epochs."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def log_ticks(axis: Axis) -> None:
    """Give a logarithmic axis, whose data are drawn, ticks with plain numbers: at least three."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    for digits in ((1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)):
        ticks = LogLocator(subs=digits, numticks=12).tick_values(low, high)
        shown = [float(tick) for tick in ticks if low <= tick <= high]
        if len(shown) >= _FEWEST_TICKS:
            break
    else:
        shown = [
            float(tick)
            for tick in MaxNLocator(5).tick_values(low, high)
            if low <= tick <= high and tick > 0
        ]
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_locator(NullLocator())
    axis.set_ticks(shown)


def plain_number(value: float) -> str:
    """Return a number as a tick shows it: 0.05, 20, 1,000, 2,000,000."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
