"""`emuchain network`: networks for people, and their descriptions as TOML."""

from __future__ import annotations

import pathlib

from ..errors import InputError
from ..network import load_network, zoo
from ..tables import layer_rows, table


def list_networks() -> None:
    """Print the zoo."""
    rows = []
    for known in zoo():
        found = load_network(known)
        size = "x".join(map(str, found.input))
        rows.append([known, size, str(len(found.layers)), f"{found.macs / 1e6:.1f}", f"{found.parameters / 1e6:.2f} M"])
    table("Networks", ["name", "input", "layers", "MMAC", "parameters"], rows, left=("name",))


def show_network(name: str) -> None:
    """Print a network's layers.

    Raises:
        InputError: there is no such network.
    """
    found = load_network(name)
    layer_rows(found)
    print(f"{found.macs / 1e6:.2f} MMAC a forward pass, {found.parameters} parameters, {found.classes} classes")


def describe_network(name: str, out: str | None) -> None:
    """Print a network's TOML description, or write it into the file `out`.

    Raises:
        InputError: there is no such network, or the file cannot be written.
    """
    text = load_network(name).text
    if out is None:
        print(text, end="")
        return
    try:
        pathlib.Path(out).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"`out` = {out!r}: cannot be written: {reason}") from None
