"""Networks: the zoo against figures worked out here, users' files, and what is wrong with bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.commands.command_line import commands
from emuchain.emulator.common.errors import InputError
from emuchain.emulator.inputs.validation import read_toml, tomllib, validate
from emuchain.emulator.network.description import Description
from emuchain.emulator.network.graph import resolve
from emuchain.emulator.network.layers import Network, Tensor
from emuchain.emulator.network.load import load_network, zoo

VGG = {
    "vgg11": [[64], [128], [256] * 2, [512] * 2, [512] * 2],
    "vgg16": [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3],
    "vgg19": [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4],
}
VGG_HEADS = {"": (224, [4096, 4096, 1000]), "-cifar": (32, [512, 512, 10])}

# Convolutional and fully connected multiply-accumulates, parameters.
KNOWN = {
    "vgg16": (15_346_630_656, 123_633_664, 138_357_544),
    "vgg11": (7_485_456_384, 123_633_664, 132_863_336),
    "vgg19": (19_508_428_800, 123_633_664, 143_667_240),
    "alexnet": (
        55**2 * 96 * 3 * 11**2
        + 27**2 * 256 * 96 * 5**2
        + 13**2 * (384 * 256 + 384 * 384 + 256 * 384) * 3**2,  # 1.0766 G
        9216 * 4096 + 4096 * 4096 + 4096 * 1000,
        62_378_344,
    ),
    "alexnet-darknet": (
        55**2 * 96 * 3 * 11**2
        + 28**2 * 256 * 96 * 5**2
        + 14**2 * (384 * 256 + 384 * 384 + 256 * 384) * 3**2,  # 1.1940 G
        7**2 * 256 * 4096 + 4096 * 4096 + 4096 * 1000,
        62_378_344 + (7**2 - 6**2) * 256 * 4096,
    ),
    "alexnet-cifar": (
        32**2 * 64 * 3 * 25 + 15**2 * 192 * 64 * 25 + 7**2 * (384 * 192 + 256 * 384 + 256 * 256) * 9,
        256 * 9 * 1024 + 1024 * 512 + 512 * 10,
        4_864 + 307_392 + 663_936 + 884_992 + 590_080 + 2_360_320 + 524_800 + 5_130,
    ),
    "hdc": (0, 784 * 500 + 3 * 500 * 500 + 500 * 10, 1_149_010),
    "lenet-mnist": (28**2 * 6 * 25 + 10**2 * 16 * 6 * 25 + 120 * 16 * 25, 120 * 84 + 84 * 10, 61_706),
    "quick-cifar": (
        32**2 * 32 * 3 * 9 + 16**2 * 64 * 32 * 9 + 8**2 * 128 * 64 * 9,
        128 * 4 * 4 * 128 + 128 * 10,
        896 + 18_496 + 73_856 + 262_272 + 1_290,
    ),
    "resnet8-cifar": (
        32**2 * 16 * (3 + 16 + 16) * 9 + 16**2 * 32 * (16 + (16 + 32) * 9) + 8**2 * 64 * (32 + (32 + 64) * 9),
        64 * 10,
        16 * 35 * 9 + 32 * (16 + 48 * 9) + 64 * (32 + 96 * 9) + 2 * (3 * 16 + 3 * 32 + 3 * 64) + 650,
    ),
    "inception-cifar": (
        32**2 * 32 * 27
        + 16**2 * (32 * (16 + 16 + 8 + 16) + 16 * 32 * 9 + 8 * 16 * 25)
        + 8**2 * (80 * (32 + 32 + 8 + 32) + 32 * 64 * 9 + 8 * 32 * 25),
        160 * 10,
        896
        + 32 * 56
        + 56
        + 16 * 32 * 9
        + 32
        + 8 * 16 * 25
        + 16
        + 80 * 104
        + 104
        + 32 * 64 * 9
        + 64
        + 8 * 32 * 25
        + 32
        + 1_610,
    ),
}

# ResNets (He et al., 2015, table 1): whether blocks are bottlenecks, and how many each stage has.
RESNETS = {"resnet18": (False, [2, 2, 2, 2]), "resnet50": (True, [3, 4, 6, 3])}

# GoogLeNet's modules (Szegedy et al., 2014, table 1): rows, inputs, 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool proj.
INCEPTIONS = [
    (28, 192, 64, 96, 128, 16, 32, 32),
    (28, 256, 128, 128, 192, 32, 96, 64),
    (14, 480, 192, 96, 208, 16, 48, 64),
    (14, 512, 160, 112, 224, 24, 64, 64),
    (14, 512, 128, 128, 256, 24, 64, 64),
    (14, 512, 112, 144, 288, 32, 64, 64),
    (14, 528, 256, 160, 320, 32, 128, 128),
    (7, 832, 256, 160, 320, 32, 128, 128),
    (7, 832, 384, 192, 384, 48, 128, 128),
]


def resnet(name: str) -> tuple[int, int, int]:
    """A ResNet's figures; its convolutions have no bias, but the normalisation behind has two parameters a channel."""
    deep, blocks = RESNETS[name]
    convolutions, weights, channels, before = 112**2 * 64 * 147, 64 * 147, 64, 64
    for stage, count in enumerate(blocks):
        size, wide = 56 >> stage, 64 << stage
        wider = 4 * wide if deep else wide
        for block in range(count):
            entry = 2 * size if stage and not block else size  # rows of what a block that halves them reads
            if deep:
                shapes = [(entry, before * wide), (size, 9 * wide * wide), (size, wide * wider)]
                channels += 2 * wide + wider
            else:
                shapes = [(size, 9 * before * wide), (size, 9 * wide * wide)]
                channels += 2 * wide
            if before != wider:
                shapes.append((size, before * wider))
                channels += wider
            convolutions += sum(rows**2 * values for rows, values in shapes)
            weights += sum(values for _, values in shapes)
            before = wider
    return convolutions, before * 1000, weights + 2 * channels + before * 1000 + 1000


