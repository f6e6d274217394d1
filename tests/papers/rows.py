"""What tests of a paper's classes share: its rows by class, and rows measured afresh."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType

import pytest

from emuchain.papers import Claim, Class, Result, validate
from emuchain.papers.constants import Freedom, in_force, kept


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a paper, and the modules whose functions keep what they have measured."""

    paper: str
    claims: Mapping[str, Claim]
    modules: tuple[ModuleType, ...]

    def of(self, row_class: Class) -> list[str]:
        """Return the rows of a class that are run."""
        return [
            name
            for name, claim in self.claims.items()
            if claim.expect and claim.row_class is row_class
        ]

    def named(self, rows: str) -> list[str]:
        """Return the ids of rows that are named without the paper."""
        return [f"{self.paper}-{row}" for row in rows.split()]

    def forget(self) -> None:
        """Let all be measured anew."""
        for module in self.modules:
            for function in vars(module).values():
                if isinstance(function, kept):
                    function.forget()

    def measured(self, names: Iterable[str]) -> dict[str, Result]:
        """Measure rows afresh."""
        self.forget()
        return {
            found.claim.id: found
            for found in validate(self.paper, [self.claims[name] for name in names])
        }

    def moved_by(self, freedoms: Iterable[Freedom], names: Sequence[str]) -> set[str]:
        """Return which rows have another value where a constant is at an end of its range, or a
        choice is another.
        """
        before, moved = self.measured(names), set()
        for freedom in freedoms:
            for value in (freedom.values[0], freedom.values[-1]):
                with in_force({freedom.key: value}):
                    after = self.measured(names)
                moved |= {name for name in names if after[name].ours != before[name].ours}
        return moved

    def check_noticed(self, fault: Callable[[pytest.MonkeyPatch], None], rows: str) -> None:
        """Check that a planted fault changes rows, named without the paper, by more than half a per
        cent.
        """
        names = self.named(rows)
        sound = self.measured(names)
        with pytest.MonkeyPatch.context() as patch:
            fault(patch)
            faulty = self.measured(names)
        for name in names:
            assert faulty[name].ours != pytest.approx(sound[name].ours, rel=0.005), name
        self.forget()
