"""Memory of the fullest GPU under each schedule, beside what the paper's authors measured (Tables 4
and 9).

A layer of a transformer keeps s b h (34 + 5 a s / h) bytes of a micro-batch from F to B, of which
32 s b h until W (Table 1, after Korthikanti et al., 2023), with s tokens, b samples, h features and
a heads. A parameter takes 18 bytes with Adam: a weight of two, gradient, master copy and two
moments of four each. The first and the last stage have a layer less, and the embedding and the
classifier in its place (section 5.1).
"""

from __future__ import annotations

from fractions import Fraction

from ...emulator.schedule import Fold, Kind, Schedule
from ..accl.rows import Row, witnesses
from ..claim import Measured
from .bubbles import MODELS, TOKENS, Model, order_of

_VOCABULARY = 50304
_PARAMETER_BYTES = 18
_SPLIT = ("zb-h1", "zb-2p")
"""Schedules with W apart from B."""


def kept_layers(
    schedule: Schedule, layers: int, late: Fraction | None
) -> list[tuple[int, Fraction]]:
    """Return for each GPU its layers, and the most layers' features that it keeps at a time.

    Args:
        schedule: the order of one mini-batch.
        layers: those of a stage; the first and the last have one less.
        late: the part of features that is kept from B to W; None where B includes W.
    """
    fold = Fold(schedule.devices, schedule.chunks, schedule.in_v)
    ends = 0, fold.count - 1
    change = {Kind.FORWARD: Fraction(1), Kind.BACKWARD: (late or 0) - Fraction(1)}
    change |= {Kind.GRADIENT: -(late or Fraction(0)), Kind.UPDATE: Fraction(0)}
    kept = []
    for device, program in schedule.programs(range(schedule.devices)).items():
        own = [layers - (stage in ends) for stage in fold.stages(device)]
        held = most = Fraction(0)
        for action in program:
            held += own[action.chunk] * change[action.kind]
            most = max(most, held)
        kept.append((sum(own), most))
    return kept


def _parameters(model: Model, layers: int, *, is_first: bool, is_last: bool) -> int:
    """Return the parameters of a GPU with `layers` layers."""
    of_ends = is_first * (_VOCABULARY + TOKENS) + is_last * _VOCABULARY
    return 12 * layers * model.features**2 + of_ends * model.features


def gbytes(row: Row) -> float:
    """Return the memory of the fullest GPU of a row's schedule, in GB."""
    model, name = MODELS[row["model"]], row["schedule"]
    devices = int(row["stages"])
    stages = devices if name != "interleaved" else int(row["layers"])  # a layer is a stage
    late = model.late if name in _SPLIT else None
    per_layer = int(row["samples_per_micro_batch"]) * model.kept_bytes
    needed = []
    for device, (layers, kept) in enumerate(
        kept_layers(order_of(row), int(row["layers"]) // stages, late)
    ):
        ends = {"is_first": device == 0, "is_last": device == devices - 1}
        weights = _PARAMETER_BYTES * _parameters(model, layers, **ends)
        needed.append(weights + float(kept) * per_layer)
    return max(needed) * 1e-9


def memory_percent(schedules: str) -> Measured:
    """Return by how many percent the memory of some schedules differs at most from the measured."""
    off = []
    for row in witnesses("zero_bubble.csv"):
        if row["schedule"] in schedules.split():
            off.append(100 * (gbytes(row) / float(row["gbytes"]) - 1))
    worst = max(off, key=abs)
    return Measured(abs(worst), f"%: {len(off)} rows, {min(off):+.4f} to {max(off):+.4f}")
