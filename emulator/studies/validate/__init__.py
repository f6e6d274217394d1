"""Validation against papers: each claim is measured with the emulator's own functions, and judged."""

from .claim import Claim, load_claims, papers
from .judge import Verdict, judge
from .run import Result, draw_pictures, select, validate

__all__ = [
    "Claim",
    "Result",
    "Verdict",
    "draw_pictures",
    "judge",
    "load_claims",
    "papers",
    "select",
    "validate",
]
