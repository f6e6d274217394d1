"""ONNX files of transformers: PyTorch's compute here what they did there, and what is refused says
why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.data import load_data
from emuchain.emulator.network import Network, load_network, onnx_image
from emuchain.emulator.run import RunWeights, evaluate, read_weights

from . import torch_transformers as models
from .torch_transformers import (
    HEADS,
    SIZE,
    SYMBOLS,
    TOKENS,
    WIDTH,
    Block,
    Gpt,
    Vit,
    exported,
    functional,
    nn,
    torch,
)

onnx = pytest.importorskip(
    "onnx", reason="onnx, which reads the files of these tests, is not installed"
)

WAYS = [
    *("script", "script-open"),
    *(pytest.param(way, marks=pytest.mark.slow) for way in ("dynamo", "dynamo-open")),
]
"""PyTorch's exporters; without the mark `open`, the number of samples is fixed."""


def drawn(model: Any) -> Any:
    """The model with weights none of which are equal."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0, 0.3)
    return model.eval()


def inputs(model: Any) -> Any:
    torch.manual_seed(2)
    return (
        torch.randn(2, 3, 32, 32)
        if isinstance(model, Vit)
        else torch.randint(0, SYMBOLS, (2, TOKENS))
    )


def ran(path: Path, x: Any) -> np.ndarray:
    from onnx.reference import ReferenceEvaluator

    session = ReferenceEvaluator(str(path))
    [made] = session.run(None, {session.input_names[0]: x.numpy()})
    return np.asarray(made)


def checked(folder: Path, model: Any, how: str = "script", **keys: Any) -> tuple[Network, Path]:
    """The network of a model: its own file is its again, and computes what the model does."""
    x, path, again = inputs(model), folder / "model.onnx", folder / "again.onnx"
    path.write_bytes(exported(model, x, how, **keys))
    network = load_network(str(path))
    weights = read_weights(str(path), network, "here")
    again.write_bytes(onnx_image(weights, network, "here"))
    onnx.checker.check_model(onnx.load(again), full_check=True)
    same = load_network(str(again))
    assert same.layers == network.layers
    kept = read_weights(str(again), same, "here")
    for name, arrays in weights.items():
        for key, array in arrays.items():
            np.testing.assert_array_equal(kept[name][key], array)
    with torch.no_grad():
        np.testing.assert_allclose(ran(again, x), model(x).numpy(), rtol=1e-5, atol=1e-5)
    return network, path


SPELLINGS: dict[str, Callable[[], Any]] = {
    "split": lambda: Gpt(Block(), Block()),
    "permuted": lambda: Gpt(Block(models.permuted)),
    "by heads": lambda: Gpt(Block(models.by_heads)),
    "three layers": lambda: Gpt(Block(None), Block(None)),
    "by hand": lambda: Gpt(
        Block(attend=models.by_hand), Block(attend=models.by_hand, causal=False)
    ),
    "divided": lambda: Gpt(Block(None, models.divided), Block(attend=models.divided, causal=False)),
    "not scaled": lambda: Gpt(
        Block(None, models.unscaled), Block(attend=models.unscaled, causal=False)
    ),
    "not causal": lambda: Gpt(Block(causal=False), Block(None, causal=False)),
    "a class token": lambda: Vit(Block(models.permuted, causal=False), has_token=True),
    "patches by views": lambda: Vit(
        Block(models.permuted, causal=False), has_token=True, by_views=True
    ),
    "a mean": lambda: Vit(Block(models.permuted, causal=False), has_token=False),
    "spelled by tanh": lambda: Gpt(Block(gelu=models.Tanh(), norm=models.Rms)),
    "spelled by erf": lambda: Gpt(Block(gelu=models.Erf(), norm=models.Norm)),
    "gelu by tanh": lambda: Gpt(Block(gelu=nn.GELU(approximate="tanh"))),
    "grouped queries": lambda: Gpt(
        *(models.Grouped(2, models.expanded, fused=fused) for fused in (False, True))
    ),
    "grouped, apart": lambda: Gpt(
        *(models.Grouped(2, models.tiled, fused=fused) for fused in (False, True))
    ),
    "one key for all": lambda: Gpt(
        *(models.Grouped(1, models.interleaved, fused=fused) for fused in (False, True))
    ),
    "an encoder": lambda: models.Encoder(norm_first=False),
    "an encoder of norms first": lambda: models.Encoder(norm_first=True),
    "an own class": lambda: models.Multihead(batch_first=True),
    "an own class of tokens first": lambda: models.Multihead(batch_first=False),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", SPELLINGS)
def test_a_model_computes_what_it_did(tmp_path: Path, name: str, how: str) -> None:
    model = drawn(SPELLINGS[name]())
    network, _ = checked(tmp_path, model, how)
    left_out = TOKENS * WIDTH if isinstance(model, Gpt) else 0  # positions that no token has
    left_out += WIDTH if name == "a mean" else 0  # its class token
    assert network.parameters == sum(values.numel() for values in model.parameters()) - left_out


VERSIONS: Mapping[str, dict[str, Any]] = {
    "the oldest": {"opset_version": 17},
    "with its own operators": {"opset_version": 20},
    "unfolded": {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE},
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["split", "three layers", "gelu by tanh", "a class token"])
def test_versions_of_onnx(tmp_path: Path, name: str, version: str) -> None:
    checked(tmp_path, drawn(SPELLINGS[name]()), **VERSIONS[version])


DROPPED: Mapping[str, Callable[[], Any]] = {
    "fused": lambda: Gpt(
        Block(attend=models.Dropped(fused=True)), Block(None, models.Dropped(fused=True))
    ),
    "by hand": lambda: Gpt(Block(attend=models.Dropped(fused=False), causal=False)),
    "an encoder": lambda: models.Encoder(norm_first=True, dropout=0.1),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_of_shares_comes_from_an_export_for_training(tmp_path: Path, name: str) -> None:
    model = drawn(DROPPED[name]())
    network, _ = checked(
        tmp_path, model, do_constant_folding=False, training=torch.onnx.TrainingMode.TRAINING
    )
    rates = {
        vars(own.operation)["dropout"]
        for own in network.layers
        if own.operation.type == "attention"
    }
    assert rates == {0.1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys", [{"opset_version": 18}, {"opset_version": 23}, {"optimize": False}]
)
@pytest.mark.parametrize("name", ["split", "three layers", "a class token", "rms norm"])
def test_versions_of_the_new_exporter(tmp_path: Path, name: str, keys: dict[str, Any]) -> None:
    model = Gpt(Block(norm=nn.RMSNorm)) if name == "rms norm" else SPELLINGS[name]()
    checked(tmp_path, drawn(model), "dynamo", **keys)


def test_the_operator_attention(tmp_path: Path) -> None:
    """ONNX's own, of version 23: queries, keys and values from three layers, with heads on an axis
    or without.
    """
    draw = np.random.default_rng(3)
    for causal, flat, groups in ((0, True, HEADS), (1, True, 1), (1, False, HEADS)):
        few = groups * SIZE
        arrays = {
            name: draw.normal(0, 0.4, shape).astype(np.float32)
            for name, shape in {
                "q": (WIDTH, WIDTH),
                "k": (WIDTH, few),
                "v": (WIDTH, few),
                "o": (WIDTH, 5),
            }.items()
        }
        node = onnx.helper.make_node
        nodes = [node("MatMul", ["x", name], [f"{name}x"], name) for name in "qkv"]
        taken, made = [f"{name}x" for name in "qkv"], ["y"]
        keys = {"q_num_heads": HEADS, "kv_num_heads": groups} if flat else {}
        if not flat:
            for name in "qkv":
                nodes.append(node("Reshape", [f"{name}x", "apart"], [f"{name}a"]))
                nodes.append(node("Transpose", [f"{name}a"], [f"{name}h"], perm=[0, 2, 1, 3]))
            taken, made = [f"{name}h" for name in "qkv"], ["yh"]
        keys |= {} if causal else {"scale": 0.3}
        nodes.append(node("Attention", taken, made, "attention", is_causal=causal, **keys))
        if not flat:
            nodes.append(node("Transpose", ["yh"], ["ya"], perm=[0, 2, 1, 3]))
            nodes.append(node("Reshape", ["ya", "together"], ["y"]))
        nodes.append(node("MatMul", ["y", "o"], ["z"], "out"))
        value = onnx.helper.make_tensor_value_info
        sizes = {"apart": [0, TOKENS, HEADS, SIZE], "together": [0, TOKENS, WIDTH]}
        held = {**arrays, **{name: np.array(size, np.int64) for name, size in sizes.items()}}
        graph = onnx.helper.make_graph(
            nodes,
            "g",
            [value("x", 1, ["n", TOKENS, WIDTH])],
            [value("z", 1, ["n", TOKENS, 5])],
            [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
        )
        path, again = tmp_path / "a.onnx", tmp_path / "b.onnx"
        path.write_bytes(
            onnx.helper.make_model(
                graph, opset_imports=[onnx.helper.make_opsetid("", 23)]
            ).SerializeToString()
        )
        network = load_network(str(path))
        assert [layer.operation.type for layer in network.layers] == ["conv", "attention", "conv"]
        shared = groups if groups < HEADS else None
        keys = {"heads": HEADS, "kv_heads": shared, "causal": bool(causal), "dropout": 0.0}
        keys |= {"keys": None, "scale": None if causal else 0.3}
        own = network.layers[1].operation
        assert own == type(own)(**keys)
        again.write_bytes(onnx_image(read_weights(str(path), network, "here"), network, "here"))
        x = torch.from_numpy(draw.normal(size=(2, TOKENS, WIDTH)).astype(np.float32))
        np.testing.assert_allclose(ran(again, x), ran(path, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "data"), [("three layers", "text"), ("a class token", "shapes")])
def test_emuchain_computes_it(tmp_path: Path, name: str, data: str) -> None:
    """The loss of a test is PyTorch's."""
    model = drawn(SPELLINGS[name]())
    network, path = checked(tmp_path, model)
    settings: dict[str, Any] = {"samples": 60, "test_samples": 20, "batch": 20, "data": data}
    weights = read_weights(str(path), network, "here")
    tested = evaluate(RunWeights(weights, settings, network, 0)).tested
    if data == "text":
        own = load_data(data, steps=TOKENS).test_first(20)
        x, labels = (
            torch.from_numpy(np.asarray(own.test_images)).long(),
            torch.from_numpy(own.test_labels),
        )
        x = x.reshape(len(x), TOKENS)
    else:
        own = load_data(data).first(60).test_first(20)
        x = torch.from_numpy(own.normalisation().apply(np.asarray(own.test_images)))
        labels = torch.from_numpy(own.test_labels)
    with torch.no_grad():
        loss = functional.cross_entropy(model(x).flatten(0, -2), labels.long().flatten()).item()
    assert tested.mean_loss == pytest.approx(loss, rel=1e-5)


