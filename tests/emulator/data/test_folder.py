"""Folders of images by class: what is read, how it is split, and what is wrong with others, each in
one line.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset, LazyImages, Reading, describe_data, load_data

OneLine = Callable[..., str]
RANDOM = np.random.default_rng(5)


def write(path: Path, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> np.ndarray:
    """Write a random picture of some (rows, columns); return its pixels (channels, rows,
    columns).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RANDOM.integers(0, 256, (*size, 3) if mode == "RGB" else size, dtype=np.uint8)
    Image.fromarray(pixels, mode).save(path)
    return np.moveaxis(np.atleast_3d(pixels), 2, 0)


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, np.ndarray]:
    """A folder with `train` and `val`, two classes, 8 and 3 pictures; their pixels by path."""
    names = [
        f"{part}/{name}/{i}.png"
        for part, n in (("train", 4), ("val", 1))
        for name in ("cat", "dog")
        for i in range(n)
    ]
    names.append("val/dog/deeper/x.PNG")
    return {name: write(tmp_path / name) for name in names}


def content(data: Dataset) -> dict[str, set[tuple[int, bytes]]]:
    """Return labels and bytes of all images of both parts."""
    both = {
        "train": (data.train_images, data.train_labels),
        "val": (data.test_images, data.test_labels),
    }
    return {
        part: {
            (label, image.tobytes())
            for image, label in zip(np.asarray(images), labels.tolist(), strict=True)
        }
        for part, (images, labels) in both.items()
    }


def test_parts(tmp_path: Path, parts: dict[str, np.ndarray]) -> None:
    data = load_data(str(tmp_path))
    assert (data.n_train, data.n_test, data.shape, data.classes) == (
        8,
        3,
        (3, 6, 5),
        ("cat", "dog"),
    )
    assert isinstance(data.train_images, LazyImages)
    assert data.train_labels.dtype == np.int64
    expected = {
        part: {
            (int("dog" in name), image.tobytes())
            for name, image in parts.items()
            if name.startswith(part)
        }
        for part in ("train", "val")
    }
    assert content(data) == expected
    assert describe_data(str(tmp_path))[:4] == (8, 3, (3, 6, 5), 2)
    assert data.note == ""


def test_the_first_images_are_of_all_classes(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for number in range(30):
            write(tmp_path / name / f"{number}.png", (1, 1))
    data = load_data(str(tmp_path)).first(20).test_first(4)
    assert 4 < data.train_labels.sum() < 16
    assert len(data.train_images) == 20
    assert len(data.test_images) == 4


def test_val_is_evaluated_where_test_is_there_too(
    tmp_path: Path, parts: dict[str, np.ndarray]
) -> None:
    before = content(load_data(str(tmp_path)))
    write(tmp_path / "test" / "cat" / "1.png")
    data = load_data(str(tmp_path))
    assert content(data) == before
    assert data.note == "`val` is evaluated, and `test`, of 1 image, is not used"
    shutil.rmtree(tmp_path / "val")
    data = load_data(str(tmp_path))
    assert (data.n_test, data.note) == (1, "")


def test_a_split_follows_from_its_seed_alone(tmp_path: Path, parts: dict[str, np.ndarray]) -> None:
    where = str(tmp_path / "train")

    def split(seed: int, share: float = 0.3) -> dict[str, set[tuple[int, bytes]]]:
        return content(load_data(where, reading=Reading(split_seed=seed, test_share=share)))

    found = split(0)
    assert {label for label, _ in found["val"]} == {0, 1}
    assert len(found["val"]) == 2
    assert not found["val"] & found["train"]
    assert found == split(0)
    assert len({frozenset(split(seed)["val"]) for seed in range(10)}) > 3
    assert len(split(0, 0.999)["train"]) == 2
    assert "share of 0.1 of each class" in load_data(where).note


def test_grey_pictures_have_one_channel_and_among_coloured_ones_three(tmp_path: Path) -> None:
    grey = {
        write(tmp_path / name / f"{i}.png", mode="L").tobytes()
        for name in ("a", "b")
        for i in range(2)
    }
    data = load_data(str(tmp_path))
    assert data.shape == (1, 6, 5)
    assert {image for part in content(data).values() for _, image in part} == grey
    write(tmp_path / "a" / "9.png")
    assert load_data(str(tmp_path)).shape == (3, 6, 5)


def test_jpegs_and_what_is_not_a_picture(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(2):
            path = tmp_path / name / f"{number}.JPG"
            path.parent.mkdir(exist_ok=True)
            Image.new("CMYK", (4, 3), (0, 255, 255, 0)).save(path, "JPEG")
            (tmp_path / name / "readme.txt").touch()
            (tmp_path / name / ".hidden.png").touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / "labels.csv").touch()
    data = load_data(str(tmp_path))
    assert (data.shape, data.n_train, data.classes) == ((3, 3, 4), 2, ("a", "b"))
    assert (np.abs(np.asarray(data.train_images)[0, :, 0, 0] - [255, 0, 0]) < 5).all()


def test_sizes(tmp_path: Path, one_line: OneLine) -> None:
    write(tmp_path / "a" / "1.png", (10, 20))
    write(tmp_path / "a" / "2.png", (30, 12))
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path))
    line = one_line(error)
    for word in ("a/1.png is 10x20", "a/2.png 30x12", "--resize"):
        assert word in line
    for reading, shape in (
        (Reading(resize=(8, 9)), (3, 8, 9)),
        (Reading(resize=(8,), crop=(8,)), (3, 8, 8)),
        (Reading(crop=(10, 7)), (3, 10, 7)),
    ):
        data = load_data(str(tmp_path), reading=reading)
        assert data.shape == shape
        assert np.asarray(data.train_images).shape == (1, *shape)
    with pytest.raises(InputError, match=r"images differ in size"):
        load_data(str(tmp_path), reading=Reading(resize=(8,)))
    with pytest.raises(
        InputError, match=r"`crop` = 11x11: but a/1.png is 10x20; give a `resize` of at least 11"
    ):
        load_data(str(tmp_path), reading=Reading(crop=(11,)))


