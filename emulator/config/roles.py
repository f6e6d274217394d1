"""Which files the keys of a configuration name, and settings of other commands that name the same
kinds of files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..common import Paths, Reads, Writes, in_folder, itself, touched


def log_place(said: str) -> tuple[str, str]:
    """Return what the key `log` says: `csv` with a file, or `tensorboard` with a folder."""
    kind, _, where = said.partition(":")
    return kind, where or ("log.csv" if kind == "csv" else "runs")


def _network(value: str) -> Paths:
    from ..network import network_files

    return network_files(value)


def _cluster(value: str) -> Paths:
    from ..cluster import cluster_files

    return cluster_files(value)


def _board(value: str) -> Paths:
    from ..cluster import board_files

    return board_files(value)


def _data(value: str) -> Paths:
    from ..data import data_files

    return data_files(value)


def _faults(value: str) -> Paths:
    from ..faults import NO_FAULTS

    return () if value == NO_FAULTS else itself(value)


def _schedule(value: str) -> Paths:
    from ..schedule import schedules

    return () if value in schedules() else itself(value)


def is_steps_file(value: str) -> bool:
    """Return whether an exchange is none that is known, and should be a file with its steps."""
    from ...comm.collective import sums

    is_known = value.partition(":")[0] in sums()
    return not is_known and (value.lower().endswith(".txt") or os.path.isfile(value))


def _exchange(value: str) -> Paths:
    return itself(value) if is_steps_file(value) else ()


def _cut(value: str) -> Paths:
    return itself(value) if value.lower().endswith(".toml") else ()


def _weights(value: str) -> Paths:
    from ..network import weights_files

    return weights_files(value)


def _log(value: str) -> Paths:
    kind, where = log_place(value)
    return (
        touched(where) if kind == "csv" else itself(where)
    )  # in a folder of events, each log is a new file


def _listed_networks(value: str) -> Iterator[str]:
    for name in value.split(","):
        yield from map(str, _network(name))


NETWORK = Reads("a network's file", _network)
NETWORKS = Reads("a network's file", _listed_networks)
CLUSTER = Reads("a cluster's file", _cluster)
BOARD = Reads("a board's file", _board)
MEASUREMENTS = Reads("a file of measurements")
CONSTANTS = Reads("a file of constants")
DATA = Reads("a file of the data", _data)
FAULTS = Reads("a file of faults", _faults)
CUT = Reads("a hand-made cut", _cut)
TOKENIZER = Reads("a tokenizer's file")
WEIGHTS = Reads("a file of weights", _weights)
SCHEDULE = Reads("a schedule's file", _schedule)
EXCHANGE = Reads("an exchange's file", _exchange)
CHECKPOINT = Reads("a checkpoint")
RUN = Reads("a results file")
CONFIGURATION = Reads("the configuration")
OUTPUT = Writes()
PRINTED = Writes(in_folder("*.[ps][dv][fg]"))
NEXT_CHECKPOINT = Writes(goes_on="resume")
LOG = Writes(_log)
