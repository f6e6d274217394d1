"""Pillow, an extra, which reads and resizes pictures; and pictures in files, which may be damaged."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .files import shown

_FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # no other code of Pillow sees a file
_GREY = {"1", "L", "LA", "La"}
_COLOUR = {"P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV"}
_MOST_PIXELS = 1 << 26  # of a picture: 200 MB in colour


class BrokenError(Exception):
    """A picture cannot be read; the message says why."""


class Header(NamedTuple):
    """What a file says about its picture."""

    size: tuple[int, int]  # rows, columns
    grey: bool


@functools.cache
def pillow() -> Any:
    """Return Pillow's `Image`; what it warns of is not printed, since pictures are checked here.

    Raises:
        InputError: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise InputError("images in files need Pillow; install the extra `images`: pip install Pillow") from None
    warnings.filterwarnings("ignore", module=r"PIL\b")
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    return Image


def header_of(path: Path) -> Header:
    """Return size and kind of a picture, without its pixels.

    Raises:
        BrokenError: it is not a picture that can be read.
    """
    try:
        with pillow().open(path, formats=_FORMATS) as picture:
            return _checked(picture)
    except (BrokenError, InputError):
        raise
    except Exception as error:  # a damaged picture can fail in any way
        raise BrokenError(_reason(error, path)) from None


def pixels_of(path: Path, channels: int) -> NDArray[np.uint8]:
    """Return a picture (rows, columns, channels), in grey or, with 3 channels, in colour.

    Raises:
        BrokenError: it is not a picture that can be read.
    """
    try:
        with pillow().open(path, formats=_FORMATS) as picture:
            _checked(picture)
            pixels = np.asarray(picture.convert("RGB" if channels == 3 else "L"))
    except (BrokenError, InputError):
        raise
    except Exception as error:  # as above
        raise BrokenError(_reason(error, path)) from None
    return pixels.reshape(*pixels.shape[:2], channels)


def _checked(picture: Any) -> Header:
    columns, rows = picture.size
    if rows * columns > _MOST_PIXELS:
        raise BrokenError(f"{rows:,} x {columns:,} pixels, more than the {_MOST_PIXELS:,} that are read")
    if picture.mode not in _GREY | _COLOUR:
        raise BrokenError(f"mode {picture.mode}, with more than 8 bits a channel; save it with 8")
    return Header((rows, columns), picture.mode in _GREY)


def _reason(error: Exception, path: Path) -> str:
    """Return why a picture cannot be read, in a few words without its path, which others say."""
    if type(error).__name__ == "DecompressionBombError":
        return f"more pixels than the {_MOST_PIXELS:,} that are read"
    if type(error).__name__ == "UnidentifiedImageError":
        return "an empty file" if not path.stat().st_size else "not a picture in a known format"
    said = getattr(error, "strerror", None) or str(error)
    return shown(" ".join(said.split())[:80]) or type(error).__name__
