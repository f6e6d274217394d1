"""Simulates the RTL of a plan for some mini-batches; compares bits of weights and cycles of rows
with the emulator's.

A reference says what training in the emulator makes of them: the weights before and after, and what
enters. Images and biases are drawn, so that each part of the RTL counts. Training starts with
biases of 0, and a first update with velocities of 0: an SFU that adds no bias, or an update that
forgets its velocity, would have the same bits.

The Verilated devices are a chain, joined by the links of a plan: mini-batches in turn, with the
host at both ends. A link's streams are FIFO resources with bandwidth and latency
(docs/time-model.md). Devices have clocks of their own. A device runs as far as no row can arrive
that is not known yet: a row takes its time on the link, and the latency.

The host gives images, those of a mini-batch once the first device has updated after the one before,
and computes the loss and the errors of the outputs: softmax has exponentials.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import glob
import itertools
import math
import os
import pathlib
import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...comm import FifoResource, Served, Times
from ...kernels.layers import loss
from ..common import WholeFile, touched
from ..config import Config
from ..data import Dataset
from ..mapping import StreamKey
from ..network import Layer
from ..plan import ChainPlan
from ..timing import DeviceClock
from .clock import clocks_of, run_mini_batches
from .design import DeviceDesign, EngineDesign
from .generate import MINI_BATCHES, Rtl, ports_text
from .model import DeviceModel, Row, update_numbers
from .ports import ERRORS, IMAGES, OUTPUTS
from .verilator import Tools, build, runtime, sources


@dataclasses.dataclass(frozen=True)
class MiniBatch:
    """Images (samples, rows, columns, channels) in the format of activations, and labels; the
    learning rate of its update; smoothing of the labels.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    rate: float
    smoothing: float = 0.0

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.images)

    def numbers(self, config: Config) -> list[int]:
        """Return what a device takes of its update, as `update_numbers` has it."""
        scale = config.precision.loss_scale
        return update_numbers(self.samples, self.rate, config.momentum, config.weight_decay, scale)


