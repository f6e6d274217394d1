"""How images are read: what is done to each before it is normalised, what is left out, and which
are the test.

Images are resized, cropped and flipped; sizes are those of torchvision's transforms.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common import InputError
from .pillow import MOST_PIXELS, pillow

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # rows, columns
Draw = tuple[int, int, int]  # 64 random bits each: for the window's top and left, and for the flip

DRAWS = 3
_OF_TEXT = "tokenizer", "masked_share"
_PADDING_SHARE = 8  # an eighth of each side, as the usual 4 pixels are of CIFAR's 32


@dataclass(frozen=True)
class Preparation:
    """What happens to each image, in this order: `resize`, `crop`, and with a draw those of
    `augment`.

    One number of `resize` is the shorter side, two are (rows, columns). Without a draw, the window
    is in the centre.
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
        """Return the one size (rows, columns) that images of these sizes, each with the name of
        one, end up with.

        Raises:
            InputError: their sizes would differ, or a window is larger than an image.
        """
        made: dict[Size, tuple[Size, str]] = {}
        for size, name in sizes.items():
            resized = self.resized(size)
            if resized[0] * resized[1] > MOST_PIXELS:
                raise InputError(
                    f"`resize` = {','.join(map(str, self.resize))}: makes {resized[0]:,} x"
                    f" {resized[1]:,} pixels of {name}, {_sides(size)}, more than the"
                    f" {MOST_PIXELS:,} of an image"
                )
            if self.crop is not None and (resized[0] < self.crop[0] or resized[1] < self.crop[1]):
                raise InputError(
                    f"`crop` = {_sides(self.crop)}: but {name} is {_sides(size)}"
                    + (f", resized {_sides(resized)}" if resized != size else "")
                    + f"; give a `resize` of at least {max(self.crop)}"
                )
            made.setdefault(self.crop or resized, (size, name))
        if len(made) > 1:
            (first, one), (second, other), *_ = made.values()
            raise InputError(
                f"{where}: images differ in size: {one} is {_sides(first)}, {other}"
                f" {_sides(second)}; give `--resize ROWS,COLUMNS`, or `--resize N --crop N`, such"
                " as 256 and 224"
            )
        return next(iter(made))

    def apply(self, picture: Pixels, draw: Draw | None = None) -> Pixels:
        """Return an image (rows, columns, channels) as a sample; a view where nothing is
        computed.
        """
        rows, columns = self.resized(picture.shape[:2])
        if (rows, columns) != picture.shape[:2]:
            picture = _resize(picture, (rows, columns))
        crops = draw is not None and "crop" in self.augment
        if self.crop is None and crops:
            picture = np.pad(
                picture, [*((side // _PADDING_SHARE,) * 2 for side in (rows, columns)), (0, 0)]
            )
        height, width = self.crop or (rows, columns)
        slack = picture.shape[0] - height, picture.shape[1] - width
        if draw is not None and crops:
            top, left = (
                (bits >> 32) * (most + 1) >> 32 for bits, most in zip(draw, slack, strict=False)
            )
        else:
            top, left = (round(most / 2) for most in slack)  # half to even, as torchvision rounds
        picture = picture[top : top + height, left : left + width]
        return (
            picture[:, ::-1]
            if draw is not None and "flip" in self.augment and draw[2] & 1
            else picture
        )


@functools.lru_cache(maxsize=2)
def draws_of(seed: int, epoch: int, samples: int) -> NDArray[np.uint64]:
    """Return the draws (samples, 3) of an epoch: those of a sample follow from seed, epoch and its
    number alone.
    """
    stream = np.random.Philox(
        key=np.array([seed, (3 << 62) | epoch], np.uint64)
    )  # of a list, NumPy makes floats
    return stream.random_raw(DRAWS * samples).reshape(samples, DRAWS)


def _resize(picture: Pixels, size: Size) -> Pixels:
    """Return a picture in another size, bilinear and without aliasing, as torchvision does it by
    Pillow.
    """
    image = pillow()
    rows, columns = size
    if picture.shape[2] == 3:
        whole = image.fromarray(np.ascontiguousarray(picture))
        return np.asarray(whole.resize((columns, rows), image.Resampling.BILINEAR))
    planes = [
        image.fromarray(np.ascontiguousarray(picture[:, :, c])) for c in range(picture.shape[2])
    ]
    return np.stack(
        [np.asarray(plane.resize((columns, rows), image.Resampling.BILINEAR)) for plane in planes],
        axis=2,
    )


def _sides(size: Size) -> str:
    return f"{size[0]}x{size[1]}"


@dataclass(frozen=True)
class Reading:
    """The keys of a run that say how images become samples, under the names of the configuration.

    `resize` and `crop` are (), one number, or (rows, columns); `channels` says whether those of
    arrays come "first" or "last", where lengths do not tell; `mean` and `std` are for each channel,
    of values from 0 to 1. `augment` is of training images alone, by streams that follow from
    `seed`. The last `test_share` of each class in the order of `split_seed` is the test where a
    data set has none of its own. `target_columns` are those of a table that are targets. Of a text,
    `tokenizer` is the file that makes its symbols, and `masked_share` the share that is masked.
    """

    resize: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()
    channels: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augment: tuple[str, ...] = ()
    skip_broken: bool = False
    test_share: float = 0.1
    split_seed: int = 0
    target_columns: tuple[str, ...] = ()
    tokenizer: str | None = None
    masked_share: float = 0.0
    seed: int = 1

    @property
    def of_text(self) -> dict[str, Any]:
        """What `load_text` takes of these keys."""
        return {key: getattr(self, key) for key in (*_OF_TEXT, "seed")}

    @property
    def crop_size(self) -> tuple[int, int] | None:
        """The (rows, columns) that are cut out of each image; None to take all of it."""
        return (self.crop[0], self.crop[-1]) if self.crop else None

    @property
    def prepares(self) -> bool:
        """Whether images change before they are normalised."""
        return bool(self.resize or self.crop or self.augment)

    def check(self) -> None:
        """Check the numbers of values.

        Raises:
            InputError: there are too many, or one of `mean` and `std` is missing.
        """
        for key in ("resize", "crop"):
            given = getattr(self, key)
            if len(given) > 2:
                raise InputError(
                    f"`{key}` = {_spelt(given)}: {len(given)} numbers; should be one, or"
                    " rows,columns"
                )
        if len(self.mean) != len(self.std):
            raise InputError(
                f"`mean` = {_spelt(self.mean) or 'none'}: but `std` is"
                f" {_spelt(self.std) or 'none'}; give both, with a number for each channel"
            )

    def refuse_for_text(self) -> None:
        """Check that nothing is said of images.

        Raises:
            InputError: something is, which a text has no use for.
        """
        self._refuse("this is a text; leave it out")

    def refuse_of_text(self) -> None:
        """Check that nothing is said of a text, where the data are none.

        Raises:
            InputError: something is.
        """
        for key in _OF_TEXT:
            if getattr(self, key):
                raise InputError(f"`{key}` is for a text, and these data are none; leave it out")

    def refuse_for_values(self) -> None:
        """Check that nothing is said of images, where inputs are taken as they are.

        Raises:
            InputError: something is.
        """
        self._refuse("inputs are taken as they are; leave it out, or call the array `images`")

    def _refuse(self, reason: str) -> None:
        plain = Reading()
        for key in ("resize", "crop", "channels", "mean", "std", "augment", "skip_broken"):
            if getattr(self, key) != getattr(plain, key):
                raise InputError(f"`{key}` is for images, and {reason}")

    @classmethod
    def of(cls, config: object) -> Reading:
        """Return what a configuration says."""
        return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})


def _spelt(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)


def shuffled(numbers: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return numbers in a random order, so that the first of images sorted by class are of all
    classes.
    """
    stream = np.random.Generator(np.random.Philox(key=np.array([seed, 1 << 63], np.uint64)))
    return stream.permutation(numbers)


def split(
    labels: NDArray[np.int64], classes: int, share: float, seed: int, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the training and of the test samples, both ascending: a share of each
    class is the test.

    Which of a class these are depends on the seed, the class, and its number of samples alone; at
    least one sample of each stays for training, and at least one of two is the test.

    Raises:
        InputError: the test would be empty.
    """
    is_test = np.zeros(len(labels), bool)
    # Stable, so that the members of a class are ascending, and a seed always draws the same.
    by_class = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[by_class], np.arange(classes + 1))
    bits = np.random.Philox(key=np.array([seed, 0], np.uint64))
    fresh, stream = bits.state, np.random.Generator(bits)
    for k in np.flatnonzero(np.diff(bounds) > 1).tolist():
        members = by_class[bounds[k] : bounds[k + 1]]
        # Halves are rounded up, where `round` would go to the even number.
        count = min(max(1, int(share * len(members) + 0.5)), len(members) - 1)
        fresh["state"]["key"][1] = k
        bits.state = fresh  # as a new generator with this key, in a fraction of the time
        is_test[stream.permutation(members)[:count]] = True
    if not is_test.any():
        raise InputError(f"{where}: no class has two images, one for training and one for testing")
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
