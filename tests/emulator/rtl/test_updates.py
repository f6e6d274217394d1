"""Mutations of biases and of updates: what `emuchain rtl --simulate` says of them, in one line.

With biases of 0 and one mini-batch, most of them have the bits of training.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.commands.rtl import write_rtl
from emuchain.emulator.common import tomllib
from emuchain.emulator.rtl import (
    Rtl,
    clocks_of,
    designs_of,
    drawn_biases,
    drawn_images,
    generate,
    run_mini_batches,
    sources,
)
from emuchain.emulator.run import trained_mini_batches

from .chains import TWO_LAYERS, Mutation, cluster, plan, simulated
from .test_drawn import drawn_chain

NETWORK = """
name = "small"
input = [2, 3, 2]
layers = [
  { type = "conv", channels = 6, kernel = 1 }, { type = "relu" },
  { type = "conv", channels = 2, kernel = 2 }, { type = "relu" },
  { type = "fc", features = 2 }, { type = "softmax" },
]
"""
BOARDS = """
name = "small"
[[boards]]
name = "small"
clock_mhz = 200
dsp = 60
on_chip_memory_kbit = 5000
[links]
bandwidth_gbps = 8
latency_ns = 100
"""
SMALL = tomllib.loads(NETWORK)
"""Each layer has a bias, and convolutions' weights enter an update in several groups."""

EARLY = 194
"""A drawn chain in which rows of a mini-batch come to the second device before it has updated after
the one before.
"""

MUTATIONS = {
    "no bias is added": Mutation("bias", ".c(bias_words[lane*32+:32])", ".c('0)"),
    "momentum is forgotten": Mutation("update", ".a(momentum), .b(v_late)", ".a('0), .b(v_late)"),
    "velocities are not kept": Mutation(
        "update", "if (write) velocity[write_group] <= new_velocity;", ""
    ),
    "all velocities are those of the first group": Mutation(
        "update", "kept ? velocity[group]", "kept ? velocity[0]"
    ),
    "all channels have the last one's bias": Mutation(
        "bias", "CHANNEL_BITS'(int'(value_at) % CHANNELS)", "CHANNEL_BITS'(CHANNELS - 1)"
    ),
    "gradients of weights go on from the mini-batch before": Mutation(
        "pg_engine", "first_row <= sample == limit - batch", "first_row <= sample == '0"
    ),
    "gradients of biases go on from the mini-batch before": Mutation(
        "bias", "first_row <= sum_sample == limit - batch", "first_row <= sum_sample == '0"
    ),
    "the learning rate counts twice": Mutation(
        "update", ".a(moved), .b(MINUS_ONE)", ".a(moved), .b({1'b1, rate[30:0]})"
    ),
    "gradients are summed, not averaged": Mutation(
        "update", ".b(share), .c(MINUS_ZERO)", ".b(ONE), .c(MINUS_ZERO)"
    ),
}

TRIED = ["no bias is added", "momentum is forgotten", "velocities are not kept"]
"""Those that are tried each time: of biases, of the update's arithmetic, and of what it keeps."""