def mixture(folder: Path) -> None:
    write(folder / "train" / "cat.png")


def mixed_classes(folder: Path) -> None:
    write(folder / "cat.png")
    write(folder / "cats" / "1.png")


def mixed_parts(folder: Path) -> None:
    write(folder / "birds" / "1.png")


def empty_class(folder: Path) -> None:
    (folder / "train" / "bird").mkdir()


def unknown_class(folder: Path) -> None:
    write(folder / "val" / "bird" / "1.png")


def no_train(folder: Path) -> None:
    shutil.rmtree(folder / "train")


def broken(folder: Path) -> None:
    (folder / "train" / "cat" / "1.png").write_bytes(b"nonsense")


def empty_file(folder: Path) -> None:
    (folder / "train" / "cat" / "1.png").write_bytes(b"")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "train" / "cat" / "7.png")


def deep(folder: Path) -> None:
    Image.fromarray(np.zeros((6, 5), np.float32)).save(
        folder / "train" / "cat" / "1.png", format="TIFF"
    )


def huge(folder: Path) -> None:
    Image.new("1", (9_000, 9_000)).save(folder / "train" / "cat" / "1.png")


def bomb(folder: Path) -> None:
    Image.new("1", (20_000, 10_000)).save(folder / "train" / "cat" / "1.png")


def odd_name(folder: Path) -> None:
    (folder / "train" / "cat" / "a\n\x1b[31mb.png").write_bytes(b"x")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            mixture,
            "train: a mixture of images (cat.png) and folders of classes (cat); put each image",
        ),
        (mixed_classes, "a mixture: cats is next to train and val"),
        (mixed_parts, "a mixture: birds is next to train and val; give a folder"),
        (empty_class, "train/bird: an empty class: no images"),
        (unknown_class, "val/bird: a class that `train` does not have"),
        (no_train, "has `val`, but no `train`"),
        (
            broken,
            (
                "train/cat/1.png: a broken image: not a picture in a known format; repair or remove"
                " it, or give --skip"
            ),
        ),
        (empty_file, "train/cat/1.png: a broken image: an empty file"),
        (pipe, "train/cat/7.png: a broken image: not a file"),
        (
            deep,
            "train/cat/1.png: an image of a kind that is not read: mode F, with more than 16 bits",
        ),
        (huge, "train/cat/1.png: a broken image: 9,000 x 9,000 pixels, more than"),
        (bomb, "train/cat/1.png: a broken image: more pixels than the 67,108,864 that are read"),
        (odd_name, r"cat/a\n\x1b[31mb.png': a broken image"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_wrong(
    tmp_path: Path,
    parts: dict[str, np.ndarray],
    spoil: Callable[[Path], None],
    words: str,
    one_line: OneLine,
) -> None:
    spoil(tmp_path)
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path))
    assert words in one_line(error)
    assert one_line(error).isprintable()


