"""Weights for other programs: in the form that a file's name ends in."""

from __future__ import annotations

import os

from ...common import InputError, WholeFile
from ...network import onnx_image
from .read import Found
from .safetensors_file import safetensors_image

_FORMS = {".safetensors": safetensors_image, ".onnx": onnx_image}


class WeightsFile:
    """A file for weights, which this process alone writes from now on.

    Raises:
        InputError: its name has another ending, or it cannot be written.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self._blame = f"`out` = {os.fspath(out)!r}"
        image = next((make for ending, make in _FORMS.items() if os.fspath(out).lower().endswith(ending)), None)
        if image is None:
            raise InputError(f"{self._blame}: its name should end in {' or '.join(_FORMS)}")
        self._image = image
        self._file = WholeFile(out, example="weights.safetensors")

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, found: Found) -> int:
        """Write the weights of a run; return the bytes that they take.

        Raises:
            InputError: the file cannot be written, a package is missing, or the form has no words for the network.
        """
        content = self._image(found.weights, found.network, self._blame)
        self._file.write(content)
        return len(content)
