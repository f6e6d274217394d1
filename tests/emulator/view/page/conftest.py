"""What tests of pages share: the results of short runs, as they are read from files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
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


@pytest.fixture(scope="session")
def seeds(chain: Run) -> list[Run]:
    """Three runs that differ in their seeds, and in the files that they wrote; their accuracies are
    known.
    """

    def of_seed(seed: int, accuracies: list[float]) -> Run:
        config = {
            **chain.results.config,
            "seed": seed,
            "out": f"run-seed{seed}.h5",
            "log": f"csv:{seed}.csv",
        }
        history = {**chain.results.history, "test_accuracy": np.array(accuracies)}
        return Run.of(
            f"run-seed{seed}", dataclasses.replace(chain.results, config=config, history=history)
        )

    return [of_seed(1, [0.25, 0.5]), of_seed(2, [0.25, 0.75]), of_seed(3, [0.25, 0.625])]
