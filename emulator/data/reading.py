"""How images are read: what is done to each, what is left out, and which are the test where a data set does not say."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common import InputError


@dataclass(frozen=True)
class Reading:
    """The keys of a run that say how images become samples, under the names of the configuration.

    `resize` and `crop` are (), one number, or (rows, columns); `channels` says whether those of arrays come "first" or
    "last", where lengths do not tell; `mean` and `std` are for each channel, of values from 0
    to 1. `augment` is of training images alone, by streams that follow from `seed`. The last `test_share` of each class
    in the order of `split_seed` is the test where a data set has none of its own.
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
    seed: int = 1

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
                raise InputError(f"`{key}` = {_spelt(given)}: {len(given)} numbers; should be one, or rows,columns")
        if len(self.mean) != len(self.std):
            raise InputError(
                f"`mean` = {_spelt(self.mean) or 'none'}: but `std` is {_spelt(self.std) or 'none'}; give both, with a"
                " number for each channel"
            )

    def refuse_for_text(self) -> None:
        """Check that nothing is said of images.

        Raises:
            InputError: something is, which a text has no use for.
        """
        plain = Reading()
        for key in ("resize", "crop", "channels", "mean", "std", "augment", "skip_broken"):
            if getattr(self, key) != getattr(plain, key):
                raise InputError(f"`{key}` is for images, and this is a text; leave it out")

    @classmethod
    def of(cls, config: object) -> Reading:
        """Return what a configuration says."""
        return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})


def _spelt(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)


def shuffled(numbers: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return numbers in a random order, so that the first of images sorted by class are of all classes."""
    stream = np.random.Generator(np.random.Philox(key=np.array([seed, 1 << 63], np.uint64)))
    return stream.permutation(numbers)


def split(
    labels: NDArray[np.int64], classes: int, share: float, seed: int, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the numbers of the training and of the test samples, both ascending: a share of each class is the test.

    Which of a class these are depends on the seed, the class, and its number of samples alone; at least one sample of
    each stays for training, and at least one of two is the test.

    Raises:
        InputError: the test would be empty.
    """
    is_test = np.zeros(len(labels), bool)
    by_class = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[by_class], np.arange(classes + 1))
    bits = np.random.Philox(key=np.array([seed, 0], np.uint64))
    fresh, stream = bits.state, np.random.Generator(bits)
    for k in np.flatnonzero(np.diff(bounds) > 1).tolist():
        members = by_class[bounds[k] : bounds[k + 1]]
        count = min(max(1, int(share * len(members) + 0.5)), len(members) - 1)
        fresh["state"]["key"][1] = k
        bits.state = fresh  # as a new generator with this key, in a fraction of the time
        is_test[stream.permutation(members)[:count]] = True
    if not is_test.any():
        raise InputError(f"{where}: no class has two images, one for training and one for testing")
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)
