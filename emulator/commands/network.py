"""`emuchain network`: networks as tables, their descriptions as TOML, and their operator graphs as JSON."""

from __future__ import annotations

import json
import math
import shlex

from ..common import decoded, percent, plural, toml_file, write_whole
from ..network import Network, load_network, operator_graph, zoo
from ..view import layer_rows, next_line, print_answer, table
from .frame.output import tell_notes


def print_network(name: str | None, *, as_toml: bool, as_json: bool, out: str | None) -> None:
    """Print a network in the form that is asked for, or write its description; without a name, list all.

    Raises:
        InputError: there is no such network, or the file cannot be written.
    """
    if name is None:
        list_networks()
    elif as_json:
        graph_as_json(name)
    elif as_toml or out is not None:
        describe_network(name, out)
    else:
        show_network(name)


def list_networks() -> None:
    """Print a table of the networks that come with emuchain."""
    rows = []
    print_answer(
        [
            f"{len(zoo())} networks come with emuchain; your own are TOML or ONNX files",
            next_line("emuchain network vgg16-cifar"),
        ]
    )
    for known in zoo():
        loaded = load_network(known)
        size = "x".join(map(str, loaded.input))
        rows.append(
            [known, size, str(len(loaded.layers)), f"{loaded.macs / 1e6:,.1f}", f"{loaded.parameters / 1e6:.2f} M"]
        )
    table("Networks", ["name", "input", "layers", "MMAC", "parameters"], rows, names=("name",))


def show_network(name: str) -> None:
    """Print a network's layers.

    Raises:
        InputError: there is no such network.
    """
    loaded = load_network(name)
    most_work = max(loaded.layers, key=lambda layer: layer.macs)
    most_weights = max(loaded.layers, key=lambda layer: math.prod(layer.weight_shape))
    weights = math.prod(most_weights.weight_shape)
    print_answer(
        [
            f"{loaded.name}: {plural(loaded.parameters, 'parameter')} in {plural(len(loaded.layers), 'layer')}",
            f"work: {loaded.macs / 1e6:,.2f} million multiply-accumulates (MMAC) a forward pass",
            _inputs(loaded),
            *([f"note: {loaded.note}"] if loaded.note else []),
            f"most work: {most_work.name}, {percent(most_work.macs / loaded.macs)}",
            f"most weights: {most_weights.name}, {percent(weights / loaded.parameters)}",
            next_line(shlex.join(["emuchain", "plan", name, "--devices", "8"])),
        ]
    )
    layer_rows(loaded)


def _inputs(network: Network) -> str:
    values, steps, _ = network.input
    said = f"images of {'x'.join(map(str, network.input))} (channels, rows, columns)"
    if network.takes_sequence:
        said = f"sequences of {plural(steps, 'step')} of {plural(values, 'value')}"
    repetition = ", each step" if network.result_steps > 1 else ""
    return f"{said} in {plural(network.classes, 'class')}{repetition}"


def graph_as_json(name: str) -> None:
    """Print a network's operator graph as JSON: operators with their operations per sample, edges with their shapes.

    Raises:
        InputError: there is no such network.
    """
    network = load_network(name)
    graph = operator_graph(network)
    operators = [
        {"layer": operator.layer, "phase": operator.phase.value, "operations": operator.operations}
        for operator in graph.operators
    ]
    edges = [{"from": str(edge.source), "to": str(edge.target), "shape": edge.shape} for edge in graph.edges]
    graph_json = {
        "network": network.name,
        "parameters": network.parameters,
        "operations": graph.operations,
        "operators": operators,
        "edges": edges,
    }
    print(json.dumps(graph_json, indent=2))


def describe_network(name: str, out: str | None) -> None:
    """Print a network's TOML description, or write it into the file `out`.

    Raises:
        InputError: there is no such network, or the file cannot be written.
    """
    loaded = load_network(name)
    tell_notes([loaded.note])
    text = decoded(loaded.text.encode())
    if out is None:
        print(text, end="")
        return
    write_whole(toml_file(out, "out", "network.toml"), text)
