from . import sensitivity_tables, tables
from .claim import Claim, Class, load_claims, papers
from .run import Result, Verdict, draw_pictures, judge, select, validate
from .sensitivity import Blind, Sensitivity, blind_predictions, sensitivities

__all__ = [
    "Blind",
    "Claim",
    "Class",
    "Result",
    "Sensitivity",
    "Verdict",
    "blind_predictions",
    "draw_pictures",
    "judge",
    "load_claims",
    "papers",
    "select",
    "sensitivities",
    "sensitivity_tables",
    "tables",
    "validate",
]
