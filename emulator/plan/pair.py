"""The plan of a run on a GPU, alone or with an FPGA, with the work of a mini-batch and its
times.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NoReturn

from ...kernels.optimizers import optimizer_kind
from ..cluster import Cluster
from ..common import InputError, format_time_ps, html_table, number, percent, plural
from ..config import check_updates
from ..mapping import Mapping, Slice, cut_channels
from ..network import Network
from ..schedule import EpochShape, Offload, Schedule
from ..timing.pair import (
    LayerNeeds,
    Pair,
    PairTimes,
    Workload,
    all_needs,
    check_gpu_memory,
    gpu_bytes,
    needs_as_json,
    pair_of,
    time_mini_batch,
    times_as_json,
    workload_of,
)
from .chain import check_precision
from .data import check_loss, cluster_of, epoch_samples, faults_of, network_for, tuned
from .plan import Plan

if TYPE_CHECKING:
    from ..config import Config


_OF_CHAINS = (
    *(
        "replicas",
        "groups",
        "zero",
        "chunks",
        "warm_up",
        "engines",
        "transport",
        "compress",
        "error_feedback",
    ),
    *("stages", "balancing", "memory", "rows_at_once", "clip_norm", "freeze"),
    *("lora", "throttle"),
)
"""Keys that have no part in a pair."""


def make_pair_plan(
    config: Config,
    cluster_changes: dict[str, object] | None = None,
    *,
    network: Network | None = None,
    cluster: Cluster | None = None,
) -> PairPlan:
    """Derive the plan of a run under a schedule of pairs; see `make_plan`.

    Raises:
        InputError: a value does not suit a pair.
    """
    kind = config.schedule
    assert kind.offload is not None
    defaults = type(config).model_validate({})
    for key in _OF_CHAINS:
        if getattr(config, key) != getattr(defaults, key):
            raise InputError(f"`{key}` has no effect with `schedule` = {kind.name!r}; leave it out")
    check_updates(config)
    cluster = cluster or cluster_of(config, cluster_changes)
    if faults_of(config, cluster):
        source = config.faults or config.cluster
        raise InputError(
            f"{source}: `faults` are of a chain's boards, and `schedule` = {kind.name!r} has no"
            " chain"
        )
    states = len(optimizer_kind(config.optimizer).states)
    pair = dataclasses.replace(pair_of(cluster, kind, config.devices), states=states)
    network = network_for(config, network or config.network)
    network = tuned(config, network)
    check_loss(config, network)
    check_precision(config, network)
    _check_scales(config)
    workload = workload_of(network, config.batch, config.precision).padded(config.padding)
    check_gpu_memory(workload, pair)
    plan = PairPlan(config, network, cluster, pair, workload)
    _ = plan.times, plan.needs  # all that can be wrong is found here
    return plan


def _check_scales(config: Config) -> None:
    """Check that the loss scale follows no overflows, of which a pair has no norm.

    Raises:
        InputError: it does.
    """
    precision = config.precision
    if precision.grows_every:
        raise InputError(
            f"`precision` = {str(precision)!r}: the loss scale follows the norm of a chain's"
            f" gradients, and `schedule` = {config.schedule.name!r} has none; should be a number"
        )


@dataclasses.dataclass(frozen=True)
class PairPlan(Plan):
    """What a run on a GPU, alone or with an FPGA, will do."""

    pair: Pair
    workload: Workload

    @property
    def offload(self) -> Offload:
        """What the GPU gives to the FPGA."""
        assert self.config.schedule.offload is not None
        return self.config.schedule.offload

    @property
    def devices(self) -> int:
        """Number of devices: the GPU is the first, an FPGA the second."""
        return self.offload.devices

    @property
    def inputs_too(self) -> bool:
        """Whether the FPGA does the input products, too."""
        return self.offload is Offload.ALL_STEPS

    @functools.cached_property
    def times(self) -> PairTimes:
        """The timeline of a mini-batch."""
        return time_mini_batch(self.workload, self.pair, self.offload)

    @functools.cached_property
    def needs(self) -> list[LayerNeeds]:
        """What each recurrent layer takes of the FPGA, if there is one."""
        return all_needs(self.workload, self.pair, self.offload)

    @functools.cached_property
    def samples(self) -> int:
        """Number of samples in an epoch: `samples`, or all of `data`, or without these a
        mini-batch.

        Raises:
            InputError: the data set is missing, or does not fit the network.
        """
        config = self.config
        return config.samples or (epoch_samples(self) if config.data else config.batch)

    @property
    def epoch_ends_ps(self) -> tuple[int, ...]:
        """Virtual time from the start to the end of each epoch."""
        return tuple(
            (epoch + 1) * self.epoch_ps(self.samples) for epoch in range(self.config.epochs)
        )

    def times_of(self, samples: int) -> PairTimes:
        """Return the timeline of a mini-batch of this size."""
        if samples == self.workload.batch:
            return self.times
        return time_mini_batch(self.workload.of_batch(samples), self.pair, self.offload)

    def epoch_ps(self, samples: int) -> int:
        """Return the time of an epoch, whose mini-batches follow one another."""
        whole, left = divmod(samples, self.config.batch)
        return whole * self.times.mini_batch_ps + (self.times_of(left).mini_batch_ps if left else 0)

    def schedule(self, samples: int) -> Schedule:
        """Return the actions of the GPU in an epoch; the FPGA takes part in F and B."""
        return self.config.schedule.schedule_of(
            EpochShape(1, samples, self.config.batch, self.config.micro_batch)
        )

    @property
    def mapping(self) -> Mapping:
        """All layers on the GPU."""
        whole = tuple(Slice(layer, 0, cut_channels(layer)) for layer in self.network.layers)
        return Mapping(self.network, (whole,))

    @property
    def mapping_text(self) -> str:
        """Which device has which layers."""
        lines = [
            f"device 0, {self.pair.gpu.name}: "
            + ", ".join(layer.name for layer in self.network.layers)
        ]
        if self.pair.fpga is not None:
            steps = ", ".join(work.name for work in self.workload.recurrent)
            lines.append(f"device 1, {self.pair.fpga.name}: steps of {steps}")
        return "\n".join(lines)

    @property
    def boards(self) -> str:
        """The names of the devices."""
        return self.pair.gpu.name + (f" + {self.pair.fpga.name}" if self.pair.fpga else "")

    @property
    def title(self) -> str:
        """The network and the devices."""
        return f"{self.workload.name} on {self.boards}"

    @property
    def limit(self) -> str:
        """Which resource is busy longest, as text."""
        limit = self.times.limit
        share = percent(limit.busy_ps / self.times.mini_batch_ps)
        return f"{limit.resource.value}, busy {share} of the time; longest: {limit.longest.name}"

    @property
    def memory(self) -> str | None:
        """What the fullest PE holds, as text; None without an FPGA."""
        if not self.needs:
            return None
        fullest = max(self.needs, key=lambda layer: layer.words_of_a_pe)
        return (
            f"fits, {fullest.words_of_a_pe:,} of {self.pair.array.words:,} words of a PE in"
            f" {fullest.work.name}"
        )

    @property
    def answer(self) -> list[str]:
        """The lines with which `emuchain plan` and `simulate` begin."""
        times = self.times
        lines = [
            f"{self.title}: {self._mini_batch}",
            (
                f"FW {format_time_ps(times.forward_ps)}, BW, GC and WU"
                f" {format_time_ps(times.backward_ps)}"
            ),
        ]
        if self.config.samples:
            samples = plural(self.samples, self.network.sample_noun)
            lines.append(f"epoch of {samples}: {format_time_ps(self.epoch_ps(self.samples))}")
        if times.utilisation is not None:
            lines.append(
                f"utilisation: {percent(times.utilisation)} of I-MVM at the GPU's peak and R-MVM on"
                " all PEs"
            )
        lines.append(f"limit: {self.limit}")
        return lines if self.memory is None else [*lines, f"memory: {self.memory}"]

    def to_dict(self) -> dict[str, Any]:
        """Return what `emuchain plan` and `simulate` print with `--json` (docs/running.md)."""
        ends = self.epoch_ends_ps
        return {
            "config": {
                **self.config.model_dump(),
                "devices": self.devices,
                "samples": self.samples,
            },
            "virtual_time_ps": ends[-1],
            "epoch_ends_ps": list(ends),
            **times_as_json(self.times),
            "gpu_bytes": gpu_bytes(self.workload, self.pair),
            **needs_as_json(self.needs, self.pair),
        }

    def needs_rows(self, what: str) -> NoReturn:
        """Say that times are those of tasks, where `what` rests on those of rows.

        Raises:
            InputError: always.
        """
        raise InputError(
            f"`schedule` = {self.config.schedule.name!r}: {what} shows rows on split engines, and a"
            " GPU, alone or with an FPGA, has tasks; `times` of its plan has them"
        )

    def __str__(self) -> str:
        return "\n".join(self.answer)

    def __repr__(self) -> str:
        return (
            f"<PairPlan {self.title}, {self._mini_batch}, limited by"
            f" {self.times.limit.resource.value}>"
        )

    def _repr_html_(self) -> str:
        times = self.times
        rate = f"{number(self.samples_per_s)} {self.network.sample_noun}s/s"
        mini_batch = [f"mini-batch of {self._samples}", format_time_ps(times.mini_batch_ps)]
        rows = [mini_batch, ["rate", rate], ["limited by", self.limit]]
        if times.utilisation is not None:
            rows.append(["utilisation", percent(times.utilisation)])
        if self.memory is not None:
            rows.append(["memory of a PE", self.memory])
        rows.append(["schedule", f"{self.config.schedule.name}, batch {self.config.batch}"])
        return html_table(f"Plan: {self.title}", rows)

    @property
    def samples_per_s(self) -> float:
        """Rate of whole mini-batches."""
        return 1e12 * self.workload.batch / self.times.mini_batch_ps

    @property
    def _mini_batch(self) -> str:
        return f"{format_time_ps(self.times.mini_batch_ps)} for a mini-batch of {self._samples}"

    @property
    def _samples(self) -> str:
        return plural(self.workload.batch, "sample")
