"""The functions of `import emuchain`: the same as the command line's, on the same plans.

Networks and clusters are given as names, file paths, mappings with the keys of such files, or
objects from `load_network` and `load_cluster`. Further settings are the keys of the configuration
(docs/configuration.md).
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import pathlib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from typing_extensions import Unpack

from ..comm import Observer
from ..kernels import ExtensionError, defined_in, withdraw
from ..kernels import register as add_extension
from ..launch import MpiRanks, Ranks, SingleProcess
from .arguments import (
    AnyCluster,
    AnyClusterOrData,
    AnyData,
    AnyNetwork,
    OfPairs,
    check_files,
    cluster_and_data,
    configured_plan,
    data_of_call,
    given_keys,
    given_settings,
    named_in_place,
    new_plan,
    plan_of,
    resumed_network,
)
from .common import IMAGENET_IMAGES, InputError, WholeFile, described, typed
from .config import RunKeys, TrainKeys
from .plan import ChainPlan, PairPlan, Plan, epoch_samples, plan_run
from .run import (
    ALONE,
    AnswerRange,
    EpochRecord,
    EpochResult,
    OnMiniBatch,
    PairSimulation,
    Results,
    Resumed,
    Runs,
    SeedRuns,
    Simulation,
    Training,
    Weights,
    check_alike,
    ending_together,
    prepared_on_all,
    run_range,
    runs_of,
    seed_variants,
    steady_rate,
)
from .run import rate_range as range_of_plan
from .run import simulate as run_simulation
from .view import (
    RunProgress,
    TraceRequest,
    call_announce,
    call_progress,
    pair_timeline,
    pair_trace,
    write_trace,
)

_LISTED_KEYS = (
    "resize",
    "crop",
    "mean",
    "std",
    "augment",
    "new_layers",
    "freeze",
    "class_weights",
    "target_columns",
)

if TYPE_CHECKING:
    from .config import Config
    from .studies import Study
    from .studies.sweep import SweepResult


@overload
def plan(  # type: ignore[overload-overlap]  # these schedules are strings, too
    network: AnyNetwork = ...,
    cluster: AnyCluster = ...,
    *,
    schedule: OfPairs,
    **settings: Any,
) -> PairPlan: ...


@overload
def plan(
    network: AnyNetwork = ...,
    cluster: AnyCluster = ...,
    *,
    ranks: int = ...,
    **settings: Unpack[RunKeys],
) -> ChainPlan: ...


@typed
def plan(
    network: AnyNetwork = "quick-cifar",
    cluster: AnyCluster = "vc709",
    *,
    ranks: int = 1,
    **settings: Any,
) -> Plan:
    """Return the plan of a run: mapping, times, schedule, memory. Nothing is trained or simulated
    yet.

    A schedule of a GPU, alone or with an FPGA, gives a `PairPlan`, every other one a `ChainPlan`.

    Args:
        network: the network to train.
        cluster: the cluster to run on.
        ranks: number of processes; each hosts a device if `devices` is not given.
        **settings: keys of the configuration, such as devices=15, batch=64, schedule="sync";
            `changes` are changed values of any keys of the run or its cluster, such as
            {"link.bandwidth_gbps": 250}.

    Raises:
        InputError: a setting is unknown, out of range, or contradicts another one.
    """
    if ranks < 1:
        raise InputError(f"`ranks` = {ranks}: should be at least 1")
    network, cluster, settings = named_in_place(network, cluster, settings)
    return new_plan(network, cluster, settings, ranks=ranks)


@typed
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
    ranged: bool = True,
    target: float | None = None,
    pareto: Sequence[str] = (),
    trials: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> SweepResult:
    """Return the rates of all combinations of values: `.rows`, a list of dictionaries, and `.best`,
    one of them.

    Every argument that describes the run may be one value or several. A point that fails is a row
    whose `error` says why.

    Args:
        network: the network or networks to train.
        cluster: the cluster or clusters to run on.
        devices: numbers of boards of a chain, such as range(1, 65); by default one, or a pair's
            own.
        changes: changed values of any keys of the run or its cluster, one or several each, such as
            {"link.bandwidth_gbps": [10, 40, 100]}.
        epoch_images: images of an epoch, for its hours.
        jobs: number of processes; by default one for each core.
        csv: a file for the rows; points that it holds are not computed again.
        restart: whether to start that file over.
        ranged: whether rows have ranges, and the result says how sure its choices are (`choice`,
            `best_range`).
        target: a rate in samples per second; `.target.row` is then the row that reaches it with the
            fewest boards. Without `devices` and `replicas`, 1 to 64 boards in 1 to 8 replicas are
            tried, as far as they can reach it.
        pareto: names of objectives, such as ("rate", "boards"); `.front.rows` are then the points
            of which none is better in one without being worse in another.
        trials: the most points that are tried for the front, of a space that has more; they are
            drawn by NSGA-II of Optuna, which is the extra `search`.
        seed: that of the draws: the same one tries the same points.
        **settings: further keys of the configuration that change times, such as batch=[32, 64],
            schedule="sync".

    Raises:
        InputError: a key is unknown, a value is out of range, or the file is that of another sweep.
    """
    from .studies.sweep import Space, run_space, seeking_values

    for name, least, number in (
        ("epoch_images", 1, epoch_images),
        ("jobs", 1, jobs),
        ("target", 0, target),
        ("trials", 1, trials),
        ("seed", 0, seed),
    ):
        if number is not None and not least <= number < math.inf:
            raise InputError(f"`{name}` = {number}: should be a number, at least {least}")
    values = {
        "network": network,
        "cluster": cluster,
        "devices": devices,
        **settings,
        **(changes or {}),
    }
    path = None if csv is None else pathlib.Path(csv)
    sought = seeking_values(values, target)
    seeks = sought.get("devices") is not devices and not pareto
    space = Space.of(sought, blame="sweep")
    check_files(space.values, csv=csv)
    return run_space(
        space,
        epoch_images,
        jobs=jobs,
        csv=path,
        restart=restart,
        blame="sweep",
        ranged=ranged,
        target=target,
        pareto=(pareto,) if isinstance(pareto, str) else tuple(pareto),
        trials=trials,
        seed=seed,
        seeks=seeks,
        announce=call_announce("sweep"),
    )


@typed
def study(
    network: AnyNetwork | Iterable[AnyNetwork] = "quick-cifar",
    cluster: AnyCluster | Iterable[AnyCluster] = "vc709",
    *,
    seeds: int = 3,
    data: AnyData = None,
    changes: Mapping[str, object] | None = None,
    jobs: int | None = None,
    csv: str | os.PathLike[str] | None = None,
    restart: bool = False,
    **settings: Any,
) -> Study:
    """Train all combinations of values, each with some seeds; return rows, means and standard
    errors.

    Every argument that describes a run may be one value or several. A run that fails is a row whose
    `error` says why. What is returned does not depend on the number of processes.

    Args:
        network: the network or networks to train.
        cluster: the cluster or clusters to run on.
        seeds: number of seeds of each combination, from `seed` on.
        data: as for `train`, the same of all runs; or several values of the configuration key
            `data`.
        changes: changed values of any keys of the run or its cluster, one or several each.
        jobs: number of processes; by default one for each core.
        csv: a file for the rows; runs that it holds are not trained again.
        restart: whether to start that file over.
        **settings: further keys of the configuration, such as schedule=["sync", "1f1b-as"],
            precision=["fp32", "bf16"].

    Raises:
        InputError: a key is unknown, a value is out of range, or the file is that of another study.
    """
    from .studies import run_study, study_keys

    if jobs is not None and jobs < 1:
        raise InputError(f"`jobs` = {jobs}: should be a number, at least 1")
    values = {"network": network, "cluster": cluster, **settings, **(changes or {})}
    own = {key: values.pop(key) for key in ("seed",) if key in values}
    # Of these keys a list is one value, unless it is one of lists.
    listed = {key: value for key, value in values.items() if key in _LISTED_KEYS}
    for key, value in listed.items():
        own[key] = values.pop(key)
        if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple):
            raise InputError(f"`{key}`: has several values; a study takes one of it")
    where, loaded = (None, None) if _is_names(data) else data_of_call(data, own)
    if loaded is None and data is not None:
        values["data"] = data if where is None else where
    check_files({key: value for key, value in values.items() if key in study_keys()}, csv=csv)
    path = None if csv is None else pathlib.Path(csv)
    how: dict[str, Any] = {"jobs": jobs, "csv": path, "restart": restart, "blame": "study"}
    how["announce"] = call_announce("study")
    return run_study(values, seeds, own, data=loaded, **how)


def _is_names(data: object) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(n, str) for n in data)


@typed
def rate_range(run: Plan | Simulation | PairSimulation) -> AnswerRange:
    """Return between what rates a plan or a simulation lies in nine of ten cases, as the ranges of
    its constants say.

    `low` and `high` are in samples per second, `classes` and `share_of_width` by constant.

    Args:
        run: from `plan`, whose rate is the steady one, or from `simulate`, with filling and
            draining.
    """
    if isinstance(run, PairPlan):
        return range_of_plan(run, run.samples_per_s)
    if isinstance(run, Simulation | PairSimulation):
        return run_range(run)
    assert isinstance(run, ChainPlan)
    return range_of_plan(run, steady_rate(run))


@overload
def simulate(
    network: PairPlan, cluster: AnyCluster = ..., *, trace: str | os.PathLike[str] | None = ...
) -> PairSimulation: ...


@overload
def simulate(  # type: ignore[overload-overlap]  # as of `plan`
    network: AnyNetwork = ...,
    cluster: AnyCluster = ...,
    *,
    schedule: OfPairs,
    trace: str | os.PathLike[str] | None = ...,
    **settings: Any,
) -> PairSimulation: ...


@overload
def simulate(
    network: AnyNetwork | ChainPlan = ...,
    cluster: AnyCluster = ...,
    *,
    observer: Observer | None = ...,
    trace: str | os.PathLike[str] | None = ...,
    trace_level: str | None = ...,
    trace_samples: tuple[int, int] | None = ...,
    **settings: Unpack[RunKeys],
) -> Simulation: ...


@typed
def simulate(
    network: AnyNetwork | Plan = "quick-cifar",
    cluster: AnyCluster = "vc709",
    *,
    observer: Observer | None = None,
    trace: str | os.PathLike[str] | None = None,
    trace_level: str | None = None,
    trace_samples: tuple[int, int] | None = None,
    **settings: Any,
) -> Simulation | PairSimulation:
    """Return a run's virtual time and its usage of devices and links, equal to those of `train` to
    the picosecond.

    For a GPU, alone or with an FPGA, it is that of mini-batches of tasks; a trace has the tasks of
    one mini-batch, and there is no observer.

    Args:
        network: the network to train, or a plan.
        cluster: the cluster to run on; unused with a plan.
        observer: called with what each engine, link and exchange of the first replica serves.
        trace: the file of a timeline for https://ui.perfetto.dev (docs/timelines.md).
        trace_level: "sample" or "row"; what gets its own slice in the trace.
        trace_samples: the first and the last sample in the trace.
        **settings: as for `plan`, `changes` included; with `samples`, no data set is needed.

    Raises:
        InputError: a setting is unknown, out of range, or contradicts another one.
    """
    network, cluster, settings = named_in_place(network, cluster, settings)
    check_files(given_keys(network, cluster, settings), trace=trace)
    planned = plan_of(network, cluster, settings)
    if isinstance(planned, PairPlan):
        return _simulated_pair(planned, observer, pair_trace(trace, trace_level, trace_samples))
    assert isinstance(planned, ChainPlan)
    traced = TraceRequest.of(trace, trace_level, trace_samples)
    with traced or contextlib.nullcontext():
        return run_simulation(planned, epoch_samples(planned), observer, trace=traced)


@overload
def train(
    network: AnyNetwork = ...,
    cluster: AnyClusterOrData = ...,
    *,
    seeds: int,
    comm: Any = ...,
    data: AnyData = ...,
    on_step: Callable[[int, float, int], object] = ...,
    on_epoch: Callable[[EpochResult, Weights], object] = ...,
    observer: Observer | None = ...,
    **settings: Unpack[TrainKeys],
) -> SeedRuns: ...


@overload
def train(
    network: AnyNetwork | Plan = ...,
    cluster: AnyClusterOrData = ...,
    *,
    comm: Any = ...,
    data: AnyData = ...,
    on_step: Callable[[int, float, int], object] = ...,
    on_epoch: Callable[[EpochResult, Weights], object] = ...,
    observer: Observer | None = ...,
    trace: str | os.PathLike[str] | None = ...,
    trace_level: str | None = ...,
    trace_samples: tuple[int, int] | None = ...,
    **settings: Unpack[TrainKeys],
) -> Results: ...


@typed
def train(
    network: AnyNetwork | Plan = "quick-cifar",
    cluster: AnyClusterOrData = "vc709",
    *,
    comm: Any = None,
    data: AnyData = None,
    on_step: Callable[[int, float, int], object] = lambda *_: None,
    on_epoch: Callable[[EpochResult, Weights], object] = lambda *_: None,
    observer: Observer | None = None,
    trace: str | os.PathLike[str] | None = None,
    trace_level: str | None = None,
    trace_samples: tuple[int, int] | None = None,
    seeds: int | None = None,
    **settings: Any,
) -> Results | SeedRuns:
    """Train a network, with numerics and virtual time; return the results, with all weights.

    Args:
        network: the network to train, or a plan.
        cluster: the cluster to run on; unused with a plan. Data may stand in its place,
            `train(network, data)`, on the default cluster.
        comm: an mpi4py communicator, all of whose ranks make this same call; without it, one
            process trains.
        data: a value of the configuration key `data`, a data set, or what `as_data` takes: arrays,
            a torch Dataset or DataLoader, a data set of Hugging Face, a stream of samples; the same
            on all ranks.
        on_step: called on rank 0 after each mini-batch, with its number since the start of
            training, from 1, its mean loss, and its virtual time in ps.
        on_epoch: called on rank 0 after each epoch, with its result and the weights of all layers.
            If it returns True, training ends there.
        observer: called with what engines, links and exchanges of the first replica's devices in
            this process serve.
        trace, trace_level, trace_samples: as for `simulate`; of all devices, in one file.
        seeds: number of runs, with seeds from `seed` on; each writes its own files, such as
            run-seed1.h5, and all results are returned with their means.
        **settings: as for `plan`, `changes` included; with `out`, the results are also written to a
            file; with `checkpoint`, a file from which another call resumes, given as `resume`, with
            all other settings unchanged or left out.

    Raises:
        InputError: a setting is unknown, out of range, or contradicts another one, or training
            diverged; on all ranks.
    """
    cluster, data = cluster_and_data(cluster, data)
    network, cluster, settings = named_in_place(network, cluster, settings)
    if seeds is not None and (isinstance(network, Plan) or trace is not None):
        raise InputError(
            "`seeds`: trains several times; give the network and its settings, without a plan or"
            " trace"
        )
    if comm is not None and not hasattr(comm, "Clone"):
        raise InputError(
            f"`comm`: is {described(comm)}; should be a communicator of mpi4py, such as"
            " MPI.COMM_WORLD"
        )
    traced = TraceRequest.of(trace, trace_level, trace_samples)
    where, loaded = data_of_call(data, settings)
    if where is not None:
        settings["data"] = where

    @functools.cache
    def runs() -> Runs:
        given = given_settings(network, cluster, settings)
        made = runs_of(given, ALONE if seeds is None else seed_variants(given, seeds))
        own = [] if seeds is not None else [given_keys(network, cluster, settings)]
        check_files(*own, *map(dict, made.configs), trace=trace)
        made = made.going_on()
        check_files(*map(dict, made.configs), trace=trace)
        if seeds is not None and (comm is None or comm.Get_rank() == 0):
            made.check_outputs()
        return made

    @functools.cache
    def starts() -> Iterator[tuple[Config, Resumed | None]]:
        return runs().starts()

    def prepare(ranks: Ranks) -> Training:
        # Not before: under `prepared_on_all`, an error in the settings ends all ranks, and not one.
        config, start = next(starts())
        first = runs().first
        if first is not None:
            resumed = resumed_network(network, first.network)
            planned = plan_run(config, network=resumed, cluster=first.cluster)
        elif isinstance(network, Plan):
            planned = plan_of(network, cluster, settings)
        else:
            planned = configured_plan(network, cluster, config, ranks=ranks.size)
        if isinstance(planned, PairPlan) and traced is not None:
            raise InputError(
                "`trace`: of a pair, `emuchain.simulate` writes it, with the same times"
            )
        return Training(
            planned, ranks, start, data=loaded, trace=traced, gathers=True, series=runs().series
        )

    results = [
        _trained(comm, prepare, on_step, on_epoch, observer) for _ in range(max(1, seeds or 1))
    ]
    return results[0] if seeds is None else SeedRuns(tuple(results))


def _trained(
    comm: Any,
    prepare: Callable[[Ranks], Training],
    on_step: OnMiniBatch,
    on_epoch: Callable[[EpochResult, Weights], object],
    observer: Observer | None,
) -> Results:
    """Train what `prepare` makes ready on all ranks of a communicator, or in this process; return
    the results.
    """
    # A communicator of its own: messages of a run never meet those of the caller.
    ranks: Ranks = SingleProcess() if comm is None else MpiRanks(comm.Clone())
    weights, files = dict[str, Any](), contextlib.ExitStack()

    def record(record: EpochRecord, gathered: Weights) -> object:
        weights.update(gathered)
        progress.progress.epoch(record.result)
        return on_epoch(record.result, gathered)

    with files:
        training = prepared_on_all(ranks, lambda: files.enter_context(prepare(ranks)))
        check_alike(ranks, training.data)
        config = training.plan.config
        shown = call_progress(config.progress, ranks.rank)
        progress = RunProgress(files.enter_context(shown), config, training.data.n_train)
        progress.start()
        with ending_together(ranks):
            training.run(progress.step, record, progress.resume, on_step, observer)
    made = ranks.share(training.recorder.results(weights) if ranks.rank == 0 else None)[0]
    ranks.free()
    return made


def _simulated_pair(
    plan: PairPlan, observer: Observer | None, trace: WholeFile | None
) -> PairSimulation:
    if observer is not None:
        raise InputError(
            "`observer`: a pair has tasks and no rows of samples; `times` of its plan has them"
        )
    with trace or contextlib.nullcontext():
        _ = plan.samples  # all that can be wrong is found here
        if trace is not None:
            write_trace(trace, pair_timeline(plan))
    return PairSimulation(plan)


@typed
def register(thing: Any) -> None:
    """Add an extension to this process, as if it came with emuchain. Under `mpiexec` every rank
    calls it.

    Args:
        thing: a subclass of `Codec`, `Optimizer`, `Topology`, `Collective`, `Operation` or
            `RateSchedule`, or a schedule's kind, a number format or an activation; or a module that has some of these.

    Raises:
        InputError: it is none of them, or its name is taken.
    """
    from ..comm import Topology, topologies
    from ..comm.collective import Collective, collectives
    from ..kernels.codec import Codec, codecs
    from ..kernels.layers.activations import Activation, activations
    from ..kernels.number import NumberFormat, number_formats
    from ..kernels.optimizers import Optimizer, optimizers
    from .config import RateSchedule, rate_schedules
    from .network import Operation, operation_types
    from .schedule import ScheduleKind, schedules

    classes = Codec, Optimizer, Topology, Collective, Operation, RateSchedule
    values = ScheduleKind, NumberFormat, Activation

    def extends(value: object) -> bool:
        return issubclass(value, classes) if isinstance(value, type) else isinstance(value, values)

    if not any(map(extends, defined_in(thing) if isinstance(thing, types.ModuleType) else [thing])):
        known = ", ".join(kind.__name__ for kind in (*classes, *values))
        raise InputError(
            f"`thing` = {described(thing)}: is no extension; should be a subclass or a value of one"
            f" of {known}, or a module with some"
        )
    add_extension(thing)
    try:
        known_kinds = activations, codecs, number_formats, operation_types, optimizers
        # Looked up at once: a name that is taken is refused here, and not by a later run.
        for look_up in (*known_kinds, rate_schedules, schedules, topologies, collectives):
            look_up()
    except ExtensionError as error:
        withdraw(thing)
        raise InputError(str(error)) from None
