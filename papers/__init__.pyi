from . import changed, sensitivity, tables
from .changed import ChangedResults, changed_results, parse_changes
from .claim import Claim, Class, load_claims, papers
from .run import Result, Verdict, draw_pictures, judge, select, validate
from .sensitivity import Blind, Sensitivity, blind_predictions, constants_of, freedoms_of, sensitivities

__all__ = [
    "Blind",
    "ChangedResults",
    "Claim",
    "Class",
    "Result",
    "Sensitivity",
    "Verdict",
    "blind_predictions",
    "changed",
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
