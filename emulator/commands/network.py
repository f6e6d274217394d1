"""`emuchain network`: networks as tables, their descriptions as TOML, and their operator graphs as
JSON.
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import view
from ..common import decoded, percent, plural, toml_file, write_whole
from .frame.command import Answer, FileCommand, json_option
from .frame.kernels import starting
from .frame.named import NETWORK, OUTPUT, switch
from .frame.output import tell_notes

if TYPE_CHECKING:
    from ..network import Network


@click.command(cls=FileCommand)
@click.argument("name", type=NETWORK, required=False)
@switch("--toml", "Print its TOML description.", "as_toml")
@click.option("--out", type=OUTPUT, metavar="FILE.toml", help="Write its TOML description.")
@json_option("Print its operator graph as one JSON object.")
def network(name: str | None, as_toml: bool, out: str | None) -> Answer | None:
    """Describe a network, or list those that come with emuchain.

    NAME is one of these, or a TOML or ONNX file.
    """
    if name is None and (as_toml or out is not None):
        _need_name()
    with starting():
        from ..network import load_network

    if name is None:
        return Answer(_list_networks, _need_name)
    if as_toml or out is not None:
        describe_network(name, out)
        return None
    loaded = load_network(name)
    return Answer(lambda: show_network(name, loaded), lambda: _graph_as_json(loaded))


def _need_name() -> NoReturn:
    raise click.UsageError("--toml, --out and --json need the NAME of a network")


def _list_networks() -> None:
    """Print a table of the networks that come with emuchain."""
    from ..network import load_network, zoo

    rows = []
    view.print_answer(
        [
            f"{len(zoo())} networks come with emuchain; your own are TOML or ONNX files",
            view.next_line("emuchain network vgg16-cifar"),
        ]
    )
    for known in zoo():
        loaded = load_network(known)
        size = "x".join(map(str, loaded.input))
        rows.append(
            [
                known,
                size,
                str(len(loaded.layers)),
                f"{loaded.macs / 1e6:,.1f}",
                f"{loaded.parameters / 1e6:.2f} M",
            ]
        )
    view.table("Networks", ["name", "input", "layers", "MMAC", "parameters"], rows, names=("name",))


def show_network(name: str, loaded: Network) -> None:
    """Print a network's layers."""
    most_work = max(loaded.layers, key=lambda layer: layer.macs)
    most_weights = max(loaded.layers, key=lambda layer: math.prod(layer.weight_shape))
    weights = math.prod(most_weights.weight_shape)
    view.print_answer(
        [
            (
                f"{loaded.name}: {plural(loaded.parameters, 'parameter')} in"
                f" {plural(len(loaded.layers), 'layer')}"
            ),
            f"work: {loaded.macs / 1e6:,.2f} million multiply-accumulates (MMAC) a forward pass",
            _inputs(loaded),
            *([f"note: {loaded.note}"] if loaded.note else []),
            f"most work: {most_work.name}, {percent(most_work.macs / loaded.macs)}",
            f"most weights: {most_weights.name}, {percent(weights / loaded.parameters)}",
            view.next_line(shlex.join(["emuchain", "plan", name, "--devices", "8"])),
        ]
    )
    view.layer_rows(loaded)


def _inputs(network: Network) -> str:
    values, steps, _ = network.input
    said = f"images of {'x'.join(map(str, network.input))} (channels, rows, columns)"
    if network.takes_sequence:
        said = f"sequences of {plural(steps, 'step')} of {plural(values, 'value')}"
    repetition = ", each step" if network.result_steps > 1 else ""
    if network.loss != "softmax":
        return f"{said} with {plural(network.classes, 'output')}{repetition}"
    return f"{said} in {plural(network.classes, 'class')}{repetition}"


def _graph_as_json(network: Network) -> dict[str, Any]:
    """Return a network's operator graph: operators with their operations per sample, edges with
    their shapes.
    """
    from ..network import operator_graph

    graph = operator_graph(network)
    operators = [
        {"layer": operator.layer, "phase": operator.phase.value, "operations": operator.operations}
        for operator in graph.operators
    ]
    edges = [
        {"from": str(edge.source), "to": str(edge.target), "shape": edge.shape}
        for edge in graph.edges
    ]
    return {
        "network": network.name,
        "parameters": network.parameters,
        "operations": graph.operations,
        "operators": operators,
        "edges": edges,
    }


def describe_network(name: str, out: str | None) -> None:
    """Print a network's TOML description, or write it into the file `out`.

    Raises:
        InputError: there is no such network, or the file cannot be written.
    """
    from ..network import load_network

    loaded = load_network(name)
    tell_notes([loaded.note])
    text = decoded(loaded.text.encode())
    if out is None:
        print(text, end="")
        return
    write_whole(toml_file(out, "out", "network.toml"), text)
