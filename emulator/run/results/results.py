"""Results of a run: configuration, history, usage of devices and links, weights (`results_file.py`
writes them).

JSON and CSV have their parts under the names that they have in Python. Of the same run with several
seeds, there are the means of what they reach, with standard errors.
"""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import io
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common import (
    Figures,
    InputError,
    Mean,
    format_time_ps,
    html_table,
    plain,
    plural,
    read_description,
    system_name,
)
from ...data import NgramBits, is_text
from ...network import (
    Network,
    TorchNetwork,
    adapters,
    load_network,
    lora_of,
    merged,
    network_module,
    rested_layers,
    trained_state,
    with_lora,
    without_lora,
)
from ...plan import Plan, data_of
from ...schedule import EditedKind
from .history import ROW, History
from .schema import (
    TABLES,
    Table,
    device_table,
    epoch_steps,
    growing_of,
    history_rows,
    link_table,
    resource_table,
    usage_from,
)
from .steps import EpochRecord, Weights, message_columns
from .usage import Usage


def table_as_csv(table: Table) -> str:
    """Return a table as CSV: a line with the names of its columns, and one for each row; NaN is
    left empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = plain(table)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()


@dataclasses.dataclass(frozen=True, eq=False)
class Results(Figures):
    """Content of a results file: tables by column, and the weights after the last epoch, if they
    were gathered.
    """

    config: dict[str, Any]
    descriptions: dict[str, str]
    versions: dict[str, str]
    history: Table
    devices: Table
    links: Table
    weights: Weights
    exchange: Table = dataclasses.field(default_factory=dict)
    messages: Table = dataclasses.field(default_factory=dict)
    resources: Table = dataclasses.field(default_factory=dict)
    steps: Table = dataclasses.field(default_factory=dict)
    rounding: Table = dataclasses.field(default_factory=dict)
    model: TorchNetwork | None = None
    """The network of a run in this process whose network was a model of PyTorch; files have
    none.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return the weights after the last epoch as tensors of PyTorch, by its names, for the
        model that was given to `emuchain.from_torch`: `model.load_state_dict(run.state_dict())`. Of
        a network that was no model, names are those of `to_torch`.

        Ties, shapes and types are the model's; what no layer trains is as it was.

        Raises:
            InputError: there are no weights, PyTorch is not installed, or it has no module for an
                operation.
        """
        network, weights = self._trained_network("state_dict")
        batches = -(-int(self.config["samples"]) // int(self.config["batch"]))
        frozen = rested_layers(network, self.config.get("freeze"))
        return trained_state(network, weights, self.epochs * batches, frozen, "state_dict")

    def to_torch(self) -> Any:
        """Return a `torch.nn.Module` with the weights after the last epoch, in `eval()`, which
        computes the logits that `emuchain.predict` does.

        It takes images (samples, channels, rows, columns), sequences (samples, steps, values) or
        symbols (samples, steps). Its modules are called as the layers.

        Raises:
            InputError: there are no weights, PyTorch is not installed, or it has no module for an
                operation.
        """
        return network_module(*self._trained_network("to_torch"), "to_torch")

    def _trained_network(self, blame: str) -> tuple[Network, Weights]:
        """Return the network that was trained, and its weights, with adapters merged into them.

        Raises:
            InputError: there are no trained weights, or the file is damaged.
        """
        if not self.weights:
            raise InputError(f"{blame}: no epoch is finished, so there are no trained weights")
        try:
            network = self.model or load_network(
                read_description(self.descriptions["network.toml"])
            )
            lora = lora_of(self.config)
            if lora is None:
                return network, self.weights
            adapted = network if adapters(network) else with_lora(network, lora)
            return without_lora(adapted), merged(self.weights, adapted, lora)
        except (KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{blame}: results that are damaged: {reason}") from None

    @property
    def epochs(self) -> int:
        """Number of finished epochs."""
        return len(self.history.get("epoch", ()))

    @property
    def virtual_time_ps(self) -> int:
        """Virtual time at the end of the last epoch; 0 before the first."""
        return int(self.history["virtual_time_ps"][-1]) if self.epochs else 0

    @property
    def test_accuracy(self) -> float:
        """Share of test images classified correctly, after the last epoch; NaN before the first."""
        return float(self.history["test_accuracy"][-1]) if self.epochs else float("nan")

    @property
    def weight_arrays(self) -> dict[str, np.ndarray]:
        """The weights without biases by layer; of recurrent layers, by layer and name, since they
        have several.
        """
        return {
            layer if name == "weight" else f"{layer} {name}": array
            for layer, arrays in self.weights.items()
            for name, array in arrays.items()
            if name == "weight" or name.startswith("weight_")
        }

    @property
    def bits(self) -> tuple[float, NgramBits] | None:
        """Bits per character of the test set after the last epoch, and of the simplest models; None
        without a text.
        """
        if not self.epochs or "test_bits" not in self.history:
            return None
        test, unigram, bigram = (
            float(self.history[f"{model}_bits"][-1]) for model in ("test", "unigram", "bigram")
        )
        return test, NgramBits(unigram, bigram)

    @property
    def images_per_s(self) -> float:
        """Rate on the cluster, of all epochs; NaN before the first, or where they took no time."""
        time_s = self.virtual_time_ps * 1e-12
        return self.config["samples"] * self.epochs / time_s if time_s else float("nan")

    @property
    def sample_noun(self) -> str:
        """What a sample is called: "image", or "sample" of a text."""
        return "sample" if is_text(str(self.config["data"])) else "image"

    @property
    def missing_bytes(self) -> int:
        """Bytes of memory that were missing and that the times ignore; 0 where the file does not
        say it.
        """
        return int(self.descriptions.get("missing_bytes", 0))

    @property
    def usage(self) -> Usage | None:
        """Usage of devices and links; None before the first epoch, and of a pair, which has
        `resources`.
        """
        return (
            usage_from(self.devices, self.links, self.virtual_time_ps)
            if self.epochs and self.devices
            else None
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what `emuchain show --json` prints: JSON's values under the names that they have
        here.

        Tables are by column. Weights have only their shapes; sizes of single messages are left out.
        NaN is None.
        """
        figures = (
            "epochs",
            "virtual_time_ps",
            "test_accuracy",
            "images_per_s",
            "sample_noun",
            "missing_bytes",
        )
        tables = {name: getattr(self, name) for name in TABLES if name != "messages"}
        shapes = {}
        for layer, part in self.weights.items():
            shapes[layer] = {name: array.shape for name, array in part.items()}
        bits = None if self.bits is None else {"test": self.bits[0], **self.bits[1]._asdict()}
        said: dict[str, Any] = plain(
            {
                "config": self.config,
                **{name: getattr(self, name) for name in figures},
                "bits": bits,
                "usage": self.usage,
                **tables,
                "weights": shapes,
                "descriptions": self.descriptions,
                "versions": self.versions,
            }
        )
        return said

    def __repr__(self) -> str:
        if not self.epochs:
            return f"<Results of {self.config['network']}: no epoch finished>"
        epochs = f"{self.epochs} epoch{'s' * (self.epochs != 1)}"
        return (
            f"<Results of {self.config['network']}: {epochs} in"
            f" {format_time_ps(self.virtual_time_ps)}, loss {self.history['train_loss'][-1]:.4f},"
            f" test accuracy {_percent(self.test_accuracy)}>"
        )

    def _repr_html_(self) -> str:
        h = self.history
        rows = [
            [
                str(h["epoch"][i]),
                f"{h['train_loss'][i]:.4f}",
                _percent(h["train_accuracy"][i]),
                _percent(h["test_accuracy"][i]),
                format_time_ps(int(h["virtual_time_ps"][i])),
            ]
            for i in range(self.epochs)
        ]
        config = self.config
        title = (
            f"{config['network']} on {plural(config['devices'], 'device')} ({config['cluster']}),"
            f" {config['schedule']}"
        )
        columns = ["epoch", "loss", "accuracy", "test accuracy", "virtual time"]
        return html_table(f"Results of {title}", rows, columns)


