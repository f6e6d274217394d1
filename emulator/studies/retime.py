"""The virtual times of a finished run under another cluster, beside its own, with the compressed
sizes that it had.

Time does not change numbers where the pipeline drains at each update, so there the outcome is that
of training under the other cluster. In a continuous pipeline, which samples use old weights follows
from time; where others would, the times are right, and accuracy and loss would differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..cluster import Cluster, load_cluster
from ..common import (
    Figures,
    InputError,
    format_bytes,
    format_time_ps,
    html_table,
    plural,
    read_description,
)
from ..config import settings_config
from ..faults import described_faults
from ..network import load_network
from ..plan import ChainPlan, make_plan
from ..run import (
    GivenSizes,
    MeanRatio,
    OtherMessages,
    RecordedSizes,
    Results,
    Simulation,
    SteadyState,
    recorded_sizes,
    simulate,
    steady_state,
)

_NOT_OF_TIME = (
    *("network", "cluster", "faults", "data", "compress_ratio"),
    *("out", "checkpoint", "resume", "log", "throttle", "progress"),
)
"""Keys of a run that do not matter, or stand in its descriptions."""


@dataclasses.dataclass(frozen=True)
class Retiming(Figures):
    """A finished run, which took `own_ends_ps` as planned in `own`, timed under another cluster.

    `own_ends_ps` and `epoch_ends_ps` are the virtual times from the start to the end of each epoch.
    `label` names the other cluster; `notes` say what is assumed.
    """

    _figures = (
        "label virtual_time_ps own_virtual_time_ps speed_up images_per_s own_images_per_s"
        " epoch_ends_ps own_ends_ps same_staleness stale_samples own_stale_samples about_numbers"
        " notes simulation steady"
    )

    label: str
    own: ChainPlan
    own_ends_ps: tuple[int, ...]
    simulation: Simulation
    steady: SteadyState
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> ChainPlan:
        """The run's plan under the other cluster."""
        return self.simulation.plan

    @property
    def epoch_ends_ps(self) -> tuple[int, ...]:
        """Virtual time under the other cluster, from the start to the end of each epoch."""
        return self.simulation.epoch_ends_ps

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time of the whole run under the other cluster."""
        return self.simulation.virtual_time_ps

    @property
    def own_virtual_time_ps(self) -> int:
        """Virtual time of the run as it was."""
        return self.own_ends_ps[-1]

    @property
    def images_per_s(self) -> float:
        """Rate of the whole run under the other cluster."""
        return self.simulation.images_per_s

    @property
    def own_images_per_s(self) -> float:
        """Rate of the whole run as it was."""
        return self.images_per_s / self.speed_up

    @property
    def speed_up(self) -> float:
        """Time of the run over that under the other cluster."""
        return self.own_virtual_time_ps / self.virtual_time_ps

    @property
    def own_stale_samples(self) -> tuple[int, ...]:
        """Samples of a mini-batch that used old weights, by device."""
        return _stale_samples(self.own)

    @property
    def stale_samples(self) -> tuple[int, ...]:
        """Samples of a mini-batch that would use old weights under the other cluster, by device."""
        return _stale_samples(self.plan)

    @property
    def same_staleness(self) -> bool:
        """Whether each sample would use weights as old as in the run, so that time changes no
        numbers.
        """
        return (
            self.plan.config.schedule.drains
            or self.own.steady.staleness == self.plan.steady.staleness
        )

    @property
    def about_numbers(self) -> str:
        """One line: whether accuracy and loss would stay as they are."""
        schedule, batch = self.plan.config.schedule, self.plan.batch
        if schedule.drains:
            return f"accuracy and loss stay: under {schedule.name} they do not depend on time"
        if self.same_staleness:
            return f"accuracy and loss stay: under {self.label} the same samples use old weights"
        before, after = self.own_stale_samples, self.stale_samples
        device = int(np.argmax(np.abs(np.subtract(after, before))))
        where = f"on device {device}"
        also = sum(a != b for a, b in zip(before, after, strict=True)) - 1
        if also > 0:
            where += f" and others on {also} more"
        changed = (
            f"{after[device]} instead of {before[device]} of {plural(batch, 'sample')} use old"
            f" weights {where}"
        )
        if before == after:
            changed = "EB of other samples uses old weights"
        return f"under {self.label} {changed}: accuracy and loss would differ; times are right"

    def __repr__(self) -> str:
        return (
            f"<Retiming under {self.label}: {format_time_ps(self.own_virtual_time_ps)} ->"
            f" {format_time_ps(self.virtual_time_ps)}, {self.images_per_s:.1f}"
            f" {self.plan.network.sample_noun}s/s, limited by"
            f" {self.steady.bottleneck.slowest.name}>"
        )

    def _repr_html_(self) -> str:
        rows = [
            [
                "virtual time",
                format_time_ps(self.own_virtual_time_ps),
                format_time_ps(self.virtual_time_ps),
            ],
            [
                f"{self.plan.network.sample_noun}s/s",
                f"{self.own_images_per_s:.1f}",
                f"{self.images_per_s:.1f}",
            ],
            ["speed-up", "", f"{self.speed_up:.3g}"],
            ["limited by", "", self.steady.bottleneck.slowest.name],
            ["accuracy and loss", "", "stay" if self.same_staleness else "would differ"],
        ]
        return html_table(f"Run under {self.label}", rows, ["", "as it was", "retimed"])


def label_of(cluster: str, changes: Mapping[str, object] | None) -> str:
    """Return what a cluster with changed keys is called: `vc709 (link.bandwidth_gbps=10)`."""
    changed = ", ".join(f"{key}={value}" for key, value in (changes or {}).items())
    return f"{cluster} ({changed})" if changed else cluster


def _stale_samples(plan: ChainPlan) -> tuple[int, ...]:
    return (
        ()
        if plan.config.schedule.drains
        else tuple(late.stale_samples for late in plan.steady.staleness)
    )


def retime(
    results: Results,
    cluster: Cluster | None = None,
    changes: Mapping[str, object] | None = None,
    *,
    label: str | None = None,
    source: str = "results",
    blame: str = "changes",
) -> Retiming:
    """Return the times of a finished run under another cluster.

    Args:
        results: of the run.
        cluster: the other cluster; by default the run's own.
        changes: changed values of keys of the run's own cluster, such as {"link.bandwidth_gbps":
            250}.
        label: what the other cluster is called; by default by its name.
        source: beginning of messages about the results, `blame` of those about changes.

    Raises:
        InputError: the run is not finished, its network or cluster is not described, or it cannot
            be planned on the other cluster.
    """
    _check_finished(results, source)
    described = _described(results, "cluster.toml", source)
    own_cluster = load_cluster(described)
    if cluster is None:
        cluster = load_cluster(described, changes, blame=blame)
    elif changes:
        raise InputError(
            f"`{blame}`: cannot be applied to a loaded cluster; give them to `load_cluster`"
        )
    own = _planned(results, own_cluster, source)
    plan = _planned(results, cluster, source)
    alike = own.mapping.devices == plan.mapping.devices and own.timing.blocks == plan.timing.blocks
    own_sizes, own_notes = _sizes(results, own)
    sizes, notes = (own_sizes, own_notes) if alike else _mean_ratios(own_sizes, own_notes)
    if results.exchange:
        ratio = float(
            results.exchange["value_bytes"].sum() / results.exchange["compressed_bytes"].sum()
        )
        if plan.data_parallel.codec.compresses:
            plan = dataclasses.replace(
                plan, data_parallel=dataclasses.replace(plan.data_parallel, ratio=ratio)
            )
    samples, ends = (
        int(results.config["samples"]),
        tuple(results.history["virtual_time_ps"].tolist()),
    )
    try:
        simulation = simulate(plan, samples, sizes=sizes)
        retiming = Retiming(
            label or label_of(cluster.name, changes), own, ends, simulation, steady_state(plan)
        )
        notes = [
            *notes,
            *_about_own_times(retiming, results, own_sizes),
            *_about_sums(own, plan, alike),
        ]
    except OtherMessages as error:
        raise InputError(
            f"{source}: has sizes of other messages than its run sends: {error}; train it again"
        ) from None
    if sizes and not retiming.same_staleness:
        notes.append("gradients shrink as they did in the run, with the old weights that it used")
    if not plan.fits:
        missing = format_bytes(plan.missing_bytes)
        notes.append(f"{missing} do not fit into on-chip memory there; `emuchain plan` says where")
    return dataclasses.replace(retiming, notes=tuple(notes))


def _check_finished(results: Results, source: str) -> None:
    epochs, wanted = results.epochs, int(results.config["epochs"])
    if epochs < wanted:
        done = f"{epochs} of {wanted} epochs" if epochs else "no epoch"
        raise InputError(
            f"{source}: the run is not finished: {done}; a finished run is needed, so train it to"
            " its end"
        )
    if not results.history["virtual_time_ps"][0]:
        raise InputError(
            f"{source}: its first epoch took no virtual time, so that there is nothing to compare"
            " with"
        )


def _described(results: Results, name: str, source: str) -> dict[str, Any]:
    """Return the keys of a description, which is TOML, or JSON where it came from Python."""
    text = results.descriptions.get(name, "")
    try:
        keys = read_description(text)
    except ValueError:
        keys = {}
    if not keys:
        raise InputError(
            f"{source}: does not describe its {name.removesuffix('.toml')}, so that it cannot be"
            " timed again"
        )
    return keys


def _planned(results: Results, cluster: Cluster, source: str) -> ChainPlan:
    """Return the plan of the run on a cluster."""
    network = load_network(_described(results, "network.toml", source))
    try:
        config = settings_config(
            {**_settings(results), "epochs": results.epochs},
            results.descriptions.get("schedule.txt"),
        )
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    if "faults.json" in results.descriptions:
        faults = described_faults(results.descriptions["faults.json"], source)
        cluster = dataclasses.replace(cluster, faults=faults)
    named = config.model_copy(update={"network": network.name, "cluster": cluster.name})
    plan = make_plan(named, 1, network=network, cluster=cluster, timing_only=True)
    if results.exchange and plan.data_parallel.replicas == 1:
        raise InputError(
            f"{source}: does not say on how many devices it trained, as it was made without"
            " `devices` by an earlier version; train it again"
        )
    return plan


def _settings(results: Results) -> dict[str, Any]:
    """Return the keys of a run that matter for its times; those with their defaults are left
    out.
    """
    defaults = settings_config({}).model_dump()
    plain = {
        key: value.tolist() if isinstance(value, np.ndarray) else value
        for key, value in results.config.items()
    }
    left_out: dict[str, tuple[object, ...]] = {
        key: (None, "", [], default) for key, default in defaults.items()
    }
    return {
        key: value
        for key, value in plain.items()
        if key not in _NOT_OF_TIME and value not in left_out.get(key, (None, ""))
    }


def _sizes(results: Results, own: ChainPlan) -> tuple[Sequence[GivenSizes], list[str]]:
    """Return the sizes of compressed messages in each epoch, () where those expected serve; and
    what is assumed.
    """
    data_parallel = own.data_parallel
    if not data_parallel.codec.compresses or (
        data_parallel.replicas == 1 and not own.timing.blocks
    ):
        return (), []
    if results.messages:
        return recorded_sizes(results.messages, results.epochs), []
    if not data_parallel.codec.size_depends_on_values and not own.timing.blocks:
        return (), []
    earlier = "the file, of an earlier version, has no sizes of messages: gradients are assumed"
    if not results.exchange:
        return (), [f"{earlier} to have the size that {data_parallel.codec} expects"]
    ratios = results.exchange["value_bytes"] / results.exchange["compressed_bytes"]
    return [MeanRatio(float(ratio)) for ratio in ratios], [
        f"{earlier} to shrink by the mean ratio of each epoch"
    ]


def _mean_ratios(
    sizes: Sequence[GivenSizes], notes: list[str]
) -> tuple[Sequence[GivenSizes], list[str]]:
    """Return the sizes for devices that hold other slices, whose messages are others."""
    if not any(isinstance(epoch, RecordedSizes) for epoch in sizes):
        return sizes, notes
    ratios = [
        MeanRatio(epoch.ratio) if isinstance(epoch, RecordedSizes) else epoch for epoch in sizes
    ]
    held = "devices hold other slices, or parameters for others, there"
    return ratios, [f"{held}: gradients are assumed to shrink by the mean ratio of each epoch"]


def _about_own_times(
    retiming: Retiming, results: Results, sizes: Sequence[GivenSizes]
) -> list[str]:
    """Return a note where this version's time model differs from the one that the run had."""
    if any(isinstance(epoch, MeanRatio) for epoch in sizes):
        return []
    [now_ps] = simulate(
        retiming.own.with_epochs(1), retiming.simulation.samples, sizes=sizes[:1]
    ).epoch_ends_ps
    if now_ps == retiming.own_ends_ps[0]:
        return []
    return [
        f"on its own cluster the run's first epoch took {retiming.own_ends_ps[0]} ps by emuchain"
        f" {results.versions.get('emuchain', '?')}, and takes {now_ps} ps by this version's time"
        " model"
    ]


def _adds_alike(own: ChainPlan, plan: ChainPlan, alike: bool) -> bool:
    """Return whether replicas add up each gradient in the same order on both interconnects.

    Where devices hold other slices, a gradient may be in another piece of the row.
    """
    parallel = plan.data_parallel
    here, there = (
        parallel.collective.phases(parallel.replicas, run.interconnect.topology)
        for run in (own, plan)
    )
    return here == there and (alike or all(phase.pieces == 1 for phase in there))


def _about_sums(own: ChainPlan, plan: ChainPlan, alike: bool) -> list[str]:
    """Return a note where replicas would add up gradients in another order."""
    if plan.data_parallel.replicas <= 2 or _adds_alike(own, plan, alike):
        return []
    return [
        "replicas would add up gradients in another order there, so that last digits would differ"
    ]
