"""Measured layers as a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from emuchain.emulator.calibrate import ProfileFit, calibrate_board
from emuchain.emulator.plan import network_of
from emuchain.emulator.profile import load_profile

from .synthetic import write_csv

NETWORK = "quick-cifar"
COLUMNS = ["network", "layer", "phase", "samples"]


def layer_names() -> list[str]:
    return [layer.name for layer in network_of(NETWORK).layers]


def rows_of(scale: float = 1.0) -> list[list[object]]:
    """FP, EB and PG of each layer; the first one has no EB."""
    rows: list[list[object]] = []
    for place, name in enumerate(layer_names()):
        phases = {"FP": 100, "EB": 110, "PG": 130} if place else {"FP": 100, "PG": 130}
        rows += [
            [NETWORK, name, phase, 16, us * (place + 1) * scale] for phase, us in phases.items()
        ]
    return rows


def test_a_profile_loads_with_the_times_that_were_measured(tmp_path: Path) -> None:
    out = tmp_path / "profile.toml"
    path = write_csv(tmp_path / "layers.csv", [*COLUMNS, "us"], rows_of())
    done = calibrate_board(path, "vc709", out=out)
    assert isinstance(done.fit, ProfileFit)
    profile = load_profile(out, network_of(NETWORK))
    assert [layer.name for layer in profile.layers] == layer_names()
    first, second, *_ = profile.times("VC709", 16)
    assert (first.forward_ps, first.backward_ps, first.pg_ps) == (
        100_000_000,
        130_000_000,
        130_000_000,
    )
    assert (second.forward_ps, second.backward_ps, second.pg_ps) == (
        200_000_000,
        480_000_000,
        260_000_000,
    )
    assert any("nothing is known of its scatter" in warning for warning in done.warnings)


def test_cycles_are_of_the_boards_clock(tmp_path: Path) -> None:
    us = calibrate_board(write_csv(tmp_path / "us.csv", [*COLUMNS, "us"], rows_of()), "vc709")
    cycles = calibrate_board(
        write_csv(tmp_path / "cycles.csv", [*COLUMNS, "cycles"], rows_of(100)), "vc709"
    )
    assert isinstance(us.fit, ProfileFit) and isinstance(cycles.fit, ProfileFit)
    assert cycles.fit.times == us.fit.times


def test_of_several_runs_the_mean_is_taken(tmp_path: Path) -> None:
    paths = [
        write_csv(tmp_path / f"{number}.csv", [*COLUMNS, "us"], rows_of(scale))
        for number, scale in enumerate((0.5, 1, 2))
    ]
    fit = calibrate_board(paths, "vc709").fit
    assert isinstance(fit, ProfileFit)
    assert fit.times[0].forward_us == pytest.approx(100)
    assert fit.rms is not None and fit.rms > 0.5
    assert fit.evidence.runs == 3


def test_backward_may_be_one_time(tmp_path: Path) -> None:
    rows = [[NETWORK, "conv1", "forward", 8, 500], [NETWORK, "conv1", "backward", 8, 1100]]
    fit = calibrate_board(write_csv(tmp_path / "l.csv", [*COLUMNS, "us"], rows), "vc709").fit
    assert isinstance(fit, ProfileFit)
    [time] = fit.times
    assert (time.forward_us, time.backward_us, time.gradient_us) == pytest.approx((500, 1100, None))
