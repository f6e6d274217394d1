"""The ends of the chain: the source of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emuchain.emulator.data import load_data
from emuchain.emulator.device import ImageSource, epoch_order
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena


def test_images_come_normalised_channels_last_and_in_order(small_cifar: Path) -> None:
    data = load_data(str(small_cifar)).first(20)
    source = ImageSource(data.train_images, data.normalisation(), Arena())
    source.order = epoch_order(1, 0, 20)
    found = source.images(SampleSpan(MicroBatch(index=2, step=0, begin=10, end=30), 1, 8))
    expected = data.normalisation().apply(data.train_images)[source.order[11:18]]
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert found.tobytes() == np.moveaxis(expected, 1, -1).tobytes()
