"""What `fuzz` feeds: for each reader of files valid examples, and the function that reads one."""

from __future__ import annotations

import io
import pathlib
import random
import tarfile
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import checkpoints
import chunks as half_written
import numpy as np
import results

Change = Callable[[bytes, random.Random], bytes]
"""Function that changes some bytes."""


class Reader(NamedTuple):
    """Examples of valid input; the end of a file's name; and functions that read such a file, and
    that damage it.

    What `read` returns shows whether two files are read alike. `change` takes one that changes
    bytes, besides; without it, that is used alone.
    """

    examples: list[bytes]
    ending: str
    read: Callable[[pathlib.Path], object]
    change: Callable[[bytes, random.Random, Change], bytes] | None = None


def shipped(folder: str) -> list[bytes]:
    """Return the TOML files that come with emuchain in a folder."""
    from emuchain.emulator.common import find, names

    return [find("name", name, folder).read_bytes() for name in names(folder)]


def config() -> Reader:
    """Runs' settings."""
    from emuchain.emulator.config import load_config

    text = (
        b'network = "quick-cifar"\nschedule = "sync"\nbatch = 32\nsamples = 320\nlr_schedule ='
        b' "steps:at=3,5"\n'
    )
    return Reader(
        [text, b"devices = 4\ncompress = 'inceptionn:-10'\n"],
        ".toml",
        lambda path: load_config(str(path), {}),
    )


def network() -> Reader:
    """Networks."""
    from emuchain.emulator.network import load_network

    return Reader(shipped("network/zoo"), ".toml", lambda path: load_network(str(path)))


def cluster() -> Reader:
    """Clusters."""
    from emuchain.emulator.cluster import load_cluster

    return Reader(shipped("cluster/clusters"), ".toml", lambda path: load_cluster(str(path)))


def schedule() -> Reader:
    """Schedules as text and as CSV, with their dry run."""
    from emuchain.emulator.commands.design.schedule import checked_schedule, order_of
    from emuchain.emulator.schedule import to_csv, to_text

    order = order_of(None, {"schedule": "1f1b-so", "devices": 3}, 4, 2)
    one = order_of(None, {"schedule": "1f1b-so", "devices": 3}, 4, 1)
    return Reader(
        [to_text(order).encode(), to_csv(one).encode()],
        ".txt",
        lambda path: checked_schedule(str(path)).show(),
    )


def checkpoint() -> Reader:
    """Checkpoints, from which a small run goes on."""
    return Reader(checkpoints.examples(), ".ckpt", checkpoints.resume, checkpoints.damaged)


def onnx() -> Reader:
    """Networks in ONNX files."""
    from onnx import TensorProto, helper

    from emuchain.emulator.network import load_network

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["y"]),
    ]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [10, 3, 3, 3], [0.0] * 270)
    images = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    classes = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])
    model = helper.make_model(helper.make_graph(nodes, "g", [images], [classes], [weights]))
    return Reader([model.SerializeToString()], ".onnx", lambda path: load_network(str(path)))


def archive() -> Reader:
    """Archives of data sets."""
    from emuchain.emulator.data.fetch import unpack

    packed = []
    for mode in ("w", "w:gz"):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode=mode) as tar:
            for name in ("a/one.bin", "a/two.bin"):
                member = tarfile.TarInfo(name)
                member.size = 3000
                tar.addfile(member, io.BytesIO(bytes(3000)))
        packed.append(content.getvalue())

    def read(path: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            unpack(path, pathlib.Path(folder, "a"), ["one.bin", "two.bin"])

    return Reader(packed, ".tar", read)


def codec() -> Reader:
    """Names of codecs with their arguments, as `--compress` takes them."""
    from emuchain.emulator.config import load_config

    def read(path: pathlib.Path) -> None:
        load_config(None, {"compress": path.read_bytes().decode("utf-8", "surrogateescape")})

    return Reader([b"inceptionn:-10", b"bf16", b"topk:0.01", b"none"], ".txt", read)


def faults() -> Reader:
    """Faults of a cluster."""
    from emuchain.emulator.faults import load_faults

    text = b"""[[faults.boards]]
board = 1
factor = 2.5
from_sample = 3
[[faults.links]]
link = 0
loss = 0.01
[[faults.flips]]
of = "weights"
rate = 1e-6
[[faults.deaths]]
board = 2
at_us = 50.0
"""
    return Reader([text], ".toml", lambda path: load_faults(str(path)))


def profile() -> Reader:
    """Measured times of layers."""
    from emuchain.emulator.profile import load_profile

    text = b"""name = "two layers"
[devices.v100]
memory_gbytes = 16
[[layers]]
name = "conv"
output_bytes = 4_000_000
feature_bytes = 8_000_000
parameter_bytes = 100_000
times = [{ device = "v100", micro_batch = 32, forward_us = 900, backward_us = 1800 }]
[[layers]]
name = "fc"
output_bytes = 16_000
feature_bytes = 16_000
parameter_bytes = 400_000_000
times = [{ device = "v100", micro_batch = 32, forward_us = 600, backward_us = 1200 }]
"""
    return Reader([text], ".toml", load_profile)


def _images(path: pathlib.Path) -> None:
    """Load images of one's own, and look at some of each part."""
    from emuchain.emulator.data import load_data

    data = load_data(str(path))
    for images in (data.train_images, data.test_images):
        np.asarray(images[:4])


def npz() -> Reader:
    """Images in NumPy's archives."""
    examples = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, images=np.zeros((12, 6, 5, 3), np.uint8), labels=np.arange(12) % 3)
        examples.append(file.getvalue())
    return Reader(examples, ".npz", _images)


