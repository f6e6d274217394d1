"""The functions of `import emuchain`: the same as the command line's, on the same plans.

Networks and clusters are given as names, file paths, mappings with the keys of such files, or objects from
`load_network` and `load_cluster`. Further settings are the keys of the configuration (docs/configuration.md).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from ..comm import Observer, Served
from ..launch import MpiRanks, RankFailed, Ranks, SingleProcess, Stopped
from .all_ranks import failure_of, on_all, stop_others
from .asked import (
    AnyCluster,
    AnyNetwork,
    OfPairs,
    asked_keys,
    asked_settings,
    check_files,
    new_plan,
    plan_again,
    plan_of,
)
from .cluster import Cluster, load_cluster
from .common import IMAGENET_IMAGES, InputError, WholeFile
from .data import Dataset
from .plan import (
    PairPlan,
    Plan,
    check_data,
    epoch_samples,
    training_data,
)
from .run import (
    EpochResult,
    PairSimulation,
    Recorder,
    Results,
    RunCheckpoints,
    Simulation,
    StepLog,
    Weights,
    check_needs,
    checkpoints_of,
    open_log,
    read_results,
    resumed,
)
from .run import simulate as run_simulation
from .run import train as run_training
from .studies import Retiming, label_of
from .studies import retime as retime_results
from .view import SpanRecorder, TraceRequest, pair_timeline, pair_trace, write_trace

if TYPE_CHECKING:
    from .studies.sweep import SweepResult


@overload
def plan(
    network: AnyNetwork = ...,
    cluster: AnyCluster = ...,
    *,
    schedule: OfPairs,
    changes: Mapping[str, object] | None = ...,
    **settings: Any,
) -> PairPlan: ...


@overload
def plan(
    network: AnyNetwork = ...,
    cluster: AnyCluster = ...,
    *,
    ranks: int = ...,
    changes: Mapping[str, object] | None = ...,
    **settings: Any,
) -> Plan: ...


def plan(
    network: AnyNetwork = "quick-cifar",
    cluster: AnyCluster = "vc709",
    *,
    ranks: int = 1,
    changes: Mapping[str, object] | None = None,
    **settings: Any,
) -> Plan | PairPlan:
    """Return the plan of a run: mapping, times, schedule, memory. Nothing is trained or simulated yet.

    A schedule of a GPU, alone or with an FPGA, gives a `PairPlan`, every other one a `Plan`.

    Args:
        network: the network to train.
        cluster: the cluster to run on.
        ranks: number of processes; each hosts a device if `devices` is not given.
        changes: changed values of cluster keys, such as {"link.bandwidth_gbps": 250}.
        **settings: keys of the configuration, such as devices=15, batch=64, schedule="sync".

    Raises:
        InputError: a setting is unknown, out of range, or contradicts another one.
    """
    return new_plan(network, cluster, settings, changes=changes, ranks=ranks)


def sweep(
    network: AnyNetwork | Iterable[AnyNetwork] = "quick-cifar",
    cluster: AnyCluster | Iterable[AnyCluster] = "vc709",
    *,
    devices: int | Iterable[int] | None = None,
    changes: Mapping[str, object] | None = None,
    epoch_images: int = IMAGENET_IMAGES,
    jobs: int | None = None,
    csv: str | os.PathLike[str] | None = None,
    restart: bool = False,
    **settings: Any,
) -> SweepResult:
    """Return the rates of all combinations of values: `.rows`, a list of dictionaries, and `.best`, one of them.

    Every argument that describes the run may be one value or several. A point that fails is a row whose `error` says
    why.

    Args:
        network: the network or networks to train.
        cluster: the cluster or clusters to run on.
        devices: numbers of boards of a chain, such as range(1, 65); by default one, or a pair's own.
        changes: changed values of cluster keys, such as {"link.bandwidth_gbps": [10, 40, 100]}.
        epoch_images: images of an epoch, for its hours.
        jobs: number of processes; by default one for each core.
        csv: a file for the rows; points that it holds are not computed again.
        restart: whether to start that file over.
        **settings: further keys of the configuration that change times, such as batch=[32, 64], schedule="sync".

    Raises:
        InputError: a key is unknown, a value is out of range, or the file is that of another sweep.
    """
    from .studies.sweep import Space, run_space

    values = {"network": network, "cluster": cluster, "devices": devices, **settings, **(changes or {})}
    path = None if csv is None else pathlib.Path(csv)
    space = Space.of(values, blame="sweep")
    check_files(space.values, csv=csv)
    return run_space(space, epoch_images, jobs=jobs, csv=path, restart=restart, blame="sweep")


@overload
def simulate(
    network: PairPlan, cluster: AnyCluster = ..., *, trace: str | os.PathLike[str] | None = ...
) -> PairSimulation: ...


@overload
def simulate(
    network: AnyNetwork = ...,
    cluster: AnyCluster = ...,
    *,
    schedule: OfPairs,
    trace: str | os.PathLike[str] | None = ...,
    **settings: Any,
) -> PairSimulation: ...


@overload
def simulate(
    network: AnyNetwork | Plan = ...,
    cluster: AnyCluster = ...,
    *,
    observer: Observer | None = ...,
    trace: str | os.PathLike[str] | None = ...,
    trace_level: str | None = ...,
    trace_samples: tuple[int, int] | None = ...,
    **settings: Any,
) -> Simulation: ...


def simulate(
    network: AnyNetwork | Plan | PairPlan = "quick-cifar",
    cluster: AnyCluster = "vc709",
    *,
    observer: Observer | None = None,
    trace: str | os.PathLike[str] | None = None,
    trace_level: str | None = None,
    trace_samples: tuple[int, int] | None = None,
    **settings: Any,
) -> Simulation | PairSimulation:
    """Return a run's virtual time and its usage of devices and links, equal to those of `train` to the picosecond.

    For a GPU, alone or with an FPGA, it is that of mini-batches of tasks; a trace has the tasks of one mini-batch,
    and there is no observer.

    Args:
        network: the network to train, or a plan.
        cluster: the cluster to run on; unused with a plan.
        observer: called with what each engine, link and exchange of the first replica serves.
        trace: the file of a timeline for https://ui.perfetto.dev (docs/timelines.md).
        trace_level: "sample" or "row"; what gets its own slice in the trace.
        trace_samples: the first and the last sample in the trace.
        **settings: as for `plan`; with `samples`, no data set is needed.

    Raises:
        InputError: a setting is unknown, out of range, or contradicts another one.
    """
    check_files(asked_keys(network, cluster, settings), trace=trace)
    planned = plan_of(network, cluster, settings)
    if isinstance(planned, PairPlan):
        return _simulated_pair(planned, observer, pair_trace(trace, trace_level, trace_samples))
    traced = TraceRequest.of(trace, trace_level, trace_samples)
    samples = epoch_samples(planned)
    recorder = None if traced is None else traced.recorder(planned, samples)
    with contextlib.ExitStack() as files:
        if traced is not None:
            traced.check_file()
            files.callback(traced.close)
        found = run_simulation(planned, samples, _both(observer, recorder))
        if traced is not None and recorder is not None:
            traced.write(planned, samples, [recorder])
    return found


def train(
    network: AnyNetwork | Plan | PairPlan = "quick-cifar",
    cluster: AnyCluster = "vc709",
    *,
    comm: Any = None,
    data: Dataset | str | os.PathLike[str] | None = None,
    on_epoch: Callable[[EpochResult, Weights], None] = lambda *_: None,
    observer: Observer | None = None,
    trace: str | os.PathLike[str] | None = None,
    trace_level: str | None = None,
    trace_samples: tuple[int, int] | None = None,
    **settings: Any,
) -> Results:
    """Train a network, with numerics and virtual time; return the results, with all weights.

    Args:
        network: the network to train, or a plan.
        cluster: the cluster to run on; unused with a plan.
        comm: an mpi4py communicator, all of whose ranks make this same call; without it, one process trains.
        data: a data set, or a value of the configuration key `data`.
        on_epoch: called on rank 0 after each epoch, with its result and the weights of all layers.
        observer: called with what engines, links and exchanges of the first replica's devices in this process serve.
        trace, trace_level, trace_samples: as for `simulate`; of all devices, in one file.
        **settings: as for `plan`; with `out`, the results are also written to a file; with `checkpoint`, a file from
            which another call resumes, given as `resume`, with all other settings unchanged or left out.

    Raises:
        InputError: a setting is unknown, out of range, or contradicts another one, or training diverged; on all ranks.
    """
    ranks: Ranks = SingleProcess() if comm is None else MpiRanks(comm.Clone())
    traced = TraceRequest.of(trace, trace_level, trace_samples)
    if data is not None and not isinstance(data, Dataset):
        settings["data"] = os.fspath(data)
    files = contextlib.ExitStack()

    def prepare() -> tuple[Plan | PairPlan, Dataset, WholeFile | None, StepLog, SpanRecorder | None, RunCheckpoints]:
        check_files(asked_keys(network, cluster, settings), trace=trace)
        start = resumed(asked_settings(network, cluster, settings))
        if start is None:
            planned = plan_of(network, cluster, settings, ranks.size)
        else:
            check_files(dict(start.config), trace=trace)
            planned = plan_again(start)
        if isinstance(planned, PairPlan) and traced is not None:
            raise InputError("`trace`: of a pair, `emuchain.simulate` writes it, with the same times")
        writes = planned.config.out if ranks.rank == 0 else None
        out = files.enter_context(WholeFile(writes)) if writes else None
        if traced is not None and ranks.rank == 0:
            traced.check_file()
            files.callback(traced.close)
        if isinstance(data, Dataset):
            check_data(planned, data)
        held = data if isinstance(data, Dataset) else training_data(planned)
        check_needs(planned, held, ranks, gathers=True)
        log = files.enter_context(open_log(planned.config.log if ranks.rank == 0 else None))
        checkpoints = checkpoints_of(planned, held, ranks, start, on_begin=lambda *begun: recorder.begin(*begun[:2]))
        if traced is None or isinstance(planned, PairPlan):
            return planned, held, out, log, None, checkpoints
        return planned, held, out, log, traced.recorder(planned, held.n_train), checkpoints

    with files:
        planned, held, out, log, spans, checkpoints = on_all(ranks, prepare)
        recorder = Recorder(planned, held, ranks.describe(), out, log)
        last: Weights = {}

        def record(result: EpochResult, weights: Weights) -> None:
            nonlocal last
            last = weights
            recorder.record(result, weights)
            on_epoch(result, weights)

        try:
            with recorder:
                run_training(
                    *(planned, held, ranks, recorder.step, record),
                    gather_weights=True,
                    observer=_both(observer, spans),
                    checkpoints=checkpoints,
                )
            gathered = ranks.gather(spans)
            if traced is not None and not isinstance(planned, PairPlan) and ranks.rank == 0:
                traced.write(planned, held.n_train, gathered)
        except RankFailed as failed:
            ranks.stop_others(failed.status, str(failed))
            ranks.abandon()
            raise failure_of(str(failed), failed.status) from None
        except Stopped as stopped:
            ranks.abandon()
            raise failure_of(stopped.line, stopped.status) from None
        except Exception as error:
            stop_others(ranks, error)
            ranks.abandon()
            raise
    found = ranks.share(recorder.results(last) if ranks.rank == 0 else None)[0]
    ranks.free()
    return found


def results(path: str | os.PathLike[str]) -> Results:
    """Return the content of a results file.

    Raises:
        InputError: the file is missing, damaged, or not a results file of emuchain.
    """
    return read_results(pathlib.Path(path))


def retime(
    run: Results | str | os.PathLike[str],
    cluster: AnyCluster | None = None,
    *,
    changes: Mapping[str, object] | None = None,
) -> Retiming:
    """Return the virtual times of a finished run under another cluster, with the compressed sizes that it had.

    Args:
        run: its results, or the path of its results file.
        cluster: the other cluster; by default the run's own.
        changes: changed values of cluster keys, such as {"link.bandwidth_gbps": 250}.

    Raises:
        InputError: the run is not finished, or cannot be planned on the other cluster.
    """
    source = "results" if isinstance(run, Results) else os.fspath(run)
    found = run if isinstance(run, Results) else results(run)
    if cluster is not None and not isinstance(cluster, Cluster):
        other = load_cluster(cluster, changes)
        return retime_results(found, other, label=label_of(other.name, changes), source=source)
    return retime_results(found, cluster, changes, source=source)


def _simulated_pair(plan: PairPlan, observer: Observer | None, trace: WholeFile | None) -> PairSimulation:
    if observer is not None:
        raise InputError("`observer`: a pair has tasks and no rows of samples; `times` of its plan has them")
    with trace or contextlib.nullcontext():
        _ = plan.samples  # all that can be wrong is found here
        if trace is not None:
            write_trace(trace, pair_timeline(plan))
    return PairSimulation(plan)


def _both(observer: Observer | None, other: Observer | None) -> Observer | None:
    """Return an observer that calls those that there are; None where there are none."""
    observers = [each for each in (observer, other) if each is not None]

    def call(served: Served) -> None:
        for each in observers:
            each(served)

    return call if observers else None
