"""What tests of pages share: the results of short runs, as they are read from files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emuchain.emulator.api import train
from emuchain.emulator.run import Results, read_results
from emuchain.emulator.view.page import Run

Trained = Callable[..., Results]

SHORT = {"samples": 64, "test_samples": 20, "batch": 32, "epochs": 2}


@pytest.fixture(scope="session")
def trained_results(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Trains with some keys of a configuration, and reads the results from their file."""

    def run(network: Any = "quick-cifar", cluster: Any = "vc709", **keys: Any) -> Results:
        file = tmp_path_factory.mktemp("run") / "run.h5"
        train(network, cluster, out=str(file), **{**SHORT, **keys})
        return read_results(file)

    return run


@pytest.fixture(scope="session")
def chain(trained_results: Trained) -> Run:
    """A run of three devices."""
    return Run.of("chain", trained_results(devices=3))


@pytest.fixture(scope="session")
def replicas(trained_results: Trained) -> Run:
    """A run of two replicas of two devices, which compress gradients."""
    return Run.of("replicas", trained_results(devices=2, replicas=2, compress="inceptionn:-10"))