def _percent(share: float) -> str:
    return "unknown" if np.isnan(share) else f"{100 * share:.1f} %"


def results_of(
    plan: Plan,
    samples: int,
    history: Sequence[EpochRecord],
    weights: Weights,
    versions: Mapping[str, str],
    ngrams: NgramBits | None = None,
) -> Results:
    """Return the results of a run of a plan with `samples` training images; open settings are
    filled in.

    `ngrams` are the bits per character of the simplest models, to compare with those of a text's
    network.
    """
    growing = growing_of(plan, samples, history := History.of(history), ngrams).joined()
    results = fixed_results(plan, samples, history, weights, versions, ngrams)
    tables = {
        name: getattr(results, name) | growing.get(name, {})
        for name, form in TABLES.items()
        if form.grows
    }
    return dataclasses.replace(results, **tables)


def fixed_results(
    plan: Plan,
    samples: int,
    history: History,
    weights: Weights,
    versions: Mapping[str, str],
    ngrams: NgramBits | None = None,
) -> Results:
    """Return `results_of` without what grows with the history."""
    config = {
        **plan.config.model_dump(),
        "devices": (
            plan.config.devices or (plan.nodes if plan.config.schedule.replicates else plan.devices)
        ),
        "data": data_of(plan),
        "samples": samples,
    }
    descriptions = {
        "network.toml": plan.network.text,
        "cluster.toml": plan.cluster.text,
        "mapping": plan.mapping_text,
        "missing_bytes": str(plan.missing_bytes),
    }
    if plan.config.faults is not None and plan.faults_text:
        descriptions["faults.json"] = plan.faults_text
    if isinstance(plan.config.schedule, EditedKind):
        descriptions["schedule.txt"] = plan.config.schedule.text
    usage = history[-1].usage if history else None
    columns = {} if history else history_rows(np.empty(0, ROW), ngrams)
    messages = message_columns(history[0].sizes, epoch_steps(plan, samples)) if history else {}
    resources = resource_table(history[-1].resources if history else ())
    tables = columns, device_table(usage), link_table(usage), weights
    model = plan.network if isinstance(plan.network, TorchNetwork) else None
    return Results(
        *(config, descriptions, dict(versions), *tables),
        messages=messages,
        resources=resources,
        model=model,
    )


