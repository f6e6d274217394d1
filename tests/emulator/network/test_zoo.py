"""The zoo: multiply-accumulates and parameters of each network against those worked out here, and
shapes.
"""

from __future__ import annotations

import sys

import pytest

from emuchain.emulator.network import Network, Recurrent, Tensor, load_network, zoo
from emuchain.papers.bapipe.layers import CELLS, parameters

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VGG = {
    "vgg11": [[64], [128], [256] * 2, [512] * 2, [512] * 2],
    "vgg16": [[64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3],
    "vgg19": [[64] * 2, [128] * 2, [256] * 4, [512] * 4, [512] * 4],
}
VGG_HEADS = {"": (224, [4096, 4096, 1000]), "-cifar": (32, [512, 512, 10])}

UNET = [
    *((32, 3, 8), (16, 8, 16), (8, 16, 32), (4, 32, 64)),
    *((8, 64 + 32, 32), (16, 32 + 16, 16), (32, 16 + 8, 8)),
]
"""Sizes of maps, and the channels before and behind each pair of convolutions."""

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
    "alexnet-grouped": (
        55**2 * 96 * 3 * 11**2
        + 27**2 * 256 * 48 * 5**2
        + 13**2
        * (384 * 256 + 384 * 192 + 256 * 192)
        * 3**2,  # 0.6658 G: conv2, conv4 and conv5 in two groups
        9216 * 4096 + 4096 * 4096 + 4096 * 1000,
        60_965_224,
    ),
    "alexnet-darknet": (
        55**2 * 96 * 3 * 11**2
        + 28**2 * 256 * 96 * 5**2
        + 14**2 * (384 * 256 + 384 * 384 + 256 * 384) * 3**2,  # 1.1940 G
        7**2 * 256 * 4096 + 4096 * 4096 + 4096 * 1000,
        62_378_344 + (7**2 - 6**2) * 256 * 4096,
    ),
    "alexnet-cifar": (
        32**2 * 64 * 3 * 25
        + 15**2 * 192 * 64 * 25
        + 7**2 * (384 * 192 + 256 * 384 + 256 * 256) * 9,
        256 * 9 * 1024 + 1024 * 512 + 512 * 10,
        4_864 + 307_392 + 663_936 + 884_992 + 590_080 + 2_360_320 + 524_800 + 5_130,
    ),
    "hdc": (0, 784 * 500 + 3 * 500 * 500 + 500 * 10, 1_149_010),
    "lenet-mnist": (
        28**2 * 6 * 25 + 10**2 * 16 * 6 * 25 + 120 * 16 * 25,
        120 * 84 + 84 * 10,
        61_706,
    ),
    "quick-cifar": (
        32**2 * 32 * 3 * 9 + 16**2 * 64 * 32 * 9 + 8**2 * 128 * 64 * 9,
        128 * 4 * 4 * 128 + 128 * 10,
        896 + 18_496 + 73_856 + 262_272 + 1_290,
    ),
    "resnet18-cifar": (
        32**2 * 9 * 64 * (3 + 4 * 64)
        + sum(
            size**2 * channels * (channels // 2 + 9 * (channels // 2 + 3 * channels))
            for size, channels in ((16, 128), (8, 256), (4, 512))
        ),
        512 * 10,
        11_173_962,  # of the widely used implementation for CIFAR-10
    ),
    "resnet20-cifar": (
        32**2 * 16 * (3 + 6 * 16) * 9
        + 16**2 * 32 * (16 + (16 + 5 * 32) * 9)
        + 8**2 * 64 * (32 + (32 + 5 * 64) * 9),
        64 * 10,
        269_722
        + 16 * 32
        + 32 * 64
        + 2 * (32 + 64),  # of shortcuts without parameters, and the projections here
    ),
    "resnet8-cifar": (
        32**2 * 16 * (3 + 16 + 16) * 9
        + 16**2 * 32 * (16 + (16 + 32) * 9)
        + 8**2 * 64 * (32 + (32 + 64) * 9),
        64 * 10,
        16 * 35 * 9
        + 32 * (16 + 48 * 9)
        + 64 * (32 + 96 * 9)
        + 2 * (3 * 16 + 3 * 32 + 3 * 64)
        + 650,
    ),
    "efficientnet-b0": (384_534_752, 1_280_000, 5_288_548),  # as torchvision counts
    "unet-small": (
        9 * sum(size**2 * out * (ins + out) for size, ins, out in UNET) + 32**2 * 80,
        0,
        sum(9 * out * (ins + out) + 4 * out for _, ins, out in UNET) + 90,
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

RECURRENT = {
    # Cells, inputs, classes: multiply-accumulates of 28 steps and of the classifier.
    "lstm-rows": 28 * 4 * 128 * (28 + 128) + 1280,
    "gru-rows": 28 * 3 * 128 * (28 + 128) + 1280,
    "char-lstm": 64 * (32 + 4 * 128 * (32 + 128) + 28 * 128),
    "lstm-5x1024": 1600 * 5 * 4 * 1024 * 2048 + 10_240,
    "gru-5x1280": 1600 * 5 * 3 * 1280 * 2560 + 12_800,
    **{
        name: 548
        * (
            81 * 32 * 11 * 41  # frequencies after the first convolution, 41 after the second
            + 41 * 32 * 32 * 11 * 21
            + 2 * gates * cells * (32 * 41 + cells + 6 * (2 * cells + cells))
            + 29 * 2 * cells
        )
        for name, gates, cells in (("deepspeech2-lstm", 4, 1024), ("deepspeech2-gru", 3, 1280))
    },
    "rnn-t": 548 * (4 * 2048 * (240 + 7 * 640 + 8 * 640) + 8 * 640 * 2048 + 29 * 640),
}
"""Multiply-accumulates."""

TRANSFORMERS = {
    # Multiply-accumulates, of attention with the mean of the keys; parameters.
    "char-gpt": (
        64 * (96 + 3 * (12 * 96 * 96 + 96 * 65) + 28 * 96),
        28 * 96 + 64 * 96 + 3 * (12 * 96 * 96 + 9 * 96 + 4 * 96) + 2 * 96 + 28 * 96,
    ),
    "llama-tiny": (
        64 * (96 + 3 * (96 * 192 + 96 * 96 + 3 * 96 * 256 + 96 * 65) + 28 * 96),
        28 * 96 + 3 * (96 * 192 + 96 * 96 + 3 * 96 * 256 + 2 * 96) + 96 + 28 * 96,
    ),
    "vit-tiny-cifar": (
        64 * (96 * 48 + 4 * (12 * 96 * 96 + 2 * 96 * 64)) + 960,
        96 * 49 + 64 * 96 + 4 * (12 * 96 * 96 + 9 * 96 + 4 * 96) + 2 * 96 + 970,
    ),
    "vit-s": (
        14**2 * 384 * 768 + 197 * 12 * (12 * 384**2 + 2 * 384 * 197) + 384_000,
        22_050_664,
    ),  # as timm counts
    "gpt2": (
        1024 * 768 * (1 + 12 * 12 * 768 + 12 * 1025 + 50257),
        124_439_808,
    ),  # as OpenAI's and transformers'
    "bert-base": (
        512 * 768 * (1 + 12 * (12 * 768 + 2 * 512) + 768 + 30522),
        109_514_298 - 2 * 768,  # as transformers counts BertForMaskedLM, without the second segment
    ),
}

RECURRENT_PARAMETERS = {
    "lstm-rows": 4 * 128 * (28 + 128 + 2) + 1290,
    "gru-rows": 3 * 128 * (28 + 128 + 2) + 1290,
    "char-lstm": 28 * 32 + 4 * 128 * (32 + 128 + 2) + 28 * 129,
    "lstm-5x1024": 5 * 4 * 1024 * 2050 + 10_250,
    "gru-5x1280": 5 * 3 * 1280 * 2562 + 12_810,
    **{
        name: 32 * (11 * 41 + 32 * 11 * 21 + 2 * 2)
        + 2 * gates * cells * (32 * 41 + cells + 2 + 6 * (2 * cells + cells + 2))
        + 29 * (2 * cells + 1)
        for name, gates, cells in (("deepspeech2-lstm", 4, 1024), ("deepspeech2-gru", 3, 1280))
    },
    "rnn-t": 4 * 2048 * (240 + 7 * 640 + 8 * 640 + 8 * 2) + 8 * 640 * 2048 + 29 * 641,
}
CLASSES = {
    **{
        "char-lstm": 28,
        "char-gpt": 28,
        "llama-tiny": 28,
        "gpt2": 50257,
        "bert-base": 30522,
        "lstm-5x1024": 10,
        "gru-5x1280": 10,
        "rnn-t": 29,
        "gnmt-8": 32320,
        "gnmt-l": 32320,
    },
    **{"deepspeech2-lstm": 29, "deepspeech2-gru": 29},
}
STEPS = {
    "char-lstm": 64,
    "char-gpt": 64,
    "llama-tiny": 64,
    "gpt2": 1024,
    "bert-base": 512,
    "rnn-t": 548,
    "gnmt-8": 50,
    "gnmt-l": 50,
    "deepspeech2-lstm": 548,
    "deepspeech2-gru": 548,
}
"""Time steps that have results of their own."""

TRANSLATORS = {"gnmt-8": 8, "gnmt-l": 32}

# ResNets (He et al., 2015, table 1): whether blocks are bottlenecks, and how many each stage has.
RESNETS = {
    **{"resnet18": (False, [2, 2, 2, 2]), "resnet50": (True, [3, 4, 6, 3])},
    "resnet18-gn": (False, [2, 2, 2, 2]),  # whose norms have as many parameters
}

# MobileNetV2's stages (Sandler et al., 2018, table 2): rows of their inputs, factor, channels,
# blocks, first stride.
INVERTED = [
    (112, 1, 16, 1, 1),
    (112, 6, 24, 2, 2),
    (56, 6, 32, 3, 2),
    (28, 6, 64, 4, 2),
    (14, 6, 96, 3, 1),
    (14, 6, 160, 3, 2),
    (7, 6, 320, 1, 1),
]

# GoogLeNet's modules (Szegedy et al., 2014, table 1): rows, inputs, 1x1, 3x3 reduce, 3x3, 5x5
# reduce, 5x5, pool proj.
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
    """Counts of a ResNet: convolutions without bias, batch normalisation with two parameters a
    channel.
    """
    deep, blocks = RESNETS[name]
    convolutions, weights, channels, before = 112**2 * 64 * 147, 64 * 147, 64, 64
    for stage, count in enumerate(blocks):
        size, wide = 56 >> stage, 64 << stage
        wider = 4 * wide if deep else wide
        for block in range(count):
            entry = (
                2 * size if stage and not block else size
            )  # rows of its input: the first block halves them
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


def mobilenet() -> tuple[int, int, int]:
    """Counts of MobileNetV2: in a depthwise convolution, a channel's window is one channel deep."""
    shapes, before = [(112, 27, 32)], 32  # rows, values in a window, channels
    for rows, factor, channels, blocks, stride in INVERTED:
        for block in range(blocks):
            size, wide = (rows // stride if block else rows), factor * before
            after = rows // stride
            shapes += [] if factor == 1 else [(size, before, wide)]
            shapes += [(after, 9, wide), (after, wide, channels)]
            before = channels
    shapes.append((7, 320, 1280))
    convolutions = sum(rows**2 * window * channels for rows, window, channels in shapes)
    return (
        convolutions,
        1_280_000,
        sum((window + 2) * channels for _, window, channels in shapes) + 1_281_000,
    )


def googlenet() -> tuple[int, int, int]:
    """Counts of GoogLeNet, from the table of its modules."""
    shapes = [(112, 147, 64), (56, 64, 64), (56, 9 * 64, 192)]  # rows, values in a window, channels
    for rows, inputs, one, reduce3, three, reduce5, five, pool in INCEPTIONS:
        shapes.append((rows, inputs, one + reduce3 + reduce5 + pool))
        shapes += [(rows, 9 * reduce3, three), (rows, 25 * reduce5, five)]
    convolutions = sum(rows**2 * window * channels for rows, window, channels in shapes)
    return (
        convolutions,
        1_024_000,
        sum((window + 1) * channels for _, window, channels in shapes) + 1_025_000,
    )


def vgg(name: str) -> tuple[int, int, int]:
    """Counts of a VGG, from its list of channels."""
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


def counts(network: Network) -> tuple[int, int, int]:
    """Return convolutional and fully connected multiply-accumulates, and parameters."""
    convolutions = sum(layer.macs for layer in network.layers if layer.convolves)
    return convolutions, network.macs - convolutions, network.parameters


def test_every_network_of_the_zoo_is_known_here() -> None:
    vggs = {name + head for name in VGG for head in VGG_HEADS}
    assert set(RECURRENT) == set(RECURRENT_PARAMETERS)
    others = {"googlenet", "mobilenetv2", *RESNETS, *TRANSLATORS, *TRANSFORMERS}
    assert set(zoo()) == vggs | others | set(KNOWN) | set(RECURRENT)


@pytest.mark.parametrize("name", KNOWN)
def test_zoo(name: str) -> None:
    assert counts(load_network(name)) == KNOWN[name]


@pytest.mark.parametrize("name", [name + head for name in VGG for head in VGG_HEADS])
def test_vggs(name: str) -> None:
    assert counts(load_network(name)) == vgg(name)


@pytest.mark.parametrize("name", RESNETS)
def test_resnets(name: str) -> None:
    assert counts(load_network(name)) == resnet(name)


def test_googlenet() -> None:
    assert counts(load_network("googlenet")) == googlenet()


def test_mobilenet() -> None:
    assert counts(load_network("mobilenetv2")) == mobilenet()


def test_published_figures() -> None:
    """Of torchvision's ResNets and MobileNetV2; of GoogLeNet's paper: 7 M parameters, 1.5 G
    multiply-accumulates.
    """
    assert resnet("resnet18")[2] == 11_689_512
    assert resnet("resnet50")[2] == 25_557_032
    assert [round(sum(resnet(name)[:2]) / 1e9, 2) for name in RESNETS] == [1.81, 4.09, 1.81]
    assert mobilenet()[2] == 3_504_872
    assert round(sum(mobilenet()[:2]) / 1e9, 1) == 0.3
    assert 6.6e6 < googlenet()[2] < 7e6
    assert 1.5e9 < sum(googlenet()[:2]) < 1.6e9


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_networks(name: str) -> None:
    network = load_network(name)
    assert (network.macs, network.parameters) == (RECURRENT[name], RECURRENT_PARAMETERS[name])


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers(name: str) -> None:
    network = load_network(name)
    assert (network.macs, network.parameters) == TRANSFORMERS[name]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translators_have_the_parameters_that_the_study_counts(name: str) -> None:
    """But for the scores of the attention: a vector, its bias, its scale."""
    network, layers = load_network(name), TRANSLATORS[name]
    assert network.parameters == parameters(layers) - (2 * CELLS + 1)
    cells = sum(
        layer.operation.directions
        for layer in network.layers
        if isinstance(layer.operation, Recurrent)
    )
    assert cells == layers + 1


def test_published_sizes_of_recurrent_networks() -> None:
    """BaPipe's Table V for L = 32; PyTorch's own count of Deep Speech 2's layers."""
    assert round(load_network("gnmt-l").parameters / 1e6, 1) == 445.6
    torch = pytest.importorskip("torch")
    layers = torch.nn.GRU(1312, 1280, 7, bidirectional=True)
    recurrent = sum(
        of.parameters for of in load_network("deepspeech2-gru").layers if of.operation.recurs
    )
    assert recurrent == sum(values.numel() for values in layers.parameters())


@pytest.mark.parametrize("name", [name for name in zoo() if load_network(name).takes_sequence])
def test_sequences_may_have_other_steps(name: str) -> None:
    network, other = load_network(name), load_network(name, time_steps=7)
    assert other.input == (network.input[0], 7, 1)
    positions = sum(
        step.operation.type == "positions" for layer in network.layers for step in layer.sfu
    )
    assert (
        other.parameters
        == network.parameters - positions * (network.input[1] - 7) * network.layers[0].channels
    )
    assert load_network(tomllib.loads(other.text)) == other


@pytest.mark.parametrize("name", zoo())
def test_shapes_of_the_zoo_follow_one_another(name: str) -> None:
    network = load_network(name)
    classes = CLASSES.get(name, 10 if network.input[1] < 200 else 1000)
    assert network.classes == classes
    assert network.name == name
    before: tuple[Tensor, ...] = (Tensor(0, network.entry),)
    for index, layer in enumerate(network.layers):
        assert layer.index == index
        assert layer.takes == before
        before = layer.hands_on
    assert [tensor.shape for tensor in before] == [(classes, network.result_steps, 1)]
    assert network.result_steps == STEPS.get(name, 1)
    assert len({layer.name for layer in network.layers}) == len(network.layers)
