"""Functions of `import emuchain` on finished runs: results are read, tested, asked, exported, timed
again, and reported.

A run is given as its results, or as the path of their file.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from .arguments import AnyCluster, AnyData, data_of_call
from .cluster import Cluster, load_cluster
from .common import InputError, NamedFiles, typed
from .config import roles
from .data import as_one
from .run import (
    Evaluation,
    Results,
    RunWeights,
    WeightsFile,
    read_results,
    read_run_weights,
    run_weights_of,
)
from .run import evaluate as evaluate_weights
from .run import generate as generate_by_weights
from .run import predict as predict_by_weights
from .studies import Retiming, label_of
from .studies import retime as retime_results

Run = Results | str | os.PathLike[str]
RunOfWeights = Annotated[Run, "`_weights_of` checks it"]


@typed
def results(path: str | os.PathLike[str]) -> Results:
    """Return the content of a results file.

    Raises:
        InputError: the file is missing, damaged, or not a results file of emuchain.
    """
    return read_results(pathlib.Path(path))


@typed
def evaluate(
    run: RunOfWeights,
    data: AnyData = None,
    *,
    test_samples: int | None = None,
) -> Evaluation:
    """Return loss and accuracy of a run's weights, as `emuchain evaluate`; on the run's data, its
    last epoch's.

    Args:
        run: the run's results, or the path of a results file or a checkpoint.
        data: a value of the configuration key `data`, a data set, or what `as_data` takes; by
            default the run's.
        test_samples: take the first of the test samples; by default as many as the run.

    Raises:
        InputError: the file or the data cannot be read, do not fit each other, or have no test.
    """
    where, loaded = data_of_call(data)
    return evaluate_weights(_weights_of(run), where if loaded is None else loaded, test_samples)


@typed
def predict(run: RunOfWeights, samples: Any) -> NDArray[np.float32]:
    """Return the logits that a run's weights make of samples, before softmax: (n, classes), or (n,
    steps, classes) where each step has a result.

    Nothing is drawn at random, and batch normalisation is by its averages, as in PyTorch's
    `eval()`.

    Args:
        run: the run's results, or the path of a results file or a checkpoint.
        samples: an array of what the network takes, normalised already: floats (n, channels, rows,
            columns), (n, steps, values) of a sequence, or whole numbers (n, steps), symbols; or a
            tuple of these of several sides, such as a source and a target. Values, or classes,
            stand before steps where the network has its `channels_first`, as PyTorch's Conv1d.

    Raises:
        InputError: the run cannot be read, or the network does not take such samples.
    """
    weights = _weights_of(run)
    try:
        count = len(samples[0]) if isinstance(samples, tuple) else None
        array = np.asarray(as_one(samples, count))
    except Exception as error:  # of whatever the array is made of
        raise InputError(f"`samples`: are no array: {' '.join(str(error).split())[:200]}") from None
    return predict_by_weights(weights, array)


@overload
def generate(
    run: RunOfWeights, prompt: str, *, length: int = 200, temperature: float = 1.0, seed: int = 1
) -> str: ...


@overload
def generate(
    run: RunOfWeights,
    prompt: Sequence[int] | NDArray[np.integer[Any]],
    *,
    length: int = 200,
    temperature: float = 1.0,
    seed: int = 1,
) -> list[int]: ...


@typed
def generate(
    run: RunOfWeights,
    prompt: Annotated[Any, "`generate_by_weights` checks it"],
    *,
    length: int = 200,
    temperature: float = 1.0,
    seed: int = 1,
) -> str | list[int]:
    """Return a text that begins with `prompt` and goes on as a run's weights have learnt of a text,
    as `emuchain generate`; of a list of symbols' numbers, such as a tokenizer's, a longer list.

    Args:
        run: the run's results, or the path of a results file or a checkpoint; of a network that
            predicts each next symbol.
        prompt: at least one character, of those of the run's text; or the numbers of symbols.
        length: number of symbols to add.
        temperature: logits are divided by it before a symbol is drawn; 0 takes the likeliest.
        seed: of the draws.

    Raises:
        InputError: the run or its text cannot be read, the network predicts no symbols, or the
            prompt has others.
    """
    return generate_by_weights(_weights_of(run), prompt, length, temperature, seed)


@typed
def export(run: RunOfWeights, out: str | os.PathLike[str], *, adapter: bool = False) -> None:
    """Write a run's weights for other programs, as `emuchain export`.

    Args:
        run: the run's results, or the path of a results file or a checkpoint.
        out: a file whose name ends in .safetensors, for only the weights, in .onnx, for the
            network, too, or in .pt, for a state_dict of PyTorch, as that of `Results.state_dict`.
            Adapters are merged into the weights.
        adapter: whether to write adapters alone, by PEFT's names.

    Raises:
        InputError: the run cannot be read, the file cannot be written, or the network cannot be in
            such a file.
    """
    files = NamedFiles()
    files.add("run", run, roles.RUN)
    files.add("out", out, roles.OUTPUT)
    files.check()
    with WeightsFile(out, adapter=adapter) as file:
        file.write(_weights_of(run))


@typed
def retime(
    run: Run,
    cluster: AnyCluster | None = None,
    *,
    changes: Mapping[str, object] | None = None,
) -> Retiming:
    """Return the virtual times of a finished run under another cluster, with the compressed sizes
    that it had.

    Args:
        run: its results, or the path of its results file.
        cluster: the other cluster; by default the run's own.
        changes: changed values of cluster keys, such as {"link.bandwidth_gbps": 250}.

    Raises:
        InputError: the run is not finished, or cannot be planned on the other cluster.
    """
    source = "results" if isinstance(run, Results) else os.fspath(run)
    finished = run if isinstance(run, Results) else results(run)
    if cluster is not None and not isinstance(cluster, Cluster):
        other = load_cluster(cluster, changes)
        return retime_results(finished, other, label=label_of(other.name, changes), source=source)
    return retime_results(finished, cluster, changes, source=source)


@typed
def report(
    *runs: Run,
    out: str | os.PathLike[str] | None = None,
    figures: str | os.PathLike[str] | None = None,
    seeds: int | Literal["apart"] | None = None,
) -> dict[str, Any]:
    """Return the numbers of runs side by side, as `emuchain report --json`; write a page, or
    figures, where asked.

    Args:
        runs: results, or paths of results files; those that differ only in their seeds are one run,
            with means.
        out: a file for the page, such as report.html.
        figures: a folder for the charts, as PDF and SVG.
        seeds: how many each run must have, or "apart" to show them one by one.

    Raises:
        InputError: a file cannot be read or written, a run is there twice, or has other seeds than
            it must.
    """
    from .view.page import make_report

    if not runs:
        raise InputError("report: give the results of a run, or the path of its file")
    files = NamedFiles()
    for run in runs:
        files.add("run", run, roles.RUN)
    files.add("out", out, roles.OUTPUT)
    files.add("figures", figures, roles.PRINTED)
    files.check()
    return make_report(runs, out, figures, seeds).numbers


def _weights_of(run: Run) -> RunWeights:
    if isinstance(run, Results):
        return run_weights_of(run)
    if not isinstance(run, str | os.PathLike):
        raise InputError(
            f"`run`: is {type(run).__name__}; it should be results, or the path of a file, as"
            " `emuchain.train(network, …)` returns them"
        )
    return read_run_weights(os.fspath(run))
