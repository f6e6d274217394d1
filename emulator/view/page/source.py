"""The runs of a page: the results of each, and its plan, rebuilt from the texts in its results file."""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
from typing import Any

import numpy as np

from ...cluster import Cluster, load_cluster
from ...common import InputError, read_description
from ...config import Config, settings_config
from ...faults import described_faults
from ...network import load_network
from ...plan import ChainPlan, Layout, make_plan
from ...run import Cause, Results, SteadyState, Usage, cause_of, steady_state

_EARLIER = {"memory": "fpdeep", "rows_at_once": 1}
"""What keys meant before files had them."""

_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run's results under a short name, and its plan; where there is none, `why_no_plan` is the reason."""

    name: str
    results: Results
    plan: ChainPlan | None
    why_no_plan: str = ""

    @classmethod
    def of(cls, name: str, results: Results) -> Run:
        """Return a run with the plan that its results file describes, if it can be worked out again."""
        try:
            plan = rebuild(results)
        except InputError as error:
            return cls(name, results, None, str(error))
        return cls(name, results, plan)

    @property
    def network(self) -> str:
        """Name of the network."""
        return self.plan.network.name if self.plan else pathlib.Path(self.results.config["network"]).stem

    @property
    def noun(self) -> str:
        """What a sample is called: "image", or "sample" of a text."""
        return self.results.sample_noun

    @property
    def samples(self) -> int:
        """Number of samples of all finished epochs."""
        return int(self.results.config["samples"]) * self.results.epochs

    @property
    def images_per_s(self) -> float | None:
        """Rate of the whole run on the cluster, including filling and draining; None before the first epoch."""
        return self.samples / (self.results.virtual_time_ps * 1e-12) if self.results.virtual_time_ps else None

    @functools.cached_property
    def usage(self) -> Usage | None:
        """Usage of devices and links; None before the first epoch."""
        return self.results.usage

    @functools.cached_property
    def steady(self) -> SteadyState | None:
        """The steady state, if there is a plan."""
        return steady_state(self.plan) if self.plan else None

    @functools.cached_property
    def cause(self) -> Cause | None:
        """What holds the chain back, if there is a plan."""
        return cause_of(self.plan, self.steady) if self.plan and self.steady else None

    @functools.cached_property
    def layout(self) -> Layout | None:
        """The layout, if there is a plan."""
        return self.plan.layout() if self.plan else None


def rebuild(results: Results) -> ChainPlan:
    """Return the plan of a finished run, for which none of the files that it was made from are needed.

    Where the size of compressed gradients depends on their values, the plan has the ratio that the run reached.

    Raises:
        InputError: the file lacks something, or what it describes is not what has run.
    """
    network = load_network(_described(results, "network.toml"))
    cluster = load_cluster(_described(results, "cluster.toml"))
    if "faults.json" in results.descriptions:
        faults = described_faults(results.descriptions["faults.json"], "faults.json in the file")
        cluster = dataclasses.replace(cluster, faults=faults)
    plan = make_plan(_config(results), network=network, cluster=cluster)
    if not plan.times_rows:
        raise InputError("its boards take actions as a whole, but these views show rows")
    if plan.chunks > 1:
        raise InputError("its devices have several stages, but these views show one on each")
    if plan.faults.in_time:
        raise InputError("its boards or links had faults, which these views do not show")
    if not _is_plan_of(plan, results):
        raise InputError(
            "the plan that follows from the file's descriptions is not the one that has run: the cluster was changed in"
            " Python, or another version of emuchain made the file"
        )
    return plan


def _described(results: Results, name: str) -> dict[str, Any]:
    text = results.descriptions.get(name, "")
    try:
        return read_description(text)
    except ValueError as error:
        raise InputError(f"{name} in the file cannot be read: {error}") from None


def _config(results: Results) -> Config:
    """Return the configuration, from the keys that differ from their defaults; HDF5 has "" for None."""
    settings: dict[str, Any] = {}
    for key, value in {**_EARLIER, **results.config}.items():
        known = Config.model_fields.get(key)
        if isinstance(value, np.ndarray):
            value = tuple(value.tolist())
        if known is not None and key != "faults" and value not in (None, "") and value != known.default:
            settings[key] = value
    order, ratio = results.descriptions.get("schedule.txt"), codec_ratio(results)
    config = settings_config(settings, order)
    if ratio is not None and config.compress.size_depends_on_values:
        return settings_config({**settings, "compress_ratio": ratio}, order)
    return config


def codec_ratio(results: Results) -> float | None:
    """Return the bytes of all exchanged gradients over those that were sent; None where nothing was exchanged."""
    if not results.exchange:
        return None
    return float(results.exchange["value_bytes"].sum() / results.exchange["compressed_bytes"].sum())


def _is_plan_of(plan: ChainPlan, results: Results) -> bool:
    """Return whether a run of this plan has the mapping, the busy engines and the links of the results."""
    if str(plan.mapping) != results.descriptions.get("mapping"):
        return False
    usage = results.usage
    if usage is None:
        return True
    hops = {(link.sender, link.receiver) for link in usage.links}
    if len(usage.devices) != len(plan.timing.engines) or not hops >= plan.timing.routes.carried.keys():
        return False
    epoch = plan.data_parallel.samples_of(0, int(results.config["samples"]), plan.config.batch)
    samples = len(epoch) * results.epochs
    for device, engines in zip(usage.devices, plan.timing.engines, strict=True):
        work = sum(held.fp.sample_ps * held.fp.multipliers for held in engines) * samples
        able = sum(held.fp.multipliers for held in engines) * usage.virtual_time_ps
        if not math.isclose(work / able, device.busy["FP"], rel_tol=_TOLERANCE):
            return False
    return all(
        math.isclose(
            sum(link.path_bytes.values()) * 8,
            link.utilisation * usage.virtual_time_ps * bandwidth_gbps(plan.cluster, link.sender, link.receiver) / 1000,
            rel_tol=_TOLERANCE,
        )
        for link in usage.links
    )


def bandwidth_gbps(cluster: Cluster, sender: int, receiver: int) -> float:
    """Return the bandwidth of a direction of a link between neighbours, in Gb/s."""
    return cluster.link_at(min(sender, receiver)).bandwidth_gbps