def said_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status of a simulation on one device, and the line of its answer that speaks of
    weights.
    """
    for name, text in (("network", NETWORK), ("cluster", BOARDS)):
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    flags: dict[str, Any] = {name: str(folder / f"{name}.toml") for name in ("network", "cluster")}
    result = write_rtl(flags, str(folder / "rtl"), latency=0, simulate=True, waves=None)
    result.show()
    answer = capsys.readouterr().out.replace("\n  ", " ")  # lines that go on are indented
    [line] = [line for line in answer.splitlines() if line.startswith("weights: ")]
    return result.status, line


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
def test_without_mutations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line is the same, whatever the network, but for the number of weights: 12 + 6, 48 + 2 and
    8 + 2 here.
    """
    same = (
        "weights: after 2 mini-batches of 2 samples all 78 are bit-identical to `emuchain train`'s"
    )
    assert said_of(tmp_path, capsys) == (0, same)


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
@pytest.mark.parametrize(
    "name",
    [
        *TRIED,
        *(
            pytest.param(name, marks=pytest.mark.sampled(3))
            for name in MUTATIONS
            if name not in TRIED
        ),
    ],
)
def test_mutations_are_reported(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mutation = MUTATIONS[name]
    modules = [tmp_path / module.name for module in sources()]
    for module, path in zip(sources(), modules, strict=True):
        text = module.read_text(encoding="utf-8")
        if module.stem == mutation.module:
            assert text.count(mutation.old) == 1
            text = text.replace(mutation.old, mutation.new)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(generate, "sources", lambda: modules)
    status, line = said_of(tmp_path, capsys)
    assert status == 1
    assert line.startswith(
        "weights: after 2 mini-batches of 2 samples they DIFFER from those of training: "
    )


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
def test_each_update_has_its_learning_rate(tmp_path: Path) -> None:
    """By a warm-up the first has half of the second's."""
    of = plan(SMALL, cluster(60), 1, lr_warm_up=2)
    reference = trained_mini_batches(of, drawn_images(of))
    assert [batch.rate for batch in reference.batches] == [0.025, 0.05]
    assert simulated(of, tmp_path).is_right


def test_biases_are_drawn_by_the_seed_alone() -> None:
    """Within 1 / sqrt(weights of an output), none of them 0, others for each layer; training begins
    with them.
    """
    of = plan(SMALL, cluster(60), 1, batch=3, seed=5)
    layers = of.network.layers
    drawn = [drawn_biases(layer, 5) for layer in layers]
    for layer, biases in zip(layers, drawn, strict=True):
        most = float(np.prod(layer.weight_shape[1:])) ** -0.5
        assert np.all((biases != 0) & (np.abs(biases) <= most))
        assert np.unique(biases).size == layer.channels
        assert not np.array_equal(biases, drawn_biases(layer, 6))
    assert not np.array_equal(drawn[1] * 24**0.5, drawn[2] * 4**0.5)
    for batch in (1, 3):
        other = plan(SMALL, cluster(60), 1, batch=batch, seed=5)
        before = trained_mini_batches(other, drawn_images(other)).before
        for layer, biases in zip(layers, drawn, strict=True):
            assert before[layer.name]["bias"].tobytes() == biases.tobytes()


def test_the_first_device_updates_before_the_next_images_enter() -> None:
    """Its rows of the second mini-batch start after that; the chain then takes as long as for the
    first.
    """
    of = plan(TWO_LAYERS, cluster(40), 2, batch=3)
    designs = designs_of(of)
    clocks = clocks_of(of, designs)
    first, second = run_mini_batches(clocks, 3, 2)
    assert second == Rtl.of(of).updated_ps[-1]
    again = clocks_of(of, designs)
    assert run_mini_batches(again, 3, 1) == (first,)
    assert int(clocks[0].parts[0].fp_start_ps[0]) > again[0].updated_ps
    assert second - first >= first - designs[0].period_ps


def test_memories_have_room_for_a_mini_batch_that_comes_early() -> None:
    """The first device updates before the second has summed its gradients; of 400 drawn chains in
    three.
    """
    of, latency = drawn_chain(EARLY)
    designs = designs_of(of, latency)

    def held(mini_batches: int) -> list[int]:
        clocks = clocks_of(of, designs)
        run_mini_batches(clocks, of.config.batch, mini_batches)
        return [part.room.samples for clock in clocks for part in clock.parts]

    assert (held(1), held(2), held(5)) == ([1, 1, 1, 1], [1, 2, 1, 1], [1, 2, 1, 1])
    assert [room.samples for rooms in Rtl.of(of, latency).rooms for room in rooms] == held(2)


@pytest.mark.slow
@pytest.mark.usefixtures("verilator")
def test_a_mini_batch_that_comes_early(tmp_path: Path) -> None:
    of, latency = drawn_chain(EARLY)
    assert simulated(of, tmp_path, latency).is_right
