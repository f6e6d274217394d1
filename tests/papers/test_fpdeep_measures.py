"""Measures of FPDeep's rows by hand: convergence from runs, the two phases of partition, idle
multipliers.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError, Mean
from emuchain.emulator.mapping import channel_works, imbalance
from emuchain.emulator.timing import engine_loads
from emuchain.papers.claim import NoEvidence
from emuchain.papers.fpdeep import evidence, partitioning, runs
from emuchain.papers.fpdeep.runs import FILE, Run, all_runs, comparisons, read_runs


def run(
    schedule: str, seed: int, accuracy: float, network: str = "vgg16-cifar", old_weights: int = 9
) -> Run:
    said: dict[str, Any] = {
        "network": network,
        "schedule": schedule,
        "seed": seed,
        "devices": 8,
        "batch": 1000,
        "samples": 2000,
        "epochs": 2,
        "learning_rate": 0.01,
        "memory": "fpdeep",
        "old_weights": old_weights,
        "test_accuracy": [0.1, accuracy],
        "train_loss": [2.0, 1.0],
        "virtual_time_ps": [1, 2],
    }
    return Run.model_validate(said)


def test_mean_and_standard_error_by_hand() -> None:
    found = Mean.over([70.0, 71.0, 75.0])
    assert (found.value, found.error) == (72.0, pytest.approx(math.sqrt(7 / 3)))
    assert Mean.over([70.0]).error == math.inf
    assert Mean(70, 1).differs(Mean(73, 2))
    assert not Mean(70, 1).differs(Mean(71.9, 2))
    assert not Mean(70, 2).differs(Mean(71.9, 1)), "it must exceed both"


def test_networks_that_differ_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds lie 10 points apart; what is judged is how far `fpdeep` is from `sync` with the same
    seed.
    """
    apart = [
        run(s, seed, seed / 10 + d, "a", 5)
        for s, d in (("sync", 0), ("fpdeep", -0.01))
        for seed in (1, 2, 3)
    ]
    near = [
        run(s, seed, seed / 10 + d * (-1) ** seed, "b", 5)
        for s, d in (("sync", 0), ("fpdeep", 0.01))
        for seed in (1, 2)
    ]
    late = [run(s, seed, a) for s, a in (("sync", 0.5), ("fpdeep", 0.4)) for seed in (1, 2)]
    monkeypatch.setattr(runs, "all_runs", lambda: apart + near + late)
    measured = runs.unaligned()
    assert measured.ours == 1, (
        "b's difference has both signs, and the last network is later than the paper's"
    )
    assert (
        "a, 5 of 1000: 19.00 ± 5.77 % against 20.00 ± 5.77 % (-1.00 ± 0.00 points, 3 seeds); b, 5"
        in measured.how
    )
    assert "with more old weights: vgg16-cifar, 9 of 1000: 40.00 ± 0.00 %" in measured.how
    monkeypatch.setattr(runs, "all_runs", lambda: late)
    with pytest.raises(NoEvidence, match="at most 5 of 1,000"):
        runs.unaligned()


def test_seeds_of_one_schedule_are_left_out() -> None:
    both = [run("sync", 1, 0.5), run("fpdeep", 1, 0.5), run("fpdeep", 2, 0.5)]
    [found] = comparisons([*both, run("sync", 2, 0.7), run("sync", 3, 0.1)])
    assert (found.sync_percent.value, found.seeds) == (pytest.approx(60), 2)
    other_batch = run("sync", 2, 0.7).model_copy(update={"batch": 32})
    for few in ([], both, [run("sync", 1, 0.5), run("fpdeep", 2, 0.5)], [*both, other_batch]):
        with pytest.raises(NoEvidence, match="two seeds on both schedules"):
            comparisons(few)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"runs": [{}]}', '{"runs": 1}'])
def test_files_that_are_none_of_runs(text: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        read_runs(path)


def test_a_run_has_figures_of_each_epoch(tmp_path: Path) -> None:
    said = json.loads(FILE.read_text(encoding="utf-8"))
    said["runs"][0]["test_accuracy"].pop()
    (tmp_path / "runs.json").write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(InputError, match="must have figures of"):
        read_runs(tmp_path / "runs.json")
    assert len(
        {(each.network, each.batch, each.schedule, each.seed) for each in all_runs()}
    ) == len(all_runs())


@pytest.mark.parametrize("name", evidence.NETWORKS)
def test_two_phases(name: str) -> None:
    """The coarse cuts are between layers, or within a layer that no board shares with another; V is
    equation (5)'s.
    """
    channels, found = partitioning._Channels(name), evidence.mapping(name)
    coarse = channels.coarse()
    assert len(coarse) == 15
    shared = {cut for cut in coarse if cut not in channels.first}
    for begin, end in itertools.pairwise(coarse):
        inside = [first for first in channels.first if begin < first < end]
        assert not inside or not {begin, end} & shared
    assert found.balance is not None
    assert channels.variance(coarse) == pytest.approx(found.balance.coarse, rel=0.02)
    ends = [0]
    for held in found.devices[:14]:
        ends.append(ends[-1] + sum(part.channels for part in held))
    assert channels.variance(ends) == pytest.approx(found.balance.fine, rel=1e-6)
    fine = channels.fine(coarse)
    assert len(fine) == 15
    assert sorted(set(fine)) == fine
    assert channels.variance(fine) < channels.variance(coarse)


def test_no_cut_of_the_fine_phase_can_be_moved() -> None:
    channels = partitioning._Channels("vgg16")
    fine = channels.fine(channels.coarse())
    work = channels.before
    for before, cut, after in zip(fine, fine[1:], fine[2:], strict=False):
        apart = abs(work[after] + work[before] - 2 * work[cut])
        for other in {max(before + 1, cut - 1), min(after - 1, cut + 1)}:
            assert apart <= abs(work[after] + work[before] - 2 * work[other])
    assert channels.variance(fine) == imbalance(
        [work[b] - work[a] for a, b in itertools.pairwise(fine)]
    )


@pytest.mark.parametrize(("name", "devices"), [("alexnet", 10), ("vgg16", 15)])
def test_idle_multipliers_by_hand(name: str, devices: int) -> None:
    """All multipliers of the boards with convolutions, for as long as the slowest engine of the
    chain takes.
    """
    loads = list(engine_loads(evidence.timing(name, devices)))
    slowest_ps = max(load.sample_ps for load in loads)
    macs = sum(
        part.macs * len(channel_works(part.layer))
        for number, held in enumerate(evidence.mapping(name, devices).devices)
        if number not in evidence.mapping(name, devices).off_chip_devices
        for part in held
    )
    able = (devices - 1) * 2998 * slowest_ps / 5000
    assert evidence.unused_percent(name, devices) == pytest.approx(100 * (1 - macs / able))
    built = sum(load.engine.multipliers for load in loads if load.device < devices - 1)
    assert built < (devices - 1) * 2998
    assert evidence.idle_percent(name, devices, evidence.LINK_GBPS) < evidence.unused_percent(
        name, devices
    )
