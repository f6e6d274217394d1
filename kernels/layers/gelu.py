"""GELU: x times the normal distribution function of x, exact or by its usual approximation, which takes tanh."""

from ..jit import Kernels
from .activations import Activation

_lines = Kernels("llvm.gelu")

gelu = Activation("gelu", _lines.error, _lines.forward, parameters=1)
"""Its parameter is 0, or, for the approximation, 1."""
