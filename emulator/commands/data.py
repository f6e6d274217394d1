"""`emuchain data`: fetch and inspect data sets."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..common import InputError, own_folder, plural, write_whole
from .frame.command import Answer, FileGroup, json_option
from .frame.kernels import resume_collector
from .frame.named import DATA, FETCHED, PICTURE, switch, word_option

if TYPE_CHECKING:
    from ..data import Dataset, Progress

_MEGA = 1_000_000
_STEP = 25  # percent between two plain lines of a transfer

_where = click.option(
    "--data",
    "where",
    type=DATA,
    default="shapes",
    show_default=True,
    metavar="shapes|text|DIR|FILE",
    help="`shapes`, `text`, a directory, a text (.txt), or images (.npz, .h5).",
)

_IMAGE_FLAGS = {
    "resize": word_option("--resize", "A,B", "Resize: the shorter side, or rows,columns."),
    "crop": word_option("--crop", "A,B", "Cut this size out of the centre."),
    "channels": click.option(
        "--channels",
        type=click.Choice(["first", "last"]),
        help="Whether channels of arrays come first or last.",
    ),
    "skip_broken": switch("--skip-broken", "Skip broken images."),
}


def _of_images(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that say how images are read, as `train` has them."""
    for option in reversed(_IMAGE_FLAGS.values()):
        command = option(command)
    return command


def _loaded(where: str, flags: Mapping[str, Any]) -> Dataset:
    """Return a data set, read as the flags say, which mean what they do for `train`."""
    from ..config import settings_config
    from ..data import Reading, load_data

    given = {key: value for key, value in flags.items() if value}
    return load_data(where, reading=Reading.of(settings_config(given)))


@click.group("data", cls=FileGroup)
def data() -> None:
    """Fetch data sets and look at them."""
    resume_collector()


@data.command()
@click.argument("name", type=click.Choice(["cifar10", "mnist"]))
@click.option("--to", type=FETCHED, required=True, metavar="DIR", help="Directory to put it in.")
@word_option("--mirror", "URL", "Address to fetch the files from instead of the official one.")
def fetch(name: str, to: Path, mirror: str | None) -> None:
    """Fetch a published data set; sizes and checksums are known, and nothing is left of a
    failure.
    """
    from ..data import fetch_data

    with own_folder(to, "to"), reported() as progress:
        folder = fetch_data(name, to, mirrors=[mirror] if mirror else None, progress=progress)
    click.echo(f"{name}: complete in {folder}; use it with --data {folder}")


@data.command()
@_where
@_of_images
@json_option()
def info(where: str, **flags: Any) -> Answer:
    """Print sizes, classes and normalisation of a data set."""
    dataset = _loaded(where, flags)
    if dataset.by_targets:
        return _own_answer(dataset)
    return _text_answer(dataset) if dataset.symbols else _image_answer(dataset)


_MOST_NAMED = 50
"""Classes that are named."""


def _own_answer(dataset: Dataset) -> Answer:
    labels, steps = dataset.train_labels, dataset.shape[1]
    numbers = labels.dtype.kind == "f"
    shape = " x ".join(map(str, labels.shape[1:])) or "one"
    inputs = f"{dataset.train_images.dtype} {' x '.join(map(str, dataset.shape))} (c, h, w)"
    if dataset.symbols:
        inputs = f"{plural(steps, 'symbol')}, 0 to {dataset.symbols - 1:,}"
    classes = f"{dataset.n_classes}"
    if dataset.n_classes <= _MOST_NAMED:
        classes += f": {', '.join(dataset.classes)}"
    missing = dataset.missing_targets
    lines = {
        "name": dataset.name,
        "training samples": f"{dataset.n_train:,}",
        "test samples": f"{dataset.n_test:,}",
        "inputs": inputs,
        "targets": f"{'numbers' if numbers else 'classes'}, {shape} for each sample",
        "no target": f"{missing:,} of {labels.size:,}" if missing else "",
        "classes": "" if numbers else classes,
        "note": dataset.note,
    }
    values = {
        **_sizes(dataset),
        "targets": list(labels.shape[1:]),
        "numbers": numbers,
        "no_target": missing,
        "classes": [] if numbers else list(dataset.classes),
        "symbols": dataset.symbols,
    }
    return Answer(lambda: _show(lines), lambda: values)