def cut_off(path: Path) -> None:
    """Leave a picture's header and the first half of its pixels."""
    path.write_bytes(path.read_bytes()[:-60])


def test_broken_images_can_be_left_out(tmp_path: Path, parts: dict[str, np.ndarray]) -> None:
    expected = content(load_data(str(tmp_path)))
    write(tmp_path / "train" / "cat" / "8.png")
    cut_off(tmp_path / "train" / "cat" / "8.png")
    (tmp_path / "val" / "dog" / "9.png").write_bytes(b"x")
    data = load_data(str(tmp_path), reading=Reading(skip_broken=True))
    assert content(data) == expected
    assert data.note == "2 of 13 images are broken and left out, such as train/cat/8.png"


def test_a_class_of_which_nothing_is_left(tmp_path: Path, parts: dict[str, np.ndarray]) -> None:
    for path in (tmp_path / "train" / "dog").iterdir():
        path.write_bytes(b"")
    with pytest.raises(InputError, match="train/dog: an empty class: all of its images are broken"):
        load_data(str(tmp_path), reading=Reading(skip_broken=True))


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("spoil", [deep, broken])
def test_nothing_is_left(
    tmp_path: Path,
    parts: dict[str, np.ndarray],
    part: str,
    spoil: Callable[[Path], None],
    one_line: OneLine,
) -> None:
    spoil(tmp_path)
    wrong = (tmp_path / "train" / "cat" / "1.png").read_bytes()
    write(tmp_path / "train" / "cat" / "1.png")
    files = sorted((tmp_path / part).rglob("*.[pP][nN][gG]"))
    for path in files:
        path.write_bytes(wrong)
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path), reading=Reading(skip_broken=True))
    first = files[0].relative_to(tmp_path)
    assert (
        f"{part}: nothing is left: of {len(files)} images none can be read, such as {first} ("
        in one_line(error)
    )


@pytest.mark.parametrize("ending", ["png", "pgm", "tif"])
@pytest.mark.parametrize("skip_broken", [False, True])
def test_grey_of_16_bits(tmp_path: Path, ending: str, skip_broken: bool) -> None:
    """Of the whole range, scaled to bytes and rounded, whatever class an image is of."""
    deep = RANDOM.integers(0, 1 << 16, (12, 9), dtype=np.uint16)
    deep[0, :4] = 0, 128, 129, 65_535
    for name in ("cat", "dog"):
        for number in range(2):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(deep).save(tmp_path / name / f"{number}.{ending}")
    data = load_data(str(tmp_path), reading=Reading(skip_broken=skip_broken))
    assert (data.shape, data.n_train, data.n_test) == ((1, 12, 9), 2, 2)
    assert "left out" not in data.note
    for image in np.asarray(data.train_images):
        assert np.array_equal(image[0], np.round(deep / 257).astype(np.uint8))
    write(tmp_path / "cat" / "colour.png", (12, 9))
    assert load_data(str(tmp_path)).shape == (3, 12, 9)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("kind", ["png", "png behind", "jpg", "tif", "webp"])
