"""One run in several variants, such as seeds or formats: the files that each has of its own, and
where each goes on.

Variants are trained one after another; some have another run beside them, to compare with, which
keeps only a checkpoint. All checkpoints of a series say so by a word that they have in common. What
else lies under the name of one is replaced, as by a run that begins.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...kernels.codec import NoCodec
from ..common import InputError, Note, Target, WholeFile
from ..config import Config, log_place

if TYPE_CHECKING:
    from .state import Resumed

_FILES = {"out": "run.h5", "checkpoint": "run.ckpt", "resume": "run.ckpt"}
"""Keys that name a file of a run, of which each variant has its own, with an example for each."""

Settings = Mapping[str, Any]
ALONE: Mapping[str, Settings] = {"": {}}
"""The variants of a run that is the only one: its files have the names that are given."""

CONTROL, WITHOUT_FLIPS = "control", "without-flips"
"""What `train` trains once more to compare a run with: without codec, and where bits flip, without
flips.
"""

_SERIES_BYTES = 8
MOST_SEEDS = 1000
MOST_SEEDS_WHY = (
    "the mean's standard error is then below a thirtieth of what one seed differs from another"
)


@dataclasses.dataclass(frozen=True)
class Runs:
    """The runs of one command, in order.

    Attributes:
        base: the configuration of all, whose files have the names from which those of variants are
            made.
        configs: that of each, with files of its own.
        variants: their names, and the settings in which each differs.
        beside: what is trained beside each, by its name: its configuration, from that of the run.
        first: the first one, if it goes on; all others have its network and cluster.
        series: what their checkpoints have in common.
    """

    base: Config
    configs: tuple[Config, ...]
    variants: Mapping[str, Settings]
    beside: Mapping[str, Callable[[Config], Config]]
    first: Resumed | None = None
    series: str = dataclasses.field(default_factory=lambda: os.urandom(_SERIES_BYTES).hex())

    @property
    def all_configs(self) -> Iterator[Config]:
        """The configurations of all runs, and of those beside them."""
        for config in self.configs:
            yield config
            yield from (of_beside(config, name, change) for name, change in self.beside.items())

    def going_on(self) -> Runs:
        """Return the same runs with what the first one's checkpoint says, if they resume; then that
        one must go on.

        All have at least as many epochs as it has done.

        Raises:
            InputError: it cannot.
        """
        if self.base.resume is None:
            return self
        from .state import resumed  # with the readers of networks and clusters

        first, name = resumed(self.configs[0]), next(iter(self.variants))
        config = first.config.model_copy(update={"epochs": max(first.config.epochs, first.epochs)})
        base = config.model_copy(update=_names_before(self.base, config, name))
        others = runs_of(base, self.variants).configs[1:]
        return dataclasses.replace(
            self, base=base, configs=(config, *others), first=first, series=first.series
        )

    def starts(self) -> Iterator[tuple[Config, Resumed | None]]:
        """Yield the configuration of each run when it is its turn, and where it goes on, if it
        does.
        """
        for place, config in enumerate(self.configs):
            start = self.first if place == 0 else going_on(config, self.series)
            yield (config.model_copy(update={"resume": None}) if start is None else config), start

    def check_outputs(self) -> None:
        """Check that the files of all runs can be written, and that no other process writes them
        now.

        The names from which theirs are made are files', too: /dev/null-seed1 is not what is meant
        by /dev/null.

        Raises:
            InputError: one cannot, or has a writer.
        """
        for key, path, value in _written(self.base):
            Target(path, key, _FILES.get(key, "log.csv"), value)
        kind, folder = log_place(self.base.log or "csv")
        if kind == "tensorboard" and os.path.exists(folder) and not os.path.isdir(folder):
            raise InputError(
                f"`log` = {self.base.log!r}: is no folder; give one, such as tensorboard:runs"
            )
        for config in self.all_configs:
            for key, path, value in _written(config):
                WholeFile(path, key, _FILES.get(key, "log.csv"), value).close()


def runs_of(
    given: Config,
    variants: Mapping[str, Settings] = ALONE,
    beside: Mapping[str, Callable[[Config], Config]] | None = None,
) -> Runs:
    """Return the runs of a configuration, by name and with what differs in each.

    Raises:
        InputError: a name of a file is none from which others can be made.
    """
    configs = [
        given.model_copy(update={**own, **_own_files(given, name)})
        for name, own in variants.items()
    ]
    return Runs(given, tuple(configs), variants, beside or {})


def seed_variants(config: Config, count: int) -> dict[str, dict[str, Any]]:
    """Return in which settings the runs of `count` seeds differ, from the configured one on, by the
    names of variants.

    Raises:
        InputError: `count` is below 1 or above `MOST_SEEDS`, or a seed would reach 2^63.
    """
    if not 1 <= count <= MOST_SEEDS:
        raise InputError(f"`seeds` = {count}: should be from 1 to {MOST_SEEDS:,}; {MOST_SEEDS_WHY}")
    if config.seed + count > 1 << 63:
        raise InputError(
            f"`seeds` = {count}: from `seed` = {config.seed} on there are not as many below 2^63"
        )
    return {f"seed{seed}": {"seed": seed} for seed in range(config.seed, config.seed + count)}


def of_beside(
    config: Config, name: str, change: Callable[[Config], Config] = lambda config: config
) -> Config:
    """Return the configuration of what is trained beside a run: it has only a checkpoint of its
    own, if the run has.
    """
    bare = change(config).model_copy(update={"out": None, "log": None})
    return bare.model_copy(update=_own_files(bare, name))


def changes_beside(*, control: bool) -> Mapping[str, Callable[[Config], Config]]:
    """Return what differs in the configurations of runs that may be trained beside one, by their
    names.
    """
    return {WITHOUT_FLIPS: lambda config: config, **({CONTROL: control_config} if control else {})}


def control_config(config: Config) -> Config:
    """Return the configuration of the control, but for its files.

    Raises:
        InputError: there is no codec that it could do without.
    """
    if not (config.compress.compresses or config.compress_weights.compresses):
        raise InputError(
            "`--control`: trains once more without codec, but there is none; add `compress`"
        )
    without = {
        "compress": NoCodec(),
        "compress_weights": NoCodec(),
        "compress_ratio": None,
        "error_feedback": False,
    }
    return config.model_copy(update=without)


def going_on(config: Config, series: str) -> Resumed | None:
    """Return where a run of a series goes on after the first; None where it begins, as it has no
    checkpoint.
    """
    if config.resume is None or not os.path.exists(config.resume):
        return None
    from .state import resumed, series_of

    try:
        return resumed(config) if series_of(config.resume) == series else None
    except InputError as error:
        warnings.warn(f"begun anew: {error}", Note, stacklevel=2)
        return None


def own_name(path: str, variant: str) -> str:
    """Return the name of a variant's own file: run.h5 becomes run-seed1.h5; it has to be a name."""
    whole = pathlib.Path(path)
    return str(whole.with_name(f"{whole.stem}-{variant}{whole.suffix}"))


