"""The host that a benchmark ran on: figures mean little without it."""

from __future__ import annotations

import importlib.metadata
import pathlib
import platform
from typing import Any

import numpy as np

from ... import __version__
from ...launch import usable_cores
from ..common import system_name


def describe_host(torch_version: str | None) -> dict[str, Any]:
    """Return the processor, the number of cores that this process may use, the micro-kernel's form, and versions."""
    from ...kernels.form import FORM

    return {
        "cpu": cpu_model(pathlib.Path("/proc/cpuinfo")),
        "cores": usable_cores(),
        "form": FORM.name,
        "platform": system_name(),
        "versions": {
            "emuchain": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": importlib.metadata.version("numba"),
            "llvmlite": importlib.metadata.version("llvmlite"),
            "torch": torch_version,
        },
    }


def cpu_model(cpuinfo: pathlib.Path) -> str:
    """Return the processor's name as Linux gives it, or else its architecture."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name") and ":" in line]
    return names[0] if names else platform.machine()


def host_line(host: dict[str, Any]) -> str:
    """Return the host as one line of text."""
    versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items() if version)
    return f"{host['cpu']}, {host['cores']} cores, form {host['form']}; {versions}"
