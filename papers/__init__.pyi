from . import sensitivity, tables
from .claim import Claim, Class, constants_of, freedoms_of, load_claims, papers
from .pictures import draw_pictures
from .run import Result, Verdict, judge, select, validate
from .sensitivity import (
    Blind,
    ChangedResults,
    Sensitivity,
    blind_predictions,
    changed_results,
    parse_changes,
    sensitivities,
)

__all__ = [
    "Blind",
    "ChangedResults",
    "Claim",
    "Class",
    "Result",
    "Sensitivity",
    "Verdict",
    "blind_predictions",
    "changed_results",
    "constants_of",
    "draw_pictures",
    "freedoms_of",
    "judge",
    "load_claims",
    "papers",
    "parse_changes",
    "select",
    "sensitivities",
    "sensitivity",
    "tables",
    "validate",
]
