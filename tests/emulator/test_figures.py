"""`to_dict()` and `dir()` of everything that functions of `import emuchain` return."""

from __future__ import annotations

import dataclasses
import inspect
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.emulator.common import Figures, plain

GIVEN = {"InputError", "RateSchedule"}
"""What is raised, and what scripts extend: nothing returns them."""
ABSTRACT = {"Plan": "ChainPlan"}
CLASSES = [name for name in emuchain.__all__ if inspect.isclass(getattr(emuchain, name))]
RETURNED = [name for name in CLASSES if name not in GIVEN]
LINK = "message_bytes,message_us\n64,1\n1024,1.2\n65536,14\n1048576,210\n"


@dataclasses.dataclass(frozen=True)
class Made:
    """Makes one object of each class, in a folder for files."""

    folder: pathlib.Path

    def link(self) -> emuchain.LinkCalibration:
        (self.folder / "link.csv").write_text(LINK)
        return emuchain.calibrate_link(self.folder / "link.csv", out=self.folder / "link.toml")

    def board(self) -> emuchain.BoardCalibration:
        rows = "".join(f"{size},{2 * size**3 / 3e10}\n" for size in (256, 512, 1024))
        (self.folder / "board.csv").write_text("matrix_size,best_s\n" + rows)
        return emuchain.calibrate_board(self.folder / "board.csv", "vc709")

    def collective(self) -> emuchain.CollectiveCalibration:
        rows = "".join(
            f"allreduce,{nodes},{size},{nodes + size * 2e-4}\n"
            for nodes in (2, 4, 8)
            for size in (1024, 65536, 1048576)
        )
        (self.folder / "all.csv").write_text("collective,nodes,bytes,time_us\n" + rows)
        return emuchain.calibrate_collective(self.folder / "all.csv")

    def check(self) -> emuchain.Coverage:
        self.link()
        return emuchain.calibrate_check(self.folder / "link.toml", self.folder / "link.csv")

    def trained(self, **keys: Any) -> Any:
        return emuchain.train(
            samples=64, test_samples=32, epochs=1, devices=2, progress="none", **keys
        )

    def retimed(self) -> emuchain.Retiming:
        return emuchain.retime(self.trained(), "u280")

    def epoch(self) -> emuchain.EpochResult:
        kept: list[emuchain.EpochResult] = []
        self.trained(on_epoch=lambda result, _: kept.append(result))
        return kept[0]

    def torch(self) -> emuchain.TorchNetwork:
        network = emuchain.load_network("quick-cifar")
        return emuchain.TorchNetwork(
            **{field.name: getattr(network, field.name) for field in dataclasses.fields(network)}
        )


def plan(**keys: Any) -> Any:
    return emuchain.plan(**{"devices": 2, "samples": 64, **keys})


PAIR: Any = {"network": "lstm-5x1024", "cluster": "farnn-9p", "schedule": "farnn", "batch": 1}
STUDY: Any = {"data": "shapes", "samples": 64, "test_samples": 32, "seeds": 1, "jobs": 1}
MAKE: dict[str, Callable[[Made], Any]] = {
    "AnswerRange": lambda _: emuchain.rate_range(plan()),
    "BoardCalibration": Made.board,
    "ChainPlan": lambda _: plan(),
    "Cluster": lambda _: emuchain.load_cluster("vc709-10g", {"link.latency_ns": 300}),
    "CollectiveCalibration": Made.collective,
    "Coverage": Made.check,
    "Dataset": lambda _: emuchain.load_data("shapes"),
    "EpochResult": Made.epoch,
    "Evaluation": lambda made: emuchain.evaluate(made.trained()),
    "LinkCalibration": Made.link,
    "Network": lambda _: emuchain.load_network("resnet18-gn"),
    "PairPlan": lambda _: emuchain.plan(**PAIR),
    "PairSimulation": lambda _: emuchain.simulate(**PAIR),
    "Results": Made.trained,
    "Retiming": Made.retimed,
    "Schedule": lambda _: plan().schedule(64),
    "SeedRuns": lambda made: made.trained(seeds=2),
    "Simulation": lambda _: emuchain.simulate(plan()),
    "SteadyState": lambda _: emuchain.steady_state(plan()),
    "Study": lambda _: emuchain.study(**STUDY),
    "SweepResult": lambda _: emuchain.sweep("quick-cifar", devices=[1, 2], jobs=1),
    "TorchNetwork": Made.torch,
}


def test_every_class_is_made_here() -> None:
    assert {*MAKE} == {*RETURNED} - {*ABSTRACT}


@pytest.mark.parametrize("name", MAKE)
def test_figures(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON's values, without NaN, under names of attributes where they have one; few names."""
    monkeypatch.chdir(tmp_path)
    made = MAKE[name](Made(tmp_path))
    assert type(made) is getattr(emuchain, name)
    said = made.to_dict()
    assert said and json.loads(json.dumps(said, allow_nan=False)) == said
    assert len(json.dumps(said)) < 100_000
    shown = dir(made)
    assert "to_dict" in shown and not [known for known in shown if known.startswith("_")]
    assert len(shown) < 60
    for known in ("virtual_time_ps", "images_per_s", "test_accuracy", "devices", "name"):
        if hasattr(made, known) and isinstance(said.get(known), int | float | str):
            assert said[known] == plain(getattr(made, known))


def test_the_figures_of_each_are_its_attributes() -> None:
    """A name that is none would be seen only where `to_dict` is called."""
    for name in RETURNED:
        kind = getattr(emuchain, name)
        fields = {field.name for field in dataclasses.fields(kind)} if name != "EpochResult" else ()
        for figure in getattr(kind, "_figures", "").split():
            assert figure in fields or hasattr(kind, figure), (name, figure)


def test_descriptions_come_back() -> None:
    """What a network or a cluster says is what makes it again."""
    for name in ("quick-cifar", "gpt2", "resnet18-gn", "lstm-5x1024"):
        network = emuchain.load_network(name)
        assert emuchain.load_network(network.to_dict()) == network
    for name, changes in (("vc709", {"link.bandwidth_gbps": 5}), ("farnn-9p", {}), ("u280", {})):
        cluster = emuchain.load_cluster(name, changes)
        assert emuchain.load_cluster(cluster.to_dict()) == cluster


def test_values_of_json() -> None:
    @dataclasses.dataclass
    class Pair:
        left: Any
        right: Any

    class Said(Figures):
        _figures = "a b"
        a, b = np.float32(0.5), float("nan")
        c = 3

    given = {3: Pair(np.arange(2), Said()), "e": (1, None, "x"), "f": np.bool_(True)}
    assert plain(given) == {
        "3": {"left": [0, 1], "right": {"a": 0.5, "b": None}},
        "e": [1, None, "x"],
        "f": True,
    }
    assert plain(Pair) is Pair
