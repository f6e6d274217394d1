"""`emuchain export`: a run's weights for other programs."""

from __future__ import annotations

import shlex

from ..common import format_bytes, plural
from ..run import Found, WeightsFile, read_found
from ..view import Line, next_line, print_answer


def export_weights(file: str, out: str) -> None:
    """Write the weights of a results file or a checkpoint to `out`, in the form that its name ends in.

    Raises:
        InputError: the file cannot be read, or `out` cannot be written, or has another ending.
    """
    with WeightsFile(out) as whole:
        found = read_found(file)
        size = whole.write(found)
    print_answer(_answer(found, out, size))


def _answer(found: Found, out: str, size: int) -> list[Line]:
    arrays = [array for layer in found.weights.values() for array in layer.values()]
    values = sum(array.size for array in arrays)
    return [
        Line(f"{out}: {found.network.name} after {plural(found.epochs, 'epoch')}, {format_bytes(size)}"),
        Line(f"{plural(len(arrays), 'array')}, {plural(values, 'value')}, float32"),
        next_line(shlex.join(["emuchain", "train", str(found.settings["network"]), "--init", out])),
    ]
