"""Resizing, cropping, flipping, and the streams that decide; sizes and centres against
torchvision's rules.

The choice of test samples: a share of each class, the same as before for the same seed, in linear
time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emuchain.emulator.common import InputError
from emuchain.emulator.data import LazyImages, Reading, load_data
from emuchain.emulator.data.reading import Preparation, draws_of, split

from .array_files import arrays, npz

RANDOM = np.random.default_rng(4)


def picture(rows: int, columns: int, channels: int = 3) -> np.ndarray:
    return RANDOM.integers(0, 256, (rows, columns, channels), dtype=np.uint8)


@pytest.mark.parametrize(
    ("resize", "size", "expected"),
    [
        ((256,), (375, 500), (256, 341)),
        ((256,), (500, 375), (341, 256)),
        ((256,), (256, 300), (256, 300)),
        ((10, 30), (500, 375), (10, 30)),
        ((), (7, 9), (7, 9)),
        ((2,), (1000, 1), (2000, 2)),
    ],
)
def test_the_shorter_side_is_resized(
    resize: tuple[int, ...], size: tuple[int, int], expected: tuple[int, int]
) -> None:
    """As torchvision's `Resize` has it: the other side is cut to whole pixels."""
    assert Preparation(resize).resized(size) == expected


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_resizing_is_pillows_bilinear(channels: int) -> None:
    whole = picture(40, 30, channels)
    found = Preparation((8, 9)).apply(whole)
    for c in range(channels):
        plane = Image.fromarray(whole[:, :, c]).resize((9, 8), Image.Resampling.BILINEAR)
        assert np.array_equal(found[:, :, c], np.asarray(plane))


@pytest.mark.parametrize("where", ["shapes", "npz"])
@pytest.mark.parametrize("resize", [(9000,), (65536, 65536), (10**100,)])
def test_more_pixels_than_an_image_may_have(
    tmp_path: Path, one_line: Any, where: str, resize: tuple[int, ...]
) -> None:
    if where == "npz":
        where = str(npz(tmp_path, arrays()))
    with pytest.raises(InputError) as error:
        load_data(where, reading=Reading(resize=resize))
    assert "more than the 67,108,864 of an image" in one_line(error)


def test_centre_crop() -> None:
    """An odd rest is halved as `round` does it, which torchvision's `CenterCrop` uses."""
    whole = picture(9, 12)
    assert np.array_equal(Preparation(crop=(4, 5)).apply(whole), whole[2:6, 4:9])
    assert np.array_equal(Preparation(crop=(9, 12)).apply(whole), whole)


def test_random_windows_reach_every_place() -> None:
    whole = np.arange(5 * 6, dtype=np.uint8).reshape(5, 6, 1)
    chosen = Preparation(crop=(3, 4), augment=("crop",))
    found = {int(chosen.apply(whole, draw)[0, 0, 0]) for draw in draws_of(1, 0, 300).tolist()}
    assert found == {6 * top + left for top in range(3) for left in range(3)}


def test_without_a_crop_images_are_padded_by_an_eighth() -> None:
    whole = np.full((32, 32, 1), 9, np.uint8)
    whole[0, 0] = 200
    places = set()
    for draw in draws_of(2, 0, 2000).tolist():
        made = Preparation(augment=("crop",)).apply(whole, draw)
        assert made.shape == (32, 32, 1)
        if 200 in made:
            places.add(tuple(np.argwhere(made[:, :, 0] == 200)[0]))
    assert places == {(top, left) for top in range(5) for left in range(5)}


def test_half_of_the_images_are_mirrored() -> None:
    whole, flips = picture(3, 4), 0
    for draw in draws_of(3, 0, 2000).tolist():
        made = Preparation(augment=("flip",)).apply(whole, draw)
        flips += np.array_equal(made, whole[:, ::-1])
        assert np.array_equal(made, whole) or np.array_equal(made, whole[:, ::-1])
    assert 900 < flips < 1100


def test_draws_follow_from_seed_epoch_and_number_alone() -> None:
    draws = draws_of(7, 3, 100)
    assert np.array_equal(draws_of(7, 3, 40), draws[:40])
    assert not np.array_equal(draws_of(8, 3, 100), draws)
    assert not np.array_equal(draws_of(7, 4, 100), draws)
    assert draws_of((1 << 63) - 1, (1 << 40), 1).shape == (1, 3)


