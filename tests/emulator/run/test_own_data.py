"""Training on images that are read as they are needed: the bits of reading at once, on any ranks;
one-line errors.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import emuchain
from emuchain.emulator.data import LazyImages, load_data, shapes

SETTINGS: dict[str, Any] = {
    "network": "quick-cifar",
    "schedule": "sync",
    "samples": 24,
    "test_samples": 8,
    "batch": 8,
    "epochs": 2,
    "progress": "none",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train` and `val` of the built-in images."""
    drawn, root = shapes.draw(40, 20), tmp_path_factory.mktemp("own")
    parts = {
        "train": (drawn.train_images, drawn.train_labels),
        "val": (drawn.test_images, drawn.test_labels),
    }
    for part, (images, labels) in parts.items():
        for number, (image, label) in enumerate(
            zip(np.asarray(images), labels.tolist(), strict=True)
        ):
            path = root / part / str(label) / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.transpose(1, 2, 0)).save(path)
    return root


def bits(results: emuchain.Results) -> bytes:
    """Return all weights and losses as bytes."""
    arrays = [array for arrays in results.weights.values() for array in arrays.values()]
    return b"".join(
        array.tobytes()
        for array in [*arrays, results.history["train_loss"], results.history["test_loss"]]
    )


def test_bits_are_those_of_reading_at_once(folder: Path) -> None:
    data = load_data(str(folder))
    assert isinstance(data.train_images, LazyImages)
    held = dataclasses.replace(
        data.first(24),
        train_images=data.first(24).train_images[np.arange(24)],
        test_images=np.asarray(data.test_images),
    )
    settings = {
        key: value for key, value in SETTINGS.items() if key not in ("samples", "test_samples")
    }
    expected = emuchain.train(data=held, **settings)
    assert bits(emuchain.train(data=data.first(24), **settings)) == bits(expected)


AUGMENTED = {**SETTINGS, "resize": 36, "crop": 32, "augment": "crop,flip"}


def test_augmented_bits_do_not_depend_on_micro_batches_or_devices(folder: Path) -> None:
    expected = bits(emuchain.train(data=folder, **AUGMENTED))
    for changes in ({"micro_batch": 3}, {"devices": 3}, {"devices": 2, "micro_batch": 1}):
        assert bits(emuchain.train(data=folder, **{**AUGMENTED, **changes})) == expected
    for changes in (
        {"augment": "flip"},
        {"augment": ()},
        {"seed": 2},
        {"mean": (0, 0, 0), "std": (1, 1, 1)},
    ):
        assert bits(emuchain.train(data=folder, **{**AUGMENTED, **changes})) != expected


def test_results_keep_the_keys(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.h5"
    emuchain.train(
        data=folder,
        out=str(out),
        mean=(0.5, 0.25, 0),
        std=(0.25,) * 3,
        skip_broken=True,
        **AUGMENTED,
    )
    config = emuchain.results(out).config
    found = {
        key: config[key]
        for key in ("resize", "crop", "augment", "mean", "std", "skip_broken", "test_share")
    }
    assert found == {
        "resize": "36",
        "crop": "32",
        "augment": "crop,flip",
        "mean": "0.5,0.25,0.0",
        "std": "0.25,0.25,0.25",
        "skip_broken": True,
        "test_share": 0.1,
    }
    assert emuchain.retime(out).epoch_ends_ps[-1] == emuchain.results(out).virtual_time_ps


def test_a_network_takes_the_images_that_are_left_of_a_crop(folder: Path) -> None:
    assert emuchain.plan("lstm-rows", data=str(folder), crop=(20, 24)).network.input == (3, 20, 24)
    found = emuchain.simulate("lstm-rows", data=str(folder), crop=(20, 24), batch=8)
    assert found.virtual_time_ps > 0


REPLICAS = [
    "--replicas",
    "2",
    "--devices",
    "2",
    "--schedule",
    "sync",
    "--batch",
    "8",
    "--progress",
    "none",
]


@pytest.mark.slow
@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_bits_on_ranks(mpiexec, folder: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """Of two replicas: the second one's images are read on another rank."""
    images = [
        "--data",
        folder,
        "--augment",
        "crop,flip",
        "--samples",
        "32",
        "--mean",
        "0.5,0.4,0.3",
        "--std",
        "1,1,1",
    ]
    arguments = ["-m", "emuchain", "train", *images, *REPLICAS]
    for ranks in (1, 4):
        mpiexec(ranks, [*arguments, "--out", tmp_path / f"{ranks}.h5"])
    assert bits(emuchain.results(tmp_path / "4.h5")) == bits(emuchain.results(tmp_path / "1.h5"))


def cut_off(folder: Path, tmp_path: Path) -> Path:
    """Copy a folder; cut off the pixels of all its training pictures."""
    for path in folder.rglob("*.png"):
        copy = tmp_path / "cut" / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes()
        copy.write_bytes(content[: len(content) // 2] if "train" in copy.parts else content)
    return tmp_path / "cut"


def test_a_picture_that_breaks_in_a_run_ends_all_ranks(  # type: ignore[no-untyped-def]  # a fixture
    mpiexec, folder: Path, tmp_path: Path, one_line: Callable[..., str]
) -> None:
    where = cut_off(folder, tmp_path)
    normal = ["--mean", "0.5,0.5,0.5", "--std", "0.5,0.5,0.5"]
    finished = mpiexec(
        4, ["-m", "emuchain", "train", "--data", where, *REPLICAS, *normal], status=2
    )
    line = one_line(finished.stderr)
    assert ".png: a broken image: " in line
    assert "--skip-broken" in line


@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_without_pillow_a_folder_of_images_is_refused(  # type: ignore[no-untyped-def]  # a fixture
    mpiexec, folder: Path, tmp_path: Path, one_line: Callable[..., str]
) -> None:
    (tmp_path / "PIL.py").write_text("raise ImportError\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    finished = mpiexec(
        1, ["-m", "emuchain", "train", "--data", folder], status=2, env={"PYTHONPATH": path}
    )
    assert "need Pillow; install the extra `images`" in one_line(finished.stderr)