def _own_files(config: Config, variant: str) -> dict[str, Any]:
    """Return the settings of the files that a variant has of its own.

    Raises:
        InputError: a name is none from which others can be made.
    """
    if not variant:
        return {}
    own: dict[str, Any] = {}
    for key, example in _FILES.items():
        path = getattr(config, key)
        if path is not None:
            own[key] = _own_name(path, variant, f"`{key}` = {path!r}", example)
    if config.log is not None:
        kind, place = log_place(config.log)
        example = "csv:log.csv" if kind == "csv" else "tensorboard:runs"
        own["log"] = f"{kind}:{_own_name(place, variant, f'`log` = {config.log!r}', example)}"
    return own


def _own_name(path: str, variant: str, given: str, example: str) -> str:
    if os.path.isdir(path):
        raise InputError(f"{given}: is a folder; give a file, such as {example}")
    if pathlib.Path(path).name in ("", ".."):
        raise InputError(
            f"{given}: does not end in a name, of which each run could have its own; try {example}"
        )
    return own_name(path, variant)


def _names_before(given: Config, first: Config, variant: str) -> dict[str, Any]:
    """Return the names of files from which those of a variant were made, as far as they are not
    given anew.
    """
    names: dict[str, Any] = {}
    for key in (*_FILES, "log"):
        own = getattr(first, key)
        names[key] = getattr(given, key) or (own and _without(own, variant))
    return names


def _without(own: str, variant: str) -> str:
    """Return the name from which `own_name` made one; a variant's may have a dot, as q2.6 does."""
    parts = own.split(mark := f"-{variant}") if variant else []
    names = (mark.join(parts[:place]) + mark.join(parts[place:]) for place in range(1, len(parts)))
    made_it = (name for name in names if pathlib.Path(name).name and own_name(name, variant) == own)
    return next(made_it, own)


def _written(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield the files that a run writes, but for folders: the key, the path, and the key's
    value.
    """
    for key in ("out", "checkpoint"):
        path = getattr(config, key)
        if path is not None:
            yield key, path, path
    if config.log is not None:
        kind, place = log_place(config.log)
        if kind == "csv":
            yield "log", place, config.log
