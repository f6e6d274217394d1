"""Plans on boards whose multipliers are built: within what the boards have, or an error that says
what is short.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import emuchain
from emuchain.emulator.common import InputError
from emuchain.emulator.plan import ChainPlan

BOARDS = ["u280", "u55c", "u250", "u50", "520n", "vck5000", "zcu102", "vc709", "vcu118"]
NETWORKS = [
    *["lenet-mnist", "quick-cifar", "hdc", "resnet8-cifar", "inception-cifar"] * 4,
    *["resnet20-cifar", "resnet18-cifar", "vgg11-cifar", "alexnet-cifar"] * 2,
    *["char-lstm", "char-gpt", "vit-tiny-cifar"],
]
IN_SINGLE = {"char-lstm", "char-gpt", "vit-tiny-cifar"}
"""Networks that are drawn in single precision alone."""
PLANS, BATCHES = 200, 8
SHORT = "look-up tables|flip-flops|DSPs|of memory are missing|multipliers|devices"
"""What an error may say is short."""


def plan_on(kind: str, network: str, devices: int, **keys: Any) -> ChainPlan:
    """A plan on boards of a type; keys of the board begin with `board_`."""
    of_board = {key[6:]: keys.pop(key) for key in [*keys] if key.startswith("board_")}
    links = {"bandwidth_gbps": 100, "latency_ns": 1000}
    cluster = {"name": "limited", "boards": [{"type": kind, **of_board}], "links": links}
    return emuchain.plan(network, cluster, devices=devices, **keys)


def drawn(rng: random.Random) -> dict[str, Any]:
    """A network, boards and a precision; of some boards fewer look-up tables, or all of them for
    engines.
    """
    network = rng.choice(NETWORKS)
    keys: dict[str, Any] = {
        "kind": rng.choice(BOARDS),
        "network": network,
        "devices": rng.randint(1, 24),
        "precision": "fp32"
        if network in IN_SINGLE
        else rng.choice(["fp32", "bf16", "int8", "mxfp8"]),
    }
    if network in IN_SINGLE:
        keys |= {"devices": rng.randint(1, 3)}
    if rng.random() < 0.3:
        keys |= {"board_lut_share": 1.0, "board_dsp_share": rng.choice([0.4, 1.0])}
    if rng.random() < 0.2:
        # A ZCU102, which has fewest, has 274,080.
        keys |= {"board_lut": rng.randint(100_000, 250_000), "board_shell_lut": 0}
    return keys


def fullest(plan: ChainPlan) -> dict[str, float]:
    """The largest share of each resource that a device takes."""
    layout = plan.layout()
    shares: dict[str, float] = {}
    for device in layout.devices:
        used = layout.utilisation(device)
        for kind in ("dsp", "lut", "ff", "bram"):
            share = used[f"{kind}_share"]
            assert share is not None
            shares[kind] = max(share, shares.get(kind, 0))
    return shares


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_resource_is_above_its_limit(batch: int) -> None:
    rng = random.Random(batch)
    shares = []
    for _ in range(PLANS // BATCHES):
        keys = drawn(rng)
        try:
            shares.append(fullest(plan_on(**keys)))
        except InputError as error:
            assert any(word in str(error) for word in SHORT.split("|")), keys
    assert max(max(of_plan.values()) for of_plan in shares) <= 1
    # Almost all of what a board has is used somewhere, so limits were reached.
    assert max(of_plan["lut"] for of_plan in shares) > 0.9
    assert len(shares) >= PLANS / BATCHES / 2


MACHINES = {"1f1b-as": "shared", "1f1b-sno": "turns", "gpipe": "turns", "zero-bubble": "turns"}
"""Schedules of boards that take actions as a whole."""


@pytest.mark.slow
def test_actions_are_within_limits_too() -> None:
    """One set of engines for all layers, and data of stages that find room."""
    rng = random.Random(54)
    planned = 0
    for _ in range(PLANS // 4):
        keys = drawn(rng)
        schedule = rng.choice([*MACHINES])
        keys |= {"devices": min(keys["devices"], 4), "batch": 64, "schedule": schedule}
        try:
            plan = plan_on(**keys, engines=MACHINES[schedule])
        except InputError as error:
            assert any(word in str(error) for word in [*SHORT.split("|"), "needs"]), keys
            continue
        planned += 1
        for stage in range(plan.stage_count):
            board = plan.cluster.board(stage)
            [taken] = board.engine_resources([board.multipliers])  # type: ignore[attr-defined]
            for kind, limit in board.limits.items():
                assert limit is None or getattr(taken, kind, 0) <= limit
            assert plan.stages is not None
            on_chip, off_chip = plan.stages.memory_bytes(stage)
            assert sum(on_chip) <= board.on_chip_memory_bytes  # type: ignore[attr-defined]
            assert off_chip <= (board.off_chip_memory_bytes or 0)  # type: ignore[attr-defined]
    assert planned >= PLANS // 8


def multipliers(plan: ChainPlan) -> int:
    """What the engines of the first board may have."""
    return plan.cluster.board(0).multipliers  # type: ignore[attr-defined,no-any-return]


def test_few_look_up_tables_shrink_the_engines() -> None:
    """Where buffers take a part of them: hdc's hardly do, and its engines get all."""
    keys: dict[str, Any] = {"board_lut_share": 1.0, "board_shell_lut": 0, "precision": "bf16"}
    before = 1 << 60
    for lut in (1_000_000, 500_000, 250_000):
        plan = plan_on("u280", "vgg11-cifar", 4, board_lut=lut, **keys)
        share = fullest(plan)["lut"]
        assert 0.9 < share <= 1
        built = plan_on("u280", "hdc", 4, board_lut=lut, **keys)
        assert multipliers(plan) < min(multipliers(built), before)
        before = multipliers(plan)


