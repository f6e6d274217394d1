"""Retiming: a run under its own cluster takes its own time, and under another that of training
there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.run import Results, read_results
from emuchain.emulator.studies import Retiming, retime

SMALL = {
    "name": "small",
    "boards": [{"name": "small", "clock_mhz": 100, "dsp": 300, "on_chip_memory_kbit": 2400}],
    "links": {"bandwidth_gbps": 40, "latency_ns": 200},
}
"""300 kB a board: quick-cifar fits on five, some parameters of which are stored on others."""

Flags = dict[str, Any]
RUNS: list[Flags] = [
    {"schedule": "sync", "devices": 3},
    {"schedule": "gpipe", "devices": 2, "lr_schedule": "steps:at=1"},
    {"schedule": "fpdeep", "devices": 4},
    {"schedule": "data-parallel-ring", "devices": 4},
    {"schedule": "data-parallel-ring", "devices": 4, "compress": "inceptionn:-10"},
    {"schedule": "data-parallel-ring", "devices": 4, "groups": 2, "compress": "inceptionn:-10"},
    {
        "schedule": "data-parallel-aggregator",
        "devices": 3,
        "compress": "inceptionn:-10",
        "cluster": "titan-xp-10gbe",
    },
    {
        "schedule": "data-parallel-aggregator",
        "devices": 6,
        "groups": 3,
        "compress": "inceptionn:-8",
    },
    {"schedule": "sync", "replicas": 2, "devices": 3, "compress": "truncate:16"},
    {
        "schedule": "fpdeep",
        "replicas": 3,
        "devices": 2,
        "exchange": "aggregator",
        "compress": "inceptionn:-10",
    },
    {
        "schedule": "sync",
        "cluster": SMALL,
        "devices": 5,
        "memory": "fpdeep",
        "compress": "inceptionn:-10",
    },
    {
        "schedule": "fpdeep",
        "cluster": SMALL,
        "devices": 5,
        "memory": "fpdeep",
        "replicas": 2,
        "compress": "inceptionn:-10",
    },
]

Run = Callable[..., Results]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trains a little, the last mini-batch of each epoch a short one, and reads the results
    file.
    """
    folder = tmp_path_factory.mktemp("runs")

    def train(**flags: Any) -> Results:
        out = folder / "run.h5"
        settings = {"samples": 54, "batch": 24, "micro_batch": 5, "epochs": 2, "test_samples": 4}
        emuchain.train("quick-cifar", out=str(out), **{**settings, **flags})
        return read_results(out)

    return train


def ends_of(results: Results) -> tuple[int, ...]:
    """The virtual times of a run's epochs."""
    return tuple(results.history["virtual_time_ps"].tolist())


def about_sizes(retiming: Retiming) -> list[str]:
    """The notes, but for those on memory: boards here have no off-chip memory, and times ignore
    what is missing.
    """
    return [note for note in retiming.notes if "do not fit into on-chip memory" not in note]


@pytest.mark.parametrize("flags", RUNS, ids=str)
def test_under_its_own_cluster_a_run_takes_its_own_time(flags: Flags, run: Run) -> None:
    results = run(**flags)
    found = retime(results)
    assert found.epoch_ends_ps == found.own_ends_ps == ends_of(results)
    assert found.speed_up == 1
    assert found.same_staleness
    assert about_sizes(found) == []


