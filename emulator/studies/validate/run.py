"""All claims of a paper, measured and judged one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from ...common.errors import InputError
from . import fpdeep, inceptionn
from .claim import Claim, Value, load_claims
from .judge import Verdict, judge
from .measure import Measure, NoEvidence

MEASURES: Mapping[str, Mapping[str, Measure]] = {
    "fpdeep": fpdeep.MEASURES,
    "inceptionn": inceptionn.MEASURES,
}


@dataclasses.dataclass(frozen=True)
class Result:
    """A claim with what was measured, how (or why not), its deviation as a share (of values alone), and the verdict."""

    claim: Claim
    ours: Value
    how: str
    deviation: float | None
    verdict: Verdict

    @property
    def is_run(self) -> bool:
        """Whether there is a measure."""
        return self.verdict is not Verdict.NOT_RUN


def select(paper: str, prefix: str = "") -> list[Claim]:
    """The claims of a paper whose ids begin so, with or without the paper's name.

    Raises:
        InputError: no such paper, or no such claim.
    """
    claims = load_claims(paper)
    chosen = [c for name, c in claims.items() if name.startswith((prefix, f"{paper}-{prefix}"))]
    if not chosen:
        raise InputError(f"`--only` {prefix}: no claim of {paper} begins so; the first is {next(iter(claims))}")
    return chosen


def validate(paper: str, claims: Iterable[Claim]) -> Iterator[Result]:
    """Measure and judge claims of a paper, each when it is asked for."""
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
        yield Result(claim, measured.ours, measured.how, deviation, verdict)
