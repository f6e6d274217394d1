"""`emuchain evaluate` and `export`: the weights of a run, tested, and written for other programs."""

from __future__ import annotations

import json
import shlex
from typing import Any

from ..common import format_bytes, plural
from ..run import Evaluation, RunWeights, WeightsFile, evaluate, read_run_weights
from ..view import Line, bits_line, next_line, print_answer
from .kernels import load as load_kernels
from .output import tell


def evaluate_file(file: str, data: str | None, test_samples: int | None, as_json: bool) -> None:
    """Print loss and accuracy of the weights of a results file or a checkpoint.

    Raises:
        InputError: the file or the data cannot be read, or do not fit each other.
    """
    run = read_run_weights(file)
    load_kernels(tell)
    made = evaluate(run, data, test_samples)
    if as_json:
        print(json.dumps(_as_json(file, run, made), indent=2))
    else:
        print_answer(_answer(file, run, made))


def _answer(file: str, run: RunWeights, made: Evaluation) -> list[Line]:
    tested = made.tested
    samples = plural(tested.samples, f"test {made.network.sample_noun}")
    steps = f" and {plural(run.steps, 'mini-batch')}" if run.steps else ""
    return [
        Line(f"test accuracy {100 * tested.accuracy:.2f} %, test loss {tested.mean_loss:.4f}"),
        *([] if made.ngrams is None else [bits_line(tested.bits_per_step, made.ngrams)]),
        Line(f"weights: {file}, {made.network.name} after {plural(run.epochs, 'epoch')}{steps}"),
        Line(f"data: {made.data}, {samples}"),
        *([Line(f"note: {made.note}")] if made.note else []),
    ]


def _as_json(file: str, run: RunWeights, made: Evaluation) -> dict[str, Any]:
    tested = made.tested
    bits = {} if made.ngrams is None else {"test_bits": tested.bits_per_step}
    return {
        "file": file,
        "network": made.network.name,
        "epochs": run.epochs,
        "mini_batches_of_next_epoch": run.steps,
        "data": made.data,
        "test_samples": tested.samples,
        "test_accuracy": tested.accuracy,
        "test_loss": tested.mean_loss,
        **bits,
    }


def export_weights(file: str, out: str) -> None:
    """Write the weights of a results file or a checkpoint to `out`, in the form that its name ends in.

    Raises:
        InputError: the file cannot be read, or `out` cannot be written, or has another ending.
    """
    with WeightsFile(out) as whole:
        run = read_run_weights(file)
        size = whole.write(run)
    print_answer(_exported(run, out, size))


def _exported(run: RunWeights, out: str, size: int) -> list[Line]:
    arrays = [array for layer in run.weights.values() for array in layer.values()]
    values = sum(array.size for array in arrays)
    return [
        Line(f"{out}: {run.network.name} after {plural(run.epochs, 'epoch')}, {format_bytes(size)}"),
        Line(f"{plural(len(arrays), 'array')}, {plural(values, 'value')}, float32"),
        next_line(shlex.join(["emuchain", "train", str(run.settings["network"]), "--init", out])),
    ]
