"""How far a linear classifier gets: `python -m emuchain.emulator.data.linear [--data shapes|DIR]`.

This is the mark that a convolutional network must beat to have learnt anything that needs its convolutions.
"""

import os
import sys

import click

from ..common.errors import InputError


@click.command()
@click.option("--data", "where", default="shapes", show_default=True, help="`shapes`, or a directory with a data set.")
def main(where: str) -> None:
    """Train a linear classifier and print its accuracy."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read as NumPy loads: more threads only slow such small products
    from .load import load
    from .softmax import linear_accuracy

    try:
        data = load(where)
    except InputError as error:
        click.echo(f"emuchain: error: {error}", err=True)
        sys.exit(2)
    train, test = linear_accuracy(data)
    click.echo(f"{data.name}: linear classifier, test accuracy {test:.1%} (training {train:.1%})")


if __name__ == "__main__":
    main()