def googlenet() -> tuple[int, int, int]:
    """GoogLeNet's figures, from the table of its modules."""
    shapes = [(112, 147, 64), (56, 64, 64), (56, 9 * 64, 192)]  # rows, values in a window, channels
    for rows, inputs, one, reduce3, three, reduce5, five, pool in INCEPTIONS:
        shapes.append((rows, inputs, one + reduce3 + reduce5 + pool))
        shapes += [(rows, 9 * reduce3, three), (rows, 25 * reduce5, five)]
    convolutions = sum(rows**2 * window * channels for rows, window, channels in shapes)
    return convolutions, 1_024_000, sum((window + 1) * channels for _, window, channels in shapes) + 1_025_000


def vgg(name: str) -> tuple[int, int, int]:
    """A VGG's figures, from its list of channels."""
    depth = name.removesuffix("-cifar")
    size, features = VGG_HEADS[name.removeprefix(depth)]
    channels, convolutions, parameters = 3, 0, 0
    for block in VGG[depth]:
        for out in block:
            weights = out * channels * 9
            convolutions += weights * size * size
            parameters += weights + out
            channels = out
        size //= 2
    inputs, dense = channels * size * size, 0
    for out in features:
        dense += inputs * out
        parameters += inputs * out + out
        inputs = out
    return convolutions, dense, parameters


def figures(network: Network) -> tuple[int, int, int]:
    """Convolutional and fully connected multiply-accumulates, and parameters."""
    convolutions = sum(layer.macs for layer in network.layers if not layer.is_fc)
    return convolutions, network.macs - convolutions, network.parameters


def test_every_network_of_the_zoo_is_known_here() -> None:
    vggs = {name + head for name in VGG for head in VGG_HEADS}
    assert set(zoo()) == vggs | set(RESNETS) | {"googlenet"} | set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_zoo(name: str) -> None:
    assert figures(load_network(name)) == KNOWN[name]


@pytest.mark.parametrize("name", [name + head for name in VGG for head in VGG_HEADS])
def test_vggs(name: str) -> None:
    assert figures(load_network(name)) == vgg(name)


@pytest.mark.parametrize("name", RESNETS)
def test_resnets(name: str) -> None:
    assert figures(load_network(name)) == resnet(name)


def test_googlenet() -> None:
    assert figures(load_network("googlenet")) == googlenet()


def test_published_figures() -> None:
    """Of torchvision's ResNets; GoogLeNet has about 7 M parameters and 1.5 G multiply-accumulates in its paper."""
    assert resnet("resnet18")[2] == 11_689_512
    assert resnet("resnet50")[2] == 25_557_032
    assert [round(sum(resnet(name)[:2]) / 1e9, 2) for name in RESNETS] == [1.81, 4.09]
    assert 6.6e6 < googlenet()[2] < 7e6
    assert 1.5e9 < sum(googlenet()[:2]) < 1.6e9