AUGMENTED = Reading(augment=("crop", "flip"), seed=5)


def test_augmentation_is_of_training_images_in_an_epoch_alone() -> None:
    data, plain = load_data("shapes", reading=AUGMENTED).first(50), load_data("shapes").first(50)
    assert isinstance(data.train_images, LazyImages)
    assert isinstance(data.test_images, LazyImages)
    places = np.arange(50)
    assert data.train_images.read(places).tobytes() == plain.train_images[:].tobytes()
    assert data.test_images.read(places, 3).tobytes() == plain.test_images[:50].tobytes()
    first, second = (data.train_images.read(places, epoch) for epoch in (0, 1))
    assert first.tobytes() != second.tobytes()
    assert (first != plain.train_images).any(axis=(1, 2, 3)).mean() > 0.9


def test_what_a_sample_becomes_does_not_depend_on_others() -> None:
    images: Any = load_data("shapes", reading=AUGMENTED).train_images
    places = np.array([7, 400, 9, 9999])
    together = images.read(places, 2)
    for place, sample in zip(places, together, strict=True):
        assert images.read(np.array([place]), 2)[0].tobytes() == sample.tobytes()
    assert images[9000:].read(np.array([999]), 2)[0].tobytes() == together[3].tobytes()


def test_the_normalisation_is_that_of_images_as_they_are() -> None:
    plain, augmented = (
        load_data("shapes").normalisation(),
        load_data("shapes", reading=AUGMENTED).normalisation(),
    )
    assert (augmented.mean.tobytes(), augmented.std.tobytes()) == (
        plain.mean.tobytes(),
        plain.std.tobytes(),
    )


def test_given_mean_and_deviation_are_shares_of_255() -> None:
    data = load_data("shapes", reading=Reading(mean=(0.5, 0.25, 0.1), std=(0.2, 0.4, 1)))
    assert np.allclose(data.normalisation().mean, [127.5, 63.75, 25.5])
    assert np.allclose(data.normalisation().std, [51, 102, 255])


@pytest.mark.parametrize(
    ("where", "reading", "words"),
    [
        (
            "shapes",
            Reading(mean=(0.5,), std=(0.5,)),
            "`mean`: 1 numbers, but images have 3 channels",
        ),
        ("shapes", Reading(mean=(0.5,)), "`mean` = 0.5: but `std` is none; give both"),
        (
            "shapes",
            Reading(resize=(1, 2, 3)),
            "`resize` = 1,2,3: 3 numbers; should be one, or rows,columns",
        ),
        ("shapes", Reading(crop=(33,)), "`crop` = 33x33: but a training image is 32x32"),
        (
            "text",
            Reading(augment=("flip",)),
            "`augment` is for images, and this is a text; leave it out",
        ),
    ],
)
def test_what_does_not_fit(where: str, reading: Reading, words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        load_data(where, reading=reading)


def chosen(labels: np.ndarray, classes: int, share: float, seed: int) -> list[int]:
    """Return the test samples as they were chosen class by class, each by a generator of its
    own.
    """
    test: list[int] = []
    for k in range(classes):
        members = np.flatnonzero(labels == k)
        if len(members) > 1:
            count = min(max(1, int(share * len(members) + 0.5)), len(members) - 1)
            stream = np.random.Generator(np.random.Philox(key=np.array([seed, k], np.uint64)))
            test += stream.permutation(members)[:count].tolist()
    return sorted(test)


@pytest.mark.parametrize(("classes", "count"), [(1, 2), (3, 20), (50, 300), (200, 250)])
@pytest.mark.parametrize(("share", "seed"), [(0.1, 0), (0.4, 2**63 - 1), (0.999, 7)])
def test_samples_are_those_of_each_class_alone(
    classes: int, count: int, share: float, seed: int
) -> None:
    labels = np.random.default_rng(count).integers(0, classes, count).astype(np.int64)
    train, test = split(labels, classes, share, seed, "it")
    assert test.tolist() == chosen(labels, classes, share, seed)
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(count))


def test_labels_are_not_looked_through_for_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], np.flatnonzero
    monkeypatch.setattr(np, "flatnonzero", lambda values: calls.append(len(values)) or real(values))  # type: ignore[func-returns-value]
    split(np.arange(2000) % 1000, 1000, 0.1, 0, "it")
    assert sum(calls) < 10 * 2000
