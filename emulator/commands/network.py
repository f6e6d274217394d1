"""`emuchain network`: networks for people."""

from __future__ import annotations

from ..network import load_network, zoo
from ..tables import layer_rows, table


def show_network(name: str | None) -> None:
    """Print a network's layers, or the zoo.

    Raises:
        InputError: there is no such network.
    """
    if name is not None:
        found = load_network(name)
        layer_rows(found)
        print(f"{found.macs / 1e6:.2f} MMAC a forward pass, {found.parameters} parameters, {found.classes} classes")
        return
    rows = []
    for known in zoo():
        found = load_network(known)
        size = "x".join(map(str, found.input))
        rows.append([known, size, str(len(found.layers)), f"{found.macs / 1e6:.1f}", f"{found.parameters / 1e6:.2f} M"])
    table("Networks", ["name", "input", "layers", "MMAC", "parameters"], rows, left=("name",))
