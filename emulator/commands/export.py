"""`emuchain export`: a run's weights for other programs."""

from __future__ import annotations

import shlex

from ..common import InputError, WholeFile, format_bytes, plural
from ..network import onnx_image
from ..report import Line, next_line, print_answer
from ..run import Found, read_found, safetensors_image


def export_weights(file: str, out: str) -> None:
    """Write the weights of a results file or a checkpoint to `out`, in the form that its name ends in.

    Raises:
        InputError: the file cannot be read, or `out` cannot be written, or has another ending.
    """
    forms = {".safetensors": safetensors_image, ".onnx": onnx_image}
    image = next((make for ending, make in forms.items() if out.endswith(ending)), None)
    if image is None:
        raise InputError(f"`out` = {out!r}: its name should end in {' or '.join(forms)}")
    with WholeFile(out, example="weights.safetensors") as whole:
        found = read_found(file)
        content = image(found.weights, found.network, f"`out` = {out!r}")
        whole.write(content)
    print_answer(_answer(found, out, len(content)))


def _answer(found: Found, out: str, size: int) -> list[Line]:
    arrays = [array for layer in found.weights.values() for array in layer.values()]
    values = sum(array.size for array in arrays)
    return [
        Line(f"{out}: {found.network.name} after {plural(found.epochs, 'epoch')}, {format_bytes(size)}"),
        Line(f"{plural(len(arrays), 'array')}, {plural(values, 'value')}, float32"),
        next_line(shlex.join(["emuchain", "train", str(found.settings["network"]), "--init", out])),
    ]
