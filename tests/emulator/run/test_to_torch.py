"""A trained network as a module of PyTorch: it computes what `predict` does, and its state_dict
goes into files and comes back without a changed bit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.device import array_shapes
from emuchain.emulator.network import Network, load_network, network_module
from emuchain.emulator.run import RunWeights, Weights, predict, read_weights

from ..commands.running import status_of
from ..commands.test_export import ACTIVATIONS, IMAGES, MIXED, RECURRENT, ROWS
from ..networks import of_images, of_table
from .gpt import conv, gpt

torch = pytest.importorskip("torch", reason="PyTorch, of which these modules are, is not installed")

ROTARY = gpt(24, 1, 4, 8, "rms-norm", kv_heads=2)
TURNED = of_table(
    "turned",
    *(11, 16, {"type": "positions", "name": "x"}, conv(48, "qkv")),
    {"type": "rotary", "heads": 2, "interleaved": True, "base": 100.0, "turned": 6},
    *({"type": "attention", "heads": 2, "scale": 1.0}, conv(16, "mixed")),
    *({"type": "gelu", "name": "y"}, {"type": "add", "from": ["y", "x"]}, {"type": "layer-norm"}),
    steps=6,
)
WITH_TOKEN = of_images(
    "with-token",
    {"type": "conv", "channels": 12, "kernel": 8, "stride": 8},
    {"type": "tokens", "class_token": True, "class_tokens": 2},
    {"type": "positions"},
    conv(36, "qkv"),
    {"type": "attention", "heads": 3},
    {"type": "first-step"},
)
JOINED = of_images(
    "joined",
    {"type": "conv", "channels": 4, "kernel": 5, "stride": 4, "name": "train"},
    {"type": "batch-norm", "name": "a"},
    {"type": "conv", "channels": 4, "kernel": 3, "pad": 1},
    {"type": "batch-norm", "name": "b"},
    {"type": "concat", "from": ["b", "a"]},
    {"type": "layer-norm"},
    {"type": "average-pool", "kernel": 2, "pad": 1, "count_include_pad": False},
)
NETWORKS: dict[str, Any] = {
    **{"images": IMAGES, "activations": ACTIVATIONS, "mixed": MIXED, "rows": ROWS},
    **{"rotary": ROTARY, "turned": TURNED, "token": WITH_TOKEN, "joined": JOINED},
    **{"llama": "llama-tiny", "shortcuts": "resnet8-cifar", "branches": "inception-cifar"},
}
GRUS = {**RECURRENT, "layers": [layer for layer in RECURRENT["layers"] if "reset" not in layer]}
NETWORKS["recurrent"] = GRUS
NETWORKS["kept"] = of_images(
    "kept",
    {"type": "conv", "channels": 6, "kernel": 5, "stride": 4, "name": "c"},
    *({"type": "relu"}, {"type": "conv", "channels": 6, "kernel": 3, "pad": 1, "name": "d"}),
    {"type": "add", "from": ["d", "c"], "name": "sum"},
    {"type": "multiply", "from": ["sum", "d"]},
)
NETWORKS["groups"] = of_images(
    "groups",
    {"type": "conv", "channels": 12, "kernel": 5, "stride": 4},
    {"type": "group-norm", "groups": 3},
    *({"type": "relu"}, {"type": "conv", "channels": 6, "kernel": 3, "pad": 1}),
    {"type": "group-norm", "groups": 6, "epsilon": 1e-3},
)


def random_weights(network: Network) -> Weights:
    """Weights unlike those that training begins with; variances are above 0."""
    random = np.random.default_rng(3)
    weights: Weights = {}
    for layer in network.layers:
        own = weights[layer.name] = {}
        for name, shape in array_shapes(layer).items():
            scale = 0.5 / np.sqrt(max(1, np.prod(shape[1:])))
            own[name] = (random.normal(0, scale, shape) + name.startswith("scale")).astype("f4")
            if name.startswith("variance"):
                own[name] = np.abs(own[name]) + np.float32(0.5)
    for head in network.heads:
        assert head.tied is not None
        table = weights[head.tied.name]["weight"].reshape(head.tied.weight_shape[:2]).T
        weights[head.name]["weight"] = np.ascontiguousarray(table).reshape(head.weight_shape)
    return weights


def samples_of(network: Network) -> np.ndarray:
    """Random samples that a network takes."""
    random, (channels, rows, _) = np.random.default_rng(5), network.input
    if network.takes_symbols:
        return random.integers(0, channels, (3, rows))
    shape = (rows, channels) if network.takes_sequence else network.input
    return random.normal(0, 1, (3, *shape)).astype(np.float32)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_module_computes_what_predict_does(name: str) -> None:
    network = load_network(NETWORKS[name])
    weights, samples = random_weights(network), samples_of(network)
    module = network_module(network, weights, "here")
    assert not module.training
    with torch.no_grad():
        theirs = module(torch.from_numpy(samples)).numpy()
    ours = predict(RunWeights(weights, {"samples": 1, "batch": 1}, network, 1), samples)
    assert theirs.shape == ours.shape
    assert np.abs(theirs - ours).max() <= 1e-5 * np.abs(ours).max()
    assert np.ptp(ours) > 0.01


def test_what_pytorch_has_no_module_for_is_refused(one_line: Any) -> None:
    network = load_network(RECURRENT)
    with pytest.raises(InputError, match=r"to_torch: gru of layer third: .*reset") as error:
        network_module(network, random_weights(network), "here")
    assert one_line(error)


SETTINGS: dict[str, Any] = {"samples": 40, "test_samples": 20, "batch": 20, "progress": "none"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Results, and their folder, with run.h5 and run.ckpt."""
    folder = tmp_path_factory.mktemp("trained")
    files = {"out": folder / "run.h5", "checkpoint": folder / "run.ckpt"}
    return emuchain.train(IMAGES, **SETTINGS, **files), folder


