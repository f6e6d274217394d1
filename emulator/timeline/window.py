"""The window of a timeline: the samples that it shows."""

from __future__ import annotations

import dataclasses
import re

from ..common import InputError


@dataclasses.dataclass(frozen=True)
class Window:
    """Samples `first` to `last`, both included, counted from 0 since the start of the run."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str, key: str) -> Window:
        """Return the window that a text such as 0-63 names, or 5 for one sample; errors name `key`.

        Raises:
            InputError: the text is no range, or the range is empty.
        """
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
        if match is None:
            raise InputError(f"`{key}` = {text!r}: is not a range of samples, counted from 0, such as 0-63")
        return cls.of(int(match[1]), int(match[2] or match[1]), key)

    @classmethod
    def of(cls, first: int, last: int, key: str) -> Window:
        """Return the window of two sample numbers; errors name `key`.

        Raises:
            InputError: the window is empty.
        """
        if not 0 <= first <= last:
            raise InputError(f"`{key}` = '{first}-{last}': holds no sample; the first number is at most the second")
        return cls(first, last)

    def within(self, samples: int, key: str) -> Window:
        """Return the part of the window that a run of `samples` samples has; errors name `key`.

        Raises:
            InputError: there is none.
        """
        if self.first >= samples:
            raise InputError(f"`{key}` = '{self}': the run has samples 0-{samples - 1} only")
        return Window(self.first, min(self.last, samples - 1))

    @property
    def numbers(self) -> range:
        """The numbers of the samples."""
        return range(self.first, self.last + 1)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


DEFAULT_WINDOW = Window(0, 63)
