"""Simulates the RTL of a plan for some mini-batches; compares bits of weights and cycles of rows with the emulator's.

A reference says what training in the emulator makes of them: the weights before and after, and what enters. Images and
biases are drawn, so that each part of the RTL counts. Training starts with biases of 0, and a first update with
velocities of 0: an SFU that adds no bias, or an update that forgets its velocity, would have the same bits.
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

from ...comm import Served, Times
from ..common import WholeFile, touched
from ..data import Dataset
from ..network import Layer
from ..plan import ChainPlan
from ..timing import DeviceClock
from .chain import MiniBatch, RtlChain
from .clock import clocks_of, run_mini_batches
from .design import EngineDesign
from .generate import MINI_BATCHES, Rtl, ports_text
from .model import DeviceModel
from .verilator import Tools, build, runtime, sources

Weights = Mapping[str, Mapping[str, NDArray[np.float32]]]
"""Weights (oc, ic, kh, kw), their master copy if there is one, and bias (oc,) of each layer, by its name."""


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
    """Return mini-batches of drawn images and labels, for a network of any shape; they depend on the seed alone."""
    stream = _stream(plan.config.seed, _IMAGES)
    classes, samples = plan.network.layers[-1].channels, MINI_BATCHES * plan.config.batch
    images = stream.integers(0, 256, (samples, *plan.network.input), dtype=np.uint8)
    labels = stream.integers(0, classes, samples)
    return Dataset("drawn", images, labels, images[:0], labels[:0], tuple(map(str, range(classes))))


def drawn_biases(layer: Layer, seed: int) -> NDArray[np.float32]:
    """Return a layer's biases (oc,), by the seed alone: uniform within 1 / sqrt(weights of an output), as PyTorch's."""
    most = 1 / math.sqrt(math.prod(layer.weight_shape[1:]))
    return _stream(seed, _BIASES + layer.index).uniform(-most, most, layer.channels).astype(np.float32)


def _stream(seed: int, use: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=[seed, use]))


@dataclasses.dataclass(frozen=True)
class EngineRows:
    """The rows of an engine: cycles in which they were done, and should be; and the first mini-batch's in the time
    model without pipelines.
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
        """By how many cycles rows of the first mini-batch are later than in the time model: at least, and at most."""
        whole = self.done.shape == self.expected.shape
        late = self.done[: len(self.modelled)] - self.modelled if whole else np.zeros(1, np.int64)
        return int(late.min()), int(late.max())


@dataclasses.dataclass(frozen=True)
class RtlResult:
    """Simulated mini-batches: when all devices had updated after each, in the RTL, as it should be, and in the time
    model, in ps; the rows of each engine; for each slice and parameter, values whose bits are not those of training;
    the cycles of all devices, and the seconds that they took.
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
    rtl: Rtl, tops: Sequence[pathlib.Path], tools: Tools, folder: pathlib.Path, *, waves: bool = False
) -> list[pathlib.Path]:
    """Build the model of each device in a folder of its own below `folder`; return the libraries.

    The modules are those beside the tops.

    Raises:
        InputError: there is no compiler, or the RTL cannot be built.
    """
    modules = [top.parent / module.name for top in tops[:1] for module in sources()]
    runtime(tools)  # once, ahead of all
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        built = [
            pool.submit(build, tools, top, modules, ports_text(design), folder / design.module, waves=waves)
            for design, top in zip(rtl.devices, tops, strict=True)
        ]
        return [one.result() for one in built]


def simulate_rtl(
    rtl: Rtl, libraries: Sequence[pathlib.Path], reference: Reference, waves: Sequence[WholeFile] = ()
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
    models = [DeviceModel(library, design, numbers) for library, design in zip(libraries, rtl.devices, strict=True)]
    try:
        for model in models:
            _write(model, reference.before)
        with contextlib.ExitStack() as started:
            for model, file in itertools.zip_longest(models, waves):
                started.enter_context(_started(model, file))
            begun = time.perf_counter()
            updated_ps = RtlChain(plan, rtl.devices, models, batches).run(_PATIENCE * rtl.updated_ps[-1])
            seconds = time.perf_counter() - begun
        wrong: dict[str, int] = {}
        values = 0
        for model in models:
            for name, (model_values, trained) in _pairs(model, reference.after).items():
                wrong[name] = int((model_values.view(np.uint32) != trained.view(np.uint32)).sum())
                values += model_values.size
        engines = tuple(_rows(rtl, models))
        modelled_ps = run_mini_batches(_modelled(plan), config.batch, len(batches))
        cycles = sum(model.cycle + 1 for model in models)
        return RtlResult(updated_ps, rtl.updated_ps, modelled_ps, engines, wrong, values, cycles, seconds)
    finally:
        for model in models:
            model.close()


def waves_file(waves: str, device: int) -> pathlib.Path:
    """Return the file of a device's waves: run.vcd is run-device0.vcd of device 0."""
    path = pathlib.Path(waves)
    return path.with_name(f"{path.stem}-device{device}{path.suffix or '.vcd'}")


def waves_files(waves: str) -> Iterator[pathlib.Path]:
    """Yield the files that those of devices' waves may touch: the first, and all that are there."""
    yield from touched(waves_file(waves, 0))
    path = pathlib.Path(waves)
    yield from path.parent.glob(f"{glob.escape(path.stem)}-device*{glob.escape(path.suffix or '.vcd')}")


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
        ins, outs, arrays = design.part.in_channels, design.part.out_channels, weights[design.layer.name]
        for name in filter(arrays.__contains__, ("weight", "master")):
            parameters[place, name] = np.ascontiguousarray(arrays[name][outs.start : outs.stop, ins.start : ins.stop])
        if design.bias is not None:
            parameters[place, "bias"] = arrays["bias"]
    return parameters


def _write(model: DeviceModel, weights: Weights) -> None:
    for (place, name), values in _own(model, weights).items():
        if name != "weight" or not model.design.precision.has_copies:  # which follow their master copy
            model.write(place, name, values)


def _pairs(model: DeviceModel, weights: Weights) -> dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Return for each of a device's parameters what it holds, and what `weights` have."""
    return {
        f"{name} of {model.design.slices[place].part}": (model.read(place, name, values.shape), values)
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
            for phase, engine in (("FP", slice_design.fp), ("EB", slice_design.eb), ("PG", slice_design.pg)):
                if engine is not None:
                    name = f"{phase} of {slice_design.part} on device {design.number}"
                    right = expected[name] // design.period_ps + engine.tail
                    rows.append(EngineRows(name, engine, done[phase, place], right, modelled[name] // design.period_ps))
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
