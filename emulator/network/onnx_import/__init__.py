"""Networks from ONNX files: the graph becomes a description; weights are those that training may
begin with.

`file` reads the file as plain data, `operators` walks through its nodes (each operation's own file
converts them) and notes what the user should know. `views` and `sequences` are nodes that move no
number, or transpose a sequence, and `apart` those that move some; `weights` makes the arrays of
layers. Several nodes that are one operation come from the folders `spelled` and `attention`.
`pytorch` tells what the nodes were in PyTorch, and what its exporters left out.
"""

from .file import files_beside, graph_of, read_onnx
from .operators import describe, described, note_of, walked
from .weights import weights_of, weights_of_walk

__all__ = [
    "describe",
    "described",
    "files_beside",
    "graph_of",
    "note_of",
    "read_onnx",
    "walked",
    "weights_of",
    "weights_of_walk",
]
