"""Tied weights: one table at both ends of a chain, the same bits on any mapping, and a time by
hand.
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.run import Weights, simulate
from emuchain.emulator.timing.pair import workload_of

from ..networks import of_table
from .gpt import MAPPINGS, Table, conv, gpt, trained_beside_pytorch, written
from .test_results import unseal

KEYS: Table = {
    "data": "text",
    "schedule": "sync",
    "batch": 16,
    "samples": 32,
    "test_samples": 4,
    "learning_rate": 0.01,
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Table:
    network = written(
        tmp_path_factory.mktemp("networks") / "gpt.toml", gpt(12, 1, 3, 16, tied=True)
    )
    return {**KEYS, "network": network, "optimizer": "adamw"}


@pytest.fixture(scope="module")
def reference(keys: Table, plan_of: Any, trained: Any) -> Weights:
    return trained(plan_of(**keys, devices=1, micro_batch=16)).weights


def test_both_ends_have_the_same(
    reference: Weights, keys: Table, plan_of: Any, trained: Any
) -> None:
    for weights in (
        reference,
        trained(plan_of(**{**keys, "schedule": "fpdeep"}, devices=4)).weights,
    ):
        table, head = weights["wte"]["weight"], weights["head"]["weight"]
        np.testing.assert_array_equal(table[:, :, 0, 0].T, head[:, :, 0, 0])


@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda keys: " ".join(map(str, keys.values())))
def test_bits_do_not_depend_on_the_mapping(
    keys: Table, reference: Weights, plan_of: Any, trained: Any, bits: Any, mapping: Table
) -> None:
    made = trained(plan_of(**{**keys, **mapping}))
    assert bits(made.weights) == bits(reference)


def test_ends_that_are_cut(
    keys: Table, reference: Weights, plan_of: Any, trained: Any, bits: Any, tmp_path: Path
) -> None:
    """The head is on two devices of the eight above; the first three of these boards have parts of
    the embedding.
    """
    plan = plan_of(**{**keys, "devices": 8})
    assert plan.timing.tied[0].last == plan.timing.tied[0].head_begin + 1
    one = 'name = "b"\nclock_mhz = 100\ndsp_share = 1\non_chip_memory_kbit = 40000\n'
    boards = "".join(f"[[boards]]\n{one}dsp = {dsp}\n" for dsp in (4, 4, 5000, 600))
    cluster = tmp_path / "uneven.toml"
    cluster.write_text(
        f'name = "uneven"\n{boards}[links]\nbandwidth_gbps = 6.4\nlatency_ns = 100\n', "utf-8"
    )
    plan = plan_of(**{**keys, "cluster": str(cluster)}, devices=4)
    assert plan.timing.tied[0].embedding_end == 3
    assert bits(trained(plan).weights) == bits(reference)


RUN: Table = {**KEYS, "devices": 2, "progress": "none"}


@pytest.fixture(scope="module")
def files(keys: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results file, a checkpoint, and the weights in both forms for others."""
    for package in ("onnx", "safetensors"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("files")
    emuchain.train(
        keys["network"], out=str(folder / "w.h5"), checkpoint=str(folder / "w.ckpt"), **RUN
    )
    for ending in ("safetensors", "onnx"):
        emuchain.export(str(folder / "w.h5"), str(folder / f"w.{ending}"))
    return folder


def change_results(path: Path) -> None:
    """Give one end another number, in the form of versions without a digest."""
    with h5py.File(path, "r+") as file:
        file["weights/head/weight"][3, 2] += 1
        unseal(file)


def change_checkpoint(path: Path) -> None:
    """Give one end another number."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    [head] = [
        name
        for name in members
        if name.endswith("/weight/value.npy") and b"(28, 12, 1, 1)" in members[name][:99]
    ]
    changed = np.load(io.BytesIO(members[head]))
    changed[3, 2] += 1
    content = io.BytesIO()
    np.save(content, changed)
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, content.getvalue() if name == head else member)


def change_safetensors(path: Path) -> None:
    """Give one end another number."""
    import safetensors.numpy

    arrays = safetensors.numpy.load_file(path)
    arrays["head.weight"][3, 2] += 1
    safetensors.numpy.save_file(arrays, path)


def change_onnx(path: Path) -> None:
    """Give the head a table of its own, with another number."""
    import onnx

    model = onnx.load(path)
    [turned] = [
        node
        for node in model.graph.node
        if node.op_type == "Transpose" and "wte.weight" in node.input
    ]
    [table] = [array for array in model.graph.initializer if array.name == "wte.weight"]
    own = onnx.numpy_helper.to_array(table).T.copy()
    own[2, 3] += 1
    model.graph.initializer.append(onnx.numpy_helper.from_array(own, turned.output[0]))
    model.graph.node.remove(turned)
    onnx.save(model, path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "h5": change_results,
    "ckpt": change_checkpoint,
    "safetensors": change_safetensors,
    "onnx": change_onnx,
}
DIFFER = (
    "head has the weights of wte, but `weight` of both differ in 1 of 336 numbers; give both the"
    " same"
)


@pytest.mark.filterwarnings("ignore:.*is of an earlier version")
@pytest.mark.parametrize("ending", CHANGES)
def test_a_table_that_stands_twice_and_differs(
    keys: Table, files: Path, tmp_path: Path, one_line: Any, ending: str
) -> None:
    """Files hold both ends, which would be trained apart."""
    path = tmp_path / f"w.{ending}"
    shutil.copy(files / path.name, path)
    emuchain.train(keys["network"], init=str(path), **RUN)
    CHANGES[ending](path)
    with pytest.raises(InputError) as error:
        emuchain.train(keys["network"], init=str(path), **RUN)
    assert f"`init` = '{path}': {DIFFER}" in one_line(error)
    if ending in ("h5", "ckpt"):
        with pytest.raises(InputError, match=DIFFER):
            emuchain.evaluate(str(path))
    if ending == "ckpt":
        with pytest.raises(InputError, match=DIFFER):
            emuchain.train(resume=str(path), epochs=2)


def test_a_table_that_flips_made_two(keys: Table, tmp_path: Path) -> None:
    """A run whose memories were hurt is evaluated and resumed as it is; another one does not begin
    with two tables.
    """
    (tmp_path / "flips.toml").write_text('[[faults.flips]]\nof = "weights"\nrate = 1e-4\n')
    out, checkpoint = str(tmp_path / "w.h5"), str(tmp_path / "w.ckpt")
    hurt = {"faults": str(tmp_path / "flips.toml"), "out": out, "checkpoint": checkpoint}
    weights = emuchain.train(keys["network"], **RUN, **hurt).weights
    assert not np.array_equal(
        weights["wte"]["weight"][:, :, 0, 0].T, weights["head"]["weight"][:, :, 0, 0]
    )
    assert emuchain.evaluate(out).test_loss == emuchain.evaluate(checkpoint).test_loss
    emuchain.train(resume=checkpoint, epochs=2)
    for path in (out, checkpoint):
        with pytest.raises(InputError, match="head has the weights of wte, but"):
            emuchain.train(keys["network"], init=path, **RUN)
    emuchain.export(out, str(tmp_path / "w.safetensors"))
    with pytest.raises(InputError, match="head has the weights of wte, but"):
        emuchain.export(out, str(tmp_path / "w.onnx"))


def test_replicas(keys: Table, plan_of: Any, trained: Any, bits: Any) -> None:
    two = trained(plan_of(**keys, devices=1, replicas=2)).weights
    assert bits(two) == bits(trained(plan_of(**keys, devices=4, replicas=2, micro_batch=2)).weights)
    np.testing.assert_array_equal(
        two["wte"]["weight"][:, :, 0, 0].T, two["head"]["weight"][:, :, 0, 0]
    )
    with pytest.raises(
        InputError,
        match="`schedule` = 'fpdeep': replicas exchange gradients before tied weights do",
    ):
        plan_of(**{**keys, "schedule": "fpdeep"}, devices=2, replicas=2)


@pytest.mark.parametrize(
    "mapping",
    [
        {"devices": 4},
        {"devices": 4, "schedule": "fpdeep"},
        {"devices": 3, "schedule": "gpipe", "engines": "turns"},
        {"devices": 2, "schedule": "interleaved", "chunks": 2},
        {"devices": 3, "schedule": "2bw", "engines": "turns"},
    ],
    ids=lambda keys: " ".join(map(str, keys.values())),
)
def test_training_takes_the_time_of_its_simulation(
    keys: Table, plan_of: Any, trained: Any, mapping: Table
) -> None:
    plan = plan_of(**{**keys, **mapping})
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 32).epoch_ends_ps]


def test_resume_and_deaths(keys: Table, tmp_path: Path, bits: Any) -> None:
    saved = str(tmp_path / "run.ckpt")
    emuchain.train(**keys, devices=2, epochs=1, checkpoint=saved)
    others = {key: value for key, value in keys.items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(emuchain.train(**keys, devices=1, epochs=2).weights)


TOY_BOARDS: Table = {
    "name": "toy",
    "boards": [
        {"name": "b", "clock_mhz": 100, "dsp": 8, "dsp_share": 1, "on_chip_memory_kbit": 4000}
    ],
    "links": {"bandwidth_gbps": 6.4, "latency_ns": 100},
}


@pytest.mark.parametrize("schedule", ["sync", "gpipe"])
def test_time_by_hand(schedule: str) -> None:
    """A table of 3 symbols of 4 values: 3 rows of 16 bytes, 20 ns each, and 100 ns of latency.

    Device 0 has its gradients last, and ends the mini-batch without them after an update of 4
    cycles. With them, device 1 has the table 160 ns later, and then updates 3 channels.
    """

    def time_ps(**ties: str) -> int:
        layers = [
            {"type": "embedding", "features": 4, "name": "table"},
            {"type": "gru", "units": 4},
        ]
        layers += [conv(3, "head", bias=False, **ties), {"type": "softmax"}]
        network = {"name": "toy", "input": [3, 5, 1], "layers": layers}
        plan = emuchain.plan(network, TOY_BOARDS, devices=2, samples=2, batch=2, schedule=schedule)
        assert [part.layer.name for part in plan.mapping.devices[1]] == ["head"]
        return simulate(plan, 2).virtual_time_ps

    assert time_ps(tied="table") - time_ps() == 160_000 + 10_000 * (3 - 4)


def test_bytes(keys: Table, plan_of: Any) -> None:
    """The table crosses each link once each way for a mini-batch: on path 5 to the right, on path 6
    to the left.
    """
    plan = plan_of(**keys, devices=4)
    [tied] = plan.timing.tied
    shown = simulate(plan, 32).usage.links
    for link in shown:
        path = 5 if link.receiver > link.sender else 6
        assert link.path_bytes.get(path, 0) == 2 * tied.total_bytes * tied.crosses(
            min(link.sender, link.receiver)
        )


def test_a_network_counts_tied_weights_once() -> None:
    own, tied = (load_network(gpt(24, 1, 3, 16, tied=ties)) for ties in (False, True))
    assert own.parameters - tied.parameters == 24 * 28


def test_losses_of_pytorch(tmp_path: Path, plan_of: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    network = written(tmp_path / "gpt.toml", gpt(32, 1, 4, 16, tied=True))
    keys = {
        **KEYS,
        "network": network,
        "seed": 3,
        "batch": 4,
        "micro_batch": 2,
        "weight_decay": 0.01,
    }
    keys |= {"samples": 80, "learning_rate": 0.002}
    made = trained_beside_pytorch(
        plan_of,
        keys,
        lambda arrays: torch.optim.SGD(arrays, lr=0.002, momentum=0.9, weight_decay=0.01),
    )
    assert "head/weight" not in made.twin.arrays and len(made.losses) == 20
    assert made.losses == pytest.approx(made.expected, rel=1e-6)
    table, weight = made.twin.arrays["wte/weight"].detach().numpy(), made.weights["wte"]["weight"]
    np.testing.assert_allclose(weight, table.reshape(weight.shape), atol=1e-4)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({"tied": "nobody"}, "`tied` = 'nobody': no embedding before it has that name"),
        (
            {"tied": "wte", "channels": 9},
            "its weights are 9x6x1x1, those of the embedding, transposed, 28x6x1x1",
        ),
        (
            {"tied": "wte", "kernel": [3, 1], "pad": [1, 0]},
            "should be a conv with `kernel` = 1 and `channels` = 28",
        ),
    ],
)
def test_what_does_not_fit(head: Table, said: str) -> None:
    layers = [{"type": "embedding", "features": 6, "name": "wte"}, {"type": "gru", "units": 6}]
    layers += [{**conv(28, "head"), **head}, {"type": "softmax"}]
    with pytest.raises(InputError) as error:
        load_network({"name": "n", "input": [28, 5, 1], "layers": layers})
    assert said in str(error.value)


def test_one_head_alone() -> None:
    layers = [{"type": "embedding", "features": 6, "name": "wte"}, {"type": "gru", "units": 6}]
    layers += [
        conv(28, "a", tied="wte"),
        conv(6, "b"),
        conv(28, "c", tied="wte"),
        {"type": "softmax"},
    ]
    with pytest.raises(InputError, match="another layer has its weights already"):
        load_network({"name": "n", "input": [28, 5, 1], "layers": layers})


def test_pairs_are_refused() -> None:
    layers = [{"type": "embedding", "features": 6, "name": "wte"}, {"type": "gru", "units": 6}]
    layers += [conv("symbols", "head", tied="wte"), {"type": "softmax"}]
    network = {"name": "n", "symbols": 28, "input": ["symbols", 5, 1], "layers": layers}
    with pytest.raises(InputError, match="head has the weights of wte, and a pair"):
        workload_of(load_network(network), 4)


FORMATS: dict[str, str] = {
    "mxfp8": "mxfp8 loss_scale=64",
    "by chance": "mxfp4 master=mxint8 states=bf16 rounding=stochastic loss_scale=64",
    "gradients": "fp8 gradients=q2.10 states=q4.12 rounding=stochastic",
}


@pytest.mark.parametrize("form", FORMATS)
def test_formats(tmp_path: Path, plan_of: Any, trained: Any, bits: Any, form: str) -> None:
    """Both ends round one table, which counts once; a head of 16 channels or more is cut by
    these.
    """
    network = written(tmp_path / "gpt.toml", gpt(18, 1, 3, 16, tied=True))
    own = {**KEYS, "network": network, "precision": FORMATS[form]}
    one = trained(plan_of(**own, devices=1, micro_batch=16))
    for mapping in MAPPINGS:
        made = trained(plan_of(**{**own, **mapping}))
        assert bits(made.weights) == bits(one.weights)
        assert made.history[0].rounded == one.history[0].rounded
    plan = plan_of(**own, devices=1)
    weights = sum(layer.weights for layer in plan.network.layers if layer.tied is None)
    assert one.history[0].rounded["weights_updated"] == 2 * weights
    table, head = one.weights["wte"]["weight"], one.weights["head"]["weight"]
    np.testing.assert_array_equal(table[:, :, 0, 0].T, head[:, :, 0, 0])
    two = bits(trained(plan_of(**own, devices=1, replicas=2)).weights)
    assert two == bits(trained(plan_of(**own, devices=4, replicas=2, micro_batch=2)).weights)


def test_formats_where_both_ends_are_cut_by_outputs(
    keys: Table, plan_of: Any, trained: Any, bits: Any
) -> None:
    """A head of fewer than 16 channels is: numbers are rounded each by itself."""
    own = {**keys, "precision": "fp8 rounding=stochastic"}
    one = bits(trained(plan_of(**own, devices=1)).weights)
    for mapping in MAPPINGS[:3]:
        assert bits(trained(plan_of(**{**own, **mapping})).weights) == one


BLOCKS: dict[str, tuple[Table, str]] = {
    "of symbols, across a head's cut": (
        gpt(12, 1, 3, 16, tied=True),
        "int5@8 master=int8@4 rounding=stochastic loss_scale=64",
    ),
    "with a scale of all symbols": (gpt(12, 1, 3, 16, tied=True), "nvfp4 loss_scale=64"),
    "of what the head sums": (
        gpt(24, 1, 3, 16, tied=True),
        "int6@8 master=int12@8 states=int8@8 gradients=int12@8 accumulate=dot:8"
        " rounding=stochastic loss_scale=64",
    ),
    "of these and of its symbols": (
        {**gpt(24, 1, 3, 16, tied=True), "cut": "OCP"},
        "int8@8 accumulate=dot:8 loss_scale=64",
    ),
    "of the master alone": (
        gpt(24, 1, 3, 16, tied=True),
        "q2.6 master=int12@8 accumulate=dot:8 loss_scale=64",
    ),
}


def described(name: str) -> Table:
    network, _ = BLOCKS[name]
    cut = {"cut": network["cut"]} if "cut" in network else {}
    layers = [
        {**layer, **(cut if layer.get("name") == "head" else {})} for layer in network["layers"]
    ]
    return {**{key: value for key, value in network.items() if key != "cut"}, "layers": layers}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_a_table(
    tmp_path: Path, plan_of: Any, trained: Any, bits: Any, name: str
) -> None:
    """Both ends have the same on any mapping, cut at whole blocks."""
    network = written(tmp_path / "gpt.toml", described(name))
    own = {**KEYS, "network": network, "precision": BLOCKS[name][1], "momentum": 0.9}
    one = trained(plan_of(**own, devices=1, micro_batch=16))
    for mapping in MAPPINGS[:6]:
        assert bits(trained(plan_of(**{**own, **mapping})).weights) == bits(one.weights)
    table, head = one.weights["wte"]["weight"], one.weights["head"]["weight"]
    np.testing.assert_array_equal(table[:, :, 0, 0].T, head[:, :, 0, 0])


@pytest.mark.parametrize(
    ("name", "cut", "said"),
    [
        (
            "of symbols, across a head's cut",
            "wte:contract0 head[:20] | head[20:]",
            "head is cut at channel 20, within a block of 8 of a tied table; should be at 16 or 24",
        ),
        (
            "with a scale of all symbols",
            "wte:contract0 head[:16] | head[16:]",
            "head is cut at channel 16, within a block of 28 of a tied table",
        ),
        (
            "of what the head sums",
            "wte[:12] | wte[12:] qkv0:contract0 head",
            "wte is cut at channel 12, within a block of 8 of a tied table; should be at 8 or 16",
        ),
    ],
)
def test_blocks_of_a_table_that_are_cut(
    plan_of: Any, tmp_path: Path, name: str, cut: str, said: str
) -> None:
    network = written(tmp_path / "gpt.toml", described(name))
    with pytest.raises(InputError) as error:
        plan_of(**KEYS, network=network, precision=BLOCKS[name][1], cut=cut, devices=2)
    assert said in str(error.value)


def test_ends_that_sum_unlike(plan_of: Any, tmp_path: Path) -> None:
    forms = "int8@8 layer.head.accumulate=dot:8"
    network = written(tmp_path / "gpt.toml", gpt(24, 1, 3, 16, tied=True))
    with pytest.raises(InputError, match="should be the same `accumulate` for both"):
        plan_of(**KEYS, network=network, precision=forms, devices=2)


@pytest.mark.sampled(1)
def test_ranks(keys: Table, reference: Weights, mpiexec: Any, tmp_path: Path, bits: Any) -> None:
    others = {key: value for key, value in keys.items() if key != "network"}
    flags = [
        word for key, value in others.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    out = tmp_path / "run.h5"
    mpiexec(
        4,
        ["-m", "emuchain", "train", keys["network"], *flags, "--devices", "5", "--out", str(out)],
        timeout=300,
    )
    assert bits(emuchain.results(out).weights) == bits(reference)


def test_an_exchange_that_takes_several_mini_batches_does_not_stall() -> None:
    """Each end's gradients wait for the update before, and that for the other end's: all are then
    as late.
    """
    network = of_table(
        "slow", 4, 5, {"type": "positions"}, {"type": "conv", "channels": 5, "kernel": 1}, steps=2
    )
    slow = {"link.bandwidth_gbps": 0.01, "link.latency_ns": 100_000, "board.clock_mhz": 1}
    plan = emuchain.plan(network, devices=4, batch=1, samples=30, schedule="fpdeep", changes=slow)
    assert len({stale for stale in plan.steady.staleness}) == 1
    assert plan.steady.staleness[0].forward[0] > 1
    assert emuchain.simulate(plan).virtual_time_ps > 0
