"""What of the bytes on links stays in single precision, where a run's formats are narrow."""

from __future__ import annotations

from collections import Counter

from ..common import percent
from ..mapping import DataPath
from ..plan import ChainPlan
from .answer import Line

_WORDS = {
    DataPath.PARTIAL_ACTIVATIONS: "partial activations",
    DataPath.INPUT_ERRORS: "sums of input errors",
    DataPath.PARAMETER_GRADIENTS: "gradients of balanced parameters",
    DataPath.ACTIVATIONS: "activations",
    DataPath.OUTPUT_ERRORS: "output errors",
    DataPath.PARAMETERS: "balanced parameters",
}


def wide_lines(plan: ChainPlan) -> list[Line]:
    """Return which share of the fullest direction's bytes stays in fp32, and why; nothing if all does."""
    if plan.config.precision.is_single or plan.stages is not None:
        return []
    routes = plan.timing.routes
    directions = [(*hop, routes.streams(hop)) for hop in routes.carried]
    sizes = [sum(stream.sample_bytes for stream in streams) for _, _, streams in directions]
    if not any(sizes):
        return []
    sender, receiver, streams = directions[sizes.index(max(sizes))]
    wide: Counter[DataPath] = Counter()
    for stream in streams:
        if stream.single_bytes:
            wide[stream.path] += stream.single_bytes
    share = percent(sum(wide.values()) / max(sizes))
    what = " and ".join(_WORDS[path] for path, _ in wide.most_common())
    where = f"{sender} to {receiver}"
    said = f"{share} of its bytes stay fp32{': ' + what if what else ''}"
    return [Line(f"fullest link, {where}: {max(sizes) / 1e3:,.1f} kB/sample; {said}")]
