"""The functions of `import emuchain` on the weights of runs: to test them, and to export them."""

from __future__ import annotations

import os

from .common import InputError, NamedFiles
from .config import roles
from .data import Dataset
from .run import Evaluation, Found, Results, WeightsFile, found_of, read_found
from .run import evaluate as evaluate_found

Run = Results | str | os.PathLike[str]


def evaluate(
    run: Run,
    data: Dataset | str | os.PathLike[str] | None = None,
    *,
    test_samples: int | None = None,
) -> Evaluation:
    """Return loss and accuracy of a run's weights, as `emuchain evaluate`; on the run's data, its last epoch's.

    Args:
        run: the run's results, or the path of a results file or a checkpoint.
        data: a data set, or a value of the configuration key `data`; by default the run's.
        test_samples: take the first of the test samples; by default as many as the run.

    Raises:
        InputError: the file or the data cannot be read, do not fit each other, or have no test.
    """
    named = data if data is None or isinstance(data, Dataset) else os.fspath(data)
    return evaluate_found(_found(run), named, test_samples)


def export(run: Run, out: str | os.PathLike[str]) -> None:
    """Write a run's weights for other programs, as `emuchain export`.

    Args:
        run: the run's results, or the path of a results file or a checkpoint.
        out: a file whose name ends in .safetensors, for only the weights, or in .onnx, for the network, too.

    Raises:
        InputError: the run cannot be read, the file cannot be written, or the network cannot be in such a file.
    """
    files = NamedFiles()
    files.add("run", run, roles.RUN)
    files.add("out", out, roles.OUTPUT)
    files.check()
    with WeightsFile(out) as file:
        file.write(_found(run))


def _found(run: Run) -> Found:
    if isinstance(run, Results):
        return found_of(run)
    if not isinstance(run, str | os.PathLike):
        raise InputError(f"`run`: is {type(run).__name__}; it should be results, or the path of a file")
    return read_found(os.fspath(run))
