"""`emuchain show`, `evaluate`, `export`, `retime` and `report`: commands on the files of finished runs."""

from __future__ import annotations

import click

from .flags import full_option
from .kernels import starting
from .named import DATA, OUTPUT, RUN, WHAT_IF, FileCommand, cluster_option
from .setting import SET


@click.command(cls=FileCommand)
@click.argument("file", type=RUN, metavar="RUN.h5")
@full_option
def show(file: str, full: bool) -> None:
    """Print a results file as tables."""
    with starting():
        from .show import show_results

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
    default="report.html",
    metavar="FILE.html",
    help="File to write.  [default: report.html]",
)
def report(files: tuple[str, ...], out: str) -> None:
    """Write an HTML page of one results file, or of several side by side."""
    with starting():
        from .report import write_report

    write_report(files, out)
