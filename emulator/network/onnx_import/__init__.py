"""Networks from ONNX files: the graph becomes a description; weights are ignored, because training starts afresh.

`file` reads the file as plain data, `operators` walks through its nodes (each operation's own file converts them), and
`steps` makes the description.
"""

from .file import read_onnx
from .operators import describe

__all__ = ["describe", "read_onnx"]