class RtlChain:
    """Devices at time zero, which have their parameters."""

    def __init__(
        self,
        plan: ChainPlan,
        designs: Sequence[DeviceDesign],
        models: Sequence[DeviceModel],
        batches: Sequence[MiniBatch],
    ) -> None:
        self._models, self._batches, self._config = models, batches, plan.config
        self._links: list[Mapping[StreamKey, FifoResource]] = [
            plan.timing.clock(design.number).links for design in designs
        ]
        self._to_end: list[Row] = []
        self._loss_scale = np.float32(plan.config.precision.loss_scale)
        self._labels = np.concatenate([batch.labels for batch in batches])
        self._updated_ps: list[list[int]] = [
            [] for _ in models
        ]  # of each device, after each mini-batch
        self._entry = clocks_of(plan, tuple(designs[:1]))[0]
        self._enter(batches[0], 0)
        self._waits = [self._lookahead(number) for number in range(len(models))]

    def run(self, most_ps: int) -> tuple[int, ...]:
        """Run the mini-batches until all devices have updated; return when they had after each, in
        ps.

        Raises:
            RuntimeError: they have not, `most_ps` after the start.
        """
        while not self._is_done:
            for number, model in enumerate(self._models):
                self._advance(number, model, most_ps)
        return tuple(map(max, zip(*self._updated_ps, strict=True)))

    @property
    def _is_done(self) -> bool:
        return all(len(times) == len(self._batches) for times in self._updated_ps)

    def _enter(self, batch: MiniBatch, updated_ps: int) -> None:
        """Put all images of a mini-batch on their port, in the cycles in which they enter after an
        update.
        """
        images, first = batch.images, self._models[0]
        times = self._entry._enter(len(images), images.shape[1], updated_ps)
        [path] = [path for path, port in enumerate(first.inputs) if port.name == IMAGES]
        for sample, rows in enumerate(times.tolist()):
            for row, at_ps in enumerate(rows):
                first.put(path, at_ps // first.design.period_ps, images[sample, row])

    def _lookahead(self, number: int) -> list[tuple[int, int]]:
        """Return for each neighbour its number, and the least time in ps from a row there to its
        arrival here.
        """
        waits = []
        for neighbour, forward in ((number - 1, True), (number + 1, False)):
            if 0 <= neighbour < len(self._models):
                keys = (key for key in self._links[neighbour] if key.path.is_forward == forward)
                hops = [
                    self._links[neighbour][key].row_ps + self._links[neighbour][key].latency_ps
                    for key in keys
                ]
                if hops:
                    waits.append((neighbour, min(hops)))
        return waits

    def _advance(self, number: int, model: DeviceModel, most_ps: int) -> None:
        """Run a device as far as it is known what arrives there."""
        period_ps = model.design.period_ps
        while True:
            # All that arrives up to this time is known: the neighbours' next cycles are still to
            # come.
            #   neighbour  ----| cycle + 1       no further row leaves before this cycle,
            #                   \ hop_ps         nor is it here before it has crossed the link:
            #   here       ----------| known_ps  up to then this device runs without waiting
            known_ps = min(
                (
                    (self._models[neighbour].cycle + 1) * self._models[neighbour].design.period_ps
                    + hop_ps
                    - 1
                    for neighbour, hop_ps in self._waits[number]
                ),
                default=most_ps,
            )
            until = min(known_ps, most_ps) // period_ps
            if model.cycle >= until:
                if model.cycle * period_ps >= most_ps - period_ps:
                    raise RuntimeError(f"device {number} has not updated after {most_ps} ps")
                return
            for path, row in model.run(until).items():
                self._send(number, model, path, row)
            if model.done:
                self._updated(number, model)
            if self._is_done:
                return

    def _updated(self, number: int, model: DeviceModel) -> None:
        """Note that a device has updated, and go on with the next mini-batch if there is one."""
        times = self._updated_ps[number]
        if len(times) == len(self._batches):
            return
        times.append(model.cycle * model.design.period_ps)
        for batch in self._batches[len(times) : len(times) + 1]:
            model.settle(batch.numbers(self._config))
            if number == 0:
                self._enter(batch, times[-1])

    def _send(self, number: int, model: DeviceModel, path: int, row: Row) -> None:
        port, now_ps = model.outputs[path], model.cycle * model.design.period_ps
        if port.name == OUTPUTS:
            self._judge(model, row)
            return
        assert port.key is not None
        arrives_ps = int(self._links[number][port.key].serve(np.array([[now_ps]]))[0, 0])
        to = self._models[number + 1 if port.key.path.is_forward else number - 1]
        [place] = [place for place, entry in enumerate(to.inputs) if entry.key == port.key]
        # A row is taken in with the first clock edge that does not come before it.
        to.put(place, -(-arrives_ps // to.design.period_ps), row)

    def _judge(self, model: DeviceModel, row: Row) -> None:
        """Return the errors of a sample's outputs, in the cycle after."""
        label = self._labels[len(self._to_end) : len(self._to_end) + 1]
        self._to_end.append(row)
        _, errors, _ = loss.softmax_cross_entropy(
            row.reshape(1, -1), label, self._batches[0].smoothing
        )
        [path] = [path for path, port in enumerate(model.inputs) if port.name == ERRORS]
        model.put(path, model.cycle + 1, errors * self._loss_scale)


Weights = Mapping[str, Mapping[str, NDArray[np.float32]]]
"""Weights (oc, ic, kh, kw), their master copy if there is one, and bias (oc,) of each layer, by its
name.
"""


@dataclasses.dataclass(frozen=True)
class Reference:
    """Mini-batches that were trained in turn, with all layers' weights before and after."""

    batches: Sequence[MiniBatch]
    before: Weights
    after: Weights


_IMAGES, _BIASES = 1 << 62, (1 << 62) + 1
"""Second words of the keys of the streams; each layer's biases have one of their own."""

_PATIENCE = 2
"""How many times as long as expected a simulation may run, in cycles, before it counts as stuck."""


def drawn_images(plan: ChainPlan) -> Dataset:
    """Return mini-batches of drawn images and labels, for a network of any shape; they depend on
    the seed alone.
    """
    stream = _stream(plan.config.seed, _IMAGES)
    classes, samples = plan.network.layers[-1].channels, MINI_BATCHES * plan.config.batch
    images = stream.integers(0, 256, (samples, *plan.network.input), dtype=np.uint8)
    labels = stream.integers(0, classes, samples)
    return Dataset("drawn", images, labels, images[:0], labels[:0], tuple(map(str, range(classes))))


def drawn_biases(layer: Layer, seed: int) -> NDArray[np.float32]:
    """Return a layer's biases (oc,), by the seed alone: uniform within 1 / sqrt(weights of an
    output), as PyTorch's.
    """
    most = 1 / math.sqrt(math.prod(layer.weight_shape[1:]))
    return (
        _stream(seed, _BIASES + layer.index).uniform(-most, most, layer.channels).astype(np.float32)
    )


def _stream(seed: int, use: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, use]))


@dataclasses.dataclass(frozen=True)
class EngineRows:
    """The rows of an engine: cycles in which they were done, and should be; and the first
    mini-batch's in the time model without pipelines.
    """

    name: str
    design: EngineDesign
    done: NDArray[np.int64]
    expected: NDArray[np.int64]
    modelled: NDArray[np.int64]

    @property
    def is_right(self) -> bool:
        """Whether every row was done in its cycle."""
        return bool(np.array_equal(self.done, self.expected))

    @property
    def later(self) -> tuple[int, int]:
        """By how many cycles rows of the first mini-batch are later than in the time model: at
        least, and at most.
        """
        whole = self.done.shape == self.expected.shape
        late = self.done[: len(self.modelled)] - self.modelled if whole else np.zeros(1, np.int64)
        return int(late.min()), int(late.max())


@dataclasses.dataclass(frozen=True)
class RtlResult:
    """Simulated mini-batches: when all devices had updated after each, in the RTL, as it should be,
    and in the time model, in ps; the rows of each engine; for each slice and parameter, values
    whose bits are not those of training; the cycles of all devices, and the seconds that they took.
    """

    updated_ps: tuple[int, ...]
    expected_ps: tuple[int, ...]
    modelled_ps: tuple[int, ...]
    engines: tuple[EngineRows, ...]
    wrong: Mapping[str, int]
    values: int
    cycles: int
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether all bits and all cycles are right."""
        rows = all(engine.is_right for engine in self.engines)
        return rows and not any(self.wrong.values()) and self.updated_ps == self.expected_ps


def build_models(
    rtl: Rtl,
    tops: Sequence[pathlib.Path],
    tools: Tools,
    folder: pathlib.Path,
    *,
    waves: bool = False,
) -> list[pathlib.Path]:
    """Build the model of each device in a folder of its own below `folder`; return the libraries.

    The modules are those beside the tops.

    Raises:
        InputError: there is no compiler, or the RTL cannot be built.
    """
    modules = [top.parent / module.name for top in tops[:1] for module in sources()]
    runtime(tools)  # once, ahead of all
    # Threads are enough: Verilator and compilers are processes of their own.
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        built = [
            pool.submit(
                build, tools, top, modules, ports_text(design), folder / design.module, waves=waves
            )
            for design, top in zip(rtl.devices, tops, strict=True)
        ]
        return [one.result() for one in built]


def simulate_rtl(
    rtl: Rtl,
    libraries: Sequence[pathlib.Path],
    reference: Reference,
    waves: Sequence[WholeFile] = (),
) -> RtlResult:
    """Run mini-batches on the models of a chain, and compare them with the emulator's.

    Args:
        rtl: the chain.
        libraries: the models of its devices.
        reference: the mini-batches, and what they make of the weights.
        waves: a file for the waves of each device, or none.

    Raises:
        InputError: waves cannot be written.
        RuntimeError: a device has no room for a row, or the chain is stuck.
    """
    plan, config, batches = rtl.plan, rtl.plan.config, reference.batches
    numbers = batches[0].numbers(config)
    models = [
        DeviceModel(library, design, numbers)
        for library, design in zip(libraries, rtl.devices, strict=True)
    ]
    try:
        for model in models:
            _write(model, reference.before)
        with contextlib.ExitStack() as started:
            for model, file in itertools.zip_longest(models, waves):
                started.enter_context(_started(model, file))
            begun = time.perf_counter()
            updated_ps = RtlChain(plan, rtl.devices, models, batches).run(
                _PATIENCE * rtl.updated_ps[-1]
            )
            seconds = time.perf_counter() - begun
        wrong: dict[str, int] = {}
        values = 0
        for model in models:
            for name, (model_values, trained) in _pairs(model, reference.after).items():
                wrong[name] = int((_bits(model_values) != _bits(trained)).sum())
                values += model_values.size
        engines = tuple(_rows(rtl, models))
        modelled_ps = run_mini_batches(_modelled(plan), config.batch, len(batches))
        # Cycles are numbered from 0.
        cycles = sum(model.cycle + 1 for model in models)
        return RtlResult(
            updated_ps, rtl.updated_ps, modelled_ps, engines, wrong, values, cycles, seconds
        )
    finally:
        for model in models:
            model.close()


def _bits(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Return bits, not numbers: 0 and -0 are equal as numbers, and a NaN equals none. All NaNs are
    one, since processors make others than RTL does.
    """
    return np.where(np.isnan(values), np.float32(np.nan), values).view(np.uint32)


def waves_file(waves: str, device: int) -> pathlib.Path:
    """Return the file of a device's waves: run.vcd is run-device0.vcd of device 0."""
    path = pathlib.Path(waves)
    return path.with_name(f"{path.stem}-device{device}{path.suffix or '.vcd'}")


def waves_files(waves: str) -> Iterator[pathlib.Path]:
    """Yield the files that those of devices' waves may touch: the first, and all that are there."""
    yield from touched(waves_file(waves, 0))
    path = pathlib.Path(waves)
    yield from path.parent.glob(
        f"{glob.escape(path.stem)}-device*{glob.escape(path.suffix or '.vcd')}"
    )


@contextlib.contextmanager
def _started(model: DeviceModel, waves: WholeFile | None) -> Iterator[None]:
    """Start a model, and put its waves in place at the end."""
    if waves is None:
        model.start()
        yield
        return
    with waves.building() as file:
        model.start(file.fileno())
        try:
            yield
        finally:
            error = model.end_waves()
        if error:
            raise OSError(error, os.strerror(error))


def _own(model: DeviceModel, weights: Weights) -> dict[tuple[int, str], NDArray[np.float32]]:
    """Return a device's parameters among those of all layers, by place of the slice and name."""
    parameters = {}
    for place, design in enumerate(model.design.slices):
        ins, outs, arrays = (
            design.part.in_channels,
            design.part.out_channels,
            weights[design.layer.name],
        )
        for name in filter(arrays.__contains__, ("weight", "master")):
            parameters[place, name] = np.ascontiguousarray(
                arrays[name][outs.start : outs.stop, ins.start : ins.stop]
            )
        if design.bias is not None:
            parameters[place, "bias"] = arrays["bias"]
    return parameters


def _write(model: DeviceModel, weights: Weights) -> None:
    for (place, name), values in _own(model, weights).items():
        if (
            name != "weight" or not model.design.precision.has_copies
        ):  # which follow their master copy
            model.write(place, name, values)


def _pairs(
    model: DeviceModel, weights: Weights
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return for each of a device's parameters what it holds, and what `weights` have."""
    return {
        f"{name} of {model.design.slices[place].part}": (
            model.read(place, name, values.shape),
            values,
        )
        for (place, name), values in _own(model, weights).items()
    }


def _rows(rtl: Rtl, models: Sequence[DeviceModel]) -> list[EngineRows]:
    plan = rtl.plan
    expected = _left(clocks_of(plan, rtl.devices), plan.config.batch, len(rtl.updated_ps))
    modelled = _left(_modelled(plan), plan.config.batch, 1)
    rows = []
    for model in models:
        design, done = model.design, model.rows_done()
        for place, slice_design in enumerate(design.slices):
            for phase, engine in (
                ("FP", slice_design.fp),
                ("EB", slice_design.eb),
                ("PG", slice_design.pg),
            ):
                if engine is not None:
                    name = f"{phase} of {slice_design.part} on device {design.number}"
                    right = expected[name] // design.period_ps + engine.tail
                    rows.append(
                        EngineRows(
                            name,
                            engine,
                            done[phase, place],
                            right,
                            modelled[name] // design.period_ps,
                        )
                    )
    return rows


def _modelled(plan: ChainPlan) -> list[DeviceClock]:
    return [plan.timing.clock(device) for device in range(plan.devices)]


def _left(clocks: Sequence[DeviceClock], samples: int, batches: int) -> dict[str, Times]:
    """Run mini-batches; return when rows leave each resource, in ps, by its name."""
    left: dict[str, list[Times]] = {}

    def note(served: Served) -> None:
        left.setdefault(served.resource, []).append(served.left_ps.ravel())

    for clock in clocks:
        clock.observe(note)
    run_mini_batches(clocks, samples, batches)
    return {name: np.concatenate(times) for name, times in left.items()}