def versions(mpi: str) -> dict[str, str]:
    """Return the versions of everything that a run depends on; `mpi` is that of the MPI library."""
    import h5py

    from .... import __version__

    return {
        "emuchain": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": importlib.metadata.version("numba"),
        "llvmlite": importlib.metadata.version("llvmlite"),
        "h5py": h5py.__version__,
        "hdf5": h5py.version.hdf5_version,
        "mpi": mpi,
        "platform": system_name(),
        "processor": platform.machine(),
        "command": " ".join(sys.argv),
    }


@dataclasses.dataclass(frozen=True)
class SeedRuns(Figures):
    """The results of runs that differ only in their seeds, in the order of these."""

    _figures = "seeds test_accuracy train_loss results"

    results: tuple[Results, ...]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(int(run.config["seed"]) for run in self.results)

    @property
    def test_accuracy(self) -> Mean | None:
        """The mean test accuracy after the last epoch, as a share; None without one."""
        accuracies = [run.test_accuracy for run in self.results]
        known = [accuracy for accuracy in accuracies if not np.isnan(accuracy)]
        return Mean.over(known) if len(known) == len(accuracies) else None

    @property
    def train_loss(self) -> Mean:
        """The mean loss in the last epoch."""
        return self.curve("train_loss")[-1]

    def curve(self, column: str) -> list[Mean]:
        """Return the means of a column of the history, such as "test_accuracy", by epoch."""
        return [
            Mean.over(list(map(float, values)))
            for values in zip(*self._columns(column), strict=True)
        ]

    def _columns(self, column: str) -> Sequence[Any]:
        return [run.history[column] for run in self.results]

    def __repr__(self) -> str:
        accuracy = self.test_accuracy
        accuracy_text = (
            "" if accuracy is None else f", test accuracy {accuracy.times(100).shown(2)} %"
        )
        return (
            f"<Runs of seeds {', '.join(map(str, self.seeds))}{accuracy_text}, train loss"
            f" {self.train_loss.shown(4)}>"
        )
