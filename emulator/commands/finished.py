"""`emuchain show`, `evaluate`, `generate`, `export`, `retime` and `report`: commands on the files
of finished runs.
"""

from __future__ import annotations

import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from .. import view
from ..common import InputError, format_bytes, format_time_ps, plural
from .frame.command import SET, Answer, FileCommand, attributes, is_json, json_option
from .frame.flags import full_option
from .frame.kernels import load as load_kernels
from .frame.kernels import starting
from .frame.named import (
    DATA,
    OUTPUT,
    PRINTED,
    RUN,
    WHAT_IF,
    cluster_option,
    count_option,
    switch,
    word_option,
)
from .frame.output import tell

if TYPE_CHECKING:
    from ..run import Evaluation, RunWeights
    from ..studies import Retiming
    from ..view import Line
    from ..view.page import Report


class SeedCount(click.ParamType):
    """How many seeds a run has, or the word `apart`."""

    name = "seeds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Return the number, or the word."""
        if value == "apart" or isinstance(value, int):
            return value
        if re.fullmatch(r"[1-9]\d{0,5}", value, re.ASCII):
            return int(value)
        self.fail(
            f"{value!r} is neither a number of seeds, such as 3, nor the word apart", param, ctx
        )


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5")
@json_option("Print one JSON object: configuration, history, usage, ….")
@switch("--csv", "Print the history as CSV, a line for each epoch.", "as_csv")
@full_option
def show(file: str, as_csv: bool, full: bool) -> Answer:
    """Print a results file as tables."""
    if is_json() and as_csv:
        raise click.UsageError("--json and --csv: give one of them")
    with starting():
        from ..run import read_results, table_as_csv
        from .show import show_results

    results = read_results(pathlib.Path(file))
    if as_csv:
        return Answer(lambda: print(table_as_csv(results.history), end=""))
    return Answer(lambda: show_results(results, full), results.to_dict)


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5|RUN.ckpt")
@click.option(
    "--data",
    type=DATA,
    metavar="WORD",
    help="Data to test on, as for `train`.  [default: the run's]",
)
@count_option("--test-samples", "Use the first N test samples only.  [default: the run's]")
@json_option()
def evaluate(file: str, data: str | None, test_samples: int | None) -> Answer:
    """Test the weights of a results file or a checkpoint: loss and accuracy."""
    with starting():
        from ..run import evaluate as test
        from ..run import read_run_weights

    run = read_run_weights(file)
    load_kernels(tell)
    made = test(run, data, test_samples)
    return Answer(
        lambda: view.print_answer(_tested(file, run, made)),
        lambda: _tested_as_json(file, run, made),
    )


def _tested(file: str, run: RunWeights, made: Evaluation) -> list[str | Line]:
    tested = made.tested
    samples = plural(tested.samples, f"test {made.network.sample_noun}")
    steps = f" and {plural(run.steps, 'mini-batch')}" if run.steps else ""
    return [
        tested.shown,
        *([] if made.ngrams is None else [view.bits_line(tested.bits_per_step, made.ngrams)]),
        f"weights: {file}, {made.network.name} after {plural(run.epochs, 'epoch')}{steps}",
        f"data: {made.data}, {samples}",
        *([f"note: {made.note}"] if made.note else []),
    ]


