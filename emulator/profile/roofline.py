"""The costs of a stage on a board: a roofline for each layer and phase.

The board has all its multipliers work on one layer after the other, and its memory port moves what is off chip at the
same time (`on_chip.py`). So FP, EB and PG of a layer each take the longer of

    samples * multiply-accumulates * clock period / multipliers        and        bytes off chip / bandwidth

for a micro-batch, and the stage takes their sum. A layer that takes images has no EB.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...kernels.number import FP32, NumberFormat
from ..cluster import Board
from ..common import InputError
from ..mapping import COPIES, Slice
from ..network import Phase
from ..schedule import StageCosts
from .on_chip import ALL, Data, DataBytes, LayerData, PartNeeds, Phases, choose_off_chip


class DoesNotFit(InputError):
    """A stage's data find no place: `needed_bytes` in a memory of `capacity_bytes`."""

    def __init__(self, stage: int, needed_bytes: int, capacity_bytes: int, place: str, owner: str) -> None:
        super().__init__(f"stage {stage}: needs {needed_bytes:,} bytes {place}; {owner} has {capacity_bytes:,}")
        self.stage, self.needed_bytes, self.capacity_bytes = stage, needed_bytes, capacity_bytes
        self._place, self._owner = place, owner

    def of_stage(self, stage: int) -> DoesNotFit:
        """Return the same error of another stage."""
        return DoesNotFit(stage, self.needed_bytes, self.capacity_bytes, self._place, self._owner)


@dataclasses.dataclass(frozen=True)
class LayerCosts:
    """What a layer of a stage takes for a micro-batch: times in ps, bytes over the memory port, what is off chip.

    `stored_bytes` are those of all its data, on chip and off chip.
    """

    part: Slice
    times_ps: Phases
    moved_bytes: Phases
    stored_bytes: DataBytes
    off_chip: Data
    bound_by_memory: tuple[Phase, ...]


@dataclasses.dataclass(frozen=True)
class BoardStage:
    """The costs of a stage on a board, its layers, and the bytes that it has on chip and off chip."""

    costs: StageCosts
    layers: tuple[LayerCosts, ...]
    on_chip_bytes: int
    off_chip_bytes: int

    @property
    def data_on_chip(self) -> DataBytes:
        """Bytes of the data that it has on chip; `on_chip_bytes` includes buffers, too."""
        weights, gradients, features = (
            sum(layer.stored_bytes[place] for layer in self.layers if not layer.off_chip & data)
            for place, data in enumerate(ALL)
        )
        return DataBytes(weights, gradients, features)

    @property
    def moved_bytes(self) -> int:
        """Bytes over the memory port for a micro-batch."""
        return sum(sum(layer.moved_bytes) for layer in self.layers)

    @property
    def bound_by_memory(self) -> bool:
        """Whether the memory port makes a phase of a layer take longer."""
        return any(layer.bound_by_memory for layer in self.layers)


def board_stage(
    slices: Sequence[Slice],
    board: Board,
    samples: int,
    kept_samples: int,
    *,
    stage: int = 0,
    weight_copies: int = 1,
    number: NumberFormat = FP32,
    copies: int = COPIES,
    parameters_together: bool = False,
) -> BoardStage:
    """Return the costs of slices of consecutive layers as a stage of a pipeline on one board.

    Args:
        slices: the stage's slices, in the order of the layers.
        board: its multipliers, clock and memory.
        samples: samples of a micro-batch.
        kept_samples: samples whose features are kept at a time, from FP until PG.
        stage: the stage's number, for messages.
        weight_copies: versions of the weights that are kept; the gradients come in addition, once.
        number: the format of all values.
        copies: arrays for each parameter: itself, its gradient, and what an optimiser keeps beside them.
        parameters_together: whether weights and gradients of all layers are off chip if not all of them fit.

    Raises:
        DoesNotFit: they need more memory than there is, on chip and off chip.
    """
    needs = [PartNeeds.of(part, number, copies) for part in slices]
    return stage_of_needs(
        needs,
        board,
        samples,
        kept_samples,
        stage=stage,
        weight_copies=weight_copies,
        parameters_together=parameters_together,
    )


def stage_of_needs(
    needs: Sequence[PartNeeds],
    board: Board,
    samples: int,
    kept_samples: int,
    *,
    stage: int = 0,
    weight_copies: int = 1,
    parameters_together: bool = False,
) -> BoardStage:
    """Return the same as `board_stage`, for slices whose needs are known.

    Raises:
        DoesNotFit: they need more memory than there is, on chip and off chip.
    """
    layers = [_layer_data(part, board, samples, kept_samples, weight_copies) for part in needs]
    buffers = max(part.buffer_bytes for part in needs)
    needed = sum(sum(layer.rooms) for layer in layers)
    room, port = board.on_chip_memory_bytes - buffers, board.off_chip_mbytes_per_s
    off_chip = [Data.NONE] * len(layers)
    if needed > room:
        if room < 0:
            raise DoesNotFit(stage, buffers, board.on_chip_memory_bytes, "of buffers on chip", board.name)
        if not port:
            owner = f"{board.name}, without off-chip memory of known bandwidth,"
            raise DoesNotFit(stage, needed + buffers, board.on_chip_memory_bytes, "on chip", owner)
        never = Data.WEIGHTS | Data.GRADIENTS if parameters_together else Data.NONE
        off_chip = choose_off_chip(layers, room, port, never)
    stored = sum(layer.room(data) for layer, data in zip(layers, off_chip, strict=True))
    capacity = board.off_chip_memory_bytes
    if stored and capacity is not None and stored > capacity:
        raise DoesNotFit(stage, stored, capacity, "off chip", board.name)
    layer_costs = tuple(
        _layer_costs(part.part, layer, data, port) for part, layer, data in zip(needs, layers, off_chip, strict=True)
    )
    forward, eb, pg = (sum(layer.times_ps[phase] for layer in layer_costs) for phase in range(3))
    costs = StageCosts(
        forward,
        eb + pg,
        pg,
        feature_bytes=samples * sum(part.feature_bytes for part in needs),
        parameter_bytes=sum(part.parameter_bytes for part in needs),
    )
    return BoardStage(costs, layer_costs, needed - stored + buffers, stored)


def _layer_data(needs: PartNeeds, board: Board, samples: int, kept_samples: int, weight_copies: int) -> LayerData:
    all_macs = needs.macs, needs.eb_macs, needs.pg_macs
    work_ps, eb_ps, pg_ps = (-(-samples * macs * board.period_ps // board.multipliers) for macs in all_macs)
    layer, parameters, features = needs.part.layer, needs.parameter_bytes, needs.feature_bytes
    # A step of all samples needs the one before: activations stand between the two, and each goes through the weights.
    steps = layer.output[1] if layer.operation.recurs else 0
    steps_ps = steps * board.activation_ps
    return LayerData(
        Phases(work_ps + steps_ps, eb_ps + steps_ps if layer.has_eb else 0, pg_ps),
        DataBytes(weight_copies * parameters, (needs.copies - 1) * parameters, kept_samples * features),
        DataBytes(max(1, steps) * parameters, parameters if needs.copies > 1 else 0, samples * features),
    )


def _layer_costs(part: Slice, layer: LayerData, off_chip: Data, mbytes_per_s: int) -> LayerCosts:
    times = layer.times_ps(off_chip, mbytes_per_s)
    longer = [phase for phase, time, work in zip(Phase, times, layer.work_ps, strict=True) if time > work]
    return LayerCosts(part, times, layer.moved(off_chip), layer.rooms, off_chip, tuple(longer))
