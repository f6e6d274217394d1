"""A network with its weights as an ONNX file, which `onnx_import` reads again.

`file` makes the file, `layers` the nodes of layers with weights, `steps` those of SFUs, and `nodes` holds what is made.
"""

from .file import onnx_image

__all__ = ["onnx_image"]