def _tested_as_json(file: str, run: RunWeights, made: Evaluation) -> dict[str, Any]:
    tested = made.tested
    bits = {} if made.ngrams is None else {"test_bits": tested.bits_per_step}
    return {
        "file": file,
        "network": made.network.name,
        "epochs": run.epochs,
        "mini_batches_of_next_epoch": run.steps,
        "data": made.data,
        "test_samples": tested.samples,
        "test_accuracy": tested.known_accuracy,
        "test_loss": tested.mean_loss,
        **bits,
    }


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5|RUN.ckpt")
@word_option("--prompt", "TEXT", "How the text begins.  [default: the start of a line]")
@count_option("--length", "Add N characters.", default=200, show_default=True)
@click.option(
    "--temperature",
    type=float,
    metavar="X",
    default=1.0,
    show_default=True,
    help="Divide logits by X before a character is drawn; 0 takes the likeliest.",
)
@count_option("--seed", "Seed of the draws.", least=0, default=1, show_default=True)
@json_option()
def generate(file: str, prompt: str | None, length: int, temperature: float, seed: int) -> Answer:
    """Write a text as the weights of a results file or a checkpoint have learnt it, of a network
    that predicts each next character.
    """
    with starting():
        from ..run import generate as continued
        from ..run import read_run_weights

    run = read_run_weights(file)
    load_kernels(tell)
    text = continued(run, "\n" if prompt is None else prompt, length, temperature, seed)
    return Answer(
        lambda: print(text if prompt is not None else text[1:]),
        lambda: {"file": file, "prompt": prompt, "seed": seed, "text": text},
    )


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5|RUN.ckpt")
@click.argument("out", type=OUTPUT, metavar="FILE.onnx|FILE.safetensors|FILE.pt")
@switch("--torch", "Write a state_dict of PyTorch, whatever FILE ends in.", "as_torch")
@switch("--adapter", "Write the adapters that `train --lora` made, alone, by PEFT's names.")
def export(file: str, out: str, as_torch: bool, adapter: bool) -> None:
    """Write the weights of a results file or a checkpoint for other programs.

    FILE.onnx has the network with its weights, FILE.safetensors only the weights, FILE.pt a
    state_dict of PyTorch. `train --init` takes all of them. Adapters of `train --lora` are merged
    into the weights, or written alone.
    """
    if as_torch and adapter:
        raise click.UsageError("--torch and --adapter: give one of them")
    with starting():
        from ..run import WeightsFile, read_run_weights

    # Before the run is read, which takes longer than to refuse a name.
    with WeightsFile(out, as_torch=as_torch, adapter=adapter) as whole:
        run = read_run_weights(file)
        size = whole.write(run)
    view.print_answer(_exported(run, out, size, adapter=adapter))


def _exported(run: RunWeights, out: str, size: int, *, adapter: bool) -> list[str | Line]:
    weights = run.adapters if adapter else run.weights
    arrays = [array for layer in weights.values() for array in layer.values()]
    values = sum(array.size for array in arrays)
    lines: list[str | Line] = [
        f"{out}: {run.network.name} after {plural(run.epochs, 'epoch')}, {format_bytes(size)}",
        f"{plural(len(arrays), 'array')}, {plural(values, 'value')}, float32",
    ]
    if adapter:
        return lines
    return [
        *lines,
        view.next_line(
            shlex.join(["emuchain", "train", str(run.settings["network"]), "--init", out])
        ),
    ]


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5")
@cluster_option("its own")
@click.option(
    "--what-if",
    SET,
    "what_if",
    type=WHAT_IF,
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a key of the cluster: link.bandwidth_gbps=250, board.dsp, …; may be repeated.",
)
@json_option()
def retime(file: str, cluster: str | None, what_if: tuple[str, ...]) -> Answer:
    """Re-time a finished run on another cluster, without training.

    Uses the compressed sizes that the run recorded, and says whether its accuracy would have been
    different.
    """
    with starting():
        from ..cluster import load_cluster
        from ..run import read_results
        from ..studies import label_of, parse_what_if
        from ..studies import retime as retimed

    alternative = parse_what_if(what_if)
    for key, value in alternative.config.items():
        if key == "cluster":
            raise InputError(
                f"--what-if cluster={value}: `--cluster {value}` names another cluster"
            )
        raise InputError(
            f"--what-if {key}={value}: a finished run keeps its {key}, on which its numbers depend;"
            " `emuchain retime` changes only keys of the cluster, such as link.bandwidth_gbps or"
            " board.dsp"
        )
    results = read_results(pathlib.Path(file))
    own = str(results.config.get("cluster", "its own cluster"))
    other = (
        None if cluster is None else load_cluster(cluster, alternative.cluster, blame="--what-if")
    )
    changes = alternative.cluster if cluster is None else None
    label = label_of(cluster or own, alternative.cluster)
    retiming = retimed(results, other, changes, label=label, source=file, blame="--what-if")
    return Answer(
        lambda: _print_retiming(retiming, own),
        lambda: {"file": file, "own_cluster": own, **_retiming_as_json(retiming)},
    )


