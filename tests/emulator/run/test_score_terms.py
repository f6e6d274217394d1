"""Terms of scores, by the distance of queries and keys, of slopes and of learnt tables: bits on any
mapping, times by hand, and models of PyTorch from memory and from files, and back.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.data import Dataset
from emuchain.emulator.device.slices.attention import AttentionSlice
from emuchain.emulator.mapping import Slice
from emuchain.emulator.network import Site, Training, load_network
from emuchain.emulator.run import read_weights, simulate
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena

from .gpt import MAPPINGS, Table, conv, gpt, vit, written
from .test_attention import BOARDS

KEYS: Table = {
    **{"schedule": "sync", "batch": 16, "samples": 32, "test_samples": 4, "learning_rate": 0.01},
}
SLOPES = (0.5, 0.0, 0.125, 2.0, 1.0, 0.25)


def tabled(network: Table, buckets: int, **keys: Any) -> Table:
    """A transformer all of whose attention has one table of terms."""
    layers = list[Table]()
    for layer in network["layers"]:
        if layer["type"] == "attention":
            layers[-1] = {"name": "turned", **layers[-1]}  # rotary has no name there
            heads, joined = _heads_of(layer), ["table", layers[-1]["name"]]
            if not any(own["type"] == "score-table" for own in layers):
                table = {"type": "score-table", **heads, "buckets": buckets, "name": "table"}
                layers.append(table)
            layers.append({"type": "concat", "axis": "rows", "from": joined})
            layer = {**layer, "buckets": buckets, **keys}
        layers.append(layer)
    return {**network, "layers": layers}


def _heads_of(layer: Table) -> Table:
    return {key: layer[key] for key in ("heads", "kv_heads") if key in layer}


NETWORKS: dict[str, tuple[Table, Table]] = {
    "causal": (gpt(24, 1, 3, 9, alibi=True, dropout=0.1), {"data": "text"}),
    "groups": (gpt(24, 1, 6, 9, kv_heads=3, slopes=list(SLOPES)), {"data": "text"}),
    "full": (vit(36, 1, 3, alibi=True), {}),
    "one table of two layers": (
        tabled(gpt(24, 2, 3, 9, dropout=0.1), 8, max_distance=16),
        {"data": "text"},
    ),
    "table of groups": (tabled(gpt(24, 1, 6, 9, kv_heads=3), 32), {"data": "text"}),
    "table of both sides": (tabled(vit(36, 1, 3), 16), {}),
}
CUTS = {
    "full": "patches qkv0 {} project0:fc1",
    "table of both sides": "patches qkv0 {} project0:fc1",
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
    cut = CUTS.get(name, "wte qkv0 {} project0:head").format("attention0[:1] | attention0[1:]")
    assert bits(trained(plan_of(**keys, cut=cut, devices=2, micro_batch=4)).weights) == whole
    if "table" in name:
        return
    layers = [
        {key: value for key, value in layer.items() if key not in ("alibi", "slopes")}
        for layer in network["layers"]
    ]
    plain = {**keys, "network": written(tmp_path / "plain.toml", {**network, "layers": layers})}
    assert bits(trained(plan_of(**plain, devices=1, micro_batch=16)).weights) != whole


@pytest.mark.parametrize("learnt", [False, True])
@pytest.mark.parametrize(
    "precision",
    [
        *("bf16", "mxfp8", "fp8 rounding=stochastic", "fp8 scaling=delayed"),
        "int4@8 accumulate=dot:8",
    ],
)
def test_formats_change_no_bit_of_a_cut(
    tmp_path: Path, plan_of: Any, trained: Any, bits: Any, precision: str, learnt: bool
) -> None:
    network = gpt(24, 1, 3, 9, alibi=True)
    network = written(tmp_path / "n.toml", tabled(gpt(24, 1, 3, 9), 8) if learnt else network)
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


@pytest.mark.parametrize("mpiexec", ["mpich"], indirect=True)
def test_ranks_give_the_same_bits(mpiexec: Any, tmp_path: Path) -> None:
    """Of one table of two layers, on two replicas of two boards."""
    network, _ = NETWORKS["one table of two layers"]
    path, out = written(tmp_path / "n.toml", network), tmp_path / "run.h5"
    keys: Table = {**KEYS, "data": "text", "devices": 2, "replicas": 2, "micro_batch": 4, "seed": 1}
    run = emuchain.train(path, **keys, progress="none")
    flags = []
    for key, value in {**keys, "out": out}.items():
        flags += [f"--{key.replace('_', '-')}", str(value)]
    mpiexec(4, ["-m", "emuchain", "train", path, *flags], timeout=600)
    with h5py.File(out) as file:
        ranks = {
            f"{layer}/{name}": array[()].tobytes()
            for layer, arrays in file["weights"].items()
            for name, array in arrays.items()
        }
    assert ranks == {
        f"{layer}/{name}": array.tobytes()
        for layer, arrays in run.weights.items()
        for name, array in arrays.items()
    }
    assert any(name.endswith("/table") for name in ranks)


def test_a_table_by_hand() -> None:
    """Heads of docs/time-model.md, with a table of three terms each: one row before three tokens.

    Of a sample, path 1 has 4 rows of 12 bytes and path 2 has 3 of 4: 18.75 ns a row, and 25. The
    convolution's rows are there at 20, 40, 60; the table's goes with the first. Head 1 has them at
    157.5, 176.25, 195, makes its rows until 177.5, 197.5, 217.5, and has errors 20 ns later each.
    Path 3 brings head 0's at 342.5, 367.5, 392.5, and EB has them until 362.5, 387.5, 412.5. On path
    4 the table's errors follow the first token's, until 415: for these alone that token's wait. PG
    is done at 382.5, 407.5, 435, and the update 60 ns later. The second sample's rows follow.
    """
    layers = [
        conv(6, "qkv", bias=False),
        {"type": "score-table", "heads": 2, "buckets": 3, "name": "table"},
        {"type": "concat", "axis": "rows", "from": ["table", "qkv"]},
        {"type": "attention", "heads": 2, "causal": True, "buckets": 3},
    ]
    network = {"name": "n", "input": [1, 3, 1], "layers": [*layers, {"type": "softmax"}]}
    plan = emuchain.plan(network, BOARDS, devices=2, samples=1, batch=1, schedule="sync")
    assert simulate(plan, 1).virtual_time_ps == 495_000
    rows = {own.path.value: (own.rows, own.row_bytes) for own in plan.timing.links[0]}
    assert rows == {1: (4, 12), 2: (3, 4), 3: (3, 4), 4: (4, 12)}
    # Engines work as without a table: products of the six pairs that causal heads see.
    part = plan.mapping.devices[1][0]
    assert (part.macs, part.eb_macs, part.kept_values) == (2 * 6, 5 * 6, 2 * 3)
    assert plan.network.layers[0].parameters == 6 + 2 * 3
    assert plan.network.layers[1].input == (6, 4, 1) and plan.network.layers[1].parameters == 0


def test_one_table_of_two_layers_by_hand() -> None:
    """Its parameters are there once; its one row of 72 channels passes what is between."""
    network = emuchain.load_network(tabled(gpt(24, 2, 3, 9), 8))
    plain = emuchain.load_network(gpt(24, 2, 3, 9))
    assert network.parameters == plain.parameters + 3 * 8
    [table] = [own for own in network.tensors if own.name == "table"]
    assert table.shape == (72, 1, 1)
    between = [layer.name for layer in network.layers if table in layer.bypass]
    assert between == ["attention0", "project0", "expand0", "contract0", "qkv1"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"alibi": True, "slopes": [0.5, 0.25, 0.125]}, "should be without `slopes`"),
        ({"slopes": [0.5, 0.25]}, "should be one for each of 3 heads"),
        ({"slopes": []}, "slopes"),
        ({"alibi": True, "keys": 3}, "have no distance from the queries"),
        ({"buckets": 8, "keys": 3}, "have no distance from the queries"),
        ({"buckets": 8, "alibi": True}, "should be without slopes"),
        ({"buckets": 7}, "should be an even number, at least 4"),
        ({"buckets": 1, "causal": True}, "should be at least 2"),
        ({"buckets": 32, "max_distance": 8}, "should be above 8"),
        ({"buckets": 30}, "9 rows are not 10 of a table of terms"),
    ],
)
def test_refused(keys: Table, message: str, one_line: Any) -> None:
    layers = [conv(9, "qkv"), {"type": "attention", "heads": 3, **keys}, {"type": "softmax"}]
    with pytest.raises(InputError, match=message) as error:
        emuchain.load_network({"name": "n", "input": [1, 9, 1], "layers": layers})
    assert one_line(error)


def test_a_table_stands_beside_what_attention_takes(one_line: Any) -> None:
    table = {"type": "score-table", "heads": 3, "buckets": 8, "from": "other"}
    layers = [conv(9, "qkv"), conv(9, "other"), table, conv(9, "last"), {"type": "softmax"}]
    with pytest.raises(InputError, match="nothing else takes its input") as error:
        emuchain.load_network({"name": "n", "input": [1, 9, 1], "layers": layers})
    assert one_line(error)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("keys", [{"heads": 3}, {"heads": 4, "kv_heads": 2}])
def test_a_table_is_that_of_pytorch_in_float64(keys: Table, causal: bool) -> None:
    """Its rows, attention that takes them, and the gradients of both, by a device's slice."""
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    attention = {"type": "attention", **keys, "buckets": 16, "max_distance": 20, "causal": causal}
    parts = keys["heads"] + 2 * keys.get("kv_heads", keys["heads"])
    layers = [
        conv(5 * parts, "qkv"),
        {"type": "score-table", **keys, "buckets": 16, "name": "table"},
        {"type": "concat", "axis": "rows", "from": ["table", "qkv"]},
        {**attention, "name": "heads"},
        {"type": "softmax"},
    ]
    network = emuchain.load_network({"name": "n", "input": [5, 11, 1], "layers": layers})
    layer, random = network.layers[1], np.random.default_rng(3)
    channels, rows, _ = layer.input
    of_table: Any = network.layers[0].sfu[0].operation
    x = random.standard_normal((2, rows, 1, channels), np.float32)
    dy = random.standard_normal((2, 11, 1, layer.channels), np.float32)
    part = Slice(layer, 0, keys.get("kv_heads", keys["heads"]))
    own = AttentionSlice(part, 0, Arena())
    y, dx = asyncio.run(_swept(own, x, dy))
    [module] = layer.operation.torch(torch.nn, layer.input)
    leaf = torch.tensor(x[:, :, 0], dtype=torch.float64, requires_grad=True)
    expected = module.double()(leaf)
    expected.backward(torch.tensor(dy[:, :, 0], dtype=torch.float64))
    for ours, theirs in ((y, expected.detach()), (dx, leaf.grad)):
        assert np.abs(ours[:, :, 0] - theirs.numpy()).max() <= 1e-6 * float(theirs.abs().max())
    assert float(leaf.grad[:, : rows - 11].abs().max()) > 0.01
    step = network.layers[0].sfu[0]
    unit, peer = of_table.unit(step, Site(0, 0, Arena())), of_table.torch(torch.nn, step.input)
    table = random.standard_normal((16, keys["heads"]), np.float32)
    with torch.no_grad():
        peer.double().table.copy_(torch.from_numpy(table))
    made = peer(torch.zeros((2, 11, channels), dtype=torch.float64))
    weights = {"table": table.ravel()}
    ours, _ = unit.forward([x[:, rows - 11 :]], weights, None)
    assert np.array_equal(ours[:, :, 0], made.detach().numpy().astype(np.float32))
    dz = random.standard_normal(ours.shape, np.float32)
    made.backward(torch.tensor(dz[:, :, 0], dtype=torch.float64))
    sums = {"table": np.zeros(table.size, np.float32)}
    unit.gradient(unit.kept((), dz), sums, fresh=True)
    apart = sums["table"].reshape(table.shape) - peer.table.grad.numpy()
    assert np.abs(apart).max() <= 1e-6 * float(peer.table.grad.abs().max())


