"""The numerics of a device that is RTL, in a chain whose other devices are emulated: `train
--rtl-device N`.

It takes maps and sends maps as any device does; between, a Verilated model computes them. Its
virtual time is that of the device's clock, as on all other devices, so the run has the bits and the
times of one without RTL. After an update the weights are read from the model, for the test, which
is emulated, and for the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...kernels.optimizers import Sgd
from ..common import InputError, plural, scratch_folder
from ..device import MASTER, DeviceNumerics, MapFormats, Maps, Rule, Rules, SliceNumerics
from ..mapping import DeviceStreams
from ..plan import ChainPlan
from ..schedule import SampleSpan
from .design import Room, designs_of
from .generate import ports_text, top_module
from .model import DeviceModel, update_numbers
from .ports import ERRORS, IMAGES, OUTPUTS, Port
from .verilator import build, find_tools, needs_compiler, sources

Data = NDArray[np.float32]

_PATIENCE = 1 << 22
"""Cycles without a row after which a model counts as stuck."""

_BACKWARD = ("path3_out", "path4_out")


def check_device(plan: ChainPlan) -> None:
    """Check that the device that `rtl_device` names can be RTL, and that there are the tools to
    simulate it.

    Raises:
        InputError: there is no such device, something in the plan has no RTL, or a tool is missing.
    """
    config, device = plan.config, plan.config.rtl_device
    if device is None:
        return
    if device >= plan.devices:
        last = plan.devices - 1
        raise InputError(
            f"`rtl_device` = {device}: there {'is' if last == 0 else 'are'}"
            f" {plural(plan.devices, 'device')}; should be 0 to {last}"
        )
    for key in ("checkpoint", "resume", "checkpoint_every"):
        if getattr(config, key) is not None:
            raise InputError(
                f"`{key}`: the velocities of device {device} are in its RTL; leave out `{key}`"
            )
    if plan.data_parallel.replicas > 1 or plan.faults:
        raise InputError(
            f"`rtl_device` = {device}: RTL supports one chain without faults; leave out replicas"
            " and faults"
        )
    if config.samples is None or config.samples % config.batch:
        given = "all" if config.samples is None else config.samples
        raise InputError(
            f"`rtl_device` = {device}: RTL needs mini-batches of one size; `samples` = {given}"
            f" should be a multiple of `batch`, {config.batch}"
        )
    designs_of(plan)
    needs_compiler(find_tools())


def rtl_numerics(
    plan: ChainPlan,
    streams: DeviceStreams,
    slices: Sequence[SliceNumerics],
    formats: MapFormats | None = None,
) -> RtlNumerics:
    """Build the model of a device of a plan; return its numerics, with the `formats` of its maps.

    Raises:
        InputError: it cannot be built.
    """
    design, batch = designs_of(plan)[streams.device], plan.config.batch
    rooms = [
        Room(batch, batch * max(slice_design.layer.input[1], slice_design.layer.output[1]))
        for slice_design in design.slices
    ]
    with scratch_folder() as folder:
        top = folder / f"{design.module}.sv"
        top.write_text(top_module(design, rooms, plan.network.name), encoding="utf-8")
        library = build(
            find_tools(), top, sources(), ports_text(design), folder / "model", waves=False
        )
        assert plan.config.samples is not None
        rules = Rules(plan.config, 0, plan.config.samples // batch)
        model = DeviceModel(library, design, _numbers(batch, rules(0)))
        return RtlNumerics(streams, slices, model, rules, formats)


def _numbers(samples: int, rule: Rule) -> list[int]:
    """Return what a device takes of an update, as `update_numbers` has it."""
    sgd = rule.optimizer
    assert isinstance(sgd, Sgd)
    numbers = sgd.learning_rate, sgd.momentum, sgd.weight_decay
    return update_numbers(samples, *numbers, rule.loss_scale)


class RtlNumerics(DeviceNumerics):
    """A device's numerics on a model; its slices hold the weights between updates, and compute in
    evaluation.
    """

    def __init__(
        self,
        streams: DeviceStreams,
        slices: Sequence[SliceNumerics],
        model: DeviceModel,
        rules: Rules,
        formats: MapFormats | None,
    ) -> None:
        super().__init__(streams, slices, (), {}, formats)
        self._model, self._design, self._rules = model, model.design, rules
        self._runs, self._updates = False, 0

    async def forward(
        self, span: SampleSpan, arrived: Maps, version: int, samples: NDArray[np.int64]
    ) -> Maps:
        """See `DeviceNumerics`."""
        self._start()
        for path, port in enumerate(self._model.inputs):
            if port.name == IMAGES:
                assert self.source is not None
                images = self.streams.slices[0].layer.reads
                self._put(
                    path, self._rounded("activations", self.source.images(span), images, samples)
                )
            elif port.key is not None and port.key.path.is_forward:
                self._put(path, arrived[port.key])
        made = self._take(
            span, [port for port in self._model.outputs if port.name not in _BACKWARD]
        )
        if OUTPUTS in made and self.head is not None:
            self.head.forward(span, made[OUTPUTS])
        return self._by_key(made)

    async def backward(
        self,
        span: SampleSpan,
        arrived: Maps,
        version: int,
        samples: NDArray[np.int64] | None = None,
    ) -> Maps:
        """See `DeviceNumerics`."""
        for path, port in enumerate(self._model.inputs):
            if port.name == ERRORS:
                assert self.head is not None
                self._put(path, self._scaled(self.head.backward(span)))
            elif port.key is not None and not port.key.path.is_forward:
                self._put(path, arrived[port.key])
        return self._by_key(
            self._take(span, [port for port in self._model.outputs if port.name in _BACKWARD])
        )

    def gradient(self, whole: SampleSpan) -> None:
        """See `DeviceNumerics`: PG goes on by itself."""

    def update(self, samples: int, rule: Rule, *, keeps: bool) -> None:
        """See `DeviceNumerics`: wait for the model's update, and read its weights."""
        model = self._model
        end = model.cycle + _PATIENCE
        while not model.done:
            if model.run(end) or model.cycle >= end:
                raise RuntimeError(f"device {self._design.number}: its RTL does not update")
        for place, numerics in enumerate(self.slices):
            # Versions are counted as ever; the numbers are those that the model has updated.
            numerics.repeat(keeps=keeps)
            numerics.put_weights(model.read(place, "weight", numerics.weights().shape))
            if numerics.sfu is not None and numerics.sfu.bias is not None:
                bias = numerics.sfu.bias.newest
                bias[...] = model.read(place, "bias", bias.shape)
        # The model begins with the next update as soon as it has all errors.
        self._updates += 1
        model.settle(_numbers(samples, self._rules(self._updates)))
        self._newest += 1

    def _start(self) -> None:
        """Write the weights, which may be those of a file, and end the reset."""
        if self._runs:
            return
        for place, numerics in enumerate(self.slices):
            # Where there are master copies, what engines read follows them.
            trained = numerics.state()["weight"]
            name = MASTER if MASTER in trained else "weight"
            self._model.write(place, name, trained.get(MASTER, trained["value"]))
            if numerics.sfu is not None and numerics.sfu.bias is not None:
                self._model.write(place, "bias", numerics.sfu.bias.newest)
        self._model.start()
        self._runs = True

    def _put(self, path: int, maps: Data) -> None:
        for row in maps.reshape(-1, maps.shape[2] * maps.shape[3]):
            self._model.put(path, self._model.cycle + 1, row)

    def _take(self, span: SampleSpan, ports: Sequence[Port]) -> dict[str, Data]:
        """Run until all rows of a span have left on these paths; return their maps."""
        model = self._model
        rows: dict[str, list[Data]] = {port.name: [] for port in ports}
        due = {port.name: span.samples * port.rows for port in ports}
        end = model.cycle + _PATIENCE
        while any(len(rows[name]) < due[name] for name in due):
            left = model.run(end)
            if not left and model.cycle >= end:
                raise RuntimeError(f"device {self._design.number}: its RTL sends no rows")
            for path, row in left.items():
                rows[model.outputs[path].name].append(row)
                end = model.cycle + _PATIENCE
        return {
            port.name: (
                np.stack(rows[port.name]).reshape(
                    span.samples, port.rows, port.columns, port.channels
                )
            )
            for port in ports
        }

    def _by_key(self, made: Mapping[str, Data]) -> Maps:
        maps = {
            port.key: made[port.name]
            for port in self._model.outputs
            if port.key is not None and port.name in made
        }
        return Maps(maps)
