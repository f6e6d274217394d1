"""What is done to an image before it is normalised: resized, cropped, flipped; sizes as torchvision's transforms."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .pillow import MOST_PIXELS, pillow

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # rows, columns
Draw = tuple[int, int, int]  # 64 random bits each: for the window's top and left, and for the flip

DRAWS = 3
_PADDING_SHARE = 8  # an eighth of each side, as the usual 4 pixels are of CIFAR's 32


@dataclass(frozen=True)
class Preparation:
    """What happens to each image, in this order: `resize`, `crop`, and with a draw those of `augment`.

    One number of `resize` is the shorter side, two are (rows, columns). Without a draw, the window is in the centre.
    """

    resize: tuple[int, ...] = ()
    crop: Size | None = None
    augment: tuple[str, ...] = ()

    def resized(self, size: Size) -> Size:
        """Return the size of an image of this size after resizing."""
        if len(self.resize) == 2:
            return self.resize[0], self.resize[1]
        if not self.resize:
            return size
        [shorter], (rows, columns) = self.resize, size
        if rows <= columns:
            return shorter, max(1, shorter * columns // rows)
        return max(1, shorter * rows // columns), shorter

    def size(self, sizes: Mapping[Size, str], where: str) -> Size:
        """Return the one size (rows, columns) that images of these sizes, each with the name of one, end up with.

        Raises:
            InputError: their sizes would differ, or a window is larger than an image.
        """
        made: dict[Size, tuple[Size, str]] = {}
        for size, name in sizes.items():
            resized = self.resized(size)
            if resized[0] * resized[1] > MOST_PIXELS:
                raise InputError(
                    f"`resize` = {','.join(map(str, self.resize))}: makes {resized[0]:,} x {resized[1]:,} pixels of"
                    f" {name}, {_spelt(size)}, more than the {MOST_PIXELS:,} of an image"
                )
            if self.crop is not None and (resized[0] < self.crop[0] or resized[1] < self.crop[1]):
                raise InputError(
                    f"`crop` = {_spelt(self.crop)}: but {name} is {_spelt(size)}"
                    + (f", resized {_spelt(resized)}" if resized != size else "")
                    + f"; give a `resize` of at least {max(self.crop)}"
                )
            made.setdefault(self.crop or resized, (size, name))
        if len(made) > 1:
            (first, one), (second, other), *_ = made.values()
            raise InputError(
                f"{where}: images differ in size: {one} is {_spelt(first)}, {other} {_spelt(second)}; give `--resize"
                " ROWS,COLUMNS`, or `--resize N --crop N`, such as 256 and 224"
            )
        return next(iter(made))

    def apply(self, picture: Pixels, draw: Draw | None = None) -> Pixels:
        """Return an image (rows, columns, channels) as a sample; a view where nothing is computed."""
        rows, columns = self.resized(picture.shape[:2])
        if (rows, columns) != picture.shape[:2]:
            picture = _resize(picture, (rows, columns))
        crops = draw is not None and "crop" in self.augment
        if self.crop is None and crops:
            picture = np.pad(picture, [*((side // _PADDING_SHARE,) * 2 for side in (rows, columns)), (0, 0)])
        height, width = self.crop or (rows, columns)
        slack = picture.shape[0] - height, picture.shape[1] - width
        if draw is not None and crops:
            top, left = ((bits >> 32) * (most + 1) >> 32 for bits, most in zip(draw, slack, strict=False))
        else:
            top, left = (round(most / 2) for most in slack)  # half to even, as torchvision rounds
        picture = picture[top : top + height, left : left + width]
        return picture[:, ::-1] if draw is not None and "flip" in self.augment and draw[2] & 1 else picture


@functools.lru_cache(maxsize=2)
def draws_of(seed: int, epoch: int, samples: int) -> NDArray[np.uint64]:
    """Return the draws (samples, 3) of an epoch: those of a sample follow from seed, epoch and its number alone."""
    stream = np.random.Philox(key=np.array([seed, (3 << 62) | epoch], np.uint64))  # of a list, NumPy makes floats
    return stream.random_raw(DRAWS * samples).reshape(samples, DRAWS)


def _resize(picture: Pixels, size: Size) -> Pixels:
    """Return a picture in another size, bilinear and without aliasing, as torchvision does it by Pillow."""
    image = pillow()
    rows, columns = size
    if picture.shape[2] == 3:
        whole = image.fromarray(np.ascontiguousarray(picture))
        return np.asarray(whole.resize((columns, rows), image.Resampling.BILINEAR))
    planes = [image.fromarray(np.ascontiguousarray(picture[:, :, c])) for c in range(picture.shape[2])]
    return np.stack([np.asarray(plane.resize((columns, rows), image.Resampling.BILINEAR)) for plane in planes], axis=2)


def _spelt(size: Size) -> str:
    return f"{size[0]}x{size[1]}"
