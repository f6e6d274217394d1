"""Group and global response normalisation on chains: the same bits and times however a network is
cut, the same step as PyTorch, and their way through ONNX and from models of PyTorch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network

from ..networks import of_images
from .operations import KEYS, Bits, check_bits, check_file, check_step, check_weights

NETWORK = of_images(
    "groups",
    {"type": "conv", "channels": 12, "kernel": 5, "stride": 2, "pad": 2, "name": "c1"},
    *({"type": "group-norm", "groups": 3, "name": "n1"}, {"type": "relu"}),
    {"type": "conv", "channels": 12, "kernel": 3, "pad": 1, "name": "c2"},
    {"type": "group-norm", "groups": 12, "name": "n2"},
    *({"type": "add", "from": ["n2", "n1"]}, {"type": "relu"}),
    {"type": "conv", "channels": 16, "kernel": 1, "name": "c3"},
    *({"type": "gelu", "name": "x"}, {"type": "global-response-norm"}),
    *({"type": "scale"}, {"type": "shift", "name": "y"}),  # as in ConvNeXt V2
    {"type": "add", "from": ["y", "x"]},
    {"type": "max-pool", "kernel": 2},
)


@pytest.fixture(scope="module")
def reference() -> Any:
    """Results on one board."""
    return emuchain.train(NETWORK, micro_batch=8, **KEYS)


@pytest.mark.parametrize("micro_batch", [1, 4])
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_no_mapping_changes_a_bit(
    reference: Any, bits: Bits, devices: int, micro_batch: int
) -> None:
    check_bits(NETWORK, KEYS, reference, bits, devices=devices, micro_batch=micro_batch)


def test_pytorch_takes_the_same_step() -> None:
    """One step of SGD from the same weights, of scales and shifts, too."""
    names = {"c1_group_norm.weight", "c3_scale.weight", "c3_shift.bias"}
    assert names <= check_step(NETWORK)


def test_it_goes_through_onnx(reference: Any, tmp_path: Path, bits: Bits) -> None:
    path = tmp_path / "groups.onnx"
    check_file(NETWORK, reference, path)
    check_weights(path, KEYS, reference, bits)


def test_groups_divide_channels(one_line: Any) -> None:
    layers = [
        {**layer, **({"groups": 5} if "groups" in layer else {})} for layer in NETWORK["layers"]
    ]
    with pytest.raises(InputError, match="`groups` = 5 does not divide 12 channels") as error:
        load_network({**NETWORK, "layers": layers})
    assert one_line(error)


def test_models_of_pytorch_are_taken() -> None:
    """Both norms come as PyTorch's exporter writes them, with their weights and names."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip(
        "onnxscript", reason="onnxscript, which PyTorch's exporter needs, is missing"
    )
    nn = torch.nn
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True)),
        *(nn.Flatten(), nn.Linear(128, 10)),
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0.2, 0.2)
    network = emuchain.from_torch(model, torch.zeros(2, 3, 8, 8))
    steps = [step.operation for layer in network.layers for step in layer.sfu]
    assert [step.groups for step in steps if step.type == "group-norm"] == [2, 8]
    images = np.random.default_rng(2).normal(0, 1, (3, 3, 8, 8)).astype(np.float32)
    random = np.random.default_rng(1)
    data = emuchain.load_data("shapes")  # only the classes are its own
    from emuchain.emulator.data import Dataset

    maps, labels = random.integers(0, 256, (8, 3, 8, 8), np.uint8), random.integers(0, 10, 8)
    own = Dataset("random", maps, labels, maps, labels, data.classes)
    run = emuchain.train(
        network, data=own, batch=8, progress="none", learning_rate=1e-30, weight_decay=0
    )
    theirs = model(torch.from_numpy(images)).detach().numpy()
    assert np.abs(emuchain.predict(run, images) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    assert all(torch.equal(run.state_dict()[key], own) for key, own in model.state_dict().items())


def test_rows_wait_for_the_last_one() -> None:
    layers = load_network(NETWORK).layers
    kinds = {step.operation.type: step for layer in layers for step in layer.sfu}
    [rows] = kinds["global-response-norm"].row_maps
    assert rows is not None
    assert rows.forward.tolist() == rows.backward.tolist() == [15] * 16


@pytest.mark.parametrize(("kind", "time_ns"), [("relu", 300), ("global-response-norm", 380)])
def test_its_time_by_hand(kind: str, time_ns: int) -> None:
    """One board of 10 ns, whose five engines have a multiplier each: 2 cycles a row in conv1, 4 in
    conv2, of three rows; 2 cycles an update.

        conv1 FP    20  40  60      all go on at 60, those of ReLU one by one
        conv2 FP   100 140 180      of ReLU  60 100 140
        conv2 EB   220 260 300      of ReLU 180 220 260, of the average of all rows
        conv1 PG   320 340 360      of ReLU 200 240 280; new weights 20 later
    """
    conv = {"type": "conv", "channels": 2, "kernel": 1}
    end = {"type": "average-pool", "kernel": [3, 1]}
    layers = [conv, {"type": kind}, conv, end, {"type": "softmax"}]
    board = {"name": "one", "clock_mhz": 100, "dsp": 5, "on_chip_memory_kbit": 8}
    links = {"bandwidth_gbps": 1, "latency_ns": 0}
    made = emuchain.simulate(
        {"name": "rows", "input": [1, 3, 1], "layers": layers},
        cluster={"name": "one", "boards": [board], "links": links},
        **{"samples": 1, "batch": 1, "micro_batch": 1, "schedule": "sync"},
    )
    assert made.virtual_time_ps == 1000 * time_ns


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dynamo", [False, True])
def test_global_response_comes_from_pytorch(
    tmp_path: Path, one_line: Any, last: bool, dynamo: bool
) -> None:
    """With channels before rows or behind columns, by both of its exporters."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn = torch.nn

    class Response(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, over: tuple[int, ...] = (1, 2) if last else (2, 3)) -> None:
            super().__init__()
            sizes = (1, 1, 1, 8) if last else (1, 8, 1, 1)
            self.gamma, self.beta = (nn.Parameter(torch.rand(sizes)) for _ in range(2))
            self.over = over

        def forward(self, x: Any) -> Any:
            x = x.permute(0, 2, 3, 1) if last else x
            length = torch.norm(x, p=2, dim=self.over, keepdim=True)
            share = length / (length.mean(dim=-1 if last else 1, keepdim=True) + 1e-6)
            y = torch.addcmul(self.beta, self.gamma, x * share) + x
            return y.permute(0, 3, 1, 2) if last else y

    def model(*own: Any) -> Any:
        return nn.Sequential(nn.Conv2d(3, 8, 3), *own, nn.Flatten(), nn.Linear(288, 10))

    peer, images = model(Response()), torch.randn(3, 3, 8, 8)
    network, path = emuchain.from_torch(peer, images[:2]), tmp_path / "response.onnx"
    keys: dict[str, Any] = {"optimize": False, "verbose": False} if dynamo else {}
    torch.onnx.export(peer, (images[:2],), path, dynamo=dynamo, **keys)
    read = load_network(path)
    steps = [step.operation for step in read.layers[0].sfu]
    assert [step.type for step in steps] == ["global-response-norm", "scale", "shift", "add"]
    assert steps == [step.operation for step in network.layers[0].sfu]
    from emuchain.emulator.data import Dataset

    maps, labels = np.zeros((8, 3, 8, 8), np.uint8), np.arange(8)
    own = Dataset("none", maps, labels, maps, labels, tuple(map(str, range(10))))
    still = {"batch": 8, "progress": "none", "learning_rate": 1e-30, "weight_decay": 0}
    run = emuchain.train(network, data=own, **still)
    theirs = peer(images).detach().numpy()
    assert np.abs(emuchain.predict(run, images) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    peer.load_state_dict(run.state_dict(), strict=True)
    with pytest.raises(InputError, match="computes lengths; only those of channels") as error:
        emuchain.from_torch(model(Response((1, 3))), images[:2])
    assert one_line(error)