@pytest.mark.parametrize(
    "flags", [flags for flags in RUNS if flags["schedule"] not in ("fpdeep",)], ids=str
)
def test_under_another_cluster_it_takes_the_time_of_training_there(flags: Flags, run: Run) -> None:
    """Slower links and a slower clock, but the same slices and ring, so that numbers and sizes are
    the same too.
    """
    changes = {"link.bandwidth_gbps": 20, "link.latency_ns": 9000, "board.clock_mhz": 50}
    if flags.get("cluster") is SMALL:  # where other blocks of parameters would be balanced
        changes = {"link.bandwidth_gbps": 38, "link.latency_ns": 250, "board.clock_mhz": 99}
    slower = emuchain.load_cluster(flags.get("cluster", "vc709"), changes)
    found, there = retime(run(**flags), slower), run(**{**flags, "cluster": slower})
    assert about_sizes(found) == []
    assert found.epoch_ends_ps == ends_of(there)
    assert found.virtual_time_ps > found.own_virtual_time_ps
    assert "accuracy and loss stay" in found.about_numbers
    assert retime(there).epoch_ends_ps == ends_of(
        there
    )  # the file describes the cluster as it was changed


def test_results_in_memory_and_in_a_file_are_alike(tmp_path: Path) -> None:
    out = tmp_path / "run.h5"
    settings = {
        "devices": 3,
        "schedule": "data-parallel-ring",
        "compress": "inceptionn:-10",
        "lr_schedule": "steps:at=1",
    }
    results = emuchain.train(
        "quick-cifar", samples=24, batch=24, test_samples=4, epochs=2, out=str(out), **settings
    )
    slower = {"link.bandwidth_gbps": 5}
    here, there = emuchain.retime(results, changes=slower), emuchain.retime(out, changes=slower)
    assert here.epoch_ends_ps == there.epoch_ends_ps
    assert emuchain.retime(out, "vc709", changes=slower).epoch_ends_ps == here.epoch_ends_ps
    assert (
        emuchain.retime(out, emuchain.load_cluster("vc709", slower)).epoch_ends_ps
        == here.epoch_ends_ps
    )
    assert repr(here).startswith("<Retiming under vc709 (link.bandwidth_gbps=5): ")
    assert emuchain.retime(out, "vc709", changes=slower).label == here.label


def test_where_weights_depend_on_time_it_says_what_would_differ(run: Run) -> None:
    results = run(schedule="fpdeep", devices=4)
    found = retime(
        results, emuchain.load_cluster("vc709", {"link.bandwidth_gbps": 2}), label="slow.toml"
    )
    before = [late.stale_samples for late in found.own.steady.staleness]
    after = [late.stale_samples for late in found.plan.steady.staleness]
    device = max(range(4), key=lambda device: abs(after[device] - before[device]))
    said = (
        f"under slow.toml {after[device]} instead of {before[device]} of 24 samples use old weights"
        f" on device {device}"
    )
    assert after[device] != before[device]
    assert found.about_numbers.startswith(said)
    assert found.about_numbers.endswith(": accuracy and loss would differ; times are right")
    assert found.stale_samples == tuple(after)
    there = run(schedule="fpdeep", devices=4, cluster=found.plan.cluster)
    assert found.epoch_ends_ps == ends_of(there)


def without_sizes(results: Results) -> Results:
    """What a file of an earlier version holds."""
    return dataclasses.replace(results, messages={})


def test_files_of_earlier_versions(run: Run, tmp_path: Path) -> None:
    results = run(
        schedule="data-parallel-ring",
        devices=4,
        compress="inceptionn:-10",
        cluster="titan-xp-10gbe",
    )
    found = retime(without_sizes(results))
    assert found.notes == (
        (
            "the file, of an earlier version, has no sizes of messages: gradients are assumed to"
            " shrink by the mean ratio of each epoch"
        ),
    )
    assert found.epoch_ends_ps != found.own_ends_ps
    assert found.virtual_time_ps == pytest.approx(found.own_virtual_time_ps, rel=0.05)
    with (
        h5py.File(tmp_path.parent / "old.h5", "w") as copy,
        h5py.File(_written(results, tmp_path), "r") as file,
    ):
        for group in file:
            if group != "messages":
                file.copy(group, copy)
        copy.attrs["format"] = 1
    assert retime(read_results(tmp_path.parent / "old.h5")).epoch_ends_ps == found.epoch_ends_ps


