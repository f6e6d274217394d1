"""`shapes`: a procedurally drawn set of 32x32 colour images in ten classes, which needs no
download.

Each image has one shape, at a random place and size, in a random colour on a random background with
a gradient and noise. Whether the shape is lighter or darker than its background is random in each
channel. So the mean image of every class is the same grey, and a linear classifier on pixels learns
next to nothing; a small convolutional network does well.

Everything is integer arithmetic on a counter-based hash (splitmix64): image i is a function of its
number alone, the same under every NumPy version and on every machine, and a smaller set is the
beginning of a larger one.
"""

import collections
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset

SHAPE = (3, 32, 32)
N_TRAIN, N_TEST = 10_000, 2_000

_SIDE = 32
_THREADS = 2  # all ranks wait for the images
_BLOCK = 100  # images drawn at once: large enough for NumPy, small enough for the cache
_HALF_SIZE = 14, 26  # of the shape, in half pixels
_BACKGROUND = 64, 192
_CONTRAST = 32, 104  # of the shape against its background; the sign is random
_SLOPE = 20  # greatest departure of the background from its mean, towards an edge
_NOISE = 24  # greatest departure of a pixel from its colour
_TEST_START = 1 << 32  # test images are numbered from here, so none is a training image
_NOISE_START = 1 << 16  # numbers of an image's hash from here on are its noise, one per pixel

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def _far(x: Ints, y: Ints) -> Ints:
    return np.maximum(abs(x), abs(y))


