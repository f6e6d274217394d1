"""`exchange = NAME`: replicas train by any collective; simulation takes the times of training; the
steps of INCEPTIONN's take the picoseconds of their closed forms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import h5py
import pytest

import emuchain
from emuchain.comm import Topology
from emuchain.comm.collective import Phase, as_text, check, collective_of, sums
from emuchain.comm.collective.levels import AggregatorNode
from emuchain.comm.collective.rings import Ring
from emuchain.emulator.common import InputError
from emuchain.kernels import withdraw

KEYS: dict[str, Any] = {
    "devices": 1,
    "replicas": 4,
    "batch": 16,
    "samples": 32,
    "test_samples": 8,
    "schedule": "sync",
    "seed": 1,
}
HOSTS = "hosts:boards=2,slower=3,latencies=5"
EACH = pytest.mark.parametrize("exchange", [*sums(), "rings:groups=2"])


class RingAgain(Ring):
    """INCEPTIONN's ring under another name, so that simulation plays its steps."""

    name: ClassVar[str] = "ring-again"


class AggregatorAgain(AggregatorNode):
    """INCEPTIONN's aggregator likewise."""

    name: ClassVar[str] = "aggregator-again"


@pytest.fixture(autouse=True)
def again() -> Iterator[None]:
    """Registers both."""
    for kind in (RingAgain, AggregatorAgain):
        emuchain.register(kind)
    yield
    for kind in (RingAgain, AggregatorAgain):
        withdraw(kind)


def trained(**keys: Any) -> tuple[dict[str, bytes], int]:
    """The bits of the weights, and the virtual time."""
    results = emuchain.train("quick-cifar", **{**KEYS, **keys})
    bits = {
        f"{layer}/{name}": array.tobytes()
        for layer, arrays in results.weights.items()
        for name, array in arrays.items()
    }
    return bits, results.virtual_time_ps


def simulated(**keys: Any) -> int:
    """The virtual time without numbers, which INCEPTIONN's exchanges have in closed form."""
    given = {key: value for key, value in {**KEYS, **keys}.items() if key != "test_samples"}
    return emuchain.simulate("quick-cifar", **given).virtual_time_ps


@EACH
@pytest.mark.parametrize("topology", ["switch", "torus", HOSTS])
def test_training_takes_the_time_of_simulation(exchange: str, topology: str) -> None:
    changes = {"network.topology": topology}
    keys = {"exchange": exchange, "changes": changes}
    if exchange == "switch" != topology:
        with pytest.raises(InputError, match=r"`network.topology` = '\w+'; should be 'switch'"):
            simulated(**keys)
        return
    assert trained(**keys)[1] == simulated(**keys)


ENDS = {
    "network.topology": "switch",
    "network.message_ns": 700,
    "network.start_us": 3,
    "network.send_ns": 400,
    "network.receive_ns": 900,
    "network.copy_gbytes_per_s": 2,
    "network.sum_start_ns": 300,
    "network.turn_bytes": 4096,
}
"""Costs of messages on links, and at their ends."""


@EACH
def test_costs_at_the_ends_are_those_of_simulation(exchange: str) -> None:
    changes = {**ENDS, "network.blocking": exchange == "ring"}
    keys = {"exchange": exchange, "changes": changes}
    taken = simulated(**keys)
    assert trained(**keys)[1] == taken
    assert taken > simulated(exchange=exchange, changes={"network.topology": "switch"})


@EACH
def test_sums_are_those_of_one_chain_but_for_their_order(exchange: str) -> None:
    alone = emuchain.train("quick-cifar", **{**KEYS, "replicas": 1}).weights
    keys = {**KEYS, "changes": {"network.topology": "switch"}}
    together = emuchain.train("quick-cifar", **keys, exchange=exchange).weights
    for layer, arrays in alone.items():
        for name, array in arrays.items():
            assert together[layer][name] == pytest.approx(array, abs=2e-6)


@pytest.mark.parametrize("name", ["ring", "aggregator"])
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"compress": "inceptionn:-10"},
        {"compress": "inceptionn:-8", "error_feedback": True},
        {"compress": "topk:0.1", "error_feedback": True, "changes": {"link.topology": "ring"}},
        {"changes": {"network.topology": "ring", "network.blocking": True}},
        {"changes": {"network.topology": HOSTS}},
    ],
    ids=str,
)
def test_steps_under_another_name_have_the_bits_and_times_of_inceptionns(
    name: str, keys: dict[str, Any]
) -> None:
    assert trained(exchange=f"{name}-again", **keys) == trained(exchange=name, **keys)
    assert simulated(exchange=f"{name}-again", **keys) == simulated(exchange=name, **keys)


@pytest.mark.parametrize("keys", [{}, {"compress": "inceptionn:-8", "error_feedback": True}])
def test_rings_are_a_ring_in_groups(keys: dict[str, Any]) -> None:
    assert trained(exchange="rings:groups=2", **keys) == trained(groups=2, **keys)
    assert simulated(exchange="rings:groups=2", **keys) == simulated(groups=2, **keys)


