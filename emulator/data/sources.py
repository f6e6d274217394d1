"""The published data sets: their addresses, and the checksums of their files."""

from dataclasses import dataclass

from . import cifar


@dataclass(frozen=True)
class Source:
    """One file to fetch: its name below a mirror's address, and its MD5 checksum in hexadecimal."""

    name: str
    md5: str


@dataclass(frozen=True)
class Collection:
    """A data set: its files, the mirrors to try in turn, and the folder to put it in.

    With `members`, the only file is a tar archive, and these are the files of `folder` that it must hold.
    """

    name: str
    mirrors: tuple[str, ...]
    files: tuple[Source, ...]
    folder: str
    members: tuple[str, ...] = ()


CIFAR10 = Collection(
    name="cifar10",
    mirrors=("https://www.cs.toronto.edu/~kriz/",),
    files=(Source("cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
    folder="cifar-10-batches-bin",
    members=(*(f"{name}.bin" for name in (*cifar.TRAIN, cifar.TEST)), "batches.meta.txt"),
)
MNIST = Collection(
    name="mnist",
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    files=(
        Source("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        Source("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        Source("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        Source("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    folder="mnist",
)
COLLECTIONS = (CIFAR10, MNIST)
