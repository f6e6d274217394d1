"""Networks from ONNX files: the graph becomes a description; weights are not taken over, for training starts afresh.

`file` reads the file as `plain` data, `walk` and `operators` go through its nodes, `keys` puts each in the words of a
description, and `steps` makes the description of it.
"""

from .file import read_onnx
from .operators import describe

__all__ = ["describe", "read_onnx"]
