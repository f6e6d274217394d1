"""The chain on ranks, by `emuchain.train(comm=…)`: these tests run on the ranks themselves.

mpiexec -n 4 python -m pytest --with-mpi tests
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.schedule import EditedKind, edited_kind, parse_csv, to_text
from emuchain.launch import MpiRanks

from ..counted import COUNTED
from .pairs import LAYERS, data_of, description

pytestmark = pytest.mark.mpi(min_size=2)

V = """0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,3F2,3I2,3W2,0I1,0W1,3F3,3I3,3W3,0I2,0W2,0I3,0W3
,1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1F3,1I1,1W1,2F3,2I2,2W2,1I2,2I3,1I3,1W2,2W3,1W3
"""
"""PyTorch's ZBV on two ranks."""
SWAPPED = "".join(
    ",".join(f"{rank}{cell}" for cell in "F1 F0 F2 F3 I1 I0 I2 I3 W3 W1 W0 W2".split()) + "\n"
    for rank in range(3)
)
"""All F, all B, all W, each in an order of its own."""

RECOMPUTED = (
    "0F0,0F1,0F2,0R1,0B0,0R2,0B1,0F3,0B2,0R3,0B3\n1F0,1F1,1R0,1B0,1F2,1B1,1F3,1R3,1B2,1B3\n"
)
"""1F1B on two ranks, some micro-batches of which are recomputed."""


def of_csv(text: str) -> EditedKind:
    """The schedule of a file."""
    return edited_kind("a file", to_text(parse_csv(text)))


KEYS: dict[str, Any] = {
    "samples": 60,
    "test_samples": 7,
    "batch": 20,
    "micro_batch": 6,
    "epochs": 2,
}
RUNS: dict[str, dict[str, Any]] = {
    "sync": {"schedule": "sync", "devices": 5},
    "fpdeep": {"schedule": "fpdeep", "devices": 4},
    "gpipe": {"schedule": "gpipe", "devices": 3},
    "1f1b-so": {"schedule": "1f1b-so", "devices": 4, "engines": "turns"},
    "fbp-as": {"schedule": "fbp-as", "devices": 3, "engines": "shared", "micro_batch": 5},
    "interleaved": {"schedule": "interleaved", "devices": 2, "engines": "turns", "micro_batch": 5},
    "interleaved rows": {"schedule": "interleaved", "devices": 3, "chunks": 3, "micro_batch": 5},
    "pipedream": {"schedule": "pipedream", "devices": 3, "engines": "turns", "transport": "hidden"},
    "2bw": {
        "schedule": "2bw",
        "devices": 4,
        "engines": "split",
        "transport": "stored",
        "stages": "layers",
    },
    "in a V": {"schedule": of_csv(V), "micro_batch": 5},
    "in a V, by turns": {
        "schedule": of_csv(V),
        "micro_batch": 5,
        "engines": "turns",
        "clip_norm": 0.5,
    },
    "a file": {"schedule": of_csv(SWAPPED), "micro_batch": 5},
    "recomputed": {"schedule": "gpipe", "devices": 4, "engines": "turns", "recompute": "all"},
    "recomputed by R": {
        "schedule": of_csv(RECOMPUTED),
        "micro_batch": 5,
        "engines": "turns",
        "stages": "layers",
    },
    "stages of layers": {"schedule": "zero-bubble", "devices": 4, "stages": "layers"},
    "a device idle": {"devices": 1},
    "adapters": {"schedule": "sync", "devices": 5, "lora": "r=2,alpha=3,on=conv2,fc*"},
    "replicas": {"replicas": 2, "devices": 3, "compress": "inceptionn:-10"},
    "aggregator": {"schedule": "data-parallel-aggregator", "devices": 4},
    "aggregator of chains": {
        "schedule": "fpdeep",
        "replicas": 2,
        "devices": 4,
        "exchange": "aggregator",
    },
    "ring": {"schedule": "data-parallel-ring", "devices": 4, "compress": "inceptionn:-10"},
    "ring of rings": {"schedule": "data-parallel-ring", "devices": 6, "groups": 2, "batch": 30},
    "residual": {"network": "resnet8-cifar", "schedule": "sync", "devices": 3, "epochs": 1},
    "branches": {
        "network": "inception-cifar",
        "schedule": "sync",
        "devices": 7,
        "samples": 20,
        "epochs": 1,
    },
    "off-chip memory": {
        "devices": 5,
        "cluster": emuchain.load_cluster("vc709", {"board.on_chip_memory_kbit": 1200}),
    },
    "adam": {"schedule": "sync", "devices": 3, "optimizer": "adam", "learning_rate": 0.001},
    "recurrent, cut by units": {
        "network": "lstm-rows",
        "schedule": "1f1b-so",
        "devices": 4,
        "samples": 40,
    },
    "recurrent, sync": {"network": "lstm-rows", "schedule": "sync", "devices": 5, "samples": 40},
    "recurrent, fpdeep": {"network": "gru-rows", "schedule": "fpdeep", "devices": 2, "samples": 40},
    "balanced parameters": {"network": "vgg16-cifar", "devices": 24, "samples": 20, "epochs": 1},
}


