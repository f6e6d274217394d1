"""Files of a folder that are not read, counted by kind."""

from __future__ import annotations

import collections
import os

from ..common import plural
from .files import shown

_KINDS_SHOWN = 6


class LeftOut:
    """Counts files by the endings of their names, or by what else keeps them from being read."""

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, entry: os.DirEntry[str]) -> None:
        """Count a file."""
        ending = os.path.splitext(entry.name)[1].lower()
        if entry.name.startswith("."):
            self.add_kind("hidden")
        elif entry.is_symlink() and not os.path.exists(entry.path):
            self.add_kind("links to nowhere")
        else:
            self.add_kind(shown(ending) if ending else "without an ending")

    def add_kind(self, kind: str, count: int = 1) -> None:
        """Count files of a kind."""
        self._counts[kind] += count

    def join(self, other: LeftOut) -> None:
        """Add what another one has counted."""
        self._counts += other._counts

    @property
    def kinds(self) -> str:
        """The kinds with their counts, the most frequent first."""
        kinds = sorted(self._counts.items(), key=lambda kind: (-kind[1], kind[0]))
        rest = sum(count for _, count in kinds[_KINDS_SHOWN:])
        told = [f"{count:,} {kind}" for kind, count in kinds[:_KINDS_SHOWN]]
        return ", ".join([*told, plural(rest, "other")] if rest else told)

    @property
    def notes(self) -> list[str]:
        """What to say, if there is anything."""
        return [f"{plural(self._counts.total(), 'file')} left out: {self.kinds}"] if self._counts else []
