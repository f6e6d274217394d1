"""All claims of a paper, measured and judged one by one."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping

from ...common import InputError, own_folder
from . import bapipe, farnn, fpdeep, inceptionn
from .bapipe.pictures import draw_all as draw_bapipe
from .claim import Claim, Value, load_claims
from .farnn.pictures import draw_all as draw_farnn
from .fpdeep.pictures import draw_all as draw_fpdeep
from .inceptionn.pictures import draw_all as draw_inceptionn
from .judge import Verdict, judge
from .measure import Measure, NoEvidence

MEASURES: Mapping[str, Mapping[str, Measure]] = {
    "fpdeep": fpdeep.MEASURES,
    "inceptionn": inceptionn.MEASURES,
    "bapipe": bapipe.MEASURES,
    "farnn": farnn.MEASURES,
}


@dataclasses.dataclass(frozen=True)
class Result:
    """A claim, its measured value, how (or why not), the deviation as a share (for values only), and the verdict.

    `guess_is_good` says whether the claim's `null` would be confirmed, too; None without one.
    """

    claim: Claim
    ours: Value
    how: str
    deviation: float | None
    verdict: Verdict
    guess_is_good: bool | None = None

    @property
    def is_run(self) -> bool:
        """Whether the claim was measured."""
        return self.verdict is not Verdict.NOT_RUN

    @property
    def is_counted(self) -> bool:
        """Whether summaries count the row: it was measured, and is no other row's claim once more."""
        return self.is_run and self.claim.same_as is None

    @property
    def is_confirmed(self) -> bool:
        """Whether the measure is good, and a guess would not be."""
        return self.verdict.is_good and not self.guess_is_good


def select(paper: str, prefix: str = "") -> list[Claim]:
    """Return the claims of a paper whose ids begin with `prefix`, with or without the paper's name.

    Raises:
        InputError: there is no such paper or no such claim.
    """
    claims = load_claims(paper)
    chosen = [c for name, c in claims.items() if name.startswith((prefix, f"{paper}-{prefix}"))]
    if not chosen:
        raise InputError(f"`--only` {prefix}: no claim id of {paper} begins with it; the first is {next(iter(claims))}")
    return chosen


def draw_pictures(paper: str, folder: pathlib.Path, runs: pathlib.Path | None) -> list[pathlib.Path]:
    """Draw a paper's figures from our results; return their paths.

    `runs` is a folder with results of training, for figures that show convergence.

    Raises:
        InputError: matplotlib is not installed, `runs` has no results, or a file cannot be written.
    """
    with own_folder(folder, "--pictures"):
        if paper == "inceptionn":
            return draw_inceptionn(folder)
        if paper == "bapipe":
            return draw_bapipe(folder)
        if paper == "farnn":
            return draw_farnn(folder)
        return draw_fpdeep(folder, runs)


def validate(paper: str, claims: Iterable[Claim]) -> Iterator[Result]:
    """Yield the results of a paper's claims, each measured and judged on demand."""
    for claim in claims:
        if claim.expect is None:
            yield Result(claim, None, claim.not_run or "", None, Verdict.NOT_RUN)
            continue
        try:
            measured = MEASURES[paper][claim.id]()
        except NoEvidence as error:
            yield Result(claim, None, str(error), None, Verdict.NOT_RUN)
            continue
        verdict, deviation = judge(claim.expect, measured.ours)
        guess = None if claim.null is None else judge(claim.expect, claim.null)[0].is_good
        yield Result(claim, measured.ours, measured.how, deviation, verdict, guess)
