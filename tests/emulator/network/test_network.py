"""Networks: the shapes of a user's own, the tensors that pass layers by, and how the command prints
them.
"""

from __future__ import annotations

from pathlib import Path

import click.testing

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.common import tomllib, validate
from emuchain.emulator.network import Tensor, load_network
from emuchain.emulator.network.description import Description
from emuchain.emulator.network.graph import resolve

from .descriptions import CONV, FC, SOFTMAX, described

GOOD = """
name = "mine"
input = [3, 9, 7]
start = "xavier"
layers = [
  { type = "conv", channels = 4, kernel = [3, 2], stride = [2, 1], pad = [1, 0], bias = false, name = "one" },
  { type = "relu" },
  { type = "lrn", size = 3, alpha = 1e-3, beta = 0.5, k = 1 },
  { type = "max-pool", kernel = 2, stride = 1, pad = 1 },
  { type = "average-pool", kernel = [2, 3] },
  { type = "dropout", rate = 0.25 },
  { type = "fc", features = 5 },
  { type = "softmax" },
]
"""


def test_a_users_network(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    network = load_network(str(path))
    assert (network.name, network.input, network.start, network.classes) == (
        "mine",
        (3, 9, 7),
        "xavier",
        5,
    )
    one, fc = network.layers
    # Rows (9 + 2 - 3) / 2 + 1 = 5, columns 7 - 2 + 1 = 6; max-pool 6 and 7, average-pool 3 and 2.
    assert (one.name, one.output, one.feeds, one.weight_shape) == (
        "one",
        (4, 5, 6),
        (4, 3, 2),
        (4, 3, 3, 2),
    )
    assert [step.output for step in one.sfu] == [
        (4, 5, 6),
        (4, 5, 6),
        (4, 6, 7),
        (4, 3, 2),
        (4, 3, 2),
    ]
    assert [step.input for step in one.sfu[1:]] == [step.output for step in one.sfu[:-1]]
    assert (fc.name, fc.convolves, fc.input) == ("fc1", False, (4, 3, 2))
    assert (fc.output, fc.weight_shape) == ((5, 1, 1), (5, 4, 3, 2))
    assert (one.macs, fc.macs) == (4 * 3 * 6 * 30, 5 * 24)
    assert network.macs == 4 * 3 * 6 * 30 + 5 * 24
    assert network.parameters == 4 * 3 * 6 + 5 * 24 + 5  # no bias in the first


def test_what_passes_by() -> None:
    """A shortcut over two layers, and one of the two reads what passes by."""
    text = described(
        CONV + ', pad = 1, name = "a"',
        'type = "relu", name = "b"',
        CONV + ', pad = 1, name = "c"',
        CONV + ', pad = 1, name = "d", from = "b"',
        'type = "add", from = ["d", "c", "b"]',
        FC,
        SOFTMAX,
    )
    table = tomllib.loads(text)
    a, c, d, fc = resolve(validate(Description, table, "some.toml"), "some.toml").layers
    images, conv_a, relu_b, conv_c, conv_d, total, outputs = range(7)

    def numbers(tensors: tuple[Tensor, ...]) -> list[int]:
        return [tensor.number for tensor in tensors]

    assert (a.reads.number, a.makes.number, numbers(a.bypass), numbers(a.hands_on)) == (
        images,
        conv_a,
        [],
        [relu_b],
    )
    assert (c.reads.number, c.makes.number, numbers(c.bypass)) == (relu_b, conv_c, [relu_b])
    assert (c.reads_again, numbers(c.hands_on), numbers(d.takes)) == (
        True,
        [relu_b, conv_c],
        [relu_b, conv_c],
    )
    assert (d.reads.number, d.makes.number, numbers(d.bypass)) == (relu_b, conv_d, [relu_b, conv_c])
    assert numbers(d.hands_on) == [total]
    assert (fc.reads.number, numbers(fc.bypass), numbers(fc.hands_on)) == (total, [], [outputs])
    assert [layer.needs_errors for layer in (a, c, d, fc)] == [False, True, True, True]
    assert [tensor.name for tensor in d.takes] == ["b", "c"]
    assert fc.reads.name == "d/add"


def test_what_passes_by_is_shown() -> None:
    text = " ".join(
        click.testing.CliRunner().invoke(commands, ["network", "resnet8-cifar"]).output.split()
    )
    assert "from passes by input" in text
    assert "conv2_2 conv2_1/relu in2 16x32x32" in text
    assert "shortcut3 in3 in3 16x32x32" in text
    assert "conv3_1 in3 short3 16x32x32" in text


def test_a_plain_row_of_layers_is_shown_without() -> None:
    text = " ".join(
        click.testing.CliRunner().invoke(commands, ["network", "quick-cifar"]).output.split()
    )
    assert "layer input feeds" in text
