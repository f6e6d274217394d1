"""Runs whose products are summed in blocks: one set of bits on any mapping and schedule, and what
is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.mapping.balancing import stored_weight_bytes
from emuchain.emulator.number import precision_of
from emuchain.emulator.run import simulate

from .gpt import Table, written

LAYERS: list[Table] = [
    {"type": "conv", "name": "c1", "channels": 100, "kernel": 3, "pad": 1, "stride": 4},
    {"type": "relu"},
    {"type": "conv", "name": "c2", "channels": 70, "kernel": 3, "pad": 1, "stride": 2},
    {"type": "relu"},
    {"type": "conv", "name": "c3", "channels": 70, "kernel": 1},
    {"type": "add", "from": ["c2", "c3"], "name": "a"},
    {"type": "batch-norm"},
    {"type": "relu"},
    {"type": "max-pool", "kernel": 2},
    {"type": "fc", "name": "f1", "features": 90},
    {"type": "relu"},
    {"type": "fc", "name": "f2", "features": 10},
    {"type": "softmax"},
]
PRECISIONS: dict[str, Any] = {
    "mxint8": {"format": "mxint8", "accumulate": "dot:32"},
    "by chance": {
        **{"format": "mxint8", "errors": "mxfp6", "accumulate": "dot:16"},
        **{"rounding": "stochastic", "master": "mxint8", "gradients": "bf16", "states": "mxfp8"},
    },
    "transformed": {"format": "mxfp4", "accumulate": "dot:32", "hadamard": 16},
    "fixed point": {"format": "q2.6", "accumulate": "dot:8", "loss_scale": 64},
    "mxfp8": {"format": "mxfp8", "accumulate": "dot:32", "master": "bf16"},
}
MAPPINGS: list[Table] = [
    {"devices": 3, "micro_batch": 4},
    {"devices": 12, "micro_batch": 1},
    {"devices": 5, "schedule": "gpipe", "micro_batch": 2},
    {"devices": 2, "schedule": "1f1b-as"},
    {"devices": 2, "schedule": "interleaved", "chunks": 2},
    {"devices": 3, "schedule": "zero-bubble"},
    {"devices": 9, "schedule": "1f1b-as", "micro_batch": 2, "engines": "shared"},
    {"devices": 4, "schedule": "gpipe", "micro_batch": 2, "engines": "turns"},
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("dots") / "t.toml"
    network = written(path, {"name": "t", "input": [3, 32, 32], "layers": LAYERS})
    sizes = {"batch": 8, "samples": 16, "test_samples": 2}
    return {"network": network, "schedule": "sync", **sizes, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def references(keys: Table, plan_of: Any, trained: Any, bits: Any) -> dict[str, Any]:
    return {
        name: bits(trained(plan_of(**keys, devices=1, micro_batch=8, precision=given)).weights)
        for name, given in PRECISIONS.items()
    }


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("mapping", MAPPINGS, ids=lambda keys: " ".join(map(str, keys.values())))
def test_bits_do_not_depend_on_the_mapping(
    keys: Table,
    plan_of: Any,
    trained: Any,
    bits: Any,
    references: dict[str, Any],
    mapping: Table,
    name: str,
) -> None:
    plan = plan_of(**{**keys, **mapping}, precision=PRECISIONS[name])
    assert bits(trained(plan).weights) == references[name]
    together = plan.config.precision.whole_channels
    for part in (part for slices in plan.mapping.devices for part in slices):
        assert part.is_last or part.end % together == 0 or not part.layer.has_eb


def test_sums_of_blocks_are_others_than_those_of_products(
    keys: Table, plan_of: Any, trained: Any, bits: Any, references: dict[str, Any]
) -> None:
    plain = bits(trained(plan_of(**keys, devices=1, micro_batch=8, precision="mxint8")).weights)
    assert len({str(weights) for weights in (plain, *references.values())}) == 1 + len(PRECISIONS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("bf16 accumulate=dot:32", "bits"),
        ("mxfp8-e5m2 accumulate=dot:32", "takes 69 bits"),
        ("int8@8 accumulate=dot:16", "several scales in 16 products"),
        ("mxint8 accumulate=dot:24", "should be"),
        ("mxint8 accumulate=kulisch", "should be"),
    ],
)
def test_no_exact_sum(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        precision_of(given)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"devices": 200}, "blocks of 32 channels"),
        ({"cut": "c1 c2[:40] | c2[40:] c3 f1 f2"}, "cut at channel 40, within a block of 32"),
    ],
)
def test_refused(keys: Table, plan_of: Any, one_line: Any, changed: Table, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        plan_of(**{**keys, "precision": "mxint8 accumulate=dot:32", **changed})
    one_line(refused)


@pytest.mark.parametrize("name", ["mxint8", "by chance"])
def test_groups(
    tmp_path: Path, keys: Table, plan_of: Any, trained: Any, bits: Any, name: str
) -> None:
    """Groups of 25 channels of 96 outputs' 24, and of 32 of 64, and channels by themselves; cuts
    leave groups or blocks whole.
    """
    layers: list[Table] = [
        LAYERS[0],
        {"type": "conv", "name": "g", "channels": 96, "kernel": 3, "groups": 4, "stride": 2},
        {"type": "relu"},
        {"type": "conv", "name": "d", "channels": 96, "kernel": 3, "groups": 96},
        {"type": "conv", "name": "h", "channels": 192, "kernel": 1, "groups": 3},
        *LAYERS[-2:],
    ]
    network = written(tmp_path / "g.toml", {"name": "g", "input": [3, 32, 32], "layers": layers})
    own = {**keys, "network": network, "precision": PRECISIONS[name]}
    one = bits(trained(plan_of(**own, devices=1, micro_batch=8)).weights)
    for cut in (
        "c1 g[:24] | g[24:] d[:7] | d[7:] h[:32] | h[32:96] | h[96:] f2",
        "c1 g[:72] | g[72:] d h[:128] | h[128:] f2",
    ):
        assert bits(trained(plan_of(**own, cut=cut, micro_batch=2)).weights) == one
    assert bits(trained(plan_of(**own, devices=8, micro_batch=1)).weights) == one


def test_groups_stay_whole(tmp_path: Path, keys: Table, plan_of: Any, one_line: Any) -> None:
    groups = {"type": "conv", "name": "g", "channels": 100, "kernel": 3, "groups": 4}
    layers = [LAYERS[0], groups, LAYERS[-2], LAYERS[-1]]
    network = written(tmp_path / "g.toml", {"name": "g", "input": [3, 32, 32], "layers": layers})
    with pytest.raises(InputError, match="at channel 32, within a block of 25") as refused:
        own = {**keys, "network": network, "cut": "c1 g[:32] | g[32:] f2"}
        plan_of(**own, precision="mxint8 accumulate=dot:32")
    one_line(refused)


def test_bytes_of_groups(tmp_path: Path, keys: Table, plan_of: Any) -> None:
    """Of 96 outputs in 4 groups of 25 inputs, a place of the kernel has for FP a block of 25 for
    each output, and for EB one of 24 for each input: of 2,400 weights, 96 and 100 scales.
    """
    groups = {"type": "conv", "name": "g", "channels": 96, "kernel": 3, "groups": 4}
    layers = [LAYERS[0], groups, LAYERS[-2], LAYERS[-1]]
    network = written(tmp_path / "g.toml", {"name": "g", "input": [3, 32, 32], "layers": layers})
    own = {**keys, "network": network, "devices": 1, "batch": 1, "samples": 1}
    plan = plan_of(**own, precision="mxint8 accumulate=dot:32")
    [part] = [part for part in plan.mapping.devices[0] if part.layer.name == "g"]
    storage = plan.timing.cluster.storage
    of_weights = 9 * (2400 + 96) + 9 * (2400 + 100)
    kept = sum(4 * 9 * 2400 for _ in storage.arrays[1:])
    assert stored_weight_bytes(part, 96, storage) == of_weights + kept


def test_a_cut_between_blocks(
    keys: Table, plan_of: Any, trained: Any, bits: Any, references: dict[str, Any]
) -> None:
    plan = plan_of(
        **keys, cut="c1 c2[:32] | c2[32:96] | c2[96:] c3 f1 f2", precision=PRECISIONS["mxint8"]
    )
    assert bits(trained(plan).weights) == references["mxint8"]


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("schedule", ["fpdeep", "gpipe"])
def test_training_takes_the_time_of_its_simulation(
    keys: Table, plan_of: Any, trained: Any, name: str, schedule: str
) -> None:
    own = {**keys, "devices": 4, "schedule": schedule, "cluster": "vc709-10g"}
    if schedule == "gpipe":
        own["engines"] = "turns"
    plan = plan_of(**own, precision=PRECISIONS[name])
    [result] = trained(plan).history
    assert [result.virtual_time_ps] == [*simulate(plan, 16).epoch_ends_ps]


@pytest.mark.parametrize("name", ["mxint8", "by chance"])
def test_resume(keys: Table, tmp_path: Path, bits: Any, name: str) -> None:
    saved, own = str(tmp_path / "run.ckpt"), {**keys, "progress": "none"}
    own["precision"] = PRECISIONS[name]
    emuchain.train(**own, devices=2, epochs=1, checkpoint=saved)
    others = {key: value for key, value in own.items() if key != "network"}
    resumed = emuchain.train(**others, devices=3, epochs=2, resume=saved)
    assert bits(resumed.weights) == bits(emuchain.train(**own, devices=1, epochs=2).weights)


def test_replicas_that_share_states_out(keys: Table, plan_of: Any, one_line: Any) -> None:
    with pytest.raises(InputError, match="lie across the shares") as refused:
        own = {**keys, "replicas": 2, "zero": 1}
        plan_of(**own, precision="mxint8 accumulate=dot:32")
    one_line(refused)


@pytest.mark.sampled(1)
def test_ranks(
    keys: Table, mpiexec: Any, tmp_path: Path, references: dict[str, Any], bits: Any
) -> None:
    out = tmp_path / "run.h5"
    flags = [keys["network"], "--batch", "8", "--samples", "16", "--test-samples", "2"]
    flags += ["--schedule", "sync", "--learning-rate", "0.01", "--devices", "6"]
    flags += ["--precision", "mxint8", "--precision.accumulate", "dot:32", "--out", str(out)]
    mpiexec(3, ["-m", "emuchain", "train", *flags], timeout=300)
    with h5py.File(out) as file:
        weights = {
            layer: {kind: array[()] for kind, array in own.items()}
            for layer, own in file["weights"].items()
        }
    assert bits(weights) == references["mxint8"]
