"""Terms of scores, by the distance of queries and keys: bits on any mapping, and models of PyTorch
from memory and from files, and back.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset
from emuchain.emulator.network import load_network
from emuchain.emulator.run import read_weights, simulate

from .gpt import MAPPINGS, Table, conv, gpt, vit, written

KEYS: Table = {
    **{"schedule": "sync", "batch": 16, "samples": 32, "test_samples": 4, "learning_rate": 0.01},
}
SLOPES = (0.5, 0.0, 0.125, 2.0, 1.0, 0.25)
NETWORKS: dict[str, tuple[Table, Table]] = {
    "causal": (gpt(24, 1, 3, 9, alibi=True, dropout=0.1), {"data": "text"}),
    "groups": (gpt(24, 1, 6, 9, kv_heads=3, slopes=list(SLOPES)), {"data": "text"}),
    "full": (vit(36, 1, 3, alibi=True), {}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_no_mapping_changes_a_bit(
    tmp_path: Path, plan_of: Any, trained: Any, bits: Any, name: str
) -> None:
    network, keys = NETWORKS[name]
    keys = {**KEYS, **keys, "network": written(tmp_path / "n.toml", network)}
    whole = bits(trained(plan_of(**keys, devices=1, micro_batch=16)).weights)
    for mapping in MAPPINGS[:4]:
        plan = plan_of(**{**keys, **mapping})
        run = trained(plan)
        assert bits(run.weights) == whole, mapping
        assert run.history[-1].virtual_time_ps == simulate(plan, 32).epoch_ends_ps[-1]
    first = "patches" if name == "full" else "wte"
    last = "fc1" if name == "full" else "head"
    cut = f"{first} qkv0 attention0[:1] | attention0[1:] project0:{last}"
    assert bits(trained(plan_of(**keys, cut=cut, devices=2, micro_batch=4)).weights) == whole
    layers = [
        {key: value for key, value in layer.items() if key not in ("alibi", "slopes")}
        for layer in network["layers"]
    ]
    plain = {**keys, "network": written(tmp_path / "plain.toml", {**network, "layers": layers})}
    assert bits(trained(plan_of(**plain, devices=1, micro_batch=16)).weights) != whole


@pytest.mark.parametrize(
    "precision", ["bf16", "mxfp8", "fp8 rounding=stochastic", "int4@8 accumulate=dot:8"]
)
def test_formats_change_no_bit_of_a_cut(
    tmp_path: Path, plan_of: Any, trained: Any, bits: Any, precision: str
) -> None:
    network = written(tmp_path / "n.toml", gpt(24, 1, 3, 9, alibi=True))
    keys = {**KEYS, "data": "text", "network": network, "precision": precision, "micro_batch": 4}
    one, other = (bits(trained(plan_of(**keys, devices=n)).weights) for n in (1, 4))
    assert one == other


def test_multipliers_by_hand() -> None:
    """A term is added to each score, and again in EB; times of engines stay."""

    def figures(**keys: Any) -> tuple[Any, int]:
        attention = {"type": "attention", "heads": 2, "causal": True, **keys}
        layers = [conv(12, "qkv"), attention, {"type": "softmax"}]
        layer = emuchain.load_network({"name": "n", "input": [1, 5, 1], "layers": layers}).layers[1]
        return layer.operation.arithmetic(layer.input, layer.output), layer.training_macs

    (own, macs), (plain, plain_macs) = figures(alibi=True), figures()
    scores = 2 * (1 + 2 + 3 + 4 + 5)
    assert own == plain._replace(multiply_adds=plain.multiply_adds + 2 * scores)
    assert plain.multiply_adds == 5 * scores + 5 * 4 and macs == plain_macs


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"alibi": True, "slopes": [0.5, 0.25, 0.125]}, "should be without `slopes`"),
        ({"slopes": [0.5, 0.25]}, "should be one for each of 3 heads"),
        ({"slopes": []}, "slopes"),
        ({"alibi": True, "keys": 3}, "have no distance from the queries"),
    ],
)
def test_refused(keys: Table, message: str, one_line: Any) -> None:
    layers = [conv(9, "qkv"), {"type": "attention", "heads": 3, **keys}, {"type": "softmax"}]
    with pytest.raises(InputError, match=message) as error:
        emuchain.load_network({"name": "n", "input": [1, 9, 1], "layers": layers})
    assert one_line(error)


SYMBOLS, ROWS, HEADS, SIZE = 11, 7, 3, 4
OWN = (0.5, 0.25, 0.125)


def model_of(form: str) -> tuple[Any, Any]:
    """A model of PyTorch that adds terms to scores, in one of the ways that people write, and a
    batch.
    """
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn, width = torch.nn, HEADS * SIZE
    far = torch.arange(ROWS)[:, None] - torch.arange(ROWS)

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.qkv = nn.Embedding(SYMBOLS, width), nn.Linear(width, 3 * width)
            self.head = nn.Linear(width, SYMBOLS)
            slopes = (0.0625, 0.00390625, 0.25) if form == "paper" else OWN
            self.register_buffer("slopes", torch.tensor(slopes)[:, None, None])

        def forward(self, ids: Any) -> Any:
            x = self.embedding(ids)
            parts = self.qkv(x).view(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
            q, k, v = parts.unbind(0)
            hidden = torch.ones(ROWS, ROWS, dtype=torch.bool).triu(1)
            terms = -self.slopes * far.abs()
            if form == "places":  # of keys alone, as Bloom has them; heads merged into samples
                own = (self.slopes * torch.arange(ROWS)).repeat(len(x), 1, 1)
                q, k, v = (part.flatten(0, 1) for part in (q, k, v))
                scores = torch.baddbmm(own, q, k.transpose(1, 2), beta=1.0, alpha=SIZE**-0.5)
                shares = scores.view(len(x), HEADS, ROWS, ROWS) + hidden * -3e38
                y = (shares.softmax(-1).view(-1, ROWS, ROWS) @ v).view(len(x), HEADS, ROWS, SIZE)
            elif form == "squares":
                y = nn.functional.scaled_dot_product_attention(q, k, v, terms * far.abs())
            elif form == "before the scale":
                scores = (q @ k.transpose(2, 3) + 2 * terms).masked_fill(hidden, -torch.inf) / 2
                y = scores.softmax(-1) @ v
            else:
                terms = terms if form == "full" else terms.masked_fill(hidden, -torch.inf)
                y = nn.functional.scaled_dot_product_attention(q, k, v, terms[None])
            return self.head(y.transpose(1, 2).reshape(x.shape))

    torch.manual_seed(1)
    return Model(), torch.randint(0, SYMBOLS, (2, ROWS))


@pytest.mark.parametrize("form", ["paper", "own", "full", "places", "before the scale"])
def test_models_of_pytorch_are_taken(tmp_path: Path, form: str) -> None:
    """From memory, and from what is written of them; weights come back."""
    model, ids = model_of(form)
    network = emuchain.from_torch(model, ids)
    attention: Any = network.layers[2].operation
    assert attention.causal == (form != "full") and attention.alibi == (form == "paper")
    assert form == "paper" or attention.slopes == OWN
    symbols = ids.numpy()[:, None, :, None].astype(np.int32)
    labels, classes = ids.numpy(), tuple(map(str, range(SYMBOLS)))
    data = Dataset("some", symbols, labels, symbols, labels, classes, symbols=SYMBOLS)
    keys: Table = {"batch": 2, "progress": "none", "learning_rate": 1e-30, "weight_decay": 0}
    run = emuchain.train(network, data=data, **keys)
    theirs = model(ids).detach().numpy()
    assert np.abs(emuchain.predict(run, ids) - theirs).max() <= 1e-5 * np.abs(theirs).max()
    model.load_state_dict(run.state_dict(), strict=True)
    ours = run.to_torch().eval()(ids).detach().numpy()
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()
    path = tmp_path / "made.onnx"
    emuchain.export(run, path)
    again = load_network(str(path))
    for one, other in itertools.zip_longest(network.layers, again.layers):
        assert one.operation == other.operation
    read = read_weights(str(path), again, "here")
    assert read.keys() == {layer.name for layer in again.layers}


def test_other_terms_are_refused(one_line: Any) -> None:
    with pytest.raises(InputError, match="adds other terms to scores than slopes") as error:
        emuchain.from_torch(*model_of("squares"))
    assert one_line(error)
