"""An ONNX file's graph as plain data, and the walk through it, which turns nodes into steps."""

from .expressions import Expressions
from .node import (
    FEW,
    FLOAT,
    INT64,
    Attributes,
    Constant,
    OnnxGraph,
    OnnxNode,
    are_numbers,
    shortest,
)
from .rewritten import rewritten
from .sizes import folded
from .values import (
    CELLS,
    CHANNELS_LAST,
    FLAT,
    FROM_IMAGES,
    LINES,
    MAPS,
    ONE,
    Apart,
    Axes,
    Expectation,
    Keys,
    MixedTokens,
    Step,
    Value,
    shown_axes,
)
from .walk import Walk

__all__ = [
    "CELLS",
    "CHANNELS_LAST",
    "FEW",
    "FLAT",
    "FLOAT",
    "FROM_IMAGES",
    "INT64",
    "LINES",
    "MAPS",
    "ONE",
    "Apart",
    "Attributes",
    "Axes",
    "Constant",
    "Expectation",
    "Expressions",
    "Keys",
    "MixedTokens",
    "OnnxGraph",
    "OnnxNode",
    "Step",
    "Value",
    "Walk",
    "are_numbers",
    "folded",
    "rewritten",
    "shortest",
    "shown_axes",
]
