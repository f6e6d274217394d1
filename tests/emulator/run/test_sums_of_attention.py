"""Transformers whose products are summed in blocks, or in narrow formats: the same bits on any
mapping, by ranks, and resumed; times and memory, and what is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping.memory import slice_memory
from emuchain.emulator.run import Weights, simulate

from .gpt import Table, conv, gpt, vit, written

KEYS: Table = {"schedule": "sync", "batch": 16, "samples": 32, "test_samples": 4}
KEYS["learning_rate"] = 0.01
NETWORKS: dict[str, tuple[Table, Table]] = {
    "gpt": (gpt(24, 2, 3, 40), {"data": "text"}),
    "gpt like Llama": (
        gpt(24, 1, 2, 35, "rms-norm", kv_heads=1, dropout=0.2),
        {"data": "text", "optimizer": "adamw"},
    ),
    "vit": (vit(36, 1, 3, dropout=0.3), {}),
}
PRECISIONS: dict[str, Any] = {
    "blocks": "mxint8 accumulate=dot:32",
    "by chance": "mxint8 errors=mxfp6 rounding=stochastic accumulate=dot:8",
    "bf16": "bf16 accumulate=bf16",
    "each its own": "activations=mxfp8 weights=bf16 accumulate=fp16",
}
MAPPINGS: list[Table] = [
    {"devices": 12, "micro_batch": 1},
    {"devices": 3, "schedule": "zero-bubble"},
    {"devices": 2, "schedule": "1f1b-as"},
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    folder = tmp_path_factory.mktemp("networks")
    return {
        name: {**KEYS, **keys, "network": written(folder / f"{name}.toml", network)}
        for name, (network, keys) in NETWORKS.items()
    }


@pytest.fixture(scope="module")
def references(files: dict[str, Table], plan_of: Any, trained: Any) -> dict[Any, Weights]:
    return {
        (name, form): trained(plan_of(**keys, precision=precision, devices=1)).weights
        for name, keys in files.items()
        for form, precision in PRECISIONS.items()
    }


@pytest.mark.parametrize("form", PRECISIONS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("keys", MAPPINGS, ids=lambda keys: " ".join(map(str, keys.values())))
def test_bits_do_not_depend_on_the_mapping(
    files: dict[str, Table],
    references: dict[Any, Weights],
    plan_of: Any,
    trained: Any,
    bits: Any,
    name: str,
    form: str,
    keys: Table,
) -> None:
    plan = plan_of(**{**files[name], **keys, "precision": PRECISIONS[form]})
    assert bits(trained(plan).weights) == bits(references[name, form])


def test_sums_differ(references: dict[Any, Weights], files: dict[str, Table], bits: Any) -> None:
    for name, keys in files.items():
        made = [references[name, form] for form in PRECISIONS]
        for precision in ("mxint8", "bf16"):
            run = emuchain.train(**keys, precision=precision, progress="none")
            made.append(run.weights)
        assert len({str(bits(weights)) for weights in made}) == 2 + len(PRECISIONS)


def test_a_cut_within_heads_in_integers(
    files: dict[str, Table], plan_of: Any, trained: Any, bits: Any
) -> None:
    keys = {**files["gpt"], "precision": "int8 accumulate=int32"}
    cut = (
        "wte qkv0 attention0[:1] | attention0[1:] project0 expand0 contract0 qkv1 attention1[:2]"
        " | attention1[2:] project1 expand1 contract1 head"
    )
    one = trained(plan_of(**keys, devices=1)).weights
    assert bits(trained(plan_of(**keys, cut=cut, micro_batch=2)).weights) == bits(one)


@pytest.mark.parametrize("schedule", ["fpdeep", "gpipe"])
@pytest.mark.parametrize("form", ["blocks", "bf16"])
def test_training_takes_the_time_of_its_simulation(
    files: dict[str, Table], plan_of: Any, trained: Any, schedule: str, form: str
) -> None:
    keys = {**files["gpt"], "devices": 4, "schedule": schedule, "cluster": "vc709-10g"}
    plan = plan_of(**keys, precision=PRECISIONS[form])
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 32).epoch_ends_ps]


def test_resume(files: dict[str, Table], tmp_path: Path, bits: Any) -> None:
    saved, keys = str(tmp_path / "run.ckpt"), {**files["gpt like Llama"], "progress": "none"}
    keys["precision"] = PRECISIONS["by chance"]
    emuchain.train(**keys, devices=2, epochs=1, checkpoint=saved)
    others = {key: value for key, value in keys.items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(emuchain.train(**keys, devices=1, epochs=2).weights)


@pytest.mark.sampled(1)
def test_ranks(
    files: dict[str, Table],
    references: dict[Any, Weights],
    mpiexec: Any,
    tmp_path: Path,
    bits: Any,
) -> None:
    own = {key: value for key, value in files["vit"].items() if key != "network"}
    flags = [
        word for key, value in own.items() for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    out = tmp_path / "run.h5"
    flags += ["--precision", "mxint8", "--precision.accumulate", "dot:32"]
    flags += ["--devices", "5", "--out", str(out)]
    mpiexec(3, ["-m", "emuchain", "train", files["vit"]["network"], *flags], timeout=300)
    assert bits(emuchain.results(out).weights) == bits(references["vit", "blocks"])


def test_bytes_by_hand(plan_of: Any, tmp_path: Path) -> None:
    """Heads 1 to 3 of four of 8 channels, 40 tokens: in MXINT8 with dot:N, line buffers have 32
    rows of 72 channels of q, k and v, and of 24 of errors, 33 bytes each; and of a head in fp32
    shares and errors of 32 queries and 40 keys. Narrow sums leave the numbers of rows and heads in
    fp32.
    """
    layers = [
        conv(96, "qkv"),
        {"type": "attention", "heads": 4, "causal": True, "name": "a"},
        conv(32, "p"),
        {"type": "softmax"},
    ]
    network = written(tmp_path / "n.toml", {"name": "n", "input": [32, 40, 1], "layers": layers})
    kept, pairs = 4 * 2 * 3 * 40, 4 * 2 * 32 * 40
    expected = {  # path 1, 2, 3 and 4; Act-RAM; what line buffers have more than without
        "mxint8 accumulate=dot:32": ([75, 32, 9, 288], 75 * 40 + kept, 33 * (72 + 24) + pairs),
        "mxint8 accumulate=dot:8": ([75, 32, 9, 288], 75 * 40 + kept, 33 * (72 + 24) + pairs),
        "q2.6 accumulate=dot:8": ([72, 32, 8, 288], 72 * 40 + kept, 0),
        "bf16 accumulate=bf16": ([144, 16, 16, 144], 144 * 40 + kept, 0),
    }
    for precision, (paths, act_ram, more) in expected.items():
        keys = {"network": network, "cluster": "vc709", "schedule": "sync", "devices": 2}
        both = []
        for own in (precision, precision.partition(" ")[0]):
            plan = plan_of(**keys, cut="qkv a[:1] | a[1:] p", batch=1, samples=1, precision=own)
            part, storage = plan.mapping.devices[1][0], plan.timing.cluster.storage
            both.append((plan, slice_memory(part, 1, storage=storage)))
        (plan, memory), (_, plain) = both
        assert [stream.row_bytes for stream in plan.timing.links[0]] == paths
        assert memory.act_ram.bytes == act_ram
        assert memory.line_buffers.bytes - plain.line_buffers.bytes == more


def test_what_is_refused(files: dict[str, Table], plan_of: Any, one_line: Any) -> None:
    for name, precision, said in (
        (
            "gpt",
            "mxfp4 activations=mxfp8-e5m2 accumulate=dot:8",
            "activations in mxfp8-e5m2 .* takes 67 bits",
        ),
        ("gpt like Llama", "int8 accumulate=int32", "whose errors add up over heads"),
        ("gpt", "q2.14 accumulate=int32", "FP of .* int32 cannot hold"),
    ):
        with pytest.raises(InputError, match=said) as refused:
            plan_of(**files[name], precision=precision)
        one_line(refused)
