"""`emuchain show`: a results file as an answer with tables."""

from __future__ import annotations

import numpy as np

from .. import view
from ..common import format_time_ps, number, percent, plural
from ..config import Config
from ..number import KINDS
from ..run import Results, Usage


def show_results(results: Results, full: bool) -> None:
    """Print results: an answer, then tables of the most loaded devices and links, or of all."""
    view.print_answer(_answer(results))
    _history(results)
    usage = results.usage
    if usage is not None:
        view.usage_rows(usage, full)
    if results.resources:
        view.resource_rows(results.resources, results.virtual_time_ps)
    if results.exchange:
        view.exchange_rows(results.exchange, results.history["virtual_time_ps"])
    if results.rounding and results.epochs:
        view.rounding_rows(results.rounding, KINDS)
    if results.weights:
        _weights(results)
    print()
    versions = results.versions
    shown = ("emuchain", "python", "numpy", "numba")
    view.say(
        "versions: " + ", ".join(f"{name} {versions[name]}" for name in shown if name in versions)
    )
    view.say(f"mpi: {versions.get('mpi', 'unknown')}; on {versions.get('platform', 'unknown')}")


def _answer(results: Results) -> list[view.Line]:
    config, usage, missing = results.config, results.usage, results.missing_bytes
    replicas = f"{config['replicas']} times " if config.get("replicas", 1) > 1 else ""
    title = f"{config['network']} on {replicas}{plural(config['devices'], 'device')}"
    codec = (
        f", gradients by {config['compress']}" if config.get("compress", "none") != "none" else ""
    )
    how = f"{config['schedule']}, batch {config['batch']}, seed {config['seed']}{codec}"
    samples = plural(config["samples"], results.sample_noun)
    lines = [view.Line(f"{how}, data {config['data']} ({samples}), cluster {config['cluster']}")]
    keys = ("cluster", "schedule", "batch", "devices", "samples")
    differing = {
        key: config[key] for key in keys if config[key] != Config.model_fields[key].default
    }
    to_try = {"network": config["network"], **differing}
    tail = [*lines, view.next_line(view.command_line("simulate", None, to_try))]
    if not results.epochs:
        return [view.Line(f"{title}: no epoch was finished"), *tail]
    last, history = results.epochs - 1, results.history
    host_s = history["host_time_s"][last]
    return [
        view.Line(
            f"{title}: {number(results.images_per_s)}"
            f" {results.sample_noun}s/s{view.ignored(missing)}"
        ),
        view.outcome_line(
            results.epochs,
            int(results.config["epochs"]),
            history["train_loss"][last],
            results.test_accuracy,
            history["test_loss"][last],
        ),
        *([] if results.bits is None else [view.bits_line(*results.bits)]),
        view.Line(
            f"time: {format_time_ps(results.virtual_time_ps)} on the cluster; {host_s:.1f} s on the"
            " host"
        ),
        *(_busiest_resource(results) if usage is None else _busiest(usage, missing)),
        *tail,
    ]


def _busiest_resource(results: Results) -> list[view.Line]:
    """Return which resource of a pair is busy longest."""
    table = results.resources
    if not table:
        return []
    place = int(np.argmax(table["busy_ps"]))
    share = percent(int(table["busy_ps"][place]) / max(1, results.virtual_time_ps))
    return [
        view.Line(
            f"busiest: {table['resource'][place]}, {share} of the time; longest:"
            f" {table['longest'][place]}"
        )
    ]


def _busiest(usage: Usage, missing: int) -> list[view.Line]:
    busy = [
        (share, phase, device.device)
        for device in usage.devices
        for phase, share in device.busy.items()
    ]
    share, phase, device = max(busy)
    text = f"busiest: {phase} of device {device}, {percent(share)} of the time"
    port = max(usage.devices, key=lambda device: device.port_utilisation)
    if port.port_bytes:
        text += f"; memory of device {port.device}, {percent(port.port_utilisation)}"
    if usage.links:
        link = max(usage.links, key=lambda link: link.utilisation)
        text += f"; link {link.sender} -> {link.receiver}, {percent(link.utilisation)}"
    return [
        view.Line(text),
        view.Line(
            view.memory_verdict(missing, [device.memory.off_chip for device in usage.devices])
        ),
    ]


def _history(results: Results) -> None:
    rows = view.epoch_rows(results.history)
    columns = [
        "epoch",
        "rate",
        "loss",
        "accuracy",
        "test loss",
        "test accuracy",
        "virtual time",
        "host time",
    ]
    view.table("History" if rows else "History: no epoch was finished", columns, rows)


def _weights(results: Results) -> None:
    rows = []
    with_bias = set()
    for layer, arrays in results.weights.items():
        if any(array.startswith("bias") for array in arrays):
            with_bias.add(layer)
    for name, weight in results.weight_arrays.items():
        biased = name in with_bias or name.rpartition(" ")[0] in with_bias
        norm = float(np.sqrt(np.square(weight, dtype=np.float64).mean()))
        rows.append(
            [name, "x".join(map(str, weight.shape)), f"{norm:.5f}", "yes" if biased else "no"]
        )
    view.table(
        "Weights",
        ["layer", "oc x ic x kh x kw", "root mean square", "bias"],
        rows,
        names=("layer",),
    )