def _print_retiming(retiming: Retiming, own: str) -> None:
    from ..run import cause_of

    before_ps, after_ps, plan = (
        retiming.own_virtual_time_ps,
        retiming.virtual_time_ps,
        retiming.plan,
    )
    print(
        f"under {retiming.label}: virtual time {format_time_ps(before_ps)} ->"
        f" {format_time_ps(after_ps)}",
        end="",
    )
    print(f" ({before_ps} -> {after_ps} ps)")
    noun = plan.network.sample_noun
    print(
        f"{noun}s/s: {retiming.own_images_per_s:.1f} -> {retiming.images_per_s:.1f}; speed-up"
        f" {retiming.speed_up:.3g}"
    )
    for line in view.limit_lines(plan, retiming.steady, cause_of(plan, retiming.steady)):
        view.say(line.text)
    print(retiming.about_numbers)
    for note in retiming.notes:
        print(f"note: {note}")
    config = plan.config
    print(
        f"the run: {retiming.own.title} ({own}), {config.schedule.name}, batch"
        f" {config.batch}, {retiming.simulation.samples} {noun}s an epoch"
    )
    epochs = zip(
        _durations_ps(retiming.own_ends_ps), _durations_ps(retiming.epoch_ends_ps), strict=True
    )
    rows = [
        [
            str(epoch),
            format_time_ps(was_ps),
            format_time_ps(is_ps),
            f"{_rate(retiming, is_ps):.1f}",
            f"{was_ps / is_ps:.3g}",
        ]
        for epoch, (was_ps, is_ps) in enumerate(epochs, 1)
    ]
    view.table("Epochs", ["epoch", "took", "takes", f"{noun}s/s", "speed-up"], rows)


def _durations_ps(ends_ps: Sequence[int]) -> list[int]:
    """Return the duration of each epoch."""
    return [end - begin for begin, end in zip((0, *ends_ps), ends_ps, strict=False)]


def _rate(retiming: Retiming, epoch_ps: int) -> float:
    return retiming.simulation.samples / (epoch_ps * 1e-12)


def _retiming_as_json(retiming: Retiming) -> dict[str, Any]:
    from ..run import cause_of

    figures = (
        "virtual_time_ps",
        "own_virtual_time_ps",
        "speed_up",
        "images_per_s",
        "own_images_per_s",
    )
    return {
        "cluster": retiming.label,
        **attributes(retiming, *figures),
        "epoch_ends_ps": list(retiming.epoch_ends_ps),
        "own_epoch_ends_ps": list(retiming.own_ends_ps),
        "exchange_ps": retiming.simulation.exchange_ps,
        **attributes(
            retiming,
            "same_staleness",
            "stale_samples",
            "own_stale_samples",
            "about_numbers",
            "notes",
        ),
        "steady": view.steady_state_as_json(
            retiming.steady, retiming.simulation.samples, cause_of(retiming.plan, retiming.steady)
        ),
    }


@click.command(cls=FileCommand)
@click.argument("files", type=RUN, metavar="RUN.h5 ...", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    type=OUTPUT,
    metavar="FILE.html",
    help="File to write.  [default: report.html; none with --figures or --json]",
)
@click.option(
    "--figures",
    type=PRINTED,
    metavar="DIR",
    help="Draw the charts there for print, as PDF and SVG.",
)
@click.option(
    "--seeds",
    type=SeedCount(),
    metavar="N|apart",
    help="Check that each run has N seeds, or show seeds one by one.  [default: their mean]",
)
@json_option("Print the numbers of the page's table as one JSON object.")
def report(
    files: tuple[str, ...], out: str | None, figures: pathlib.Path | None, seeds: Any
) -> Answer:
    """Write an HTML page of one results file, or of several side by side.

    Files that differ only in their seeds are one run: the mean, with a band of its standard error.
    """
    with starting():
        from ..view.page import make_report

    if out is None and figures is None and not is_json():
        out = "report.html"
    made = make_report(files, out, figures, seeds)
    written = _written(made, out)
    if is_json():
        for line in written:
            tell(line)
    return Answer(lambda: print("\n".join(written)), lambda: made.numbers)


def _written(made: Report, out: str | None) -> list[str]:
    """Return a line for each file that a report has written, or has left out."""
    lines = [
        f"{run.name}: shown without rates, links and timeline: {run.why_no_plan}"
        for run in made.runs
        if run.why_no_plan
    ]
    if made.size is not None:
        lines.append(f"report of {_counted(made)} in {out} ({made.size}); open it in a browser")
    return [*lines, *(f"drawn: {path}" for path in made.drawn)]


def _counted(report: Report) -> str:
    runs, groups = len(report.runs), len(report.groups)
    seeds = f", {runs} files of several seeds" if runs > groups else ""
    return f"{plural(groups, 'run')}{seeds}"
