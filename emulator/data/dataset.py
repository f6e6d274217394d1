"""A data set, the normalisation of its images, and a picture of it, written as PNG."""

import dataclasses
import math
import struct
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common import Figures, InputError, described, plural
from .lazy import Images, LazyImages

_BLOCK = (
    4096  # images summed at once, so that the squares of a large set are never in memory together
)
_BLOCK_BYTES = 1 << 24
_READ_BYTES = 1 << 28  # pixels that are read from files to normalise all of them


@dataclass(frozen=True, eq=False)
class Dataset(Figures):
    """Images with labels, for training and for test.

    Images are uint8 of shape (N, c, h, w), C-contiguous in memory, or read when they are needed
    (`LazyImages`); labels are int64 of shape (N,), each in [0, len(classes)). `given` is a
    normalisation that holds in place of theirs. `note` is one line the user should see (such as a
    split that is not the official one), or empty.

    A text has `symbols` of them: images are their numbers, int32 of shape (N, 1, steps, 1), for
    which a network takes a channel for each; labels are those of each step, (N, steps), or -1 where
    a step is padding. Where samples differ in length, `train_lengths` and `test_lengths` are their
    steps, (N,).

    Images may be values, float32, which are taken as they are. With `by_targets`, labels are
    targets of any shape (N, …): classes, -1 for none, or float32 numbers, NaN for none. A
    mini-batch's loss is then the mean over all its targets, as PyTorch's, in place of the mean of
    its samples' means. Values that were given as (N, steps, channels), or (N, channels, steps),
    which a network knows, are `by_steps`: taken as the former.
    """

    _figures = (
        "name shape n_train n_test classes symbols by_targets missing_targets is_text given note"
    )

    name: str
    train_images: Images
    train_labels: NDArray[np.int64]
    test_images: Images
    test_labels: NDArray[np.int64]
    classes: tuple[str, ...]
    note: str = ""
    symbols: int = 0
    train_lengths: NDArray[np.int64] | None = None
    test_lengths: NDArray[np.int64] | None = None
    given: "Normalisation | None" = None
    by_targets: bool = False
    by_steps: bool = False

    def checked(self) -> "Dataset":
        """Return the set as training takes it: of whole numbers in another format, or another order
        in memory, too.

        Raises:
            InputError: an array has another type or shape, or a label is out of range.
        """
        parts = [_Part("train", self.train_images, self.train_labels, self.train_lengths)]
        parts.append(_Part("test", self.test_images, self.test_labels, self.test_lengths))
        kind: type[np.generic] = np.int32 if self.symbols else np.uint8
        if not isinstance(self.classes, tuple | list) or not self.classes:
            raise InputError(
                f"`classes`: is {described(self.classes)}; should be the names of the classes, a"
                " tuple"
            )
        train, test = (
            part.checked(kind, len(self.classes), self.symbols, self.by_targets) for part in parts
        )
        if train.images.shape[1:] != test.images.shape[1:] or not len(train.images):
            one, other = train.images.shape, test.images.shape
            raise InputError(
                f"`train_images` has shape {one}, and `test_images` {other}; should be images of"
                " one shape, and some to train on"
            )
        return dataclasses.replace(
            self,
            train_images=train.images,
            train_labels=train.labels,
            train_lengths=train.lengths,
            test_images=test.images,
            test_labels=test.labels,
            test_lengths=test.lengths,
            classes=tuple(map(str, self.classes)),
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (c, h, w) of one image; of a text, (symbols, steps, 1)."""
        c, h, w = self.train_images.shape[1:]
        return self.symbols or c, h, w

    @property
    def n_train(self) -> int:
        """Number of training images."""
        return len(self.train_images)

    @property
    def missing_targets(self) -> int:
        """Number of the training samples' targets that are ignored: NaN, or classes below 0."""
        labels = self.train_labels
        return int((np.isnan(labels) if labels.dtype.kind == "f" else labels < 0).sum())

    @property
    def n_test(self) -> int:
        """Number of test images."""
        return len(self.test_images)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def first(self, samples: int) -> "Dataset":
        """Return the set with only its first `samples` training images (a view), and all test
        images.

        Raises InputError when `samples` is not in [1, n_train].
        """
        if not 1 <= samples <= self.n_train:
            noun = "sample" if self.symbols else "image"
            raise InputError(
                f"`samples` = {samples}: but {self.name} has {self.n_train} training {noun}s;"
                f" give a number from 1 to {self.n_train}"
            )
        lengths = None if self.train_lengths is None else self.train_lengths[:samples]
        return dataclasses.replace(
            self,
            train_images=self.train_images[:samples],
            train_labels=self.train_labels[:samples],
            train_lengths=lengths,
        )

    def test_first(self, samples: int) -> "Dataset":
        """Return the set with only its first `samples` test images (a view), and all training
        images.

        Raises InputError when `samples` is not in [1, n_test].
        """
        if not 1 <= samples <= self.n_test:
            noun = "sample" if self.symbols else "image"
            give = f"give a number from 1 to {self.n_test}" if self.n_test else "leave it out"
            raise InputError(
                f"`test_samples` = {samples}: but {self.name} has {self.n_test} test {noun}s;"
                f" {give}"
            )
        lengths = None if self.test_lengths is None else self.test_lengths[:samples]
        return dataclasses.replace(
            self,
            test_images=self.test_images[:samples],
            test_labels=self.test_labels[:samples],
            test_lengths=lengths,
        )

    @property
    def is_text(self) -> bool:
        """Whether each label is the symbol after the one that has it."""
        return bool(self.symbols) and not self.by_targets

    def last_labels(self) -> "Dataset":
        """Return the set with only the label of each sample's last step, (N,)."""
        return dataclasses.replace(
            self,
            train_labels=_last_labels(self.train_labels, self.train_lengths),
            test_labels=_last_labels(self.test_labels, self.test_lengths),
        )

    def normalisation(self) -> "Normalisation":
        """Return the given normalisation, or that of the training images.

        For images that are read from files it uses at most 256 MB of pixels, evenly spaced.
        """
        if self.given is not None:
            return self.given
        images = self.train_images
        if images.dtype.kind == "f":
            channels = images.shape[1]
            return Normalisation(np.zeros(channels, np.float32), np.ones(channels, np.float32))
        if isinstance(images, LazyImages):
            count = min(len(images), max(1, _READ_BYTES // images.sample_bytes))
            images = dataclasses.replace(
                images, numbers=images.numbers[np.arange(count) * len(images) // count]
            )
        return Normalisation.of(images)


class _Part(NamedTuple):
    """The images of a part, with their labels, and the steps of each if these differ."""

    name: str
    images: Any
    labels: Any
    lengths: Any

    def checked(
        self, kind: type[np.generic], classes: int, symbols: int, by_targets: bool
    ) -> "_Part":
        """Return the part with arrays of `kind`, and of int64.

        Raises:
            InputError: as of `Dataset.checked`.
        """
        images = self.images
        if getattr(images, "dtype", None) == np.float32 and not symbols:
            kind = np.float32
        if isinstance(images, np.ndarray) and kind is np.float32:
            images = np.ascontiguousarray(images)
        elif not isinstance(images, LazyImages):
            images = self._whole("images", images, kind, symbols or 256)
        if not isinstance(images, LazyImages) and (images.ndim != 4 or 0 in images.shape[1:]):
            raise self._refusal("images", images, "should be images (N, channels, rows, columns)")
        least = -1 if np.ndim(self.labels) == 2 else 0
        if by_targets:  # as numbers they may be negative
            least = np.iinfo(np.int64).min
        count = len(images)
        if by_targets and getattr(self.labels, "dtype", None) == np.float32:
            labels = np.ascontiguousarray(self.labels)
        else:
            labels = self._whole("labels", self.labels, np.int64, classes, least=least)
        if by_targets and labels.shape[:1] != (count,):
            raise self._refusal("labels", labels, f"should be ({count}, …), one of each sample")
        if not by_targets and labels.shape not in ((count,), (count, images.shape[2])):
            raise self._refusal("labels", labels, f"should be ({count},), one an image")
        lengths = self.lengths
        if lengths is not None:
            lengths = self._whole("lengths", lengths, np.int64, images.shape[2] + 1, least=1)
            if lengths.shape != (count,):
                raise self._refusal("lengths", lengths, f"should be ({count},), one a sample")
        return self._replace(images=images, labels=labels, lengths=lengths)

    def _whole(
        self, name: str, array: Any, kind: type[np.generic], below: int, *, least: int = 0
    ) -> NDArray[Any]:
        """Return an array of whole numbers, from `least` to less than `below`, in another
        format.
        """
        where = f"`{self.name}_{name}`"
        if not isinstance(array, np.ndarray):
            raise InputError(
                f"{where}: is {described(array)}; should be an array of {np.dtype(kind)}"
            )
        if array.dtype.kind not in "iu":
            scaled = (
                ": np.rint(255 * x).astype(np.uint8) of values from 0 to 1"
                if kind is np.uint8
                else ""
            )
            raise InputError(
                f"{where}: is of {array.dtype}; should be whole numbers, of"
                f" {np.dtype(kind)}{scaled}"
            )
        if array.size and not least <= int(array.min()) <= int(array.max()) < below:
            raise InputError(
                f"{where}: from {array.min()} to {array.max()}; should be from {least} to"
                f" {below - 1}"
            )
        return np.ascontiguousarray(array, kind)

    def _refusal(self, name: str, array: NDArray[Any], should: str) -> InputError:
        return InputError(f"`{self.name}_{name}`: has shape {array.shape}; {should}")


def _last_labels(labels: NDArray[np.int64], lengths: NDArray[np.int64] | None) -> NDArray[np.int64]:
    return labels[:, -1] if lengths is None else labels[np.arange(len(labels)), lengths - 1]


@dataclass(frozen=True, eq=False)
class Normalisation:
    """Per-channel mean and standard deviation, float32 of shape (c,), in pixel units (0 to 255)."""

    mean: NDArray[np.float32]
    std: NDArray[np.float32]

    @classmethod
    def of(cls, images: Images) -> "Normalisation":
        """Return the mean and standard deviation of each channel of `images` (N, c, h, w).

        The sums are integers, so the result does not depend on the order of summation: it is the
        same on every machine. A channel whose pixels are all equal gets the standard deviation 1.
        """
        channels, pixels = images.shape[1], images.shape[2] * images.shape[3]
        at_once = max(1, min(_BLOCK, _BLOCK_BYTES // (channels * pixels)))
        sums, squares = [0] * channels, [0] * channels
        for start in range(0, len(images), at_once):
            block = np.asarray(images[start : start + at_once])
            for c in range(channels):
                sums[c] += int(block[:, c].sum(dtype=np.uint64))
                squares[c] += int(
                    np.square(block[:, c], dtype=np.uint16).sum(dtype=np.uint64)
                )  # 255^2 fits 16 bits
        n = len(images) * pixels
        mean = [s / n for s in sums]
        std = [
            math.sqrt((n * q - s * s) / (n * n)) or 1.0 for s, q in zip(sums, squares, strict=True)
        ]
        return cls(np.array(mean, np.float32), np.array(std, np.float32))

    def apply(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return `(images - mean) / std` as float32 of the same shape (N, c, h, w)."""
        out = images.astype(np.float32)
        out -= self.mean[:, None, None]
        out /= self.std[:, None, None]
        return out

    def apply_channels_last(self, images: NDArray[Any], out: NDArray[np.float32]) -> None:
        """Write the same bits as from `apply` into `out` (N, h, w, c)."""
        for c in range(images.shape[1]):
            channel = out[..., c]
            np.subtract(images[:, c], self.mean[c], out=channel)
            channel /= self.std[c]


_GAP = 2  # pixels between two images
_SMALL = 64  # images of no more rows are drawn at twice their size
_MOST_PIXELS = 1 << 27


def preview_picture(data: Dataset, columns: int) -> NDArray[np.uint8]:
    """Return a picture (h, w, 3) of the first `columns` training images of each class, one class
    per row.

    Three channels are shown as red, green and blue; of any other number, the first channel is shown
    in grey.

    Raises:
        InputError: the picture would be too large, or an image cannot be read.
    """
    _, h, w = data.shape
    scale = 2 if h <= _SMALL else 1
    rows, across = scale * data.n_classes * (h + _GAP), scale * columns * (w + _GAP)
    if rows * across > _MOST_PIXELS:
        raise InputError(
            f"`columns` = {columns}: a picture of {rows:,} x {across:,} pixels, since {data.name}"
            f" has {plural(data.n_classes, 'class')} of {h}x{w}; give fewer, or a smaller `resize`"
        )
    picture = np.full(
        (data.n_classes * (h + _GAP) - _GAP, columns * (w + _GAP) - _GAP, 3), 255, np.uint8
    )
    by_class = np.argsort(data.train_labels, kind="stable")
    begins, ends = (
        np.searchsorted(data.train_labels[by_class], range(data.n_classes), side)
        for side in ("left", "right")
    )
    for k, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for column, place in enumerate(by_class[begin : min(end, begin + columns)]):
            image = data.train_images[place] if data.shape[0] == 3 else data.train_images[place, :1]
            top, left = k * (h + _GAP), column * (w + _GAP)
            picture[top : top + h, left : left + w] = image.transpose(1, 2, 0)
    return picture.repeat(scale, axis=0).repeat(scale, axis=1)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Return the PNG file of `pixels` (h, w, 3), red, green and blue."""
    h, w, _ = pixels.shape
    unfiltered = np.zeros((h, 1), np.uint8)  # each row begins with the number of its filter
    rows = np.concatenate([unfiltered, pixels.reshape(h, 3 * w)], axis=1)
    header = struct.pack(
        ">IIBBBBB", w, h, 8, 2, 0, 0, 0
    )  # 8 bits, RGB, deflate, adaptive filters, no interlacing
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
