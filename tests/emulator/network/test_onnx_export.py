"""ONNX files of networks without training: forms of inputs, shortcuts of sequences, what is
refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.device import array_shapes
from emuchain.emulator.network import Network, load_network, onnx_image, onnx_weights

onnx = pytest.importorskip(
    "onnx", reason="onnx, which these files are checked with, is not installed"
)

Arrays = dict[str, dict[str, np.ndarray]]
CLOSE = [{"type": "last-step"}, {"type": "fc", "name": "out", "features": 3}, {"type": "softmax"}]
BRANCHES: list[dict[str, Any]] = [
    {"type": "lstm", "name": "a", "units": 6},
    {"type": "relu", "name": "begin"},
    {"type": "gru", "name": "b", "units": 3, "bidirectional": True},
    {"type": "add", "from": ["b", "begin"], "name": "sum"},
    {"type": "concat", "from": ["sum", "begin"]},
    {"type": "gru", "name": "c", "units": 4, "reset": "before"},
    *CLOSE,
]


def network(sizes: list[int], *layers: dict[str, Any]) -> Network:
    return load_network({"name": "mine", "input": sizes, "layers": list(layers)})


def weights(of: Network) -> Arrays:
    draw = np.random.default_rng(3)
    return {
        layer.name: {
            name: draw.normal(0, 0.5, shape).astype(np.float32)
            for name, shape in array_shapes(layer).items()
        }
        for layer in of.layers
    }


def written(folder: Path, of: Network, own: Arrays) -> Path:
    """The file of a network, which is valid, and which its import gives back."""
    path = folder / "mine.onnx"
    path.write_bytes(onnx_image(own, of, "here"))
    onnx.checker.check_model(onnx.load(path), full_check=True)
    again = load_network(str(path))
    assert [layer.operation for layer in again.layers] == [layer.operation for layer in of.layers]
    assert again.layers == of.layers
    found = onnx_weights(str(path))
    assert {name: {*arrays} for name, arrays in found.items()} == {
        name: {*arrays} for name, arrays in own.items()
    }
    for name, arrays in own.items():
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[name][key].reshape(array.shape), array)
    return path


def ran(path: Path, **inputs: np.ndarray) -> np.ndarray:
    from onnx.reference import ReferenceEvaluator

    [made] = ReferenceEvaluator(str(path)).run(None, inputs)
    return np.asarray(made)


def test_a_sequence_goes_in_as_one(tmp_path: Path) -> None:
    """The same numbers as of images of one channel, whose rows are the steps."""
    steps = network([5, 7, 1], *BRANCHES)
    images = network([1, 7, 5], {"type": "sequence"}, *BRANCHES)
    own = weights(steps)
    given = np.random.default_rng(4).normal(size=(2, 7, 5)).astype(np.float32)
    logits = ran(written(tmp_path, steps, own), steps=given)
    assert logits.shape == (2, 3)
    np.testing.assert_array_equal(
        logits, ran(written(tmp_path, images, own), images=given[:, None])
    )


def test_two_embeddings_of_the_same_symbols(tmp_path: Path) -> None:
    of = network(
        [9, 7, 1],
        {"type": "embedding", "name": "one", "features": 4},
        {"type": "lstm", "name": "a", "units": 6},
        {"type": "embedding", "name": "two", "features": 6, "from": "images"},
        {"type": "add", "from": ["two", "a"]},
        {"type": "gru", "name": "b", "units": 4},
        {"type": "conv", "name": "each", "channels": 9, "kernel": 1},
        {"type": "softmax"},
    )
    symbols = np.random.default_rng(4).integers(0, 9, (2, 7))
    assert ran(written(tmp_path, of, weights(of)), symbols=symbols).shape == (2, 7, 9)


def test_a_fully_connected_layer_over_all_steps(tmp_path: Path) -> None:
    """Its inputs stand channel by channel, where the file has them step by step."""
    close = [{"type": "fc", "name": "f", "features": 2}, {"type": "softmax"}]
    of = network([2, 3, 1], {"type": "gru", "name": "a", "units": 2}, *close)
    own = weights(of)
    for array in own["a"].values():
        array[:] = 0
    own["a"]["bias_ih_l0"][:] = [0, 0, -1, -1, 2, -2]  # reset, update and new gates of two units
    logits = ran(written(tmp_path, of, own), steps=np.zeros((1, 3, 2), np.float32))
    state, update, states = np.zeros(2), 1 / (1 + np.exp(1)), []
    for _ in range(3):
        state = (1 - update) * np.tanh([2, -2]) + update * state
        states.append(state)
    by_channel = np.stack(states, axis=1).ravel()
    expected = own["f"]["weight"].reshape(2, 6) @ by_channel + own["f"]["bias"]
    np.testing.assert_allclose(logits[0], expected, rtol=1e-5)


def conv(channels: int, name: str, **keys: Any) -> dict[str, Any]:
    return {"type": "conv", "channels": channels, "kernel": 1, "name": name, **keys}


NORMS = [
    {"type": "layer-norm", "epsilon": 1e-6},
    {"type": "rms-norm"},
    {"type": "gelu"},
    {"type": "gelu", "tanh": True},
]
TRANSFORMERS: dict[str, tuple[list[int], list[dict[str, Any]]]] = {
    "a sequence": (
        [5, 7, 1],
        [
            conv(24, "qkv"),
            {"type": "attention", "name": "a", "heads": 2, "causal": True},
            *NORMS,
            conv(3, "each"),
        ],
    ),
    "norms that learn less": (
        [5, 7, 1],
        [
            conv(12, "first"),
            {"type": "layer-norm", "shift": False},
            conv(12, "second"),
            {"type": "layer-norm", "shift": False, "scale": False},
            conv(12, "third"),
            {"type": "layer-norm", "offset": 1.0},
            conv(12, "fourth"),
            {"type": "rms-norm", "offset": 1.0},
            conv(3, "each"),
        ],
    ),
    "grouped queries": (
        [5, 7, 1],
        [
            conv(32, "qkv"),
            {"type": "attention", "name": "a", "heads": 4, "kv_heads": 2, "causal": True},
            conv(3, "each"),
        ],
    ),
    "one key for all": (
        [16, 7, 1],
        [{"type": "attention", "name": "a", "heads": 2, "kv_heads": 1}, conv(3, "each")],
    ),
    "attention at once": (
        [24, 7, 1],
        [
            {"type": "attention", "name": "a", "heads": 4, "scale": 0.1},
            *NORMS,
            conv(3, "each"),
        ],
    ),
    "symbols": (
        [9, 7, 1],
        [
            {"type": "embedding", "name": "e", "features": 4},
            {"type": "positions"},
            *NORMS,
            conv(12, "qkv"),
            {"type": "attention", "name": "a", "heads": 2},
            *NORMS,
            conv(9, "each"),
        ],
    ),
    "a class token": (
        [3, 8, 8],
        [
            {"type": "conv", "name": "patches", "channels": 6, "kernel": 4, "stride": 4},
            *NORMS,
            {"type": "tokens", "class_token": True, "class_tokens": 2},
            {"type": "positions"},
            *NORMS,
            conv(18, "qkv"),
            {"type": "attention", "name": "a", "heads": 3},
            *NORMS,
            {"type": "first-step"},
            *NORMS,
            {"type": "fc", "name": "out", "features": 3},
        ],
    ),
    "a mean": (
        [3, 8, 8],
        [
            {"type": "conv", "name": "patches", "channels": 6, "kernel": 4, "stride": 4},
            {"type": "tokens"},
            conv(18, "qkv"),
            {"type": "attention", "name": "a", "heads": 3, "causal": True},
            {"type": "global-average-pool"},
            {"type": "fc", "name": "out", "features": 3},
        ],
    ),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(tmp_path: Path, name: str) -> None:
    sizes, layers = TRANSFORMERS[name]
    of = network(sizes, *layers, {"type": "softmax"})
    path = written(tmp_path, of, weights(of))
    first = path.read_bytes()
    again = load_network(str(path))
    assert onnx_image(onnx_weights(str(path)), again, "here") == first
    draw = np.random.default_rng(4)
    shapes = {"steps": (2, sizes[1], sizes[0]), "images": (2, *sizes)}
    [key] = [value.name for value in onnx.load(path).graph.input]
    given = (
        draw.integers(0, 9, (2, 7))
        if key == "symbols"
        else draw.normal(size=shapes[key]).astype(np.float32)
    )
    logits = ran(path, **{key: given})
    assert logits.shape == ((2, 3) if of.result_steps == 1 else (2, 7, of.classes))
    assert np.isfinite(logits).all() and len({*logits.ravel().tolist()}) == logits.size


def test_attention_by_hand(tmp_path: Path) -> None:
    """One head of two values; the first row sees itself alone, the second both."""
    of = network([6, 2, 1], {"type": "attention", "heads": 1, "causal": True}, {"type": "softmax"})
    x = np.array([[[1, 2, 3, 4, 5, 6], [0.5, -1, 2, 0, 1, -1]]], np.float32)
    own = {layer.name: {} for layer in of.layers}
    q, k, v = (x[0, :, n : n + 2].astype(np.float64) for n in (0, 2, 4))
    shares = np.exp(q[1] @ k.T / np.sqrt(2))
    expected = [v[0], shares @ v / shares.sum()]
    np.testing.assert_allclose(ran(written(tmp_path, of, own), steps=x)[0], expected, rtol=1e-6)


def test_more_than_protobuf_takes(one_line: Any) -> None:
    of = network([5, 7, 1], {"type": "gru", "name": "a", "units": 2}, *CLOSE)
    large = np.broadcast_to(np.float32(0), (2**29,))
    with pytest.raises(InputError) as error:
        onnx_image({"a": {"weight_ih_l0": large}}, of, "here")
    assert one_line(error).startswith(
        "here: mine has 2.00 GiB of weights, and an ONNX file at most 1.98 GiB"
    )


REFUSED: dict[str, tuple[list[int], list[dict[str, Any]]]] = {
    "mine has lstm with a projection (a)": (
        [5, 7, 1],
        [{"type": "lstm", "name": "a", "units": 4, "projection": 2}],
    ),
    "mine has conv (k) on rows, channels": (
        [5, 7, 1],
        [
            {"type": "gru", "name": "a", "units": 4},
            {"type": "conv", "name": "k", "channels": 2, "kernel": [3, 1], "pad": [1, 0]},
        ],
    ),
    "mine has batch-norm on rows, channels (a)": (
        [5, 7, 1],
        [{"type": "gru", "name": "a", "units": 4}, {"type": "batch-norm"}],
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(one_line: Any, message: str) -> None:
    sizes, layers = REFUSED[message]
    of = network(sizes, *layers, *CLOSE)
    with pytest.raises(InputError) as error:
        onnx_image(weights(of), of, "here")
    line = one_line(error)
    assert (
        line.startswith(f"here: {message}, which ONNX files cannot hold") and ".safetensors" in line
    )
