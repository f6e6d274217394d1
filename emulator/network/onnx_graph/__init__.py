"""An ONNX file's graph as plain data, and the walk through it, which turns nodes into steps."""

from .attributes import check_spatial_axes, kernel_of, window_keys
from .node import FEW, Constant, OnnxGraph, OnnxNode, are_numbers
from .walk import FROM_IMAGES, Expectation, Keys, Step, Value, Walk

__all__ = [
    "FEW",
    "FROM_IMAGES",
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
    "kernel_of",
    "window_keys",
]