def test_sizes_that_do_not_depend_on_values_are_known(run: Run) -> None:
    found = retime(
        without_sizes(run(schedule="sync", replicas=2, devices=3, compress="truncate:16"))
    )
    assert found.epoch_ends_ps == found.own_ends_ps
    assert found.notes == ()


def _written(results: Results, folder: Path) -> Path:
    from emuchain.emulator.run import write_results

    write_results(folder / "run.h5", results)
    return folder / "run.h5"


def test_balanced_parameters_without_sizes(run: Run) -> None:
    results = run(
        schedule="sync", cluster=SMALL, devices=5, memory="fpdeep", compress="inceptionn:-10"
    )
    [note] = about_sizes(retime(without_sizes(results)))
    assert note.endswith("gradients are assumed to have the size that inceptionn:-10 expects")


def test_other_slices(run: Run) -> None:
    """On boards that differ, devices hold other slices, whose gradients the run did not send."""
    unequal = {**SMALL, "boards": [{**SMALL["boards"][0], "dsp": dsp} for dsp in (1800, 300, 300)]}  # type: ignore[index]
    results = run(
        schedule="sync",
        cluster=SMALL,
        devices=3,
        replicas=3,
        balancing="none",
        compress="inceptionn:-10",
    )
    found = retime(results, emuchain.load_cluster(unequal))
    assert found.own.mapping.devices != found.plan.mapping.devices
    assert found.notes[0].startswith(
        "devices hold other slices, or parameters for others, there: gradients are assumed"
    )
    assert any("another order" in note for note in found.notes)
    there = run(
        schedule="sync",
        cluster=unequal,
        devices=3,
        replicas=3,
        balancing="none",
        compress="inceptionn:-10",
    )
    assert found.virtual_time_ps == pytest.approx(there.virtual_time_ps, rel=0.02)


def test_a_note_where_the_time_model_was_another(run: Run) -> None:
    results = run(schedule="sync", devices=2)
    results.history["virtual_time_ps"][:] += 1000
    [note] = retime(results).notes
    assert note.startswith(
        f"on its own cluster the run's first epoch took {ends_of(results)[0]} ps by emuchain 0.1.0"
    )


def test_runs_that_cannot_be_timed(run: Run) -> None:
    results = run(schedule="sync", devices=2)

    def message(results: Results, cluster: dict[str, Any] | None = None) -> str:
        with pytest.raises(InputError) as raised:
            retime(
                results,
                None if cluster is None else emuchain.load_cluster(cluster),
                source="run.h5",
            )
        return str(raised.value)

    longer = dataclasses.replace(results, config={**results.config, "epochs": 5})
    assert message(longer).startswith("run.h5: the run is not finished: 2 of 5 epochs")
    none = dataclasses.replace(results, history={})
    assert message(none).startswith("run.h5: the run is not finished: no epoch")
    mute = dataclasses.replace(results, descriptions={})
    assert message(mute).startswith("run.h5: does not describe its cluster")
    own = dataclasses.replace(results, config={**results.config, "schedule": "three-late"})
    assert message(own).startswith("run.h5: settings: `schedule` = 'three-late'")
    tiny = {**SMALL, "boards": [{**SMALL["boards"][0], "dsp": 8}]}  # type: ignore[index]
    assert "`dsp` = 8" in message(results, tiny)
    with pytest.raises(InputError, match="`changes`: cannot be applied to a loaded cluster"):
        retime(results, emuchain.load_cluster(SMALL), {"link.latency_ns": 3})


def test_the_number_of_replicas_is_recorded() -> None:
    """Without `devices`, it follows from the ranks."""
    from emuchain.emulator.run import results_of

    plan = emuchain.plan("quick-cifar", ranks=4, schedule="data-parallel-ring")
    assert plan.config.devices is None
    assert results_of(plan, 64, [], {}, {}).config["devices"] == 4
