"""Networks from ONNX files: the graph becomes a description; weights are those that training may begin with.

`file` reads the file as plain data, `operators` walks through its nodes (each operation's own file converts them),
`steps` makes the description, and `weights` the arrays of its layers.
"""

from .file import files_beside, read_onnx, read_onnx_arrays
from .operators import describe
from .weights import weights_of

__all__ = ["describe", "files_beside", "read_onnx", "read_onnx_arrays", "weights_of"]