@pytest.fixture(scope="module")
def comm() -> Any:
    from mpi4py import MPI

    return MPI.COMM_WORLD


@pytest.mark.parametrize("name", RUNS)
def test_ranks_change_neither_numbers_nor_times(comm: Any, bits: Any, name: str) -> None:
    """Rank 0 trains in one process, too; every rank compares with that."""
    keys, ranks = {**KEYS, **RUNS[name]}, MpiRanks(comm.Clone())
    here = emuchain.train(comm=comm, **keys)
    alone = ranks.share(emuchain.train(**keys) if comm.rank == 0 else None)[0]
    ranks.free()
    assert bits(here.weights) == bits(alone.weights)
    for column in ("train_loss", "test_loss", "test_accuracy", "virtual_time_ps"):
        assert here.history[column].tolist() == alone.history[column].tolist(), column
    assert here.messages.keys() == alone.messages.keys()
    assert bool(here.messages) == ("compress" in RUNS[name])
    for column, values in alone.messages.items():
        assert here.messages[column].tolist() == values.tolist(), column
    for of_ranks, of_one in (
        (here.devices, alone.devices),
        (here.links, alone.links),
        (here.exchange, alone.exchange),
    ):
        assert of_ranks.keys() == of_one.keys()
        for column, values in of_one.items():
            assert np.array_equal(of_ranks[column], values, equal_nan=values.dtype.kind == "f"), (
                column
            )
    assert comm.allgather(here.virtual_time_ps) == [alone.virtual_time_ps] * comm.size, (
        "all ranks get the results"
    )


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("schedule", ["farnn", "farnn-all-fpga", "gpu-standard"])
def test_the_devices_of_a_pair_are_on_ranks_of_their_own(
    comm: Any, bits: Any, schedule: str, ragged: bool
) -> None:
    """All layers of the pair's own tests; the GPU is on rank 0, the FPGA on rank 1, other ranks are
    idle.
    """
    ranks, data = MpiRanks(comm.Clone()), data_of(ragged=ragged)
    cluster = "p100" if schedule == "gpu-standard" else "farnn-9p"
    keys: dict[str, Any] = {
        "schedule": schedule,
        "batch": 4,
        "micro_batch": 3,
        "epochs": 2,
        "learning_rate": 0.1,
    }
    for name in LAYERS:
        here = emuchain.train(description(name), cluster, comm=comm, data=data, **keys)
        alone = ranks.share(emuchain.train(description(name), cluster, data=data, **keys))[0]
        assert bits(here.weights) == bits(alone.weights)
        for column in ("train_loss", "test_loss", "test_accuracy", "virtual_time_ps"):
            assert here.history[column].tolist() == alone.history[column].tolist(), column
        for column, values in alone.resources.items():
            assert here.resources[column].tolist() == values.tolist(), column
    ranks.free()


def test_every_rank_hears_why_training_ended(comm: Any) -> None:
    for schedule in (
        "fpdeep",
        "sync",
        "fpdeep",
        "sync",
    ):  # no message under way writes into a later run
        with pytest.raises(emuchain.InputError, match="learning_rate.*diverged"):
            emuchain.train(
                comm=comm, **{**KEYS, "schedule": schedule, "learning_rate": 1e9, "devices": 4}
            )
    again = emuchain.train(comm=comm, **KEYS, devices=4)
    assert again.epochs == 2, "and a further run works"


def test_a_stream_is_the_same_on_all_ranks_or_refused(comm: Any, bits: Any) -> None:
    """Samples of a generator, which each rank reads by itself."""

    def samples(shift: int) -> Iterator[tuple[Any, int]]:
        for number in range(24):
            yield np.full(4, (number + shift) % 3, np.float32), number % 3

    layers = [{"type": "fc", "features": 3}, {"type": "softmax"}]
    keys: dict[str, Any] = {
        "network": {"name": "rows", "input": [4, 1, 1], "layers": layers},
        **{"batch": 6, "schedule": "sync", "devices": 2, "progress": "none"},
    }
    here = emuchain.train(comm=comm, data=samples(0), **keys)
    assert bits(here.weights) == bits(emuchain.train(data=samples(0), **keys).weights)
    with pytest.raises(emuchain.InputError, match=r"`data`: rank 1 has other samples than rank 0"):
        emuchain.train(comm=comm, data=samples(comm.rank), **keys)


