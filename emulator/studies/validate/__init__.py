"""Validation against papers: each claim is measured with the emulator's own functions, and judged."""

from . import tables
from .claim import Claim, Class, load_claims, papers
from .judge import Verdict, judge
from .run import Result, draw_pictures, select, validate

__all__ = [
    "Claim",
    "Class",
    "Result",
    "Verdict",
    "draw_pictures",
    "judge",
    "load_claims",
    "papers",
    "select",
    "tables",
    "validate",
]
