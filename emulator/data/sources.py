"""The published data sets: their addresses, and the checksums of their files."""

from dataclasses import dataclass

from . import cifar


@dataclass(frozen=True)
class Source:
    """One file to fetch: its name below a mirror's address, its SHA-256 checksum in hexadecimal, and its size."""

    name: str
    sha256: str
    size_bytes: int


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
    files=(
        Source(
            "cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170_052_171
        ),
    ),
    folder="cifar-10-batches-bin",
    members=(*(f"{name}.bin" for name in (*cifar.TRAIN, cifar.TEST)), "batches.meta.txt"),
)
MNIST = Collection(
    name="mnist",
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    files=(
        Source(
            "train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422
        ),
        Source(
            "train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881
        ),
        Source(
            "t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877
        ),
        Source("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
    ),
    folder="mnist",
)
COLLECTIONS = (CIFAR10, MNIST)