# Each takes coordinates from the centre (x to the right, y down) and the half-size r, in half
# pixels.
_DRAW: tuple[tuple[str, Callable[[Ints, Ints, Ints], Mask]], ...] = (
    ("disc", lambda x, y, r: x * x + y * y <= r * r),
    ("ring", lambda x, y, r: (x * x + y * y <= r * r) & (9 * (x * x + y * y) >= 4 * r * r)),
    ("square", lambda x, y, r: _far(x, y) <= r),
    ("frame", lambda x, y, r: (_far(x, y) <= r) & (3 * _far(x, y) >= 2 * r)),
    ("triangle", lambda x, y, r: (2 * abs(x) <= y + r) & (y <= r)),
    ("diamond", lambda x, y, r: abs(x) + abs(y) <= r),
    ("cross", lambda x, y, r: (_far(x, y) <= r) & (3 * np.minimum(abs(x), abs(y)) <= r)),
    ("horizontal stripes", lambda x, y, r: (_far(x, y) <= r) & ((y + r) // 4 % 2 == 0)),
    ("vertical stripes", lambda x, y, r: (_far(x, y) <= r) & ((x + r) // 4 % 2 == 0)),
    ("checkerboard", lambda x, y, r: (_far(x, y) <= r) & (((x + r) // 6 + (y + r) // 6) % 2 == 0)),
)
CLASSES = tuple(name for name, _ in _DRAW)


def draw(train: int = N_TRAIN, test: int = N_TEST) -> Dataset:
    """Draw `train` training and `test` test images (3, 32, 32); every ten of them hold each class
    once.
    """
    train_images, train_labels = _images(0, train)
    test_images, test_labels = _images(_TEST_START, test)
    return Dataset("shapes", train_images, train_labels, test_images, test_labels, CLASSES)


def splitmix64(counters: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return 64 random bits for each counter (Steele, Lea and Flood, 2014); products wrap, as the
    method requires.
    """
    z = (counters + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _images(start: int, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return `count` images, numbered from `start`, and their labels."""
    labels = _labels(start, count)
    images, memory = np.empty((count, *SHAPE), np.uint8), threading.local()

    def draw(first: int) -> None:
        if not hasattr(memory, "noise"):
            memory.noise = _Noise()
        block = slice(first, min(first + _BLOCK, count))
        keys = splitmix64(np.arange(start + first, start + block.stop, dtype=np.uint64))
        _draw_block(keys, labels[block], memory.noise, images[block])

    with ThreadPoolExecutor(_THREADS) as threads:
        # Taken one by one and dropped, so that what a thread raises is raised here.
        collections.deque(threads.map(draw, range(0, count, _BLOCK)), maxlen=0)
    return images, labels


def _labels(start: int, count: int) -> NDArray[np.int64]:
    """Return the labels: a random order of the ten classes for every ten images."""
    tens = -(-count // 10)
    numbers = np.arange(start, start + 10 * tens, dtype=np.uint64)
    return (
        # The complement is the number of no image: labels and images draw from other counters.
        np.argsort(splitmix64(~numbers).reshape(tens, 10), axis=1)
        .reshape(-1)[:count]
        .astype(np.int64)
    )


def _uniform(keys: NDArray[np.uint64], number: int, low: int, high: int) -> Ints:
    """Return random number `number` of every key: an integer in [low, high], of shape (n, 1, 1)."""
    # 32 bits as a fraction of 2^32, times the count of values, without a remainder.
    bits = splitmix64(keys + np.uint64(number)) >> np.uint64(32)
    return ((bits * np.uint64(high - low + 1)) >> np.uint64(32)).astype(np.int64)[
        :, None, None
    ] + low


class _Noise:
    """The noise of a block's pixels, in the same memory for each block, since allocating takes
    longer.
    """

    def __init__(self) -> None:
        self._bits = np.empty((_BLOCK, _SIDE * _SIDE), np.uint64)
        self._spare = np.empty_like(self._bits)

    def draw(self, keys: NDArray[np.uint64]) -> None:
        """Draw 64 random bits for each pixel of the images of these keys, as from `splitmix64`."""
        pixels = np.arange(_NOISE_START, _NOISE_START + _SIDE * _SIDE, dtype=np.uint64)
        bits, spare = self._bits[: len(keys)], self._spare[: len(keys)]
        np.add(keys[:, None], pixels + np.uint64(1), out=bits)
        bits *= np.uint64(0x9E3779B97F4A7C15)
        # The last step of splitmix64 has no product; with a factor of 1 it is one of the loop.
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            np.right_shift(bits, np.uint64(shift), out=spare)
            bits ^= spare
            bits *= np.uint64(factor)

    def grain(self, channel: int, count: int) -> NDArray[np.int16]:
        """Return the departures of a channel's pixels from their colour, (count, 32, 32):
        remainders of its bits.
        """
        bits, spare = self._bits[:count], self._spare[:count]
        np.right_shift(bits, np.uint64(16 * channel), out=spare)
        quotients = spare // np.uint64(
            2 * _NOISE + 1
        )  # NumPy has vector code for this, but not for the remainder
        quotients *= np.uint64(2 * _NOISE + 1)
        spare -= quotients
        return spare.astype(np.int16).reshape(count, _SIDE, _SIDE) - np.int16(_NOISE)


def _draw_block(
    keys: NDArray[np.uint64], labels: NDArray[np.int64], noise: _Noise, images: NDArray[np.uint8]
) -> None:
    """Draw the images of the given keys and labels into `images` (n, 3, 32, 32)."""
    r = _uniform(keys, 0, *_HALF_SIZE)
    grid = np.arange(1, 2 * _SIDE, 2, dtype=np.int32)  # pixel centres, in half pixels
    x = grid[None, None, :] - (
        r + _uniform(keys, 1, 0, 1 << 16) * (2 * _SIDE - 2 * r) // (1 << 16)
    ).astype(np.int32)
    y = grid[None, :, None] - (
        r + _uniform(keys, 2, 0, 1 << 16) * (2 * _SIDE - 2 * r) // (1 << 16)
    ).astype(np.int32)
    r = r.astype(np.int32)
    mask = np.empty((len(keys), _SIDE, _SIDE), np.int16)
    for k, (_, shape) in enumerate(_DRAW):
        of_class = labels == k
        mask[of_class] = shape(x[of_class], y[of_class], r[of_class])

    slope_x, slope_y = _uniform(keys, 3, -_SLOPE, _SLOPE), _uniform(keys, 4, -_SLOPE, _SLOPE)
    gradient = (
        slope_x * (grid[None, None, :] - _SIDE) + slope_y * (grid[None, :, None] - _SIDE)
    ) // _SIDE
    gradient = gradient.astype(np.int16)
    noise.draw(keys)
    for c in range(3):
        background = _uniform(keys, 5 + c, *_BACKGROUND)
        contrast = _uniform(keys, 8 + c, *_CONTRAST) * (2 * _uniform(keys, 11 + c, 0, 1) - 1)
        values = mask * contrast.astype(np.int16)
        values += gradient
        values += noise.grain(c, len(keys))
        values += background.astype(np.int16)
        np.clip(values, 0, 255, out=values)
        images[:, c] = values
