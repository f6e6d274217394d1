"""A package of its own adds an extension of each kind, by its entry point: nothing of emuchain
names it.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emuchain
from emuchain.comm import topologies, topology_of
from emuchain.emulator.common import read_toml
from emuchain.kernels import extensions, python_command
from emuchain.kernels.codec import codecs
from emuchain.kernels.jit import store
from emuchain.kernels.optimizers import Optimizer, optimizers, parse_optimizer

SOURCE = Path(__file__).parent / "extension"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the example: its modules, and what an installer writes
    beside them.
    """
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(SOURCE / "emuchain_example", folder / "emuchain_example")
    described = folder / "emuchain_example-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: emuchain-example\nVersion: 1.0\n"
    )
    (described / "entry_points.txt").write_text("[emuchain]\nexample = emuchain_example\n")
    return folder


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Run:
    """Runs a command of emuchain beside the installed example, or another folder of packages."""

    def command(
        *words: str, packages: Path = site, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(packages), "COLUMNS": "80"}
        done = subprocess.run(
            python_command("emuchain", *words),
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stderr
        return done

    return command


TRAIN = ("train", "example-net", "--data", "shapes", "--samples", "64", "--test-samples", "16")


def test_every_kind_of_extension_takes_part(run: Run, tmp_path: Path) -> None:
    """Network, operation, unit, cluster, board, topology with its shape, optimiser with its key,
    format, schedule, collective, learning rate.
    """
    own = ("--schedule", "one-each", "--precision", "fp12", "--optimizer", "slow-signum:beta3=0.99")
    done = run(
        *TRAIN, "--cluster", "example-mesh", "--devices", "6", *own, "--learning-rate", "0.001"
    )
    assert "example-net on 6 x Example" in done.stdout
    replicas = (
        "--replicas",
        "4",
        "--compress",
        "halves",
        "--set",
        "network.topology=mesh:shape=2x2",
        "--exchange",
        "relay:parts=4",
    )
    assert "halves" in run(*TRAIN, "--devices", "4", *replicas).stdout
    assert run("hello", "you").stdout == "hello you\n"
    done = run(*TRAIN, "--lr-schedule", "root:every=0.5", "--log", "csv", "--batch", "32")
    rows = (tmp_path / "log.csv").read_text().splitlines()[1:]
    assert [float(row.split(",")[3]) for row in rows] == pytest.approx([0.01, 0.01 / 3**0.5])
    assert "hello" in run("--help").stdout
    assert "example-net" in run("network").stdout


def test_its_installer_writes_what_emuchain_reads(site: Path) -> None:
    """The example's pyproject.toml has the entry point that `site` has."""
    described = read_toml(SOURCE / "pyproject.toml")["project"]["entry-points"]["emuchain"]
    (folder,) = site.glob("*.dist-info")
    lines = (folder / "entry_points.txt").read_text().splitlines()
    assert lines == ["[emuchain]", *(f"{name} = {value}" for name, value in described.items())]


def test_it_compiles_no_kernel_of_ours(run: Run, site: Path) -> None:
    run(*TRAIN, "--optimizer", "slow-signum")
    kept = {path: path.stat().st_mtime_ns for path in store.where().glob(f"{store.ROOM}.*")}
    (site / "emuchain_example" / "slow_signum.py").open("a").write("\n")
    run(*TRAIN, "--optimizer", "slow-signum")
    assert {path: path.stat().st_mtime_ns for path in store.where().glob(f"{store.ROOM}.*")} == kept


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--optimizer", "slow-signum:beta4=1"),
            "'beta4=1' of `slow-signum:beta4=1` should be KEY=VALUE, with one of beta3",
        ),
        (
            ("--optimizer", "slow-signum:beta3=fast"),
            "`beta3` of `slow-signum:beta3=fast` should be a finite number",
        ),
        (
            ("--optimizer", "slow-signum:beta3=nan"),
            "`beta3` of `slow-signum:beta3=nan` should be a finite number",
        ),
        (("--optimizer", "slow-signum:"), "'' of `slow-signum:` should be KEY=VALUE"),
        (("--optimizer", "slow-signom"), "slow-signum"),
        (
            ("--set", "links.topology=mesh:shape=2x2", "--devices", "6"),
            "a mesh of 2 x 2 has 4 places for 6 boards",
        ),
        (
            ("--set", "links.topology=mesh:shape=big", "--devices", "6"),
            "should be whole numbers above 0, such as 4x6",
        ),
    ],
)
def test_keys_that_an_extension_does_not_take(run: Run, words: tuple[str, ...], said: str) -> None:
    message = run("train", "example-net", "--data", "shapes", *words, status=2).stderr
    assert said in " ".join(message.split())
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sgd:", "'' of `sgd:` is too much; write `sgd`"),
        ("sgd:momentum=0.5", "`momentum` is a key for itself; write `sgd`, and give it apart"),
        ("adam:beta1=0.5", "`beta1` is a key for itself; write `adam`, and give it apart"),
        ("sgd:beta3=1", "'beta3=1' of `sgd:beta3=1` is too much; write `sgd`"),
    ],
)
def test_keys_of_every_run_are_not_an_optimisers_own(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_optimizer(text)


def test_a_key_without_a_value_of_its_own_is_asked_for() -> None:
    @dataclasses.dataclass(frozen=True)
    class Needs:
        rate: float
        start: int
        scale: float = 1.0

    kinds = {"needs": Needs}
    assert extensions.spelled("needs:start=3,scale=0.5", kinds, ["rate"]) == (
        Needs,
        {"start": 3, "scale": 0.5},
    )
    for text, written in (
        ("needs", "needs:start=..."),
        ("needs:scale=2", "needs:scale=2,start=..."),
    ):
        with pytest.raises(
            ValueError, match=f"`{text}` needs `start`: write `{re.escape(written)}`"
        ):
            extensions.spelled(text, kinds, ["rate"])


@pytest.mark.parametrize("shape", ["2x3x1", "-2x-3", "0x3", "2", "x", "", "1e3x2", "2x3 "])
def test_a_shape_has_whole_numbers_above_zero(shape: str) -> None:
    with pytest.raises(ValueError, match="shape"):
        topology_of(f"torus:shape={shape}")
    assert topology_of("torus:shape=2x3").problem(6) is None


BROKEN: Mapping[str, tuple[str, str]] = {
    "no such module": ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
    "a name that is taken": (
        "from emuchain.kernels.optimizers import Sgd\n\nclass Other(Sgd):\n    name = 'adam'\n",
        "is the name of emuchain.kernels.optimizers.adam.Adam; rename one of them",
    ),
}


@pytest.mark.parametrize(("text", "said"), BROKEN.values(), ids=BROKEN)
def test_an_extension_that_is_broken_is_named(
    run: Run, tmp_path: Path, text: str, said: str
) -> None:
    folder = tmp_path / "packages"
    described = folder / "broken-2.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 2.0\n")
    (described / "entry_points.txt").write_text("[emuchain]\nbroken = broken_extension\n")
    (folder / "broken_extension.py").write_text(text)
    message = run("plan", "quick-cifar", packages=folder, status=2).stderr
    assert said in " ".join(message.split())
    assert message.startswith("emuchain: error: ")


