"""`emuchain show`, `evaluate`, `export`, `retime` and `report`: commands on the files of finished runs."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import click

from .flags import full_option
from .kernels import starting
from .named import DATA, OUTPUT, PRINTED, RUN, WHAT_IF, FileCommand, cluster_option
from .setting import SET


class SeedCount(click.ParamType):
    """How many seeds a run has, or the word `apart`."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the word."""
        if value == "apart" or isinstance(value, int):
            return value
        if re.fullmatch(r"[1-9]\d{0,5}", value, re.ASCII):
            return int(value)
        self.fail(f"{value!r} is neither a number of seeds, such as 3, nor the word apart", param, ctx)


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: configuration, history, usage, ….")
@click.option("--csv", "as_csv", is_flag=True, help="Print the history as CSV, a line for each epoch.")
@full_option
def show(file: str, as_json: bool, as_csv: bool, full: bool) -> None:
    """Print a results file as tables."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv: give one of them")
    with starting():
        from .show import print_csv, print_json, show_results

    if as_json:
        print_json(file)
    elif as_csv:
        print_csv(file)
    else:
        show_results(file, full)


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5|RUN.ckpt")
@click.option("--data", type=DATA, metavar="WORD", help="Data to test on, as for `train`.  [default: the run's]")
@click.option(
    "--test-samples",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use the first N test samples only.  [default: the run's]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def evaluate(file: str, data: str | None, test_samples: int | None, as_json: bool) -> None:
    """Test the weights of a results file or a checkpoint: loss and accuracy."""
    with starting():
        from .weights import evaluate_file

    evaluate_file(file, data, test_samples, as_json)


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5|RUN.ckpt")
@click.argument("out", type=OUTPUT, metavar="FILE.onnx|FILE.safetensors")
def export(file: str, out: str) -> None:
    """Write the weights of a results file or a checkpoint for other programs.

    FILE.onnx has the network with its weights, FILE.safetensors only the weights. `train --init` takes both.
    """
    with starting():
        from .weights import export_weights

    export_weights(file, out)


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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def retime(file: str, cluster: str | None, what_if: tuple[str, ...], as_json: bool) -> None:
    """Re-time a finished run on another cluster, without training.

    Uses the compressed sizes that the run recorded, and says whether its accuracy would have been different.
    """
    with starting():
        from .retime import retime_run

    retime_run(file, cluster, what_if, as_json)


@click.command(cls=FileCommand)
@click.argument("files", type=RUN, metavar="RUN.h5 ...", nargs=-1, required=True)
@click.option(
    "-o",
    "--out",
    type=OUTPUT,
    metavar="FILE.html",
    help="File to write.  [default: report.html; none with --figures or --json]",
)
@click.option("--figures", type=PRINTED, metavar="DIR", help="Draw the charts there for print, as PDF and SVG.")
@click.option(
    "--seeds",
    type=SeedCount(),
    metavar="N|apart",
    help="Check that each run has N seeds, or show seeds one by one.  [default: their mean]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers of the page's table as one JSON object.")
def report(files: tuple[str, ...], out: str | None, figures: pathlib.Path | None, seeds: Any, as_json: bool) -> None:
    """Write an HTML page of one results file, or of several side by side.

    Files that differ only in their seeds are one run: the mean, with a band of its standard error.
    """
    with starting():
        from .report import report_runs

    report_runs(files, out, figures, as_json, seeds)