@pytest.mark.parametrize("mpiexec", ["mpich", "openmpi"], indirect=True)
@pytest.mark.parametrize("exchange", ["halving-doubling", "switch", "rings:groups=2"])
def test_ranks_give_the_same_bits(mpiexec: Any, tmp_path: Path, exchange: str) -> None:
    bits, time_ps = trained(exchange=exchange, changes={"network.topology": "switch"})
    out = tmp_path / "run.h5"
    flags = ["--set", "network.topology=switch"]
    for key, value in {**KEYS, "exchange": exchange, "out": out}.items():
        flags += [f"--{key.replace('_', '-')}", str(value)]
    mpiexec(3, ["-m", "emuchain", "train", "quick-cifar", *flags], timeout=200)
    with h5py.File(out) as file:
        ranks = {
            f"{layer}/{name}": array[()].tobytes()
            for layer, arrays in file["weights"].items()
            for name, array in arrays.items()
        }
    assert ranks == bits
    assert emuchain.results(str(out)).virtual_time_ps == time_ps


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"exchange": "rnig"}, "`exchange` = 'rnig': did you mean `ring`?"),
        ({"exchange": "linear-gather"}, "known: "),
        ({"exchange": "tree:groups=2"}, "`exchange` = 'tree:groups=2'"),
        (
            {"exchange": "doubling", "replicas": 3, "batch": 15, "samples": 30},
            "is of 2, 4, 8, ... ranks, not of 3",
        ),
        ({"exchange": "tree", "groups": 2}, "`groups` = 2 is of 'ring' and 'aggregator'"),
        ({"exchange": "doubling", "compress": "inceptionn:-10"}, "leave `compress` out"),
        ({"exchange": "rings:groups=3"}, "rings of 3 groups needs a multiple of as many ranks"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        emuchain.plan("quick-cifar", **{**KEYS, **keys})
    assert message in one_line(error)


def test_a_collective_that_loses_a_piece_is_refused() -> None:
    class Lossy(Ring):
        name: ClassVar[str] = "lossy"

        def phases(self, ranks: int, topology: Topology | None = None) -> list[Phase]:
            [phase] = super().phases(ranks)
            return [phase._replace(rounds=phase.rounds[:-1])]

    emuchain.register(Lossy)
    try:
        with pytest.raises(InputError, match="does not have the part of rank"):
            emuchain.plan("quick-cifar", **KEYS, exchange="lossy")
    finally:
        withdraw(Lossy)


def test_two_replicas_add_up_alike() -> None:
    """As a + b, whichever sends."""
    bits, *others = (
        trained(exchange=name, replicas=2)[0] for name in ("ring", "tree", "doubling", "linear")
    )
    assert all(other == bits for other in others)


@pytest.mark.parametrize("name", ["doubling", "halving-doubling", "tree"])
def test_steps_from_a_file_are_those_of_a_collective(tmp_path: Path, name: str) -> None:
    """Bits and times; the run has the steps, and needs no file any more."""
    path = tmp_path / "steps.txt"
    path.write_text("# by hand\n" + as_text(check(collective_of(name), KEYS["replicas"])))
    plan = emuchain.plan("quick-cifar", **KEYS, exchange=str(path))
    assert plan.config.exchange.startswith("pieces ")
    assert trained(exchange=str(path)) == trained(exchange=name)
    assert simulated(exchange=plan.config.exchange) == simulated(exchange=name)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no steps"),
        ("pieces 1\n0>3 0 add", "does not have the part"),
        ("pieces 1\n0>1 0 add, 2>1 0 add, 3>1 0 add\n1>0 0, 1>2 0", "rank 3, piece 0"),
        ("pieces 1\n0>1 0 add\n1>0 0", "those of 2 ranks, not of 4"),
        ("pieces 1\n0>9 0 add\n1>0 0", "those of 10 ranks, not of 4"),
        ("pieces 1\n0-1 0 add", "line 2"),
        ("rounds 1", "line 1: 'rounds 1'"),
    ],
    ids=str,
)
def test_steps_that_are_wrong_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "steps.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        emuchain.plan("quick-cifar", **KEYS, exchange=str(path))
    path.unlink()
    with pytest.raises(InputError, match=r"steps.txt.*cannot be read"):
        emuchain.plan("quick-cifar", **KEYS, exchange=str(path))


def test_rings_in_hosts_are_faster_than_one_ring() -> None:
    """Between hosts a link is ten times slower; a ring crosses it 6 times, leaders' twice."""
    changes = {"network.topology": "hosts:boards=2,slower=10,latencies=10"}
    both = [simulated(exchange=name, changes=changes) for name in ("ring", "rings:groups=2")]
    assert both[1] < both[0]
    with pytest.raises(InputError, match=r"`links.topology` = 'hosts'.*is of `\[network\]` alone"):
        simulated(changes={"link.topology": "hosts"})
