"""An ONNX file's graph as plain data, and the walk through it, which turns nodes into steps."""

from .attributes import check_spatial_axes, kernel_of, window_keys
from .node import FEW, Constant, OnnxGraph, OnnxNode, are_numbers
from .recurrent import recurrent_step
from .sizes import folded
from .walk import CELLS, FLAT, FROM_IMAGES, MAPS, Axes, Expectation, Keys, Step, Value, Walk

__all__ = [
    "CELLS",
    "FEW",
    "FLAT",
    "FROM_IMAGES",
    "MAPS",
    "Axes",
    "Constant",
    "Expectation",
    "Keys",
    "OnnxGraph",
    "OnnxNode",
    "Step",
    "Value",
    "Walk",
    "are_numbers",
    "check_spatial_axes",
    "folded",
    "kernel_of",
    "recurrent_step",
    "window_keys",
]
