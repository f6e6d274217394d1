"""The accuracy of a linear classifier: `python -m emuchain.emulator.data.linear [--data
shapes|DIR]`.

A convolutional network must exceed it to have learnt anything that needs its convolutions. It is
softmax regression on normalised pixels, by SGD with momentum and a learning rate that falls to
zero. NumPy is imported where it is used, once `main` has said how many threads it may have.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from ..common import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .dataset import Dataset
    from .lazy import Images

_BATCH = 100
_STEPS = 3000
_MOMENTUM = 0.9
_RATE = 1e-3
_DECAY = 1e-3


def linear_accuracy(data: Dataset, steps: int = _STEPS) -> tuple[float, float]:
    """Return training and test accuracy, in [0, 1], of softmax regression after `steps`
    mini-batches of 100 images.
    """
    import numpy as np

    normalisation = data.normalisation()
    inputs = int(np.prod(data.shape))
    weights = np.zeros((inputs + 1, data.n_classes), np.float32)
    velocity = np.zeros_like(weights)

    def features(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        flat = normalisation.apply(images).reshape(len(images), inputs)
        # A column of ones, whose weights are the biases.
        return np.concatenate([flat, np.ones((len(images), 1), np.float32)], axis=1)

    def accuracy(images: Images, labels: NDArray[np.int64]) -> float:
        blocks = range(0, len(images), 1000)
        hits = [
            (features(images[i : i + 1000]) @ weights).argmax(1) == labels[i : i + 1000]
            for i in blocks
        ]
        return float(np.concatenate(hits).mean())

    random = np.random.default_rng(0)
    for step in range(steps):
        chosen = random.integers(data.n_train, size=_BATCH)
        x = features(data.train_images[chosen])
        scores = x @ weights
        # The largest exponent is 0, so that none overflows.
        errors = np.exp(scores - scores.max(axis=1, keepdims=True))
        errors /= errors.sum(axis=1, keepdims=True)
        # Softmax with cross-entropy: the error is the probability, less 1 at the label.
        errors[np.arange(_BATCH), data.train_labels[chosen]] -= 1
        rate = np.float32(_RATE * (1 - step / steps))
        velocity *= np.float32(_MOMENTUM)
        velocity -= rate * (x.T @ errors / np.float32(_BATCH) + np.float32(_DECAY) * weights)
        weights += velocity
    return accuracy(data.train_images, data.train_labels), accuracy(
        data.test_images, data.test_labels
    )


@click.command()
@click.option(
    "--data",
    "where",
    default="shapes",
    show_default=True,
    help="`shapes`, or a directory with a data set.",
)
def main(where: str) -> None:
    """Train a linear classifier and print its accuracy."""
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # read when NumPy loads: more threads only slow such small products
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
