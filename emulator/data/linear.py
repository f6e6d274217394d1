"""The accuracy of a linear classifier: `python -m emuchain.emulator.data.linear [--data shapes|DIR]`.

A convolutional network must exceed it to have learnt anything that needs its convolutions.
"""

import os
import sys

import click

from ..common import InputError


@click.command()
@click.option("--data", "where", default="shapes", show_default=True, help="`shapes`, or a directory with a data set.")
def main(where: str) -> None:
    """Train a linear classifier and print its accuracy."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when NumPy loads: more threads only slow such small products
    from .baselines import linear_accuracy
    from .load import load_data

    try:
        data = load_data(where)
    except InputError as error:
        click.echo(f"emuchain: error: {error}", err=True)
        sys.exit(2)
    train, test = linear_accuracy(data)
    click.echo(f"{data.name}: linear classifier, test accuracy {test:.1%} (training {train:.1%})")


if __name__ == "__main__":
    main()
