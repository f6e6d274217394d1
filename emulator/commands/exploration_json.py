"""An exploration as one JSON object."""

from __future__ import annotations

from typing import Any

from ..explore import DATA_PARALLEL, Candidate, Exploration, Question


def exploration_as_json(devices: str, question: Question, found: Exploration) -> dict[str, Any]:
    """Return an exploration as one JSON object; times in ps."""
    winner, cut = found.winner, found.best_cut
    return {
        "network": question.stages_of(winner.samples).name,
        "devices": devices,
        "batch": question.batch,
        "winner": _candidate(question, winner),
        "runner_up": None if found.runner_up is None else _candidate(question, found.runner_up),
        "margin": found.margin,
        "bound_ps": found.bound_ps,
        "gap": found.gap,
        "turn": None
        if found.turn is None
        else {"parameter": found.turn.parameter, "value": found.turn.value, "winner": found.turn.winner},
        "steps": [
            {"step": step.name, "reason": step.reason}
            for step in (cut.partition.steps if cut and cut.partition else ())
        ],
        "candidates": [_candidate(question, each) for each in found.candidates],
    }


def _candidate(question: Question, candidate: Candidate) -> dict[str, Any]:
    said: dict[str, Any] = {
        "schedule": candidate.name,
        "micro_batch": candidate.samples,
        "micro_batches": candidate.micro_batches,
        "time_ps": candidate.time_ps,
        "why_not": candidate.why_not or None,
        "limit": candidate.limit or None,
    }
    if candidate.name == DATA_PARALLEL:
        return {
            **said,
            "micro_batches_by_device": list(candidate.dealt),
            "compute_ps": candidate.compute_ps,
            "exchange_ps": candidate.exchange_ps,
        }
    cut, timeline = candidate.partition, candidate.timeline
    if cut is None or timeline is None:
        return said
    stages = question.stages_of(candidate.samples)
    return {
        **said,
        "bubble": float(timeline.bubble),
        "stages": [
            {
                "on": stages.kinds[number],
                "layers": stages.said(begin, end),
                "forward_ps": costs.forward_ps,
                "backward_ps": costs.backward_ps,
                "transfer_ps": costs.transfer_ps,
                "feature_bytes": int(kept * costs.feature_bytes),
                "parameter_bytes": costs.parameter_bytes,
            }
            for number, ((begin, end), costs, kept) in enumerate(
                zip(cut.cut.spans, cut.costs, timeline.features, strict=True)
            )
        ],
    }