@pytest.mark.parametrize("name", zoo())
def test_shapes_of_the_zoo_follow_one_another(name: str) -> None:
    network = load_network(name)
    classes = 10 if network.input[1] < 200 else 1000
    assert network.classes == classes
    assert network.name == name
    before: tuple[Tensor, ...] = (Tensor(0, network.input),)
    for index, layer in enumerate(network.layers):
        assert layer.index == index
        assert layer.takes == before
        before = layer.hands_on
    assert [tensor.shape for tensor in before] == [(classes, 1, 1)]
    assert len({layer.name for layer in network.layers}) == len(network.layers)


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
    assert (network.name, network.input, network.start, network.classes) == ("mine", (3, 9, 7), "xavier", 5)
    one, fc = network.layers
    # Rows (9 + 2 - 3) / 2 + 1 = 5, columns 7 - 2 + 1 = 6; max-pool 6 and 7, average-pool 3 and 2.
    assert (one.name, one.output, one.feeds, one.weight_shape) == ("one", (4, 5, 6), (4, 3, 2), (4, 3, 3, 2))
    assert [step.output for step in one.sfu] == [(4, 5, 6), (4, 5, 6), (4, 6, 7), (4, 3, 2), (4, 3, 2)]
    assert [step.input for step in one.sfu[1:]] == [step.output for step in one.sfu[:-1]]
    assert (fc.name, fc.is_fc, fc.input) == ("fc1", True, (4, 3, 2))
    assert (fc.output, fc.weight_shape) == ((5, 1, 1), (5, 4, 3, 2))
    assert (one.macs, fc.macs) == (4 * 3 * 6 * 30, 5 * 24)
    assert network.macs == 4 * 3 * 6 * 30 + 5 * 24
    assert network.parameters == 4 * 3 * 6 + 5 * 24 + 5  # no bias in the first


def described(*layers: str, head: str = 'name = "n"\ninput = [3, 8, 8]\n') -> str:
    """A description with these layers."""
    return head + "layers = [\n" + "".join(f"  {{ {layer} }},\n" for layer in layers) + "]\n"


CONV = 'type = "conv", channels = 4, kernel = 3'
FC = 'type = "fc", features = 10'
SOFTMAX = 'type = "softmax"'

SIZED = 'type = "conv", channels = 4'  # without a kernel