def test_nothing_of_the_current_folder_is_an_extension(run: Run, tmp_path: Path) -> None:
    described = tmp_path / "evil-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[emuchain]\nevil = evil\n")
    (tmp_path / "evil.py").write_text("raise SystemExit('run')\n")
    for packages in (Path("."), Path("")):
        run("plan", "quick-cifar", packages=packages)


class Twice(Optimizer):
    """An optimiser of this file."""

    name = "twice"
    states = ()
    states_beside_lgb = 0

    def update(self, value, gradient, states, *, count, number):  # type: ignore[no-untyped-def]
        """See `Optimizer`."""
        value -= 2 * self.learning_rate * gradient / count


def test_what_is_registered_takes_part() -> None:
    assert "twice" not in optimizers()
    assert "mesh" not in topologies()
    try:
        emuchain.register(Twice)
        emuchain.register(Twice)
        assert optimizers()["twice"] is Twice
        assert parse_optimizer("twice") == (Twice, {})
        keys: dict[str, Any] = {
            "data": "shapes",
            "samples": 128,
            "test_samples": 16,
            "weight_decay": 0,
        }
        twice = emuchain.train("quick-cifar", optimizer="twice", **keys)
        sgd = emuchain.train("quick-cifar", learning_rate=0.02, momentum=0, **keys)
        for layer, arrays in sgd.weights.items():
            for name, array in arrays.items():
                np.testing.assert_allclose(twice.weights[layer][name], array, rtol=1e-4, atol=1e-6)
        assert len(codecs()) == len({*codecs()})
    finally:
        extensions.withdraw(Twice)
    assert "twice" not in optimizers()


def test_what_is_registered_at_a_prompt_takes_part() -> None:
    """Where a class's module has no file, networks and boards are looked up all the same."""
    prompt = type("AtPrompt", (Twice,), {"name": "at-prompt", "__module__": "builtins"})
    try:
        emuchain.register(prompt)
        assert emuchain.plan("lenet-mnist", optimizer="at-prompt").network.name == "lenet-mnist"
    finally:
        extensions.withdraw(prompt)


@pytest.mark.parametrize("thing", [3, "twice", int, np, object(), Path("codec.py")])
def test_what_is_no_extension_is_not_registered(thing: object) -> None:
    with pytest.raises(
        emuchain.InputError,
        match="is no extension; should be a subclass or a value of one of Codec",
    ):
        emuchain.register(thing)


def test_a_name_that_is_taken_is_not_registered() -> None:
    class Again(Twice):
        name = "sgd"

    with pytest.raises(emuchain.InputError, match="`sgd` is the name of .*; rename one of them"):
        emuchain.register(Again)
    assert optimizers()["sgd"].__name__ == "Sgd"