def test_exif_orientation(tmp_path: Path, kind: str, orientation: int) -> None:
    """As Pillow turns images; numbers that EXIF does not know turn nothing."""
    ending, _, behind = kind.partition(" ")
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name in ("cat", "dog"):
        for number in range(2):
            path = tmp_path / name / f"{number}.{ending}"
            path.parent.mkdir(exist_ok=True)
            pixels = RANDOM.integers(0, 256, (6, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path, exif=exif)
            if behind:
                put_exif_behind_pixels(path)
    expected = set()
    for path in tmp_path.rglob(f"*.{ending}"):
        with Image.open(path) as image:
            expected.add(np.asarray(ImageOps.exif_transpose(image)).transpose(2, 0, 1).tobytes())
    data = load_data(str(tmp_path))
    assert data.shape == ((3, 5, 6) if orientation in (5, 6, 7, 8) else (3, 6, 5))
    assert {
        image.tobytes() for image in [*np.asarray(data.train_images), *np.asarray(data.test_images)]
    } == expected
    assert ("4 of 4 images turned as EXIF says" in data.note) == (2 <= orientation <= 8)


def put_exif_behind_pixels(path: Path) -> None:
    """Move a PNG's EXIF to its end, where it may stand, too."""
    content = path.read_bytes()
    begin = content.index(b"eXIf") - 4
    end = begin + 12 + int.from_bytes(content[begin : begin + 4], "big")
    last = content.index(b"IEND") - 4
    path.write_bytes(content[:begin] + content[end:last] + content[begin:end] + content[last:])


def test_damaged_exif_turns_nothing(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        for number in range(2):
            path = tmp_path / name / f"{number}.jpg"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(np.zeros((6, 5, 3), np.uint8)).save(
                path, exif=b"Exif\0\0MM\0*\0\0\xff\xff\xff\xff"
            )
    assert load_data(str(tmp_path)).shape == (3, 6, 5)


def test_pixels_that_are_cut_off_are_found_when_they_are_read(
    tmp_path: Path, parts: dict[str, np.ndarray], one_line: OneLine
) -> None:
    cut_off(tmp_path / "train" / "cat" / "1.png")
    data = load_data(str(tmp_path))
    with pytest.raises(InputError) as error:
        np.asarray(data.train_images)
    assert "train/cat/1.png: a broken image: " in one_line(error)


def test_a_picture_that_changes_in_a_run(tmp_path: Path, parts: dict[str, np.ndarray]) -> None:
    data = load_data(str(tmp_path))
    write(tmp_path / "train" / "cat" / "1.png", (7, 7))
    with pytest.raises(InputError, match=r"cat/1.png: has changed since the start: it is 7x7"):
        np.asarray(data.train_images)


def test_images_go_to_other_ranks_as_paths(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "a" / f"{number}.png", (200, 200))
    images = load_data(str(tmp_path)).train_images
    sent = pickle.dumps(images)
    assert len(sent) < 3000
    assert np.asarray(pickle.loads(sent)).tobytes() == np.asarray(images).tobytes()


def torchvision_count(root: Path) -> int:
    """Return how many images torchvision's ImageFolder would find: by `os.walk`, through links, by
    their endings.
    """
    endings = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
    walks = (os.walk(entry.path, followlinks=True) for entry in os.scandir(root) if entry.is_dir())
    return sum(
        name.lower().endswith(endings) for walk in walks for _, _, names in walk for name in names
    )


def test_links_are_followed_as_torchvision_does(tmp_path: Path) -> None:
    """A class with four images of its own, a link to a folder of twelve, one to a file, and one of
    links to folders.
    """
    for number in range(12):
        write(tmp_path / "imgs" / f"{number}.png")
    for number in range(4):
        write(tmp_path / "data" / "a" / f"{number}.png")
    (tmp_path / "data" / "a" / "more").symlink_to("../../imgs")
    write(tmp_path / "data" / "b" / "x" / "y" / "1.PNG")
    (tmp_path / "data" / "b" / "2.png").symlink_to(tmp_path / "imgs" / "2.png")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "er").symlink_to("../imgs")
    (tmp_path / "data" / "b" / "deep").symlink_to(tmp_path / "deep")
    (tmp_path / "data" / "c").symlink_to("../imgs")
    data = load_data(str(tmp_path / "data"))
    assert data.n_train + data.n_test == torchvision_count(tmp_path / "data") == 16 + 14 + 12
    assert np.bincount([*data.train_labels, *data.test_labels]).tolist() == [16, 14, 12]
    assert "left out" not in data.note


def test_links_that_lead_back_are_left_out_and_reported(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for number in range(3):
            write(tmp_path / name / f"{number}.png")
    (tmp_path / "a" / "up").symlink_to("..")  # leads back, as b's images are none of a
    (tmp_path / "b" / "other").symlink_to("../a")
    (tmp_path / "b" / "self").symlink_to("self")
    (tmp_path / "b" / "gone").symlink_to("../nowhere")
    data = load_data(str(tmp_path))
    assert "links back to a folder above" in data.note
    assert "links to nowhere" in data.note
    assert np.bincount([*data.train_labels, *data.test_labels]).tolist() == [3, 3 + 3]


def test_links_to_a_part_from_within_it_lead_back(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("a", "b"):
            write(tmp_path / part / name / "1.png")
    (tmp_path / "train" / "a" / "part").symlink_to("..")
    (tmp_path / "train" / "b" / "all").symlink_to("../..")
    data = load_data(str(tmp_path))
    assert (data.n_train, data.n_test) == (2, 2)
    assert "2 links back to a folder above" in data.note


@pytest.mark.parametrize(
    ("train", "test"),
    [
        *(
            ("Train", "Test"),
            ("TRAIN", "VAL"),
            ("training", "testing"),
            ("Training_Set", "Test Set"),
        ),
        *(
            ("train-set", "test-set"),
            ("trainingset", "valid"),
            ("train_data", "Validation"),
            ("train2017", "val2017"),
        ),
        *(("train", "valid"), ("Train-Images", "validation_set")),
    ],
)
def test_parts_in_any_spelling(
    tmp_path: Path, parts: dict[str, np.ndarray], train: str, test: str
) -> None:
    expected = content(load_data(str(tmp_path)))
    (tmp_path / "train").rename(tmp_path / "t")
    (tmp_path / "t").rename(tmp_path / train)
    (tmp_path / "val").rename(tmp_path / test)
    data = load_data(str(tmp_path))
    assert content(data) == expected
    assert data.classes == ("cat", "dog")


@pytest.mark.parametrize(
    "name", ["trainer", "trains", "tester", "value", "valley", "restest", "contest", "tr", "val-x"]
)
def test_names_that_are_classes(tmp_path: Path, name: str) -> None:
    for number in range(2):
        write(tmp_path / name / "deeper" / f"{number}.png")
        write(tmp_path / "a" / f"{number}.png")
    assert load_data(str(tmp_path)).classes == tuple(sorted(("a", name)))


def flat_parts(folder: Path) -> None:
    for part in ("Train", "Test"):
        write(folder / "flat" / part / "1.png")


def flat_test(folder: Path) -> None:
    write(folder / "flat" / "Train" / "cat" / "1.png")
    write(folder / "flat" / "test" / "1.png")


def two_trains(folder: Path) -> None:
    for part in ("Train", "training", "test"):
        write(folder / "flat" / part / "cat" / "1.png")


def wrapped(folder: Path) -> None:
    for part in ("Train", "test"):
        write(folder / "flat" / "archive" / part / "cat" / "1.png")


def parts_within(folder: Path) -> None:
    for name in ("cat", "dog"):
        for part in ("train", "test"):
            write(folder / "flat" / name / part / "1.png")


def only_gifs(folder: Path) -> None:
    write(folder / "flat" / "cat" / "1.png")
    write(folder / "flat" / "dog" / "1.gif", mode="L")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (flat_parts, "holds no folder for each class, so the labels of its images are unknown"),
        (
            flat_test,
            (
                "test is next to Train, but has no folder for each class, so that its labels are"
                " unknown"
            ),
        ),
        (two_trains, "Train and training are both `train` by their names; leave one"),
        (wrapped, "holds one folder, in which the parts are; give"),
        (parts_within, "within a class; put the folders of classes into those of the parts"),
        (
            only_gifs,
            (
                "dog: an empty class: no images (.png, .jpg, .jpeg, .bmp, .ppm, .pgm, .tif, .tiff,"
                " .webp) in it, but 1"
            ),
        ),
    ],
)
def test_parts_that_contradict(
    tmp_path: Path, make: Callable[[Path], None], words: str, one_line: OneLine
) -> None:
    make(tmp_path)
    with pytest.raises(InputError) as error:
        load_data(str(tmp_path / "flat"))
    assert words in one_line(error)


def test_what_is_left_out_is_counted(tmp_path: Path, parts: dict[str, np.ndarray]) -> None:
    before = content(load_data(str(tmp_path)))
    for name, count in ((".gif", 8), (".JFIF", 4), (".txt", 1)):
        for number in range(count):
            (tmp_path / "train" / "cat" / f"x{number}{name}").touch()
    (tmp_path / "val" / "dog" / "deeper" / "y.gif").touch()
    (tmp_path / "val" / "dog" / "._x.png").touch()
    (tmp_path / "labels.csv").touch()
    (tmp_path / "train" / "LICENSE").touch()
    data = load_data(str(tmp_path))
    assert content(data) == before
    assert (
        data.note
        == "17 files left out: 9 .gif, 4 .jfif, 1 .csv, 1 .txt, 1 hidden, 1 without an ending"
    )


def test_images_in_hidden_folders_are_counted(tmp_path: Path, parts: dict[str, np.ndarray]) -> None:
    write(tmp_path / "train" / ".thumbs" / "1.png")
    assert load_data(str(tmp_path)).note == "1 file left out: 1 in hidden folders"


def test_the_folders_of_many_classes_are_each_read_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work grows with the number of classes, and not with its square."""
    for part in ("train", "val"):
        for number in range(30):
            write(tmp_path / part / str(number) / "1.png", (1, 1))
    calls, scandir = [], os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: calls.append(path) or scandir(path))  # type: ignore[func-returns-value]
    assert load_data(str(tmp_path)).n_classes == 30
    assert sum(Path(path) == tmp_path / "val" for path in calls) < 10