BAD = {
    "unknown key": (described(CONV, FC, SOFTMAX) + "foo = 1\n", ["`foo`", "unknown key"]),
    "unknown key of a layer": (described(CONV + ", kernal = 3", FC, SOFTMAX), ["`layers[0].kernal`", "unknown key"]),
    "missing key": (described(SIZED, FC, SOFTMAX), ["`layers[0].kernel`", "missing"]),
    "no layers": ('name = "n"\ninput = [3, 8, 8]\n', ["`layers`", "missing"]),
    "empty layers": (described(), ["`layers`"]),
    "softmax alone": (described(SOFTMAX), ["`layers`"]),
    "layers are no list": ('name = "n"\ninput = [3, 8, 8]\nlayers = 3\n', ["`layers` = 3"]),
    "a layer is no table": ('name = "n"\ninput = [3, 8, 8]\nlayers = [1]\n', ["`layers[0]`"]),
    "a layer without type": (described("channels = 3", FC, SOFTMAX), ["`layers[0]", "type"]),
    "string for number": (described('type = "fc", features = "4"', FC, SOFTMAX), ["`layers[0].features`"]),
    "float for number": (described('type = "fc", features = 4.0', FC, SOFTMAX), ["`layers[0].features`"]),
    "bool for number": (described('type = "fc", features = true', FC, SOFTMAX), ["`layers[0].features`"]),
    "number for bool": (described(CONV + ", bias = 1", FC, SOFTMAX), ["`layers[0].bias`"]),
    "number for name": (described(CONV + ", name = 1", FC, SOFTMAX), ["`layers[0].name`"]),
    "three kernel sizes": (described(SIZED + ", kernel = [3, 3, 3]", FC, SOFTMAX), ["`layers[0].kernel"]),
    "string kernel": (described(SIZED + ', kernel = "3"', FC, SOFTMAX), ["`layers[0].kernel"]),
    "zero kernel": (described(SIZED + ", kernel = 0", FC, SOFTMAX), ["`layers[0].kernel"]),
    "zero stride": (described(CONV + ", stride = [1, 0]", FC, SOFTMAX), ["`layers[0].stride"]),
    "zero channels": (described('type = "conv", channels = 0, kernel = 3', FC, SOFTMAX), ["`layers[0].channels` = 0"]),
    "negative pad": (described(CONV + ", pad = -1", FC, SOFTMAX), ["`layers[0].pad"]),
    "zero features": (described('type = "fc", features = 0', SOFTMAX), ["`layers[0].features` = 0"]),
    "zero input": (described(FC, SOFTMAX, head='name = "n"\ninput = [3, 0, 8]\n'), ["`input[1]` = 0"]),
    "input of two": (described(FC, SOFTMAX, head='name = "n"\ninput = [3, 8]\n'), ["`input"]),
    "unknown type": (described('type = "conf", channels = 4', SOFTMAX), ["`layers[0]`", "'conf'", "conv"]),
    "unknown start": (described(FC, SOFTMAX) + 'start = "zeros"\n', ["`start` = 'zeros'"]),
    "rate of one": (described(FC, 'type = "dropout", rate = 1.0', SOFTMAX), ["`layers[1].rate` = 1.0"]),
    "rate is nan": (described(FC, 'type = "dropout", rate = nan', SOFTMAX), ["`layers[1].rate` = nan"]),
    "no softmax": (described(CONV, FC), ["`layers`", "softmax"]),
    "layer after softmax": (described(FC, SOFTMAX, FC, SOFTMAX), ["layers[1]", "softmax"]),
    "pool first": (described('type = "max-pool", kernel = 2', FC, SOFTMAX), ["layers[0]", "max-pool", "begins"]),
    "relu first": (described('type = "relu"', FC, SOFTMAX), ["layers[0]", "relu"]),
    "same name": (described(CONV + ', name = "a"', FC + ', name = "a"', SOFTMAX), ["layers[1]", "`name` = 'a'"]),
    "same name as one given": (described(CONV + ', name = "fc1"', FC, SOFTMAX), ["layers[1]", "`name` = 'fc1'"]),
    "slash in a name": (described(FC + ', name = "a/b"', SOFTMAX), ["layers[0]", "`name` = 'a/b'"]),
    "kernel too large": (described(SIZED + ", kernel = 9", FC, SOFTMAX), ["layers[0]", "`kernel` = 9"]),
    "columns too few": (
        described(SIZED + ", kernel = [1, 11], pad = [0, 1]", FC, SOFTMAX),
        ["layers[0]", "`kernel` = 11"],
    ),
    "pool of too many places": (
        described(CONV, 'type = "max-pool", kernel = [5, 52]', FC, SOFTMAX),
        ["layers[1]", "at most 255", "5x52"],
    ),
    "pool too large": (described(CONV, 'type = "max-pool", kernel = 7', FC, SOFTMAX), ["layers[1]", "`kernel` = 7"]),
    "pad of a kernel": (described(CONV + ", pad = 3", FC, SOFTMAX), ["layers[0]", "`pad` = 3"]),
    "pad of a pool": (described(FC, 'type = "max-pool", kernel = 2, pad = 2', SOFTMAX), ["layers[1]", "`pad` = 2"]),
    "maps at the end": (described(CONV, SOFTMAX), ["softmax", "6x6"]),
    "from nowhere": (described(CONV, FC + ', from = "x"', SOFTMAX), ["layers[1]", "`from` = 'x'", "images"]),
    "a cycle": (
        described(CONV + ', name = "a", from = "b"', CONV + ', name = "b"', FC, SOFTMAX),
        ["layers[0]", "`from` = 'b'", "cycle"],
    ),
    "a hole": (described(CONV + ', name = "a"', FC + ', from = "images"', SOFTMAX), ["layers[0] (conv)", "hole"]),
    "a convolution of two": (
        described(CONV + ', name = "a"', CONV + ', from = ["a", "images"]', FC, SOFTMAX),
        ["layers[1]", "`from` names 2"],
    ),
    "sum of one": (described(CONV + ', name = "a"', 'type = "add", from = ["a"]', FC, SOFTMAX), ["`layers[1].from"]),
    "sum of none": (described(CONV + ', name = "a"', 'type = "add"', FC, SOFTMAX), ["`layers[1].from`", "missing"]),
    "sum of shapes": (
        described(CONV + ', name = "a"', 'type = "add", from = ["a", "images"]', FC, SOFTMAX),
        ["layers[1]", "4x6x6 and 3x8x8"],
    ),
    "concatenation of sizes": (
        described(CONV + ', name = "a"', 'type = "concat", from = ["a", "images"]', FC, SOFTMAX),
        ["layers[1]", "4x6x6 and 3x8x8"],
    ),
    "images as a name": (described(FC + ', name = "images"', SOFTMAX), ["layers[0]", "`name` = 'images'"]),
    "a slash in an operation's name": (described(FC, 'type = "relu", name = "a/b"', SOFTMAX), ["layers[1]", "a/b"]),
    "not TOML": ("name = \n", ["not a TOML file", "line 1"]),
    "a key twice": ('name = "a"\nname = "b"\n', ["not a TOML file"]),
}


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    """The message, which is one line."""
    line = str(error.value)
    assert len(line.splitlines()) == 1
    return line


