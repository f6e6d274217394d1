"""Writing a picture as PNG."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray


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
