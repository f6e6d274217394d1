"""A picture of a data set, written as PNG."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from ..common import InputError, plural
from .dataset import Dataset

_GAP = 2  # pixels between two images
_SMALL = 64  # images of no more rows are drawn at twice their size
_MOST_PIXELS = 1 << 27


def preview_picture(data: Dataset, columns: int) -> NDArray[np.uint8]:
    """Return a picture (h, w, 3) of the first `columns` training images of each class, one class per row.

    Three channels are shown as red, green and blue; of any other number, the first channel is shown in grey.

    Raises:
        InputError: the picture would be too large, or an image cannot be read.
    """
    _, h, w = data.shape
    scale = 2 if h <= _SMALL else 1
    rows, across = scale * data.n_classes * (h + _GAP), scale * columns * (w + _GAP)
    if rows * across > _MOST_PIXELS:
        raise InputError(
            f"`columns` = {columns}: a picture of {rows:,} x {across:,} pixels, since {data.name} has"
            f" {plural(data.n_classes, 'class')} of {h}x{w}; give fewer, or a smaller `resize`"
        )
    picture = np.full((data.n_classes * (h + _GAP) - _GAP, columns * (w + _GAP) - _GAP, 3), 255, np.uint8)
    by_class = np.argsort(data.train_labels, kind="stable")
    begins, ends = (
        np.searchsorted(data.train_labels[by_class], range(data.n_classes), side) for side in ("left", "right")
    )
    for k, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for column, place in enumerate(by_class[begin : min(end, begin + columns)]):
            image = data.train_images[place] if data.shape[0] == 3 else data.train_images[place, :1]
            top, left = k * (h + _GAP), column * (w + _GAP)
            picture[top : top + h, left : left + w] = image.transpose(1, 2, 0)
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the PNG file of `pixels` (h, w, 3), red, green and blue."""
    h, w, _ = pixels.shape
    unfiltered = np.zeros((h, 1), np.uint8)  # each row begins with the number of its filter
    rows = np.concatenate([unfiltered, pixels.reshape(h, 3 * w)], axis=1)
    header = struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)  # 8 bits, RGB, deflate, adaptive filters, no interlacing
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
