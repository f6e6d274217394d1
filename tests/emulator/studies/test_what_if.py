"""`simulate --what-if`: a run beside the same run with other values."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.cluster import changeable_keys, load_cluster
from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.common import InputError
from emuchain.emulator.studies import Compared, parse_what_if
from emuchain.emulator.studies.what_if import CONFIG_KEYS

from ..counted import COUNTED_WORDS

RUN = ["simulate", "--network", "quick-cifar", "--devices", "4", "--samples", "20", "--batch", "5"]


def simulated(*arguments: str) -> dict[str, Any]:
    outcome = CliRunner().invoke(commands, [*RUN, *arguments, "--json"])
    assert outcome.exit_code == 0, outcome.output
    found: dict[str, Any] = json.loads(outcome.output)
    return found


def what_if(*changes: str) -> dict[str, Any]:
    return simulated(*[word for change in changes for word in ("--what-if", change)])


def without_config(run: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in run.items() if key != "config"}


def test_equal_values_change_nothing() -> None:
    found = what_if(
        "link.bandwidth_gbps=150",
        "board.dsp = 3600",
        "devices=4",
        "schedule=fpdeep",
        'cluster="vc709"',
    )
    other = found.pop("what_if")
    assert other["run"] == found
    assert {compared["ratio"] for compared in other["figures"].values()} == {1}


def test_it_is_the_run_with_those_values() -> None:
    """Keys of the configuration act as flags do, those of the cluster as in a file with such
    values.
    """
    found = what_if("devices=3", "schedule=sync", "link.bandwidth_gbps=10", "batch=4")["what_if"]
    asked = simulated(
        "--devices", "3", "--schedule", "sync", "--cluster", "vc709-10g", "--batch", "4"
    )
    assert without_config(found["run"]) == without_config(asked)
    assert found["changes"] == {
        "link.bandwidth_gbps": 10,
        "devices": 3,
        "schedule": "sync",
        "batch": 4,
    }
    figures = found["figures"]["steady_images_per_s"]
    assert figures["after"] == asked["steady"]["images_per_s"]
    assert figures["ratio"] == figures["after"] / figures["before"]


def test_power_gives_energy() -> None:
    steady = what_if("board.power_w=30")["what_if"]["run"]["steady"]
    for layers in ("convolutions", "all_layers"):
        assert steady[layers]["gop_per_j"] * 30 == pytest.approx(steady[layers]["gops_per_fpga"])


def test_twice_the_clock_is_twice_as_fast_where_engines_are_the_bottleneck() -> None:
    figures = what_if("board.clock_mhz=200", "link.latency_ns=0")["what_if"]["figures"]
    twice = 11_765 / 5882  # whole picoseconds of 85 % of 100 and of 200 MHz
    assert figures["steady_images_per_s"]["ratio"] == pytest.approx(twice)
    assert figures["all_layers_gops_per_fpga"]["ratio"] == pytest.approx(twice)
    assert figures["steady_epoch_hours"]["ratio"] == pytest.approx(1 / twice)


def test_epoch_images() -> None:
    found = simulated("--epoch-images", "500")["steady"]
    assert found["epoch_hours"] * 3600 * found["images_per_s"] == pytest.approx(500)
    assert found["epochs_per_hour"] == pytest.approx(1 / found["epoch_hours"])
    assert simulated()["steady"]["epoch_images"] == 1_281_167


def test_tables_side_by_side() -> None:
    words = ("--what-if", "link.bandwidth_gbps=0.001")
    outcome = CliRunner().invoke(commands, [*RUN, *COUNTED_WORDS, *words])
    assert outcome.exit_code == 0
    for line in ("What if link.bandwidth_gbps = 0.001", "steady_images_per_s", "limit: ", "next: "):
        assert line in outcome.output
    assert "limit: link " in outcome.output[outcome.output.index("What if") :]


BAD = {
    "unknown key": (
        "link.bandwith_gbps=3",
        ["unknown key `link.bandwith_gbps`", "did you mean `link.bandwidth_gbps`?"],
    ),
    "no value": ("devices", ["expected KEY=VALUE"]),
    "out of range": ("link.bandwidth_gbps=0", ["`links.bandwidth_gbps` = 0"]),
    "a word for a number": ("board.clock_mhz=fast", ["`boards[0].clock_mhz` = 'fast'"]),
    "not a whole number": ("board.dsp=3.5", ["`boards[0].dsp` = 3.5"]),
    "too few multipliers": ("board.dsp=1", ["gives its engines 1 multiplier"]),
    "too many devices": ("devices=385", ["`devices` = 385", "384"]),
    "another batch": ("batch=-1", ["`batch` = -1"]),
    "no such cluster": ("cluster=vc700", ["`cluster` = 'vc700'", "vc709"]),
    "a seed, which changes no time": ("seed=3", ["unknown key `seed`"]),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(one_line: Callable[[pytest.ExceptionInfo[Exception]], str], name: str) -> None:
    change, message = BAD[name]
    with pytest.raises(InputError) as error:
        commands.main([*RUN, "--what-if", change], standalone_mode=False)
    line = one_line(error)
    for part in message:
        assert part in line


def test_the_same_key_twice() -> None:
    with pytest.raises(InputError, match="`batch` is given twice"):
        parse_what_if(["batch=1", "batch=2"])


@given(st.sampled_from([*CONFIG_KEYS, *changeable_keys()]), st.text(max_size=8))
def test_any_value_is_parsed(key: str, value: str) -> None:
    found = parse_what_if([f"{key}={value}"])
    assert set({**found.cluster, **found.config}) == {key}
    assert bool(found.config) == (key in CONFIG_KEYS)


@given(
    st.sampled_from(changeable_keys()),
    st.integers(-2, 10**6) | st.floats() | st.text(max_size=3) | st.booleans(),
)
def test_a_change_gives_a_cluster_or_an_error_of_one_line(key: str, value: object) -> None:
    unchanged = load_cluster("vc709")
    try:
        changed = load_cluster("vc709", {key: value}, blame="--what-if")
    except InputError as error:
        assert str(error).startswith("--what-if: ")
        assert len(str(error).splitlines()) == 1
    else:
        assert (changed.name, len(changed.boards)) == (unchanged.name, len(unchanged.boards))


def test_a_change_applies_to_all_boards_and_links() -> None:
    changed = load_cluster("vc709", {"board.dsp": 7, "board.power_w": 2.5, "link.latency_ns": 3})
    assert {(board.dsp, board.power_w) for board in changed.boards} == {(7, 2.5)}
    assert changed.link.latency_ps == 3000
    assert changed.link.bandwidth_mbps == load_cluster("vc709").link.bandwidth_mbps


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [
        (2, 3, 1.5),
        (0.1, 0.1, 1),
        (0, 0, 1),
        (None, None, 1),
        (0, 3, None),
        (None, 3, None),
        (3, None, None),
        (4, 0, 0),
    ],
)
def test_ratios(before: float | None, after: float | None, ratio: float | None) -> None:
    assert Compared("x", before, after).ratio == ratio
