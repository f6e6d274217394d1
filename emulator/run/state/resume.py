"""Settings of a run that resumes from a checkpoint: those it was written with, and which of them
may change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from typing import Any

import numpy as np

from ....launch import Ranks
from ...cluster import Cluster, load_cluster
from ...common import InputError, WholeFile, read_description
from ...config import Config, settings_config
from ...data import Dataset
from ...network import Network, TorchNetwork, adapters, load_network, without_lora
from ...plan import Plan, drawn_layers
from ...schedule import EditedKind
from ..results import Weights
from .checkpoint_file import CheckpointReader, checked
from .checkpoints import Keeping, Leader, OnBegin, RunCheckpoints
from .weights_files import check_tied_in, fitted, read_weights

_FREE = {
    "epochs",
    "data",
    "test_samples",
    "throttle",
    "out",
    "checkpoint",
    "resume",
    "log",
    "progress",
    "stall_timeout",
}
_OF_MACHINE = {
    *(
        "devices",
        "micro_batch",
        "checkpoint_every",
        "cluster",
        "changes",
        "balancing",
        "memory",
        "stages",
        "engines",
        "zero",
    ),
    "cut",
    *("transport", "precision", "warm_up", "chunks", "padding", "rows_at_once"),
}
"""Keys that change no numbers where the chain drains at each update: they say what trains, and how
long it takes.
"""

_IMAGES = 64  # that a fingerprint takes, besides all labels


@dataclasses.dataclass(frozen=True)
class Resumed:
    """A run that goes on: its configuration, network and cluster, from a checkpoint and from what
    was given anew.
    """

    config: Config
    network: Network
    cluster: Cluster
    reader: CheckpointReader
    epochs: int
    """How many of its epochs are done."""
    series: str
    """What all checkpoints of the same runs have in common; earlier versions wrote none."""

    def is_in(self, path: str) -> bool:
        """Return whether a path leads to the checkpoint."""
        return os.path.realpath(path) == os.path.realpath(self.config.resume or "")

    def check(self, plan: Plan, data: Dataset) -> bool:
        """Check a plan and data against the checkpoint; return whether clocks go on, as the machine
        is the same.

        Raises:
            InputError: the data are others, or the schedule's numbers depend on a mapping that has
                changed.
        """
        text, config = self.reader.text, plan.config
        with self.reader.reading():
            if text["data"] != _fingerprint(data):
                raise InputError(
                    f"`resume` = {config.resume!r}: was written with other training data than"
                    f" {data.name}; give the same ones as `data`"
                )
            before = settings_config(
                {**text["config"], "resume": config.resume}, text.get("schedule")
            )
            if text["faults"] != plan.faults_text:
                raise InputError(
                    f"`resume` = {config.resume!r}: was written with other faults; use the same"
                    " faults, or begin a new run"
                )
            clusters = (read_description(source) for source in (text["cluster"], plan.cluster.text))
            same = text["mapping"] == plan.mapping_text and next(clusters) == next(clusters)
            same &= all(getattr(before, key) == getattr(config, key) for key in _OF_MACHINE)
        if config.error_feedback and text["mapping"] != plan.mapping_text:
            raise InputError(
                f"`resume` = {config.resume!r}: was written with another mapping, and what the"
                " codec has dropped of gradients is kept by device; resume it with as many"
                " devices, and the cluster that wrote it"
            )
        if not same and plan.faults.deaths:
            raise InputError(
                f"`resume` = {config.resume!r}: was written on another cluster, which numbers the"
                " boards that die; resume it there"
            )
        if not same and not config.schedule.drains:
            raise InputError(
                f"`resume` = {config.resume!r}: was written with another mapping, on which the"
                f" numbers of {config.schedule.name} depend; resume it with the emuchain and the"
                " cluster that wrote it"
            )
        return same


def resumed(given: Config) -> Resumed:
    """Return the run with which a configuration goes on that names a checkpoint.

    Keys that are not given are the checkpoint's. Network and schedule are those in the checkpoint,
    whatever their files hold now.

    Raises:
        InputError: there is no such checkpoint, it is damaged, or a key is given that may not
            change.
    """
    assert given.resume is not None
    reader = CheckpointReader(given.resume)
    with reader.reading():
        kept = settings_config(dict(reader.text["config"]), reader.text.get("schedule"))
        form = {
            "network": "",
            "cluster": "",
            "mapping": "",
            "faults": "",
            "data": "",
            "position": [0, 0],
        }
        epochs, _ = checked(form, reader.text, "it")["position"]
        series = _series(reader)
        of_network, of_cluster = (
            read_description(reader.text[name]) for name in ("network", "cluster")
        )
    said, wrote = given.model_dump(), kept.model_dump()
    for key in sorted(given.model_fields_set - _FREE):
        value, before = said[key], wrote[key]
        # A sum that its replica keeps is not packed by a codec, as one that goes round is.
        numbers = not kept.schedule.drains or (key == "zero" and kept.compress.compresses)
        if value == before or (key in _OF_MACHINE and not numbers):
            continue
        run = kept.schedule.name if not kept.schedule.drains else f"`compress` = {kept.compress}"
        why = f"; the numbers of {run} depend on it" if key in _OF_MACHINE else ""
        raise InputError(
            f"`{key}` = {value!r}: the checkpoint {given.resume} was written with {before!r}{why};"
            " leave it out, or begin a new run"
        )
    if kept.lr_schedule.ends and "epochs" in given.model_fields_set and given.epochs != kept.epochs:
        raise InputError(
            f"`epochs` = {given.epochs}: the checkpoint {given.resume} was written with"
            f" {kept.epochs}, over which the learning rate follows a cosine; leave it out, or begin"
            " a new run"
        )
    changed = {key: getattr(given, key) for key in given.model_fields_set}
    others = "cluster" in changed and changed["cluster"] != kept.cluster
    before = {} if others else kept.changes or {}
    anew = {key: value for key, value in (given.changes or {}).items() if before.get(key) != value}
    source, text = (given.cluster, None) if others else (of_cluster, reader.text["cluster"])
    cluster = load_cluster(source, anew, blame="--set", text=text)
    changes = {**before, **anew}
    settings = {**kept.model_dump(), **changed, "changes": changes or None}
    config = settings_config(settings, reader.text.get("schedule"))
    network = load_network(of_network, text=reader.text["network"])
    return Resumed(config, network, cluster, reader, epochs, series)


def series_of(path: str) -> str:
    """Return the series of runs to which a checkpoint belongs.

    Raises:
        InputError: there is none, or it is damaged.
    """
    with CheckpointReader(path) as reader, reader.reading():
        return _series(reader)


def _series(reader: CheckpointReader) -> str:
    return str(checked("", reader.text.get("series", ""), "its series"))


def checkpoints_of(
    plan: Plan,
    data: Dataset,
    ranks: Ranks,
    start: Resumed | None,
    series: str,
    on_begin: OnBegin = lambda *_: None,
) -> RunCheckpoints:
    """Return the checkpoints of a run; their file is from now on this process' alone, where it is
    rank 0.

    Each says to which `series` of runs it belongs.

    Raises:
        InputError: plan or data are not those of the checkpoint that it resumes from, or its file
            cannot be written; weights that it should begin with are not those of the network.
    """
    config = plan.config
    same = start is None or start.check(plan, data)
    differ = bool(plan.faults.flips)
    drawn = drawn_layers(config, plan.network) | adapters(plan.network)
    begins = config.init is not None or isinstance(plan.network, TorchNetwork)
    saves, given = config.checkpoint is not None, start is None and begins
    moves = (
        config.checkpoint is not None and start is not None and not start.is_in(config.checkpoint)
    )
    keeping = Keeping(
        start is not None,
        saves,
        same,
        differ,
        given,
        config.epochs,
        drawn,
        moves,
        shares=config.zero > 0,
    )
    if ranks.rank > 0:
        return RunCheckpoints(plan.network, ranks, keeping)
    if start is not None and not plan.faults.flipping("weights"):
        check_tied_in(start.reader, plan.network, f"`resume` = {config.resume!r}")
    weights = _first_weights(plan, drawn) if given else None
    target = (
        None
        if config.checkpoint is None
        else WholeFile(config.checkpoint, "checkpoint", "run.ckpt")
    )
    reader = None if start is None else start.reader
    settings = {**_settings(plan, data), "series": series}
    leader = Leader(reader, target, settings, on_begin, weights)
    return RunCheckpoints(plan.network, ranks, keeping, leader)


def _first_weights(plan: Plan, drawn: frozenset[str]) -> Weights:
    """Return the weights that a run begins with: those of the file that its configuration names, or
    of its model.
    """
    init, network = plan.config.init, without_lora(plan.network)
    if init is not None:
        return read_weights(init, network, f"`init` = {init!r}", drawn)
    assert isinstance(network, TorchNetwork)
    return fitted(network.state.first_weights(), network, f"model {network.name}", drawn)


def _settings(plan: Plan, data: Dataset) -> dict[str, Any]:
    from .... import __version__

    config, kind = plan.config.model_dump(exclude={"resume", "progress"}), plan.config.schedule
    return {
        "emuchain": __version__,
        "config": {**config, "devices": plan.config.devices or plan.devices},
        "network": plan.network.text,
        "cluster": plan.cluster.text,
        "mapping": plan.mapping_text,
        "faults": plan.faults_text,
        "data": _fingerprint(data),
        "samples": data.n_train,
        **({"schedule": kind.text} if isinstance(kind, EditedKind) else {}),
    }


def _fingerprint(data: Dataset) -> str:
    """Return a digest of all labels, and of some images, whatever folder they come from."""
    digest = hashlib.sha256(repr((data.n_train, data.shape, data.classes)).encode())
    digest.update(data.train_labels.tobytes())
    places = np.linspace(0, data.n_train - 1, min(_IMAGES, data.n_train)).astype(np.int64)
    digest.update(data.train_images[places].tobytes())
    return digest.hexdigest()
