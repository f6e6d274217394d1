"""Pillow, an extra, which reads and resizes pictures; and pictures in files, which may be
damaged.
"""

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
_DEEP_FORMATS = {"PNG", "PPM"}  # whose mode `I` has 16 bits; that of others has 32
MOST_PIXELS = 1 << 26  # of a picture: 200 MB in colour
_ORIENTATION = 0x112  # EXIF's tag: 1 to 8
_TEXTS_WITH_EXIF = (
    b"Raw profile type exif\0",
    b"XML:com.adobe.xmp\0",
)  # their names, of PNG's texts


class BrokenError(Exception):
    """A picture cannot be read; the message says why, and `is_whole` that it is of a kind that is
    not read at all.
    """

    def __init__(self, reason: str, *, is_whole: bool = False) -> None:
        super().__init__(reason)
        self.is_whole = is_whole


class Header(NamedTuple):
    """What a file says about its picture; its size is that of the picture as it is to be seen."""

    size: tuple[int, int]  # rows, columns
    grey: bool
    orientation: int = 1  # EXIF's


@functools.cache
def pillow() -> Any:
    """Return Pillow's `Image`; what it warns of is not printed, since pictures are checked here.

    Raises:
        InputError: it is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            "images in files need Pillow; install the extra `images`: pip install Pillow"
        ) from None
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
            header = _checked(picture)
            orientation = _orientation(picture) if picture.format != "PNG" or _has_exif(path) else 1
            if picture.format == "TIFF" and orientation > 4:  # newer versions of Pillow turn it
                return Header(pixels_of(path, 1).shape[:2], header.grey, orientation)
    except (BrokenError, InputError):
        raise
    except Exception as error:  # a damaged picture can fail in any way
        raise BrokenError(_reason(error, path)) from None
    return Header(header.size[::-1] if orientation > 4 else header.size, header.grey, orientation)


def pixels_of(path: Path, channels: int) -> NDArray[np.uint8]:
    """Return a picture (rows, columns, channels), in grey or, with 3 channels, in colour, as its
    orientation says.

    Grey of 16 bits is scaled to 8: 0 to 65,535 become 0 to 255. Of colours of 16 bits, Pillow takes
    the upper 8.

    Raises:
        BrokenError: it is not a picture that can be read.
    """
    try:
        with pillow().open(path, formats=_FORMATS) as picture:
            _checked(picture)
            picture.load()
            orientation = _orientation(picture)
            if _is_deep(picture):
                scaled = (np.asarray(picture).astype(np.uint32) * 255 + 32_767) // 65_535
                picture = pillow().fromarray(scaled.astype(np.uint8))
            pixels = np.asarray(picture.convert("RGB" if channels == 3 else "L"))
    except (BrokenError, InputError):
        raise
    except Exception as error:  # as above
        raise BrokenError(_reason(error, path)) from None
    return _turned(pixels.reshape(*pixels.shape[:2], channels), orientation)


def _checked(picture: Any) -> Header:
    columns, rows = picture.size
    if rows * columns > MOST_PIXELS:
        raise BrokenError(
            f"{rows:,} x {columns:,} pixels, more than the {MOST_PIXELS:,} that are read"
        )
    is_deep = _is_deep(picture)
    if not is_deep and picture.mode not in _GREY | _COLOUR:
        raise BrokenError(
            f"mode {picture.mode}, with more than 16 bits a channel; save it with 8 or 16",
            is_whole=True,
        )
    return Header((rows, columns), is_deep or picture.mode in _GREY)


def _is_deep(picture: Any) -> bool:
    """Return whether a picture is grey of 16 bits."""
    mode: str = picture.mode
    return mode.startswith("I;16") or (mode == "I" and picture.format in _DEEP_FORMATS)


def _orientation(picture: Any) -> int:
    """Return how a picture is to be turned; 1, as it is, where EXIF says nothing, or nothing that
    can be read.
    """
    try:
        orientation = picture.getexif().get(_ORIENTATION)
    except Exception:  # of what is damaged
        return 1
    return orientation if orientation in range(1, 9) else 1


def _has_exif(path: Path) -> bool:
    """Return whether a PNG file has EXIF, which may stand behind its pixels; Pillow would read them
    all to tell.
    """
    with open(path, "rb") as file:
        place = file.seek(8)
        while len(chunk := file.read(32)) >= 8:
            if chunk[4:8] == b"eXIf" or chunk[8:].startswith(_TEXTS_WITH_EXIF):
                return True
            place = file.seek(place + 12 + int.from_bytes(chunk[:4], "big"))
    return False


def _turned(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return a picture as it is to be seen, from how it is stored."""
    if orientation > 4:
        pixels = pixels.swapaxes(0, 1)
    rows, columns = orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7)
    return pixels[:: -1 if rows else 1, :: -1 if columns else 1]


def _reason(error: Exception, path: Path) -> str:
    """Return why a picture cannot be read, in a few words without its path, which others say."""
    if type(error).__name__ == "DecompressionBombError":
        return f"more pixels than the {MOST_PIXELS:,} that are read"
    if type(error).__name__ == "UnidentifiedImageError":
        return "an empty file" if not path.stat().st_size else "not a picture in a known format"
    said = getattr(error, "strerror", None) or str(error)
    return shown(" ".join(said.split())[:80]) or type(error).__name__
