"""How images are read: what is done to each, what is left out, and what is kept for the test."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..common import InputError


@dataclass(frozen=True)
class Reading:
    """The keys of a run that say how images become samples, under the names of the configuration.

    `resize` and `crop` are (), one number, or (rows, columns); `mean` and `std` are for each channel, of values from 0
    to 1. `augment` is of training images alone, by streams that follow from `seed`. The last `test_share` of each class
    in the order of `split_seed` is the test where a data set has none of its own.
    """

    resize: tuple[int, ...] = ()
    crop: tuple[int, ...] = ()
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
        for key in ("resize", "crop", "mean", "std", "augment", "skip_broken"):
            if getattr(self, key) != getattr(plain, key):
                raise InputError(f"`{key}` is for images, and this is a text; leave it out")

    @classmethod
    def of(cls, config: object) -> Reading:
        """Return what a configuration says."""
        return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})


def _spelt(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)