def hdf5() -> Reader:
    """Images in HDF5."""
    import h5py

    examples = []
    for more in ({}, {"chunks": (4, 6, 5, 3), "compression": "gzip"}):
        file = io.BytesIO()
        with h5py.File(file, "w") as into:
            into.create_dataset("images", data=np.zeros((12, 6, 5, 3), np.uint8), **more)
            into["labels"] = np.arange(12) % 3
        examples.append(file.getvalue())
    return Reader(examples, ".h5", _images)


def chunks() -> Reader:
    """Images in HDF5 of which chunks were never written."""
    return Reader([half_written.example()], ".h5", half_written.read, half_written.half_written)


def text() -> Reader:
    """Texts of one's own."""
    from emuchain.emulator.data import load_data

    return Reader(
        [b"to be, or not to be\n" * 20, "ni\u00f1o, \u4f60\u597d\n".encode() * 30],
        ".txt",
        lambda path: load_data(str(path), 8),
    )


def safetensors() -> Reader:
    """Weights to begin with."""
    import safetensors.numpy

    from emuchain.emulator.network import load_network
    from emuchain.emulator.run import read_weights

    layers = [
        {"type": "conv", "channels": 4, "kernel": 3},
        {"type": "fc", "features": 3},
        {"type": "softmax"},
    ]
    network = load_network({"name": "small", "input": [3, 6, 6], "layers": layers})
    arrays = {
        "conv1.weight": (4, 3, 3, 3),
        "conv1.bias": (4,),
        "fc1.weight": (3, 4, 4, 4),
        "fc1.bias": (3,),
    }
    packed = safetensors.numpy.save(
        {name: np.zeros(shape, np.float32) for name, shape in arrays.items()}
    )
    return Reader([packed], ".safetensors", lambda path: read_weights(str(path), network, "it"))


def journal() -> Reader:
    """Journals of sweeps, which a sweep takes up again."""
    from emuchain.emulator.studies.sweep import Space, run_space

    space = Space.of(
        {"network": "quick-cifar", "devices": [1, 2, 400], "link.bandwidth_gbps": [1, 40]}
    )

    def read(path: pathlib.Path) -> list[dict[str, object]]:
        return run_space(space, 1000, csv=path, jobs=1).rows

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "points.csv")
        read(path)
        return Reader([path.read_bytes()], ".csv", read)


def _of_runs(read: Callable[[pathlib.Path], object], kept: list[bytes]) -> Reader:
    return Reader(kept, ".h5", read, _damaged)


def _damaged(example: bytes, chance: random.Random, change: Change) -> bytes:
    is_checkpoint = example.startswith(b"PK")
    return (checkpoints if is_checkpoint else results).damaged(example, chance, change)


READERS: dict[str, Callable[[], Reader]] = {
    reader.__name__: reader
    for reader in (
        *(config, network, cluster, faults, schedule, profile, codec),
        *(checkpoint, onnx, safetensors),
        *(npz, hdf5, chunks, text, archive, journal),
    )
}
for command in results.OF_ANY_RUN:
    READERS[command.__name__] = lambda command=command: _of_runs(command, results.examples())
for command in results.OF_CHAINS:
    READERS[command.__name__] = lambda command=command: _of_runs(command, results.examples()[:2])
for command in results.OF_WEIGHTS:
    READERS[command.__name__] = lambda command=command: _of_runs(
        command, results.examples()[:2] + checkpoints.examples()
    )
SEALED = ("show", "report", "retime", "export", "evaluate", "init", "checkpoint", "journal")
"""Readers of files in which damage must be seen."""
