"""Makes the plan of a configuration: a cut with places for all data, its steady pipeline, a
schedule dry-run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...comm.exchange import DataParallel
from ...kernels.codec import NoCodec
from ...kernels.optimizers import optimizer_kind
from ..cluster import Cluster
from ..common import InputError
from ..config import check_updates
from ..faults import Faults, left_alive
from ..mapping import COPIES, Mapping, TiedWeights, largest_numbers
from ..network import Network, with_formats
from ..number import Sharing
from ..schedule import EditedKind, Engines, EpochShape, Fold, Machine, Staleness, dry_run
from ..timing import Timing, timeline_of
from .chain import (
    check_chunks,
    check_loss_scale,
    check_precision,
    check_topology,
    chunks_of,
    folded,
    in_precision,
    machine_of,
    replicate,
    warm_ups_of,
)
from .cuts import Settled, TriedCuts
from .data import check_deaths, check_faults, check_loss, cluster_of, faults_of, network_for, tuned
from .layout import place_on_chip
from .limits import OverLimits, what_would_do, within_limits
from .pair import make_pair_plan
from .plan import ChainPlan, Phase, Plan, exchange_times
from .recompute import check_moves, check_recompute, check_rows_kept, recomputing
from .stages import PlannedStages, stages_on_boards
from .steady import SteadyPipeline, find_steady, staleness_of, together
from .work import check_devices, check_memory
from .zero import check_gathers, check_shares, check_zero

if TYPE_CHECKING:
    from ..config import Config
    from ..profile import Profile

_MOST_TURNS = 4
_COMPARED_STEPS = 4


def plan_run(
    config: Config,
    ranks: int = 1,
    *,
    network: Network | None = None,
    cluster: Cluster | None = None,
) -> Plan:
    """Derive the plan of a run, of a chain or of a pair, as its schedule says; see `make_plan`.

    Raises:
        InputError: something in the configuration, or in a file that it names, is invalid.
    """
    if config.schedule.offload is not None:
        return make_pair_plan(config, network=network, cluster=cluster)
    return make_plan(config, ranks, network=network, cluster=cluster)


def make_plan(
    config: Config,
    ranks: int = 1,
    cluster_changes: dict[str, object] | None = None,
    *,
    network: Network | None = None,
    cluster: Cluster | None = None,
    timing_only: bool = False,
    profile: pathlib.Path | None = None,
) -> ChainPlan:
    """Derive the plan from a configuration and dry-run its schedule.

    Args:
        config: the run's configuration.
        ranks: number of processes; by default each hosts a device.
        cluster_changes: changed values of cluster keys, as with `--what-if`.
        network, cluster: used in place of those that the configuration names.
        timing_only: whether nothing will be trained. Times of rows do not depend on micro-batches,
            so the dry run may then take those that `simulate` does: as large as the mini-batch.
        profile: a file with measured times of the layers, for boards that take actions as a whole.

    Raises:
        InputError: something in the configuration, or in a file that it names, is invalid.
    """
    if config.schedule.offload is not None:
        raise InputError(
            f"`schedule` = {config.schedule.name!r}: a GPU, alone or with an FPGA, is what"
            " `emuchain train`, `simulate`, `plan`, `timeline` and `sweep` take; should be one of"
            " a chain of FPGAs here, such as 'sync'"
        )
    if config.padding != 1:
        raise InputError(
            f"`padding` = {config.padding:g}: applies to a GPU or a pair only; leave it out on a"
            " chain"
        )

    def make(changed: Config) -> ChainPlan:
        return _make_chain(changed, ranks, cluster_changes, network, cluster, timing_only, profile)

    try:
        return make(config)
    except OverLimits as error:
        raise OverLimits(f"{error}; {what_would_do(config, make)}") from None


def _make_chain(
    config: Config,
    ranks: int,
    cluster_changes: dict[str, object] | None,
    network: Network | None,
    cluster: Cluster | None,
    timing_only: bool,
    profile: pathlib.Path | None,
) -> ChainPlan:
    """Return the plan of a chain; see `make_plan`."""
    network = network_for(config, network or config.network)
    network = tuned(config, network).with_rows_at_once(config.rows_at_once)
    check_memory(config, network)
    check_loss(config, network)
    cluster = cluster or cluster_of(config, cluster_changes)
    if config.engines or config.transport:
        transport = config.transport or (None if config.engines else cluster.transport)
        cluster = dataclasses.replace(
            cluster, engines=config.engines or cluster.engines, transport=transport
        )
    cluster = in_precision(cluster, config.precision, network)
    copies = COPIES + optimizer_kind(config.optimizer).states_beside_lgb
    cluster = dataclasses.replace(
        cluster,
        parameter_copies=copies,
        precision=config.precision.phases[0][1],
        clips=config.clip_norm is not None or config.precision.grows_every > 0,
    )
    check_updates(config)
    faults = faults_of(config, cluster)
    measured = None
    if profile is not None and (config.freeze or config.lora):
        key = "freeze" if config.freeze else "lora"
        raise InputError(
            f"`{key}`: `--profile` has times of layers that are trained; leave one of them out"
        )
    if profile is not None:
        from ..profile import (
            check_profile,
            load_profile,
        )  # here, since ranks that follow do without pydantic

        measured = load_profile(profile, network)
        check_profile(measured, network, cluster.boards, str(profile))
    if faults.deaths and config.precision.epochs:
        raise InputError(
            f"`precision` = {str(config.precision)!r}: formats change at the end of an epoch, and"
            " with `faults.deaths` epochs end on other boards than they began; leave out one of them"
        )
    plan = within_limits(
        lambda boards: _in_phases(
            config,
            network,
            lambda *own: _plan_of(
                *(own[0], ranks, own[1]),
                dataclasses.replace(boards, precision=own[0].precision.phases[0][1]),
                *(faults, timing_only, measured),
            ),
        ),
        cluster,
    )
    if not faults.deaths:
        return plan
    check_deaths(faults, plan)
    return dataclasses.replace(
        plan, survivors=tuple(_survivors(plan, cluster, timing_only, measured))
    )


def _in_phases(
    config: Config, network: Network, planned: Callable[[Config, Network], ChainPlan]
) -> ChainPlan:
    """Return the plan of a run, with those of the phases in which its formats are others; `planned`
    makes that of one.

    The cut is the best one of the first phase, or of the next, that all can have.

    Raises:
        InputError: none can be planned, or there is no such cut.
    """
    phases = config.precision.phases
    if len(phases) == 1:
        return planned(config, network)
    configs = [config.model_copy(update={"precision": own}) for _, own in phases]
    networks = [with_formats(network, config.precision, number) for number in range(len(phases))]
    wrong: InputError | None = None
    for leader in range(len(phases)):
        where = f"`precision` = {str(config.precision)!r}: from epoch {phases[leader][0] + 1} on: "
        try:
            led = planned(configs[leader], networks[leader])
            plans = []
            for number, (done, _) in enumerate(phases):
                where = f"`precision` = {str(config.precision)!r}: from epoch {done + 1} on: "
                cut = configs[number].model_copy(update={"cut": led.cut})
                plans.append(led if number == leader else planned(cut, networks[number]))
        except InputError as error:
            kind = OverLimits if isinstance(error, OverLimits) else InputError
            wrong = wrong or kind(f"{where}{error}")
            continue
        later = zip(phases[1:], plans[1:], strict=True)
        others = tuple(Phase(done, plan) for (done, _), plan in later)
        return dataclasses.replace(plans[0], config=config, phases=others)
    assert wrong is not None
    raise wrong


def _plan_of(
    config: Config,
    ranks: int,
    network: Network,
    cluster: Cluster,
    faults: Faults,
    timing_only: bool,
    profile: Profile | None = None,
) -> ChainPlan:
    """Return the plan of a chain, or of several, on a cluster whose boards have one stage each."""
    data_parallel, devices = replicate(config, ranks)
    if timing_only:
        key = "replicas" if config.schedule.replicates is None else "devices"
        check_devices(data_parallel.replicas, devices, key)
    check_topology(config, cluster, devices, data_parallel)
    check_zero(config, network, data_parallel, faults)
    check_recompute(config, faults)
    check_loss_scale(config, data_parallel, faults)
    kept = data_parallel.residuals
    cluster = dataclasses.replace(
        cluster,
        parameter_copies=cluster.parameter_copies + kept,
        residuals=kept,
        sharing=Sharing(data_parallel.zero, data_parallel.replicas),
    )
    machine, chunks = machine_of(cluster, config.schedule), chunks_of(config, devices)
    check_gathers(config, machine, profiled=profile is not None)
    check_precision(config, network)
    if isinstance(config.schedule, EditedKind):
        batch = config.batch // data_parallel.replicas
        config.schedule.order.check(
            EpochShape(devices, batch, batch, config.micro_batch, chunks=chunks)
        )
    if chunks > 1:
        check_chunks(config, network, devices, chunks)
    if machine is None and profile is not None:
        raise InputError(
            "`--profile`: has times of whole layers, and these boards stream rows through engines"
            " of their own; give `--engines turns` or `shared`, or a cluster that has them"
        )
    folded_cluster = folded(cluster, Fold(devices, chunks, config.schedule.in_v), machine)
    making = _Making(
        config, network, folded_cluster, data_parallel, devices, chunks, timing_only, profile
    )
    plan = making.of_rows() if machine is None else making.of_actions(machine)
    check_faults(faults, config, plan.mapping.devices, data_parallel.replicas, devices)
    return dataclasses.replace(plan, faults=faults) if faults else plan


def planned_on(plan: ChainPlan, cluster: Cluster) -> ChainPlan:
    """Return the plan of the same run, cut anew for a cluster with as many boards, one for each
    stage, without faults.

    Nothing can be trained by it, and times are those of rows.

    Raises:
        InputError: the network does not fit.
    """
    return _Making(
        plan.config,
        plan.network,
        cluster,
        plan.data_parallel,
        plan.devices,
        plan.chunks,
        timing_only=True,
    ).of_rows()


def _survivors(
    plan: ChainPlan, cluster: Cluster, timing_only: bool, profile: Profile | None
) -> Iterator[ChainPlan]:
    """Yield the plan after each death, on the boards of `cluster` that are left.

    Raises:
        InputError: the network cannot be cut over these.
    """
    faults, boards = plan.faults, plan.devices
    for count, death in enumerate(faults.in_order, 1):
        alive = left_alive(boards, faults.in_order[:count])
        config = plan.config.model_copy(update={"devices": len(alive), "cut": None})
        try:
            planned = functools.partial(
                _plan_of,
                config,
                1,
                plan.network,
                faults=faults.among(alive),
                timing_only=timing_only,
                profile=profile,
            )
            yield within_limits(planned, cluster.among(alive))
        except InputError as error:
            raise InputError(
                f"`faults.deaths`: without the board that dies at {death.at_us:g} us: {error}"
            ) from None


def _actions_ps(plan: ChainPlan) -> int:
    """Return the time in ps of some mini-batches of actions."""
    schedule, waits = plan.schedule(_COMPARED_STEPS * plan.batch), plan.timing.update_waits()
    timeline = timeline_of(schedule, plan.timing.loads, plan.timing.action_boards(), waits=waits)
    return max(timed.end_ps for timed in timeline.timed)


@dataclasses.dataclass(frozen=True)
class _Making:
    """What a plan is made from; `cluster` has a board for each stage."""

    config: Config
    network: Network
    cluster: Cluster
    data_parallel: DataParallel
    devices: int
    chunks: int
    timing_only: bool
    profile: Profile | None = None

    @property
    def batch(self) -> int:
        """Number of a replica's samples in a mini-batch."""
        return self.config.batch // self.data_parallel.replicas

    @property
    def stages(self) -> int:
        """Number of stages of a chain."""
        return self.devices * self.chunks

    @property
    def _tried_cuts(self) -> TriedCuts:
        return TriedCuts(self.config, self.network, self.cluster, self.devices, self.chunks)

    def of_actions(self, machine: Machine) -> ChainPlan:
        """Return the plan on boards that take actions as a whole.

        Raises:
            InputError: a value does not suit them.
        """
        replicas, kind = self.data_parallel.replicas, self.config.schedule
        if machine.engines is Engines.SHARED and replicas > 1:
            raise InputError(
                f"`replicas` = {replicas}: shared engines are timed on a single chain; should be 1,"
                " or `engines` = 'turns'"
            )
        if machine.engines is Engines.SHARED and not kind.aligned:
            raise InputError(
                f"`schedule` = {kind.name!r}: splits micro-batches where its weights change, but"
                " shared engines take whole ones; should be one such as 'fbp-as' or 'sync'"
            )
        by_hand = self._tried_cuts.made_by_hand(by_actions=True)
        plan = self._of_stages(self._stages(machine, self.config, by_hand))
        if self.config.memory != "ignored" or by_hand is not None:
            return plan
        try:
            heeding = self._stages(
                machine, self.config.model_copy(update={"memory": "modelled"}), None
            )
        except InputError:  # it does not fit
            return plan
        # The cut that heeds memory may be the faster one: the slowest stage is not all that counts.
        # A timeline has no exchanges and no parts of micro-batches; so there that cut is taken,
        # which is no slower than with memory.
        other = self._of_stages(self._stages(machine, self.config, heeding.mapping))
        return min(plan, other, key=_actions_ps) if kind.aligned and replicas == 1 else other

    def _stages(self, machine: Machine, config: Config, by_hand: Mapping | None) -> PlannedStages:
        check_moves(config, machine)
        shape, cluster = self._mini_batch(), self.cluster
        arguments = self.network, cluster, config, machine, shape, self.profile, by_hand
        return recomputing(
            config, self.network, lambda layers: stages_on_boards(*arguments, layers)
        )

    def _of_stages(self, stages: PlannedStages) -> ChainPlan:
        """Return the plan of a cut on boards that take actions as a whole."""
        kind = self.config.schedule
        if kind.aligned:
            none = Staleness((0,) * self.batch, (0,) * self.batch)
            steady = SteadyPipeline((none,) * self.devices, stages.kept_samples, 0)
        else:
            rows = Timing.of(
                stages.mapping, self.cluster
            )  # which samples use old weights follows from rows
            steady = dataclasses.replace(self._steady(rows), in_flight=stages.kept_samples)
        cluster = stages.with_engines(self.cluster)
        making = dataclasses.replace(self, cluster=cluster)
        return making._planned(Timing.of_stages(stages.mapping, cluster, stages), steady)

    def of_rows(self) -> ChainPlan:
        """Return the plan on boards that stream rows through engines of their own.

        Raises:
            InputError: a value does not suit them, or the network does not fit.
        """
        config, cuts = self.config, self._tried_cuts
        check_rows_kept(config)
        if config.memory == "fpdeep":
            timing, steady = self._fastest(cuts.as_in_fpdeep())
            return self._planned(
                *(self._balanced(timing, steady) if cuts.balancing else (timing, steady))
            )
        choices = cuts.placed(self._steady)
        if (
            config.memory == "ignored"
        ):  # of the cuts that are tried with memory, none is faster than the same without
            return self._planned(*self._fastest([settled.timing.mapping for settled in choices]))
        choices.sort(key=lambda settled: (not settled.fits, self._batch_ps(settled)))
        for settled in choices[:-1]:
            # With balanced parameters, weights that are late on one device are late on another, and
            # may come never.
            with contextlib.suppress(InputError):
                return self._planned(settled.timing, settled.steady, settled.bound_ps)
        return self._planned(choices[-1].timing, choices[-1].steady, choices[-1].bound_ps)

    def _fastest(self, cuts: Sequence[Mapping]) -> tuple[Timing, SteadyPipeline]:
        """Return the timing of the cut with the least time of a mini-batch, without memory, and its
        steady pipeline.
        """
        timings = [Timing.of(cut, self.cluster) for cut in dict.fromkeys(cuts)]
        steady = [self._steady(timing) for timing in timings]
        settled = [
            Settled(timed, pipeline, pipeline.in_flight, 0)
            for timed, pipeline in zip(timings, steady, strict=True)
        ]
        best = min(settled, key=lambda cut: (self._batch_ps(cut), cut.steady.fill_ps))
        return best.timing, best.steady

    def _batch_ps(self, settled: Settled) -> int:
        """Return the time in ps of a mini-batch, by which cuts and placements are compared."""
        *_, longest_ps = self._waits(settled.timing)
        return settled.batch_ps(self.batch, longest_ps, self.config.schedule.drains)

    def _waits(self, timing: Timing) -> tuple[list[int], list[TiedWeights], int]:
        """Return what updates wait for, and the longest such wait in ps, 0 without any.

        That is each device's exchange with other replicas, in ps, and tied weights, of which the
        slowest link counts. The compressed size of gradients is not known yet, so it is that
        without a codec.
        """
        exchanges = exchange_times(timing, dataclasses.replace(self.data_parallel, codec=NoCodec()))
        bursts = list(timing.slowest_bursts())
        longest_ps = max((*exchanges, *(table_ps for _, _, table_ps in bursts)), default=0)
        return exchanges, [table for table, _, _ in bursts], longest_ps

    def _mini_batch(self) -> EpochShape:
        """Return an epoch of one mini-batch."""
        size = self.config.micro_batch
        warm_ups = warm_ups_of(self.config, self.devices, -(-self.batch // size))
        return EpochShape(
            self.devices, self.batch, self.batch, size, chunks=self.chunks, warm_ups=warm_ups
        )

    def _check_scales(self, timing: Timing, steady: SteadyPipeline) -> None:
        """Check that a layer's boards can know of each other's largest numbers in time."""
        if self.config.schedule.drains:
            return
        for shared in largest_numbers(timing.mapping, timing.cluster.precision, 0):
            in_flight = steady.in_flight[shared.first]
            if in_flight > self.batch:
                raise InputError(
                    f"`precision` = {str(self.config.precision)!r}: the largest numbers of"
                    f" {shared.layer.name} go through its boards and back with rows of samples, of"
                    f" which {in_flight} are on the way, and `batch` = {self.batch} are fewer; should"
                    " be a schedule that drains, such as 'sync', or larger mini-batches"
                )

    def _planned(self, timing: Timing, steady: SteadyPipeline, bound_ps: int = 0) -> ChainPlan:
        """Return the plan of a cut, once its schedule has passed the dry run."""
        config, replicas, kind = self.config, self.data_parallel.replicas, self.config.schedule
        if config.clip_norm is not None and not kind.drains:
            raise InputError(
                f"`clip_norm` = {config.clip_norm:g}: each update waits for the gradients of all"
                f" devices, and `schedule` = {kind.name!r} for none; should be a schedule that"
                " drains, such as 'sync'"
            )
        if self.network.heads and replicas > 1 and not kind.drains:
            raise InputError(
                f"`schedule` = {kind.name!r}: replicas exchange gradients before tied weights do,"
                f" which needs a schedule that drains, such as 'sync'; {self.network.heads[0].name}"
                f" has the weights of {self.network.heads[0].operation.tied}"
            )
        self._check_scales(timing, steady)
        if kind.aligned and not kind.drains:
            epoch = dataclasses.replace(self._mini_batch(), staleness=steady.staleness)
            steady = dataclasses.replace(steady, staleness=staleness_of(kind, epoch))
        bound_ps = bound_ps if self.cluster.is_chain else 0  # which is that of a chain
        check_shares(config, timing)
        if self.data_parallel.residuals and timing.blocks:
            used = timing.blocks[0].layer.name
            raise InputError(
                "`error_feedback` = true: what the codec drops is kept where a gradient is sent"
                f" from, and the board of {used} has no room even for its parameters, which another"
                " one stores; add `balancing` = 'none'"
            )
        if not timing.tied or kind.drains:
            return self._checked(timing, steady, bound_ps)
        try:
            return self._checked(timing, steady, bound_ps)
        except InputError:
            # Gradients of a mini-batch wait for the update before, which waits for another
            # device's: all then take as old weights as the latest of them.
            return self._checked(timing, together(steady, timing.tied), bound_ps)

    def _checked(self, timing: Timing, steady: SteadyPipeline, bound_ps: int) -> ChainPlan:
        """Return the plan of a cut and its steady pipeline, once its schedule has passed the dry
        run.

        Raises:
            InputError: it cannot be carried out.
        """
        config, replicas, kind = self.config, self.data_parallel.replicas, self.config.schedule
        made = timing.mapping, timing, steady, self.data_parallel, bound_ps, self.chunks
        plan = ChainPlan(config, self.network, self.cluster, *made)
        tail = (config.samples or 0) % config.batch // replicas
        epoch = plan.epoch(tail, self.batch if self.timing_only and plan.times_rows else None)
        waits = () if kind.drains else {pair for tied in timing.tied for pair in tied.waits}
        steps = kind.steps_to_check(epoch)
        if waits:  # a circle closes once the latest device updates for the first time
            steps = max(
                steps, 2 + max(max(late.forward + late.backward) for late in steady.staleness)
            )
        schedule = kind.schedule_of(dataclasses.replace(epoch, samples=steps * self.batch + tail))
        dry_run(schedule, timing.stores, waits, aligned=kind.aligned)
        return plan

    def _steady(self, timing: Timing) -> SteadyPipeline:
        """Return the steady pipeline; updates wait for gradients of other replicas, and of tied
        weights.

        Where the exchange is slower than the chain, it sets the rate. Samples then enter in bursts,
        at most as closely as in a chain alone.
        """
        alone = find_steady(timing, self.batch)
        waits, tied, longest_ps = self._waits(timing)
        if not waits and not tied:
            return alone
        interval_ps = max(timing.interval_ps, -(-longest_ps // self.batch))
        steady = find_steady(
            dataclasses.replace(timing, interval_ps=interval_ps), self.batch, waits, tied
        )
        in_flight = tuple(map(max, steady.in_flight, alone.in_flight))
        return dataclasses.replace(steady, in_flight=in_flight)

    def _balanced(self, timing: Timing, steady: SteadyPipeline) -> tuple[Timing, SteadyPipeline]:
        """Return timing and steady pipeline with parameters balanced where they do not fit, if all
        find room.

        Balanced parameters change times, times change the samples in flight, and these change the
        memory that is left, so this iterates.
        """
        settled = timing, steady
        for _ in range(_MOST_TURNS):
            _, balancing = place_on_chip(timing.mapping, timing.cluster, settled[1].in_flight)
            if not balancing.fits:
                return timing, steady
            if balancing.blocks == settled[0].blocks:
                break
            balanced = Timing.of(timing.mapping, timing.cluster, balancing.blocks)
            settled = balanced, self._steady(balanced)
        return settled
