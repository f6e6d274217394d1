"""The description of faults: the `[faults]` table of a cluster, or of a file of its own.

[[faults.boards]]     # a straggler
board = 2
factor = 3            # takes 3 times as long
from_sample = 100     # or `from_us`, in virtual time
to_sample = 200       # no longer in the span; or `to_us`
[[faults.links]]      # between boards 0 and 1, both directions
link = 0
factor = 2            # half of the bandwidth
latency_ns = 500      # more than it has
loss = 0.01           # of packets
[[faults.flips]]      # bits that flip
of = "weights"        # or "activations", "messages", "gradients"
rate = 1e-9           # of each bit
[[faults.deaths]]     # a board that dies, and stays dead
board = 3
at_us = 5000          # in virtual time
detect_us = 1000      # until the others notice
reload_us = 200000    # until they are configured and loaded anew
"""

from __future__ import annotations

import json
import pathlib
from typing import Annotated

import pydantic

from ..common import DESCRIBED, InputError, Model, as_tuple, read_toml, validate
from .fault import NO_FAULTS, BoardDeath, BoardFault, Faults, FlipFault, LinkFault


class FaultsDescription(Model):
    """The `[faults]` table; without a seed, faults have that of the run."""

    boards: Annotated[
        tuple[Annotated[BoardFault, DESCRIBED], ...], pydantic.BeforeValidator(as_tuple)
    ] = ()
    links: Annotated[
        tuple[Annotated[LinkFault, DESCRIBED], ...], pydantic.BeforeValidator(as_tuple)
    ] = ()
    flips: Annotated[
        tuple[Annotated[FlipFault, DESCRIBED], ...], pydantic.BeforeValidator(as_tuple)
    ] = ()
    deaths: Annotated[
        tuple[Annotated[BoardDeath, DESCRIBED], ...], pydantic.BeforeValidator(as_tuple)
    ] = ()
    seed: Annotated[int, pydantic.Field(ge=0, lt=1 << 63)] | None = None
    compare: bool = True

    @property
    def faults(self) -> Faults:
        """The faults as data."""
        return Faults(self.boards, self.links, self.flips, self.seed, self.compare, self.deaths)


class FaultsFile(Model):
    """A file of faults."""

    faults: FaultsDescription


def described_faults(text: str, source: str) -> Faults:
    """Return the faults of a run from their description, as `Faults.text` gives it.

    Raises:
        InputError: it describes none.
    """
    try:
        described = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source}: does not describe its faults: {error}") from None
    return validate(
        FaultsDescription,
        described if isinstance(described, dict) else {"faults": described},
        source,
    ).faults


def load_faults(file: str) -> Faults:
    """Return the faults of a TOML file with a table `[faults]`; of "none", none.

    Raises:
        InputError: the file cannot be read, or a key or value is wrong.
    """
    if file == NO_FAULTS:
        return Faults()
    return validate(FaultsFile, read_toml(pathlib.Path(file)), file).faults.faults