@pytest.mark.parametrize("source", ["run.h5", "run.ckpt"])
def test_a_file_of_pytorch_is_plain_and_comes_back(
    trained: Any, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    results, folder = trained
    out = folder / f"{source}.pt"
    assert status_of("export", "--torch", str(folder / source), str(out)) == 0
    assert f"--init {out}" in capsys.readouterr().out.replace("\n", " ").replace("  ", " ")
    state = torch.load(out, weights_only=True)
    module = results.to_torch()
    module.load_state_dict(state, strict=True)
    assert all(torch.equal(value, state[key]) for key, value in results.state_dict().items())
    assert state["c1_batch_norm.num_batches_tracked"] == 2
    back = read_weights(str(out), load_network(IMAGES), "here")
    for layer, arrays in results.weights.items():
        assert all(np.array_equal(back[layer][name], arrays[name]) for name in arrays)


def test_results_of_a_file_are_a_module_too(trained: Any) -> None:
    results, folder = trained
    module = emuchain.results(folder / "run.h5").to_torch()
    samples = samples_of(load_network(IMAGES))
    with torch.no_grad():
        theirs = module(torch.from_numpy(samples)).numpy()
    ours = emuchain.predict(results, samples)
    assert np.abs(theirs - ours).max() <= 1e-5 * np.abs(ours).max()


def test_a_name_for_another_form_is_refused(trained: Any, one_line: Any) -> None:
    _, folder = trained
    with pytest.raises(InputError, match=r"should end in \.safetensors or \.onnx or \.pt") as error:
        emuchain.export(folder / "run.h5", folder / "weights.bin")
    assert one_line(error)
    assert status_of("export", "--torch", str(folder / "run.h5"), str(folder / "a.onnx")) == 2


class Own:
    """What a pickle could run code for."""


WRONG: dict[str, tuple[Any, str]] = {
    "a model": (lambda state: torch.nn.Linear(2, 2), "holds more than tensors"),
    "an object": (lambda state: {**state, "own": Own()}, "holds more than tensors"),
    "one tensor": (lambda state: torch.zeros(3), r"should be model\.state_dict\(\)"),
    "a checkpoint": (lambda state: {"model": state}, r"'model' is .*should be model\.state_dict"),
    "a missing tensor": (
        lambda state: {key: value for key, value in state.items() if key != "out.bias"},
        r"lacks the tensor 'out\.bias'",
    ),
    "an unknown tensor": (
        lambda state: {**state, "out.biass": state["out.bias"]},
        r"no tensor 'out\.biass'; did you mean `?out\.bias",
    ),
    "another shape": (
        lambda state: {**state, "out.bias": torch.zeros(9)},
        r"'out\.bias' is float32 \(9,\)",
    ),
    "whole numbers": (
        lambda state: {**state, "out.bias": torch.zeros(10, dtype=torch.int32)},
        r"'out\.bias' is int32 \(10,\)",
    ),
    "no numbers": (
        lambda state: {**state, "out.bias": torch.full((10,), float("nan"))},
        "values that are not finite",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_files_are_refused(trained: Any, tmp_path: Path, name: str, one_line: Any) -> None:
    make, message = WRONG[name]
    path = tmp_path / "w.pt"
    torch.save(make(trained[0].state_dict()), path)
    with pytest.raises(InputError, match=message) as error:
        read_weights(str(path), load_network(IMAGES), "`init` = 'w.pt'")
    assert one_line(error).startswith("`init` = 'w.pt': ")


def test_a_damaged_file_is_refused(trained: Any, tmp_path: Path, one_line: Any) -> None:
    path = tmp_path / "w.pt"
    torch.save(trained[0].state_dict(), path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(InputError) as error:
        read_weights(str(path), load_network(IMAGES), "`init` = 'w.pt'")
    assert one_line(error)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_floats_are_taken(trained: Any, tmp_path: Path, kind: Any) -> None:
    path, state = tmp_path / "w.pt", trained[0].state_dict()
    torch.save(
        {key: own.to(kind) if own.is_floating_point() else own for key, own in state.items()}, path
    )
    back = read_weights(str(path), load_network(IMAGES), "here")
    expected = state["c1.weight"].to(kind).float().numpy()
    assert np.array_equal(back["c1"]["weight"], expected)
