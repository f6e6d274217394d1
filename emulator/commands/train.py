"""`emuchain train`: the edge between training and people."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from ...comm.ranks import Ranks
from ..common.units import format_time_ps
from ..config.config import about_data, blaming, load_config
from ..data.dataset import Dataset
from ..data.load import load
from ..plan.plan import Plan, check_data, fleet_line, make_plan
from ..report.progress import EpochRow, Progress, make_progress
from ..report.tables import device_rows, exchange_rows, link_rows
from ..run import follower as part
from ..run.results import (
    Record,
    check_writable,
    config_attributes,
    device_table,
    exchange_table,
    history_table,
    link_table,
    versions,
    write,
)
from ..run.train import EpochResult, StepResult, Weights, train
from .kernels import load as load_kernels


def run_training(ranks: Ranks, config_file: str | None, flags: dict[str, Any]) -> None:
    """On rank 0: train as configured on all ranks, show progress and write results.

    Raises:
        InputError: the configuration does not hold, or the data.
    """
    with blaming(config_file, flags):
        config = load_config(config_file, flags)
        plan = make_plan(config, ranks.size)
        if config.out is not None:
            check_writable(config.out)
        data = _load(plan)
    with make_progress(config.progress) as progress:
        ranks.in_turn(functools.partial(load_kernels, progress.note))
        ranks.start(functools.partial(part.take, plan, part.Gist.of(data, plan.data_parallel.replicas)))
        progress.note(_announcement(plan, data, ranks.size))
        progress.start(data.n_train * config.epochs, config.epochs)
        recorder = _Recorder(plan, data, ranks.describe(), progress)
        train(plan, data, ranks, recorder.step, recorder.epoch, gather_weights=config.out is not None)
    recorder.summary()


def _load(plan: Plan) -> Dataset:
    """The data that the configuration asks for, if the network takes it."""
    config = plan.config
    with about_data(config):
        data = load(config.data)
    check_data(plan, data.shape, data.n_classes, config.data)
    if config.samples is not None:
        data = data.first(config.samples)
    return data if config.test_samples is None else data.test_first(config.test_samples)


def _announcement(plan: Plan, data: Dataset, ranks: int) -> str:
    hosts = f"{ranks} ranks" if ranks > 1 else "one process"
    idle = f" ({ranks - plan.nodes} ranks host none)" if ranks > plan.nodes else ""
    note = f"; {data.note}" if data.note else ""
    return (
        f"{plan.network.name} on {fleet_line(plan)} in {hosts}{idle}, "
        f"{plan.config.schedule}, batch {plan.config.batch}, {data.name}: {data.n_train} images{note}"
    )


class _Recorder:
    """Turns steps and epochs into progress and the results file; lives on rank 0."""

    def __init__(self, plan: Plan, data: Dataset, mpi: str, progress: Progress) -> None:
        self._plan, self._data, self._progress = plan, data, progress
        self._out = None if plan.config.out is None else pathlib.Path(plan.config.out)
        self._versions = versions(mpi) if self._out else {}
        self._history: list[EpochResult] = []
        self._samples_done = 0

    def step(self, result: StepResult) -> None:
        """A mini-batch is through."""
        self._samples_done += result.tally.samples
        tally = result.tally
        self._progress.step(
            self._samples_done, result.epoch + 1, tally.mean_loss, tally.accuracy, result.virtual_time_ps
        )

    def epoch(self, result: EpochResult, weights: Weights) -> None:
        """An epoch is through and evaluated."""
        self._history.append(result)
        accuracy = result.test.accuracy if result.test.samples else None
        self._progress.epoch(
            EpochRow(result.epoch + 1, result.train.mean_loss, accuracy, result.virtual_time_ps, result.host_time_s)
        )
        self.write(weights)

    def write(self, weights: Weights) -> None:
        """Put the results file in place, with all epochs so far."""
        if self._out is None:
            return
        figures = self._history[-1].figures if self._history else None
        mapping = "\n".join(
            f"device {d}: " + ", ".join(map(str, slices)) for d, slices in enumerate(self._plan.mapping.devices)
        )
        plan = self._plan
        descriptions = {"network.toml": plan.network.text, "cluster.toml": plan.cluster.text, "mapping": mapping}
        config = config_attributes(plan.config, plan.config.devices or plan.devices, self._data.n_train)
        tables = history_table(self._history), device_table(figures), link_table(figures)
        exchange = exchange_table(self._history, plan.nodes)
        write(self._out, Record(config, descriptions, self._versions, *tables, weights, exchange))

    def summary(self) -> None:
        """What people want to know at the end."""
        last = self._history[-1]
        device_rows(last.figures)
        if last.figures.links:
            link_rows(last.figures)
        exchange = exchange_table(self._history, self._plan.nodes)
        if exchange:
            exchange_rows(exchange, history_table(self._history)["virtual_time_ps"])
        images = self._data.n_train * len(self._history)
        rate = images / (last.virtual_time_ps * 1e-12)
        print(
            f"virtual time {format_time_ps(last.virtual_time_ps)} ({rate:.0f} images/s on the cluster), "
            f"host time {last.host_time_s:.1f} s ({images / last.host_time_s:.0f} images/s here)"
        )
        if self._out is not None:
            print(f"results in {self._out}; `emuchain show {self._out}` prints them")
