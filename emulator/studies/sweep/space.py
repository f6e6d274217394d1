"""The points of a sweep: all combinations of the values of its keys.

Values are validated here, once: a network, a cluster or a value that can never be right is refused
before any point is computed. What does not fit together, such as more devices than channels, is a
point that fails.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...cluster import Cluster, changeable_keys, load_cluster
from ...common import InputError, did_you_mean, plural, validate
from ...config import ELSEWHERE, OTHER_NAMES, RUN_ONLY_KEYS, Config, settings_config
from ...data import Reading
from ...network import Network, TorchNetwork
from ...plan import network_of
from ...schedule import EditedKind, ScheduleKind, edited_kind, is_schedule_file, schedules

_WITHOUT_TIME = (
    *RUN_ONLY_KEYS,
    *("data", "resize", "crop", "channels", "skip_broken", "test_share", "split_seed"),
    "target_columns",
    *("tokenizer", "masked_share"),
    *("text_samples", "samples", "epochs", "micro_batch", "seed", "compress_weights"),
    *("learning_rate", "momentum", "weight_decay", "beta1", "beta2", "epsilon"),
    *("lr_schedule", "lr_warm_up", "label_smoothing", "loss", "class_weights"),
)
"""Keys of a run that do not change its steady state."""

_MOST_POINTS = 1_000_000


def sweepable_keys() -> list[str]:
    """Return the keys that a sweep may vary: those of a run that change its steady state, and those
    of its cluster.
    """
    return [*(key for key in Config.model_fields if key not in _WITHOUT_TIME), *changeable_keys()]


@dataclasses.dataclass(frozen=True)
class Space:
    """The keys of a sweep, each with its values; `settings` are further keys of the run, the same
    at all points.

    A value None of `devices` stands for one board, or for those that a schedule of pairs takes.
    """

    values: Mapping[str, Sequence[Any]]
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        values: Mapping[str, Any],
        settings: Mapping[str, Any] | None = None,
        blame: str = "command line",
        known: Sequence[str] | None = None,
    ) -> Space:
        """Return the space of keys with a value or several; `network`, `cluster` and `devices` come
        first. Keys are those of a sweep, or those that are `known`.

        Raises:
            InputError: a key is unknown, or has no values.
        """
        first = {"network": "quick-cifar", "cluster": "vc709", "devices": None}
        sweeps, known = known is None, sweepable_keys() if known is None else known
        for key in values:
            if key not in known:
                hint = did_you_mean(key, known, OTHER_NAMES, ELSEWHERE)
                if key in Config.model_fields and sweeps:
                    hint = "it changes no times; `study` trains with several values of it; "
                raise InputError(
                    f"{blame}: `{key}` cannot be swept; {hint}keys: {', '.join(known)}"
                )
        listed = {key: _listed(value) for key, value in {**first, **values}.items()}
        for key in ("network", "cluster"):  # a name may be a number
            listed[key] = tuple(
                str(value) if isinstance(value, int | float) else value for value in listed[key]
            )
        for key, choices in listed.items():
            if not choices:
                raise InputError(f"{blame}: `{key}` has no values")
            if len({*map(label, choices)}) < len(choices):
                raise InputError(f"{blame}: `{key}` has a value twice, or two values of one name")
        space = cls(listed, dict(settings or {}))
        if space.points > _MOST_POINTS:
            most = max(listed, key=lambda key: len(listed[key]))
            raise InputError(
                f"{blame}: {plural(space.points, 'point')}, at most {_MOST_POINTS:,}; take fewer of"
                f" the {len(listed[most]):,} values of `{most}`"
            )
        return space

    @property
    def points(self) -> int:
        """Number of combinations of values."""
        return math.prod(map(len, self.values.values()))

    @functools.cached_property
    def varied(self) -> tuple[str, ...]:
        """The keys with more than one value."""
        return tuple(key for key, values in self.values.items() if len(values) > 1)

    @functools.cached_property
    def along(self) -> str | None:
        """The key of a picture's horizontal axis: `devices`, or else the first numeric key with
        several values.
        """
        numeric = [key for key in self.varied if all(map(_is_number, self.values[key]))]
        return "devices" if "devices" in numeric else next(iter(numeric), None)

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Yield all combinations of values, in order; the last key to change is the slowest,
        `along` is the fastest.
        """
        order = self._order
        for chosen in itertools.product(*(self.values[key] for key in order)):
            combination = dict(zip(order, chosen, strict=True))
            yield {key: combination[key] for key in self.values}

    def place(self, numbers: Mapping[str, int]) -> int:
        """Return the place in all combinations of that with these values of its varied keys, by
        number.
        """
        place = 0
        for key in self._order:
            place = place * len(self.values[key]) + numbers.get(key, 0)
        return place

    @functools.cached_property
    def _order(self) -> list[str]:
        """The keys, the slowest to change first."""
        return sorted(self.values, key=lambda key: key == self.along)


@dataclasses.dataclass(frozen=True)
class Point:
    """A point of a sweep: its values as rows show them, and what its plan is made of, or the reason
    why it has none.
    """

    keys: dict[str, Any]
    network: Network
    cluster: Cluster | None
    settings: dict[str, Any]
    error: str | None = None


