"""Convolution: FP, EB and PG of FPDeep (sections 5.3 to 5.5), on one register-tiled micro-kernel."""

from .convolution import Convolution, error, forward, gradient, output_shape

__all__ = ["Convolution", "error", "forward", "gradient", "output_shape"]