async def _swept(own: Any, x: Any, dy: Any) -> tuple[Any, Any]:
    span = SampleSpan(MicroBatch(0, 0, 0, len(x)), 0, len(x))
    training = Training(0, np.arange(len(x)))
    y = (await own.forward(span, x, None, 0, training)).copy()
    return y, await own.error(span, dy, None, 0)


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


def tables_of(form: str) -> tuple[Any, Any]:
    """A model of PyTorch of two blocks that have one table of terms, as T5's, and a batch."""
    torch = pytest.importorskip("torch", reason="PyTorch, of which this model is, is missing")
    pytest.importorskip("onnxscript", reason="onnxscript, which its exporter needs, is missing")
    nn, width = torch.nn, HEADS * SIZE
    far = torch.arange(ROWS)[None] - torch.arange(ROWS)[:, None]
    both = form in ("both sides", "mixed")
    numbers = (far.abs() + 4 * (far > 0)).clip(max=3 + 4 * (far > 0)) if both else -far.clip(max=0)
    numbers = numbers.clip(max=7) if form != "others" else numbers.flip(0)

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Any, terms: Any) -> Any:
            parts = self.qkv(x).view(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
            q, k, v = parts.unbind(0)
            shares = (q @ k.transpose(2, 3) * SIZE**-0.5 + terms).softmax(-1)
            return x + self.out((shares @ v).transpose(1, 2).reshape(x.shape))

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.relative = nn.Embedding(SYMBOLS, width), nn.Embedding(8, HEADS)
            self.blocks = nn.ModuleList(Block() for _ in range(2))
            self.head = nn.Linear(width, SYMBOLS)

        def forward(self, ids: Any) -> Any:
            x, terms = self.embedding(ids), self.relative(numbers).permute(2, 0, 1)[None]
            terms = terms * 3.0 if form == "factor" else terms
            if not both:  # T5 adds its mask to the terms
                terms = terms + torch.zeros(ROWS, ROWS).masked_fill(far > 0, -3.4e38)
            for number, block in enumerate(self.blocks):
                x = block(x, terms * (1 + number) if form == "mixed" else terms)
            return self.head(x)

    torch.manual_seed(1)
    return Model(), torch.randint(0, SYMBOLS, (2, ROWS))


@pytest.mark.parametrize("form", ["causal", "both sides", "factor"])
def test_a_table_of_pytorch_is_taken(tmp_path: Path, form: str) -> None:
    """From memory and from what is written; it trains as in PyTorch, and comes back."""
    model, ids = tables_of(form)
    torch: Any = pytest.importorskip("torch")
    network = emuchain.from_torch(model, ids)
    attention: Any = [own.operation for own in network.layers if own.operation.looks_back]
    assert [own.buckets for own in attention] == [8, 8]
    assert [own.causal for own in attention] == [form != "both sides"] * 2
    types = [step.operation.type for layer in network.layers for step in layer.sfu]
    assert types.count("score-table") == 1 and types.count("affine") == (form == "factor")
    symbols, classes = ids.numpy()[:, None, :, None].astype(np.int32), tuple("abcdefghijk")
    data = Dataset("n", symbols, ids.numpy(), symbols, ids.numpy(), classes, symbols=SYMBOLS)
    keys: Table = {"batch": 2, "progress": "none", "learning_rate": 0.1, "momentum": 0.9}
    settings: Table = {**keys, "weight_decay": 0, "schedule": "sync", "epochs": 6}
    run = emuchain.train(network, data=data, **settings)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1, 0.9), []
    for _ in range(6):
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(run.steps["loss"], losses, rtol=1e-5)
    theirs, logits = model.state_dict(), model(ids).detach().numpy()
    ours = run.state_dict()
    assert ours.keys() == theirs.keys()
    apart = (ours["relative.weight"] - theirs["relative.weight"]).abs().max()
    assert float(apart) <= 1e-5 * float(theirs["relative.weight"].abs().max())
    assert np.abs(emuchain.predict(run, ids) - logits).max() <= 1e-4 * np.abs(logits).max()
    made = run.to_torch().eval()(ids).detach().numpy()
    assert np.abs(made - logits).max() <= 1e-4 * np.abs(logits).max()
    path = tmp_path / "made.onnx"
    emuchain.export(run, path)
    again = load_network(str(path))
    for one, other in itertools.zip_longest(network.layers, again.layers):
        steps = [[step.operation for step in own.sfu] for own in (one, other)]
        assert one.operation == other.operation and steps[0] == steps[1]
    held = read_weights(str(path), again, "here")
    [table] = [own["table"] for own in held.values() if "table" in own]
    assert np.array_equal(table.reshape(8, HEADS), ours["relative.weight"].numpy())


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("others", "by other buckets than T5's"),
        ("mixed", "scores of layers of other sizes"),
    ],
)
def test_other_tables_are_refused(form: str, message: str, one_line: Any) -> None:
    with pytest.raises(InputError, match=message) as error:
        emuchain.from_torch(*tables_of(form))
    assert one_line(error)


def test_other_terms_are_refused(one_line: Any) -> None:
    with pytest.raises(InputError, match="adds other terms to scores than slopes") as error:
        emuchain.from_torch(*model_of("squares"))
    assert one_line(error)
