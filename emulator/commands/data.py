"""`emuchain data`: fetch and inspect data sets."""

import textwrap
from pathlib import Path

import click

from ..common import InputError
from . import collector

_where = click.option(
    "--data", "where", default="shapes", show_default=True, metavar="shapes|DIR", help="`shapes`, or a directory."
)


@click.group("data")
def data() -> None:
    """Fetch data sets and look at them."""
    collector.resume()


@data.command()
@click.argument("name", type=click.Choice(["cifar10", "mnist"]))
@click.option("--to", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Directory to put it in.")
@click.option("--mirror", metavar="URL", help="Address to fetch the files from instead of the official one.")
def fetch(name: str, to: Path, mirror: str | None) -> None:
    """Fetch a published data set; a transfer that broke off is resumed."""
    from ..data import fetch_data
    from .transfer import reported

    with reported() as progress:
        folder = fetch_data(name, to, mirrors=[mirror] if mirror else None, progress=progress)
    click.echo(f"{name}: complete in {folder}; use it with --data {folder}")


@data.command()
@_where
def info(where: str) -> None:
    """Print sizes, classes and normalisation of a data set."""
    from ..data import load_data

    found = load_data(where)
    normalisation = found.normalisation()
    lines = {
        "name": found.name,
        "training images": f"{found.n_train:,}",
        "test images": f"{found.n_test:,}",
        "shape (c, h, w)": " x ".join(map(str, found.shape)),
        "classes": f"{found.n_classes}: {', '.join(found.classes)}",
        "mean (of 255)": ", ".join(f"{mean:.3f}" for mean in normalisation.mean),
        "std (of 255)": ", ".join(f"{std:.3f}" for std in normalisation.std),
        "note": found.note,
    }
    for key, value in lines.items():
        if value:
            click.echo(textwrap.fill(f"{key:<16} {value}", 80, subsequent_indent=" " * 17))


@data.command()
@_where
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE.png", help="Picture to write.")
@click.option("--columns", type=click.IntRange(1, 100), default=12, show_default=True, help="Images of each class.")
def preview(where: str, out: Path, columns: int) -> None:
    """Draw the first training images of each class, one class a row."""
    from ..data import load_data, png, preview_picture

    picture = png(preview_picture(load_data(where), columns))
    try:
        out.write_bytes(picture)
    except OSError as error:
        raise InputError(f"{out}: cannot be written ({error.strerror}); give a file in an existing directory") from None
    click.echo(f"{out}: written")