@pytest.mark.parametrize("case", BAD)
def test_bad_descriptions(tmp_path: Path, case: str) -> None:
    text, told = BAD[case]
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_network(str(path))
    line = one_line(error)
    assert line.startswith(f"{path}: ")
    for part in told:
        assert part in line


def test_what_the_bad_ones_were_made_from_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(described(CONV, FC, SOFTMAX))
    assert load_network(str(path)).classes == 10


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read") as error:
        load_network(str(tmp_path / "none.toml"))
    assert "none.toml" in one_line(error)


def test_a_folder_for_a_file(tmp_path: Path) -> None:
    (tmp_path / "dir.toml").mkdir()
    with pytest.raises(InputError, match="cannot be read") as error:
        load_network(str(tmp_path / "dir.toml"))
    one_line(error)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "bytes.toml"
    path.write_bytes(b'name = "\xff\xfe"')
    with pytest.raises(InputError, match="not a TOML file") as error:
        load_network(str(path))
    one_line(error)


def test_a_misspelt_name() -> None:
    with pytest.raises(InputError) as error:
        load_network("vgg16-cifer")
    line = one_line(error)
    assert "`network` = 'vgg16-cifer'" in line
    assert "did you mean `vgg16-cifar`?" in line


def test_a_name_like_no_other() -> None:
    with pytest.raises(InputError) as error:
        load_network("~~~")
    line = one_line(error)
    assert "did you mean" not in line
    for name in zoo():
        assert name in line


# Values as TOML has them, mostly of a kind that could be right.
NUMBERS = st.integers(-1, 12)
ODD = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=4), st.lists(NUMBERS, max_size=3))
SIZES = st.one_of(st.integers(1, 4), st.lists(st.integers(1, 4), min_size=2, max_size=2), NUMBERS, ODD)
WORDS = st.sampled_from("conv fc relu max-pool average-pool lrn dropout softmax".split())
TYPES = st.one_of(WORDS, WORDS, WORDS, ODD)
KEYS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6).filter(
    lambda key: not key.startswith(("int", "union", "tuple", "constrained"))
)


@st.composite
def operation(draw: st.DrawFn) -> Any:
    """Something that looks like an operation, with now and then a key or a value amiss."""
    kind = draw(TYPES)
    table = {"type": kind} if draw(st.integers(0, 30)) else {}
    wanted = {
        "conv": {"channels": NUMBERS, "kernel": SIZES},
        "fc": {"features": NUMBERS},
        "max-pool": {"kernel": SIZES},
        "average-pool": {"kernel": SIZES},
        "dropout": {"rate": st.one_of(st.floats(0, 0.9), ODD)},
    }
    for key, values in wanted.get(kind if isinstance(kind, str) else "", {}).items():
        if draw(st.integers(0, 30)):
            table[key] = draw(values)
    if not draw(st.integers(0, 6)):
        table[draw(st.sampled_from(["stride", "pad", "bias", "name", "size", "alpha"]))] = draw(SIZES)
    if not draw(st.integers(0, 30)):
        table[draw(KEYS)] = draw(ODD)
    return table if draw(st.integers(0, 30)) else draw(ODD)


