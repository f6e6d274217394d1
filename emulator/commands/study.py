"""`emuchain study`: studies of the papers' questions on any network, without a run."""

from __future__ import annotations

import click

from .compare import compare, topology
from .exchange import exchange
from .named import FileGroup


@click.group("study", cls=FileGroup)
def study() -> None:
    """Compare kinds of parallelism, topologies, and exchanges of gradients."""


for command in (compare, topology, exchange):
    study.add_command(command)