def _image_answer(dataset: Dataset) -> Answer:
    normalisation = dataset.normalisation()
    means = [f"{mean:.3f}" for mean in normalisation.mean]
    deviations = [f"{std:.3f}" for std in normalisation.std]
    lines = {
        "name": dataset.name,
        "training images": f"{dataset.n_train:,}",
        "test images": f"{dataset.n_test:,}",
        "shape (c, h, w)": " x ".join(map(str, dataset.shape)),
        "classes": f"{dataset.n_classes}: {', '.join(dataset.classes)}",
        "mean (of 255)": ", ".join(means),
        "std (of 255)": ", ".join(deviations),
        "note": dataset.note,
    }
    values = {
        **_sizes(dataset),
        "classes": list(dataset.classes),
        "mean": [float(mean) for mean in normalisation.mean],
        "std": [float(std) for std in normalisation.std],
    }
    return Answer(lambda: _show(lines), lambda: values)


def _text_answer(dataset: Dataset) -> Answer:
    from ..data import ngram_bits

    ngrams, steps = ngram_bits(dataset), dataset.shape[1]
    lines = {
        "name": dataset.name,
        "training samples": f"{plural(dataset.n_train, 'window')} of {plural(steps, 'character')}",
        "test samples": f"{dataset.n_test:,}, the last tenth of the text",
        "symbols": f"{dataset.symbols}: {' '.join(map(repr, dataset.classes))}",
        "unigram model": f"{ngrams.unigram:.3f} bits per character of the test (add-one smoothing)",
        "bigram model": f"{ngrams.bigram:.3f} bits per character",
    }
    values = {
        **_sizes(dataset),
        "symbols": list(dataset.classes),
        "unigram_bits": ngrams.unigram,
        "bigram_bits": ngrams.bigram,
    }
    return Answer(lambda: _show(lines), lambda: values)


def _sizes(dataset: Dataset) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "train_samples": dataset.n_train,
        "test_samples": dataset.n_test,
        "shape": list(dataset.shape),
        **({"note": dataset.note} if dataset.note else {}),
    }


def _show(lines: Mapping[str, str]) -> None:
    for key, value in lines.items():
        if value:
            click.echo(textwrap.fill(f"{key:<16} {value}", 80, subsequent_indent=" " * 17))


@data.command()
@_where
@_of_images
@click.option("--out", type=PICTURE, required=True, metavar="FILE.png", help="Picture to write.")
@click.option(
    "--columns",
    type=click.IntRange(1, 100),
    default=12,
    show_default=True,
    help="Images of each class.",
)
def preview(where: str, out: Path, columns: int, **flags: Any) -> None:
    """Draw the first training images of each class, one class a row."""
    from ..data import is_text, png, preview_picture

    if is_text(where):
        raise InputError(
            f"`data` = {where!r}: is a text; only images can be drawn, and `emuchain data info`"
            " shows texts"
        )
    drawn = _loaded(where, flags)
    if drawn.by_targets:
        raise InputError(
            f"`data` = {where!r}: has inputs that are no images with one label each; `emuchain data"
            " info` shows them"
        )
    write_whole(out, png(preview_picture(drawn, columns)), example="shapes.png")
    click.echo(f"{out}: written{'; ' * bool(drawn.note)}{drawn.note}")


@contextmanager
def reported() -> Iterator[Progress]:
    """Yield a `progress` for `fetch_data` that prints on standard error."""
    if sys.stderr.isatty():
        with _bars() as progress:
            yield progress
    else:
        yield _lines()


@contextmanager
def _bars() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:

        def progress(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name)
            bars.update(tasks[name], completed=done, total=total)

        yield progress


def _lines() -> Progress:
    """Return a `progress` that prints a line for each quarter of a file."""
    quarters: dict[str, int] = {}

    def progress(name: str, done: int, total: int | None) -> None:
        quarter = 100 * done // total // _STEP if total else 0
        if quarter > quarters.get(name, -1):
            quarters[name] = quarter
            size = (
                f"{done / _MEGA:.1f} of {total / _MEGA:.1f} MB"
                if total
                else f"{done / _MEGA:.1f} MB"
            )
            print(f"{name}: {size}", file=sys.stderr, flush=True)

    return progress