@st.composite
def description(draw: st.DrawFn) -> dict[str, Any]:
    """Something that looks like a network."""
    layers = draw(st.lists(operation(), max_size=5))
    if draw(st.integers(0, 6)):
        layers = [{"type": "conv", "channels": 2, "kernel": draw(SIZES)}, *layers, {"type": "fc", "features": 3}]
    if draw(st.integers(0, 6)):
        layers.append({"type": "softmax"})
    table: dict[str, Any] = {"name": draw(st.text(max_size=3)), "layers": layers}
    table["input"] = draw(st.one_of(st.just([3, 8, 8]), st.lists(NUMBERS, min_size=2, max_size=4), ODD))
    if not draw(st.integers(0, 10)):
        table["start"] = draw(st.one_of(st.just("xavier"), ODD))
    if not draw(st.integers(0, 30)):
        table[draw(KEYS)] = draw(ODD)
    if not draw(st.integers(0, 30)):
        table["layers"] = draw(ODD)
    return table


@given(description())
def test_a_network_or_one_line(table: dict[str, Any]) -> None:
    try:
        network = resolve(validate(Description, table, "some.toml"), "some.toml")
    except InputError as error:
        assert len(str(error).splitlines()) == 1
        assert str(error).startswith("some.toml: ")
        return
    assert network.macs > 0
    assert network.classes > 0
    assert network.layers[-1].feeds[1:] == (1, 1)
    assert all(size > 0 for layer in network.layers for size in (*layer.input, *layer.output, *layer.feeds))


@given(st.one_of(st.text(max_size=60), st.text('a=[]{}"\n.1#\\ ', max_size=60)))
def test_any_text_is_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        assert isinstance(read_toml(path), dict)
    except InputError as error:
        assert len(str(error).splitlines()) == 1


def test_a_key_with_a_line_break() -> None:
    with pytest.raises(InputError) as error:
        validate(Description, {"name": "n", "input": [1, 1, 1], "layers": [], "a\nb": 1}, "some.toml")
    one_line(error)


@pytest.mark.parametrize("key", ["interval", "unions", "tuple_size"])
def test_an_unknown_key_is_named_whatever_it_begins_with(key: str) -> None:
    with pytest.raises(InputError) as error:
        validate(Description, {"name": "n", "input": [1, 1, 1], "layers": [], key: 1}, "some.toml")
    assert f"`{key}`" in one_line(error)


def test_a_file_name_with_a_nul() -> None:
    with pytest.raises(InputError):
        load_network("a\0b.toml")


@pytest.mark.parametrize("key", ["alpha", "beta", "k"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_lrn_wants_finite_numbers(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(described(CONV, f'type = "lrn", {key} = {value}', FC, SOFTMAX))
    with pytest.raises(InputError):
        load_network(str(path))


def test_a_deeply_nested_file(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 20_000)
    with pytest.raises(InputError):
        load_network(str(path))


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

    assert (a.reads.number, a.makes.number, numbers(a.bypass), numbers(a.hands_on)) == (images, conv_a, [], [relu_b])
    assert (c.reads.number, c.makes.number, numbers(c.bypass)) == (relu_b, conv_c, [relu_b])
    assert (c.reads_again, numbers(c.hands_on), numbers(d.takes)) == (True, [relu_b, conv_c], [relu_b, conv_c])
    assert (d.reads.number, d.makes.number, numbers(d.bypass)) == (relu_b, conv_d, [relu_b, conv_c])
    assert numbers(d.hands_on) == [total]
    assert (fc.reads.number, numbers(fc.bypass), numbers(fc.hands_on)) == (total, [], [outputs])
    assert [layer.needs_errors for layer in (a, c, d, fc)] == [False, True, True, True]
    assert [tensor.name for tensor in d.takes] == ["b", "c"]
    assert fc.reads.name == "d/add"


def test_what_passes_by_is_shown() -> None:
    text = " ".join(click.testing.CliRunner().invoke(commands, ["network", "resnet8-cifar"]).output.split())
    assert "from passes by input" in text
    assert "conv2_2 conv2_1/relu in2 16x32x32" in text
    assert "shortcut3 in3 in3 16x32x32" in text
    assert "conv3_1 in3 short3 16x32x32" in text


def test_a_plain_row_of_layers_is_shown_without() -> None:
    text = " ".join(click.testing.CliRunner().invoke(commands, ["network", "quick-cifar"]).output.split())
    assert "layer input feeds" in text
