"""Arguments of the functions of `import emuchain`: files that they name, and the configuration and
plan that follow.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Number
from typing import Annotated, Any, Literal, TypeAlias

from .cluster import Cluster, load_cluster
from .common import InputError, NamedFiles, described
from .config import CHANGES, Config, in_place, name_files, roles, settings_config
from .data import Dataset, as_data
from .network import Network, TorchNetwork
from .plan import Plan, network_for, plan_run

_NETWORK, _CLUSTER = "quick-cifar", "vc709"
_SPLITS = "test_share", "split_seed"

AnyNetwork = str | os.PathLike[str] | Mapping[str, Any] | Network
AnyCluster = str | os.PathLike[str] | Mapping[str, Any] | Cluster
AnyData = Annotated[Any, "`data_of_call` checks it"]
AnyClusterOrData = Annotated[Any, "`cluster_and_data` checks it"]
OfPairs: TypeAlias = Literal[
    "farnn", "farnn-no-overlap", "farnn-all-fpga", "gpu-standard", "gpu-persistent"
]


def new_plan(
    network: AnyNetwork, cluster: AnyCluster, settings: dict[str, Any], *, ranks: int = 1
) -> Plan:
    """Return the plan of a network on a cluster under these settings (`named_in_place`).

    Raises:
        InputError: a setting is unknown, out of range, or contradicts another one.
    """
    check_files(given_keys(network, cluster, settings))
    return configured_plan(
        network, cluster, given_settings(network, cluster, settings), ranks=ranks
    )


def configured_plan(
    network: AnyNetwork, cluster: AnyCluster, config: Config, *, ranks: int = 1
) -> Plan:
    """Return the plan of a network on a cluster under a configuration (`given_settings`).

    Raises:
        InputError: a setting contradicts another one.
    """
    network = network_for(config, network)
    if not isinstance(cluster, Cluster):
        cluster = load_cluster(cluster, config.changes)
    elif config.changes:
        raise InputError(
            "`changes`: cannot be applied to a loaded cluster; give them to `load_cluster`, or the"
            " cluster by its name"
        )
    return plan_run(config, ranks, network=network, cluster=cluster)


def named_in_place(
    network: AnyNetwork | Plan, cluster: AnyCluster, settings: Mapping[str, Any]
) -> tuple[Any, Any, dict[str, Any]]:
    """Return network, cluster and settings with the keys that `changes` has of a run in their
    places.

    Raises:
        InputError: a changed key is unknown, or given beside its changed value.
    """
    changes = settings.get(CHANGES)
    named = isinstance(changes, Mapping) and all(isinstance(key, str) for key in changes)
    if changes is not None and not named:
        raise InputError(
            f"`{CHANGES}`: is {described(changes)}; should be a mapping of names or None"
        )
    placed = in_place(
        # `changes=None` is the default of the functions, and no value of a configuration.
        {key: value for key, value in settings.items() if value is not None or key != CHANGES}
    )
    return placed.pop("network", network), placed.pop("cluster", cluster), placed


def plan_of(
    network: AnyNetwork | Plan, cluster: AnyCluster, settings: dict[str, Any], ranks: int = 1
) -> Plan:
    """Return a plan that is given in a network's place, or that of these settings.

    Raises:
        InputError: as for `new_plan`; or there are settings beside a plan.
    """
    if not isinstance(network, Plan):
        return new_plan(network, cluster, settings, ranks=ranks)
    if settings:
        raise InputError(f"`{next(iter(settings))}`: a plan has its settings; give them to `plan`")
    return network


def data_of_call(
    data: AnyData, settings: Mapping[str, Any] | None = None
) -> tuple[str | None, Dataset | None]:
    """Return the value of the key `data`, or the data set, that a call gives.

    Raises:
        InputError: it is neither, nor anything that `as_data` takes.
    """
    if data is None or isinstance(data, str | os.PathLike):
        return None if data is None else os.fspath(data), None
    if isinstance(data, Dataset):
        return None, data.checked()
    splits = {key: value for key, value in (settings or {}).items() if key in _SPLITS}
    return None, as_data(data, **splits)


def cluster_and_data(second: AnyClusterOrData, data: AnyData) -> tuple[AnyCluster, AnyData]:
    """Return cluster and data of a call whose second argument may be either: `train(network,
    data)`.

    Text, paths and mappings name a cluster there; anything else is data, on the default cluster,
    mappings with arrays, too.

    Raises:
        InputError: the second argument is neither, or there are data beside it.
    """
    has_arrays = isinstance(second, Mapping) and any(
        hasattr(value, "shape") for value in second.values()
    )
    if isinstance(second, str | os.PathLike | Mapping | Cluster) and not has_arrays:
        return second, data
    if second is None:
        return _CLUSTER, data
    if data is not None or isinstance(second, Number):
        raise InputError(
            f"`cluster`: is {described(second)}; should be text, a path, a mapping of names or a"
            " Cluster; data in its place only without `data`"
            + (
                f"; numbers are given by their names, such as devices={second}"
                if data is None
                else ""
            )
        )
    return _CLUSTER, second


def resumed_network(given: AnyNetwork | Plan, kept: Network) -> Network:
    """Return the network with which a run goes on that a checkpoint keeps; if it is given as a
    model of PyTorch, that one.

    Raises:
        InputError: the model has another network.
    """
    own = given.network if isinstance(given, Plan) else given
    if not isinstance(own, TorchNetwork):
        return kept
    if own.text != kept.text:
        raise InputError(
            f"`network`: the model {own.name} has other layers than the network of the checkpoint;"
            " give the model that the run began with"
        )
    return own


def check_files(*of_runs: Mapping[str, object], **written: object) -> None:
    """Check what a call names: the values of keys of its runs, and files to write, by the names of
    their arguments.

    Raises:
        InputError: an output is an input, too, or another output.
    """
    files = NamedFiles()
    for keys in of_runs:
        name_files(files, keys)
    for argument, value in written.items():
        files.add(argument, value, roles.OUTPUT)
    files.check()


def given_keys(
    network: AnyNetwork | Plan, cluster: AnyCluster, settings: Mapping[str, object]
) -> Mapping[str, object]:
    """Return all keys that a call gives, or those of a plan that is given in a network's place."""
    if isinstance(network, Plan):
        return {**dict(network.config), **settings}
    return {"network": network, "cluster": cluster, **settings}


def given_settings(
    network: AnyNetwork | Plan, cluster: AnyCluster, settings: dict[str, Any]
) -> Config:
    """Return the settings of a run that are not left at their defaults."""
    if isinstance(network, Plan):
        return network.config
    defaults = {"network": _NETWORK, "cluster": _CLUSTER}
    named = {key: name for key, name in _named(network, cluster).items() if name != defaults[key]}
    return settings_config({**settings, **named})


def _named(network: AnyNetwork, cluster: AnyCluster) -> dict[str, Any]:
    """Return what a configuration calls a network and a cluster: as they were named, or by the name
    that they have.
    """

    def name(given: AnyNetwork | AnyCluster, kind: str) -> object:
        if isinstance(given, str | os.PathLike):
            return os.fspath(given)
        # One without a name is refused by what reads it, which names the key.
        return given.get("name", kind) if isinstance(given, Mapping) else given.name

    return {"network": name(network, "network"), "cluster": name(cluster, "cluster")}