class Odd(nn.Module):  # type: ignore[misc]  # PyTorch may be absent
    """Attention that does something else, `kind`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.symbols, self.other = nn.Embedding(SYMBOLS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.q, self.k, self.v = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )
        self.head, self.factor = nn.Linear(WIDTH, SYMBOLS), nn.Parameter(torch.ones(1))

    def forward(self, symbols: Any) -> Any:
        """Return the logits of all tokens."""
        x = self.symbols(symbols)
        y = self.other(x) if self.kind == "cross" else x
        q, k, v = (
            part.view(2, TOKENS, -1, SIZE).transpose(1, 2)
            for part in (self.q(x), self.k(y), self.v(y))
        )
        if self.kind == "shared":
            k, v = (part[:, [0, 0, 1]] for part in (k, v))
        if self.kind == "turned":
            angles = torch.outer(torch.arange(TOKENS).float() + 1, torch.tensor([1.0, 0.1])).repeat(
                1, 2
            )
            q, k = (
                part * angles.cos() + torch.cat([-part[..., 2:], part[..., :2]], -1) * angles.sin()
                for part in (q, k)
            )
        distance = torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)
        masks = {
            "window": torch.ones(TOKENS, TOKENS).tril().triu(-2).log(),
            "slope": -distance.square().float(),
            "cross": torch.ones(TOKENS, TOKENS).tril().log(),
        }
        if self.kind in ("learnt", "spread"):
            q = q * (self.factor if self.kind == "learnt" else self.factor.expand(SIZE))
        if self.kind in ("least", "doubled"):
            q, v = (q * -2, v) if self.kind == "least" else (q, v * 2)
        made = functional.scaled_dot_product_attention(q, k, v, attn_mask=masks.get(self.kind))
        return self.head(made.transpose(1, 2).reshape(x.shape))


REFUSED = {
    "cross": "hides keys of other rows than the queries' own (cross-attention)",
    "shared": "only equal groups (grouped queries, GQA) are supported",
    "turned": "turns queries or keys by other angles than those of rotary embeddings (RoPE)",
    "window": "hides other keys than those behind a query; only a causal mask is supported",
    "slope": "adds other terms to scores than slopes of heads times the distance",
    "learnt": "multiplies queries, keys or scores by an array of the file, which may be learnt",
    "spread": "multiplies queries, keys or scores by an array of the file, which may be learnt",
    "least": "scales products by -1; should be 1e-9 to 1e9",
    "doubled": "takes values times 2; only products of queries and keys may be scaled",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused(tmp_path: Path, kind: str, one_line: Callable[..., str]) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(exported(drawn(Odd(kind)), inputs(None), "script"))
    with pytest.raises(InputError) as error:
        load_network(str(path))
    assert REFUSED[kind] in one_line(error)


@pytest.mark.parametrize(("part", "is_said"), [(0, True), (1, False), (2, True)])
def test_biases_that_some_have_are_said(tmp_path: Path, part: int, is_said: bool) -> None:
    """But for those of keys, which softmax does not see."""
    block, path = models.Grouped(4, models.expanded, fused=False), tmp_path / "model.onnx"
    block.qkv[part].bias = None
    path.write_bytes(exported(drawn(Gpt(block)), inputs(None), "script"))
    assert ("others begin at 0 and are trained" in load_network(str(path)).note) == is_said


HOWS: list[tuple[str, dict[str, Any]]] = [
    ("script", {"do_constant_folding": False}),
    ("script", {}),
    ("dynamo", {}),
]


@pytest.mark.parametrize(("how", "keys"), HOWS)
def test_tied_weights(tmp_path: Path, how: str, keys: dict[str, Any]) -> None:
    """Folded, the file has two arrays, one of them transposed. They are tied again after export and
    import.
    """
    model = drawn(Gpt(Block()))
    model.head.weight = model.symbols.weight
    path, again = tmp_path / "model.onnx", tmp_path / "again.onnx"
    path.write_bytes(exported(model, inputs(None), how, **keys))
    network = load_network(str(path))
    [head] = network.heads
    assert head.tied is not None and head.tied.name == network.layers[0].name
    of_longer_texts = TOKENS * WIDTH  # positions
    assert (
        network.parameters == sum(array.numel() for array in model.parameters()) - of_longer_texts
    )
    again.write_bytes(onnx_image(read_weights(str(path), network, "here"), network, "here"))
    once_more = load_network(str(again))
    assert [(layer.name, layer.operation) for layer in once_more.layers] == [
        (layer.name, layer.operation) for layer in network.layers
    ]
    symbols = inputs(None)
    np.testing.assert_allclose(ran(again, symbols), ran(path, symbols), rtol=1e-5, atol=1e-5)


def test_one_tied_head_alone(tmp_path: Path, one_line: Callable[..., str]) -> None:
    """Logits of the last step alone, by the weights of the embedding."""

    class Last(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.symbols, self.steps = (
                nn.Embedding(SYMBOLS, WIDTH),
                nn.LSTM(WIDTH, WIDTH, batch_first=True),
            )
            self.head = nn.Linear(WIDTH, SYMBOLS)
            self.head.weight = self.symbols.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.steps(self.symbols(x))[0][:, -1])

    path = tmp_path / "model.onnx"
    path.write_bytes(exported(drawn(Last()), inputs(None), "script"))
    with pytest.raises(InputError) as error:
        load_network(str(path))
    assert "(tied weights), which is supported for one layer over each step" in one_line(error)