def points_of(
    space: Space, blame: str = "command line", *, with_weights: bool = False
) -> list[Point]:
    """Return the points of a sweep, in order; models of PyTorch lose their weights, or not.

    Raises:
        InputError: a network or cluster cannot be loaded, or a value is out of range whatever the
            others are.
    """
    clusters, networks = (
        _Clusters(blame, space.settings.get("changes") or {}),
        _Networks(space.settings, with_weights),
    )
    _check(space, clusters, blame)
    points = []
    for values in space.combinations():
        network, changes = (
            networks.found(values["network"], values.get("time_steps")),
            _changes(values),
        )
        cluster, error = clusters.changed(values["cluster"], changes)
        values["devices"] = values["devices"] or _fewest_devices(
            values.get("schedule", space.settings.get("schedule"))
        )
        own = {key: value for key, value in values.items() if key not in changes}
        names = {"network": network.name, "cluster": cluster.name if cluster else ""}
        keys = {key: label(value) for key, value in values.items()}
        points.append(Point(keys, network, cluster, {**space.settings, **own, **names}, error))
    return points


class _Networks:
    """Networks with another number of time steps where the sweep says one, each made once."""

    def __init__(self, settings: Mapping[str, Any], with_weights: bool) -> None:
        self._settings, self._with_weights = settings, with_weights
        self._found: dict[tuple[Any, int | None], Network] = {}

    def found(self, value: Any, time_steps: int | None) -> Network:
        """Return the network.

        Raises:
            InputError: there is none such, or it does not take sequences.
        """
        steps = time_steps or self._settings.get("time_steps")
        place = label(value), steps
        if place not in self._found:
            made = value if isinstance(value, Network) else self._made(value, steps)
            # A steady state needs no weights, and processes get what is here as copies.
            if isinstance(made, TorchNetwork) and not self._with_weights:
                made = made.bare
            self._found[place] = made
        return self._found[place]

    def _made(self, value: Any, time_steps: int | None) -> Network:
        reading = {*(field.name for field in dataclasses.fields(Reading)), "input", "seed"}
        config = settings_config(
            {key: given for key, given in self._settings.items() if key in reading}
        )
        keys: dict[str, Any] = {"sizes": config.input, "seed": config.seed}
        data = self._settings.get("data")
        return network_of(value, time_steps, data, Reading.of(config), **keys)


class _Clusters:
    """Clusters with changed values, each made once; `changes` are those of all points."""

    def __init__(self, blame: str, changes: Mapping[str, Any]) -> None:
        self._blame, self._of_all = blame, changes
        self._found: dict[tuple[Any, ...], tuple[Cluster | None, str | None]] = {}

    def changed(self, value: Any, changes: Mapping[str, Any]) -> tuple[Cluster | None, str | None]:
        """Return the cluster, or why there is none."""
        place = (label(value), *changes.items())
        if place not in self._found:
            try:
                self._found[place] = self.load(value, changes), None
            except InputError as error:
                self._found[place] = None, str(error)
        return self._found[place]

    def load(self, value: Any, changes: Mapping[str, Any]) -> Cluster:
        """Return the cluster.

        Raises:
            InputError: there is none such, or a change is invalid.
        """
        changes = {**self._of_all, **changes}
        if not isinstance(value, Cluster):
            return load_cluster(value, changes, blame=self._blame)
        if changes:
            raise InputError(
                f"`{next(iter(changes))}`: cannot be changed in a loaded cluster; give it by its"
                " name"
            )
        return value


def _check(space: Space, clusters: _Clusters, blame: str) -> None:
    """Check each value on its own, or for clusters beside the first values of all other keys."""
    first = {key: values[0] for key, values in space.values.items()}
    for key, values in space.values.items():
        for value in values:
            if key == "cluster":
                clusters.load(value, _changes(first) if isinstance(value, Cluster) else {})
            elif "." in key:
                clusters.load(first["cluster"], _changes({**first, key: value}))
            elif key != "network":
                validate(Config, {**space.settings, key: value}, blame)


def _fewest_devices(schedule: str | ScheduleKind | None) -> int:
    """Return the number of devices of a schedule of pairs or from a file, or 1."""
    if isinstance(schedule, str) and schedule not in schedules() and is_schedule_file(schedule):
        schedule = edited_kind(schedule)
    kind = schedules().get(schedule) if isinstance(schedule, str) else schedule
    if isinstance(kind, EditedKind):
        return kind.order.devices
    return 1 if kind is None or kind.offload is None else kind.offload.devices


def _changes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if "." in key}


def _listed(value: Any) -> tuple[Any, ...]:
    """Return one value or several as a tuple; NumPy's numbers become Python's."""
    several = isinstance(value, Iterable) and not isinstance(value, (str, Mapping))
    return tuple(_plain(item) for item in (value if several else (value,)))


def _plain(value: Any) -> Any:
    if isinstance(value, ScheduleKind) and schedules().get(value.name) is value:
        return value.name
    return value.item() if hasattr(value, "item") else value


def label(value: Any) -> Any:
    """Return a value as rows show it: numbers and words as they are, all else by name."""
    if isinstance(value, (int, float, str)):
        return value
    name = value.get("name") if isinstance(value, Mapping) else getattr(value, "name", None)
    return str(value if name is None else name)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
