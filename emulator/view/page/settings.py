"""Settings: configuration, versions, and the texts of network, cluster and mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .parts import Section, Table, Text
from .source import Run

_NOT_COMPARED = ("out", "progress", "throttle")


def settings(run: Run) -> Section:
    """Return the section about a run's settings."""
    config = [[key, spelt(value)] for key, value in run.results.config.items()]
    versions = [[name, version] for name, version in run.results.versions.items()]
    texts = tuple(Text(name, text.strip()) for name, text in run.results.descriptions.items() if text.strip())
    return Section(
        "Configuration and versions",
        _said(run.results.versions),
        tables=(
            Table("Configuration", ["key", "value"], config, ("key", "value")),
            Table("Versions", ["of", "version"], versions, ("of", "version")),
        ),
        texts=texts,
    )


def _said(versions: Mapping[str, str]) -> str:
    shown = ("emuchain", "python", "numpy", "numba")
    return f"Trained with {', '.join(f'{name} {versions[name]}' for name in shown if name in versions)}."


def differences(runs: Sequence[Run]) -> list[str]:
    """Return the keys of the configuration in which runs differ, in their order."""
    keys = dict.fromkeys(key for run in runs for key in run.results.config)
    return [
        key
        for key in keys
        if key not in _NOT_COMPARED and len({spelt(run.results.config.get(key)) for run in runs}) > 1
    ]


def spelt(value: Any) -> str:
    """Return a setting as text; a dash where it was left open."""
    if isinstance(value, np.ndarray | tuple):
        value = ", ".join(map(str, value))
    return "–" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)