@pytest.fixture
def folder(comm: Any) -> Iterator[Path]:
    """A folder that all ranks share; pytest's own are cleared by whichever rank comes last."""
    path = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    yield path
    comm.barrier()
    if comm.rank == 0:
        shutil.rmtree(path)


def test_the_results_file_is_written_once(comm: Any, folder: Path, bits: Any) -> None:
    here = emuchain.train(comm=comm, **KEYS, devices=4, out=str(folder / "run.h5"))
    comm.barrier()
    assert bits(emuchain.results(folder / "run.h5").weights) == bits(here.weights)
    assert [path.name for path in folder.iterdir()] == ["run.h5"]


@pytest.mark.parametrize("rank", [0, 1])
def test_what_fails_on_one_rank_before_training_is_raised_on_all(
    comm: Any, folder: Path, rank: int
) -> None:
    out = folder / ("nowhere" if comm.rank == rank else "") / "run.h5"
    keys = (
        {**KEYS, "out": str(out)}
        if rank == 0
        else {**KEYS, "samples": -1 if comm.rank == rank else 60}
    )
    with pytest.raises(emuchain.InputError, match="nowhere" if rank == 0 else "`samples` = -1"):
        emuchain.train(comm=comm, devices=4, **keys)


def test_the_ranks_of_boards_that_are_left_go_on(comm: Any, folder: Path, bits: Any) -> None:
    """A board of each of two ranks dies; arrays move between ranks."""
    faults = folder / "faults.toml"
    if comm.rank == 0:
        deaths = ("board = 1\nat_us = 500", "board = 3\nat_us = 2001500")
        faults.write_text("".join(f"[[faults.deaths]]\n{death}\n" for death in deaths))
    comm.barrier()
    keys = {
        **KEYS,
        "devices": 5,
        "schedule": "fpdeep",
        "checkpoint_every": 1,
        "faults": str(faults),
        "changes": COUNTED,  # fast enough that the second board dies in the second epoch
    }
    here, alone = emuchain.train(comm=comm, **keys), emuchain.train(**keys)
    assert bits(here.weights) == bits(alone.weights)
    assert here.steps["virtual_time_ps"].tolist() == alone.steps["virtual_time_ps"].tolist()
    assert [round(time_ps, -12) for time_ps in here.history["virtual_time_ps"].tolist()] == [
        2 * 10**12,
        4 * 10**12,
    ]


@pytest.mark.parametrize("name", ["ranks share chains", "ranks without a device", "a board died"])
def test_a_run_goes_on_from_a_checkpoint(comm: Any, folder: Path, bits: Any, name: str) -> None:
    """Ranks write it, and each of them goes on with it alone, too. After a death, ranks are more
    than boards.
    """
    runs: dict[str, dict[str, Any]] = {
        "ranks share chains": {"devices": 5, "checkpoint_every": 2, "replicas": 2},
        "ranks without a device": {"devices": comm.size - 1},
        "a board died": {
            "devices": comm.size,
            "checkpoint_every": 1,
            "faults": str(folder / "faults.toml"),
        },
    }
    if comm.rank == 0:
        (folder / "faults.toml").write_text("[[faults.deaths]]\nboard = 1\nat_us = 500\n")
    comm.barrier()
    keys, file = {**KEYS, "schedule": "fpdeep", **runs[name]}, str(folder / "run.ckpt")
    whole = emuchain.train(**keys)
    emuchain.train(comm=comm, **{**keys, "epochs": 1, "checkpoint": file})
    again = {"resume": file, "epochs": 2, "checkpoint": None}
    for found in (emuchain.train(comm=comm, **again), emuchain.train(**again)):
        assert bits(found.weights) == bits(whole.weights)
        for column in ("train_loss", "test_loss", "test_accuracy", "virtual_time_ps"):
            assert found.history[column].tolist() == whole.history[column].tolist(), column


def test_a_model_of_pytorch_trains_on_ranks_as_in_one_process(comm: Any) -> None:
    """From its weights, which each rank has and one reads; all get the state."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(288, 3))
    keys: dict[str, Any] = {"batch": 6, "schedule": "sync", "devices": 2, "progress": "none"}
    network = emuchain.from_torch(model, torch.zeros(2, 3, 8, 8)) if comm.rank == 0 else None
    network = comm.bcast(network)
    random = np.random.default_rng(3)
    images, labels = random.integers(0, 256, (12, 3, 8, 8), np.uint8), np.arange(12) % 3
    data = emuchain.Dataset("own", images, labels, images[:6], labels[:6], ("a", "b", "c"))
    state = emuchain.train(network, comm=comm, data=data, **keys).state_dict()
    alone = emuchain.train(network, data=data, **keys).state_dict()
    assert all(torch.equal(state[key], alone[key]) for key in alone)
