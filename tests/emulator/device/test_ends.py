"""The ends of the chain: the sources of images and of text, and the loss."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from emuchain.emulator.data import load_data
from emuchain.emulator.device import ImageSource, SoftmaxHead, Tally, TextSource, epoch_order
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena


def span(begin: int, end: int) -> SampleSpan:
    """Return a whole micro-batch of the first mini-batch."""
    return SampleSpan(MicroBatch(index=0, step=0, begin=begin, end=end), 0, end - begin)


def test_images_come_normalised_channels_last_and_in_order(small_cifar: Path) -> None:
    data = load_data(str(small_cifar)).first(20)
    source = ImageSource(data.train_images, data.normalisation(), Arena())
    source.order = epoch_order(1, 0, 20)
    found = source.images(SampleSpan(MicroBatch(index=2, step=0, begin=10, end=30), 1, 8))
    expected = data.normalisation().apply(data.train_images)[source.order[11:18]]
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert found.tobytes() == np.moveaxis(expected, 1, -1).tobytes()


def test_rows_of_images_come_as_time_steps(small_cifar: Path) -> None:
    data = load_data(str(small_cifar)).first(20)
    source = ImageSource(data.train_images, data.normalisation(), Arena(), (96, 32, 1))
    found = source.images(span(3, 7))
    images = data.normalisation().apply(data.train_images)[3:7]
    assert found.shape == (4, 32, 1, 96)
    assert found.flags.c_contiguous
    for step in range(32):
        for channel in range(3):
            at = slice(32 * channel, 32 * channel + 32)
            assert found[:, step, 0, at].tobytes() == images[:, channel, step].tobytes()


def test_text_comes_as_a_channel_for_each_symbol() -> None:
    numbers = np.array([[0, 2, 1], [2, 2, 0], [1, 0, 0]], np.int32)
    source = TextSource(numbers[:, None, :, None], Arena(), (4, 3, 1))
    source.order = np.array([2, 0, 1])
    found = source.images(span(1, 3))
    assert found.shape == (2, 3, 1, 4)
    assert found.dtype == np.float32
    assert found[:, :, 0].tolist() == np.eye(4)[[[0, 2, 1], [2, 2, 0]]].tolist()


def judged(labels: np.ndarray, logits: np.ndarray, sizes: list[int]) -> tuple[Tally, np.ndarray]:
    """Return the tally and the errors of a mini-batch in micro-batches of these sizes."""
    head, errors, begin = SoftmaxHead(labels), [], 0
    for index, size in enumerate(sizes):
        part = SampleSpan(MicroBatch(index=index, step=0, begin=begin, end=begin + size), 0, size)
        head.forward(part, logits[begin : begin + size, :, None])
        errors.append(head.backward(part)[:, :, 0])
        begin += size
    return head.step_done(0), np.concatenate(errors)


LABELS = np.array([[1, 0, 2, 3, 3], [2, 1, -1, -1, -1], [0, -1, -1, -1, -1], [3, 3, 3, 3, 3]])
LOGITS = np.random.default_rng(3).standard_normal((4, 5, 4), np.float32)


def test_the_loss_of_steps_is_that_of_pytorch() -> None:
    """The mean over a sample's steps, without those of its padding; added over samples."""
    torch = pytest.importorskip("torch")
    tally, errors = judged(LABELS, LOGITS, [4])
    logits = torch.from_numpy(LOGITS).double().requires_grad_()
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(LABELS).flatten(), ignore_index=-1, reduction="none"
    ).reshape(4, 5)
    counts = torch.from_numpy(LABELS >= 0)
    total = (losses.sum(1) / counts.sum(1)).sum()
    total.backward()
    np.testing.assert_allclose(errors, logits.grad.numpy(), atol=1e-7)
    assert not errors[LABELS < 0].any()
    assert tally.loss == pytest.approx(total.item(), rel=1e-6)
    assert tally.mean_loss == pytest.approx(total.item() / 4, rel=1e-6)
    right = (LOGITS.argmax(2) == LABELS).sum()
    assert (tally.samples, tally.steps, tally.correct) == (4, 13, right)
    assert tally.accuracy == right / 13
    bits = losses[counts].mean().item() / math.log(2)
    assert tally.bits_per_step == pytest.approx(bits, rel=1e-6)


def test_steps_are_judged_alike_in_all_micro_batches() -> None:
    tally, errors = judged(LABELS, LOGITS, [4])
    for sizes in ([1, 1, 1, 1], [3, 1]):
        others, found = judged(LABELS, LOGITS, sizes)
        assert others == tally
        assert found.tobytes() == errors.tobytes()


def test_tallies_of_one_prediction_a_sample_have_no_steps() -> None:
    tally, _ = judged(LABELS[:, 0], LOGITS[:, :1], [4])
    assert (tally.samples, tally.steps) == (4, 0)
    assert tally.accuracy == tally.correct / 4
    assert math.isnan(tally.bits_per_step)
    both = tally + tally
    assert (both.samples, both.loss, both.correct) == (8, 2 * tally.loss, 2 * tally.correct)