def test_enough_look_up_tables_leave_the_engines_alone() -> None:
    whole = emuchain.load_cluster("u280").board(0)
    assert plan_on("u280", "quick-cifar", 4).cluster.board(0).multipliers == whole.multipliers  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {
                "kind": "u280",
                "network": "vgg11-cifar",
                "devices": 4,
                "board_lut": 250_000,
                "schedule": "1f1b-as",
                "engines": "turns",
            },
            "no multiplier of fp32 can be built of what its shell leaves engines: ",
        ),
        (
            {
                "kind": "u280",
                "network": "vgg11-cifar",
                "devices": 4,
                "board_lut": 125_000,
                "board_lut_share": 1.0,
                "board_shell_lut": 0,
            },
            "look-up tables and has 125,000, which leaves its engines too few multipliers;"
            " `devices` = 16 or `precision` = 'int8' would do",
        ),
        (
            {"kind": "u280", "network": "quick-cifar", "devices": 2, "board_lut": 180_000},
            "multipliers of fp32 are built, which gives its engines 1 multiplier: conv2 of"
            " quick-cifar needs at least 27",
        ),
        (
            {"kind": "u280", "network": "vgg16", "devices": 2, "board_off_chip_memory_gbytes": 0.1},
            "of memory are missing on 2 devices, on device 0 first; nor do 8 boards, bf16 or int8",
        ),
    ],
)
def test_boards_with_too_little_end_with_what_would_do(
    one_line: Callable[[pytest.ExceptionInfo[Exception]], str], keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        plan_on(**keys)
    assert message in one_line(error)


def test_memory_that_is_ignored_is_no_error() -> None:
    keys: dict[str, Any] = {"board_off_chip_memory_gbytes": 0.1, "memory": "ignored"}
    assert plan_on("u280", "vgg16", 2, **keys).layout().missing_bytes


def test_boards_that_are_counted_may_be_over_their_limits() -> None:
    keys: dict[str, Any] = {"board_multipliers": "one-per-dsp", "board_dsp_share": 1.0}
    plan = plan_on("u280", "quick-cifar", 2, board_lut=400_000, **keys)
    assert plan.short_of_luts == (0, 1)


def test_survivors_of_a_death_are_within_their_limits() -> None:
    keys: dict[str, Any] = {"board_lut_share": 1.0, "board_lut": 250_000, "board_shell_lut": 0}
    plan = plan_on(
        "u280", "vgg11-cifar", 4, **keys, changes={"faults.deaths": [{"board": 1, "at_us": 5}]}
    )
    [left] = plan.survivors
    assert left.devices == 3
    assert fullest(left)["lut"] <= 1


def test_stages_of_one_board_are_within_its_limits_together() -> None:
    """Of a million look-up tables, the last of two stages of a board would take 435,048."""
    keys: dict[str, Any] = {"board_lut_share": 1.0, "board_shell_lut": 0}
    plan = plan_on("u280", "vgg11-cifar", 2, schedule="interleaved", board_lut=800_000, **keys)
    taken = [stage.resources.lut for stage in plan.layout().devices]
    assert len(taken) == 4
    assert 360_000 < max(taken) <= 400_000


def test_engines_of_a_board_get_what_its_own_buffers_leave() -> None:
    plan = plan_on("vc709", "resnet50", 16, batch=16)
    budgets = [plan.cluster.board(device).budget.lut for device in range(16)]
    assert min(budgets) < max(budgets) and budgets.count(max(budgets)) > 8
    assert max(budgets) == plan_on("vc709", "lenet-mnist", 1).cluster.board(0).budget.lut
    assert fullest(plan)["lut"] <= 1


@pytest.mark.parametrize("devices", [3, 9])
def test_a_plan_without_memory_is_not_limited_by_its_buffers(devices: int) -> None:
    """Of VGG-16's memories of few words, in LUTs, the last boards would have more than there
    are.
    """
    ignored, modelled = (
        plan_on("vc709", "vgg16-cifar", devices, memory=memory)
        for memory in ("ignored", "modelled")
    )
    assert fullest(ignored)["lut"] > 1 >= fullest(modelled)["lut"]
    assert ignored.fits_lut and not ignored.short_of_luts  # buffers are left out
    assert ignored.timing.interval_ps <= modelled.timing.interval_ps


def test_functions_that_need_more_than_engines_leave_room_for_slower_ones() -> None:
    """All 4-bit multipliers that fit would need more exponentials than fit."""
    layers = [
        {"type": "embedding", "features": 24},
        {"type": "conv", "channels": 72, "kernel": 1},
        {"type": "attention", "heads": 3},
        {"type": "conv", "channels": 24, "kernel": 1},
        {"type": "gelu"},
        {"type": "fc", "features": 8},
        {"type": "softmax"},
    ]
    network = {"name": "small", "input": [40, 24, 1], "layers": layers}
    plan = emuchain.plan(network, "vc709", devices=1, samples=4, batch=4, precision="mxfp4")
    [device] = plan.layout().devices
    board, engines, functions = device.board, device.engines, device.functions
    assert engines.lut < functions.lut, "functions take most"
    assert (board.lut or 0) / 2 < device.resources.lut <= (board.limits["lut"] or 0)
