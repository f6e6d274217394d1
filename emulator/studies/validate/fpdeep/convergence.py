"""Convergence with slightly unaligned weights (FPDeep, sections 4.4 and 6.4, Fig. 16), from training runs (runs.py)."""

from __future__ import annotations

from ..measure import Measure, Measured
from .runs import all_runs, final_accuracies


def _unaligned() -> Measured:
    """Count the networks whose accuracies with `fpdeep` and `sync` differ by more than both standard errors."""
    runs, said, differing = all_runs(), [], 0
    for network, means in final_accuracies(runs).items():
        sync, fpdeep = means["sync"], means["fpdeep"]
        seeds = sum(run.network == network and run.schedule == "fpdeep" for run in runs)
        differing += fpdeep.differs(sync)
        apart = f"{fpdeep.value - sync.value:+.2f} points, {seeds} seeds"
        said.append(f"{network} {fpdeep.shown(2)} % against {sync.shown(2)} % ({apart})")
    return Measured(differing, f"networks that differ by more than both standard errors: {'; '.join(said)}")


MEASURES: dict[str, Measure] = {"fpdeep-unaligned-convergence": _unaligned}
