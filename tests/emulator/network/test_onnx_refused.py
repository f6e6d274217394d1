"""ONNX files that are refused: each in one line, which names the file and the node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network
from emuchain.emulator.network.onnx_import.operators import _REMEDIES, _known

from .onnx_models import Graph, ending, load, onnx, op, refused_or_not, resnet8, small

Refused = Callable[[Graph | bytes], str]


def swapped(graph: Graph, first: int, second: int) -> Graph:
    """Two nodes in each other's place."""
    graph.nodes[first], graph.nodes[second] = graph.nodes[second], graph.nodes[first]
    return graph


def with_output(graph: Graph, *names: str) -> Graph:
    """Other outputs."""
    graph.outputs = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names
    ]
    return graph


def with_inputs(*names: str) -> Graph:
    """A small network with more inputs."""
    graph = small()
    graph.inputs += [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2]) for name in names
    ]
    return graph


def cycle() -> Graph:
    """A node that takes its own result."""
    graph = small(op("Relu"))
    graph.nodes[1].input[0] = graph.nodes[1].output[0]
    return graph


def conv_with(**keys: Any) -> Graph:
    """A convolution with these attributes."""
    return small(lambda g: g.conv("odd", 4, 4, 3, **keys))


def of_inputs() -> Graph:
    """Images that a convolution pads unevenly, and another one takes as they are."""
    graph = Graph("n", 3, 8, 8)
    graph.conv("odd", 3, 4, 3, pads=[0, 0, 1, 1])
    graph.conv("other", 3, 4, 3, "x")
    return graph


def after_flatten(*parts: Callable[[Graph], object]) -> Graph:
    """Nodes that stand behind a Flatten."""
    return small(op("Flatten"), *parts)


def shared(graph: Graph) -> None:
    """A convolution with the weights of an earlier one."""
    graph.conv("again", 4, 4, 3, bias=False)
    again = graph.nodes[-1].input[1]
    graph.node("Conv", graph.last, again, pads=[1] * 4)


BAD: dict[str, tuple[Callable[[], Graph], list[str]]] = {
    "unknown operator": (
        lambda: small(op("Selu", name="act")),
        ["node 'act' (Selu)", "unknown", "Conv", "Relu"],
    ),
    "operator of another domain": (
        lambda: small(op("Relu", domain="mine")),
        ["(mine.Relu)", "unknown"],
    ),
    "groups of other channels": (
        lambda: conv_with(group=2),
        ["node 'odd' (Conv)", "8 channels", "4x8x8"],
    ),
    "groups that do not divide": (
        lambda: conv_with(group=3),
        ["node 'odd' (Conv)", "`groups` = 3", "4 input"],
    ),
    "dilation": (lambda: conv_with(dilations=[0, 2]), ["'odd'", "`dilations` = [0, 2]"]),
    "automatic padding": (lambda: conv_with(auto_pad="SAME"), ["'odd'", "`auto_pad` = 'SAME'"]),
    "slopes of pixels": (
        lambda: small(lambda g: g.node("PRelu", g.last, g.weight(4, 8, 8), name="odd")),
        ["'odd'", "has other than one slope for each channel, or one for all"],
    ),
    "uneven padding of inputs": (
        of_inputs,
        ["'odd'", "puts zeros around a network's inputs that others take, too"],
    ),
    "uneven padding of a pool": (
        lambda: small(op("AveragePool", kernel_shape=[2, 2], pads=[0, 0, 1, 1], name="odd")),
        ["'odd'", "`pads` = [0, 0, 1, 1]"],
    ),
    "one stride": (lambda: conv_with(strides=[1]), ["'odd'", "`strides` = [1]"]),
    "strides of floats": (
        lambda: conv_with(strides=[1.0, 1.0]),
        ["'odd'", "`strides`", "integers"],
    ),
    "other kernel than weights": (
        lambda: conv_with(kernel_shape=[5, 5]),
        ["'odd'", "`kernel_shape` = [5, 5]", "4x4x3x3"],
    ),
    "two arrays of one name": (
        lambda: small(lambda g: g.constants.append(g.constants[0])),
        ["several of its arrays are called 'w0'"],
    ),
    "other channels": (
        lambda: small(lambda g: g.conv("odd", 5, 4, 3)),
        ["'odd'", "5 channels", "4x8x8"],
    ),
    "one dimension": (
        lambda: small(lambda g: g.node("Conv", g.last, g.weight(4, 4, 3), name="odd")),
        [
            "'odd'",
            (
                "takes samples x channels x rows x columns where it should take samples x channels"
                " x rows"
            ),
        ],
    ),
    "three dimensions": (
        lambda: small(lambda g: g.node("Conv", g.last, g.weight(4, 4, 3, 3, 3), name="odd")),
        ["'odd'", "is a convolution over 3 axes; only those over rows and columns"],
    ),
    "weights that are made": (
        lambda: small(lambda g: g.node("Conv", g.last, g.last, name="odd")),
        ["'odd'", "weights"],
    ),
    "weights that are shared": (lambda: small(shared), ["(Conv)", "shares its weights"]),
    "kernel too large": (
        lambda: small(lambda g: g.conv("odd", 4, 4, 11, pads=[0] * 4)),
        ["'odd'", "larger than its input"],
    ),
    "zeros before a maximum": (
        lambda: small(
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 1, 1, 0, 0, 1, 1), name="edge"),
            op("MaxPool", kernel_shape=[3, 3]),
        ),
        ["'edge' (Pad)", "negative"],
    ),
    "zeros before an average that does not count its own": (
        lambda: small(
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 1, 1, 0, 0, 1, 1), name="edge"),
            op("AveragePool", kernel_shape=[3, 3], pads=[1] * 4),
        ),
        ["'edge' (Pad)", "count"],
    ),
    "zeros before nothing that has windows": (
        lambda: small(
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 1, 1, 0, 0, 1, 1), name="edge"),
            op("Relu"),
        ),
        ["'edge' (Pad)", "puts zeros", "(Relu)"],
    ),
    "padding by more than there is": (
        lambda: small(
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 9, 1, 0, 0, 1, 1), mode="reflect")
        ),
        ["(Pad)", "wider than maps of 8x8"],
    ),
    "padding by ones": (
        lambda: small(
            lambda g: g.node("Pad", g.last, g.numbers(0, 0, 1, 1, 0, 0, 1, 1), g.numbers(1.0))
        ),
        ["(Pad)", "another value than zero"],
    ),
    "padding of channels": (
        lambda: small(lambda g: g.node("Pad", g.last, g.numbers(0, 1, 0, 0, 0, 0, 0, 0))),
        ["(Pad)", "[0, 1, 0, 0, 0, 0, 0, 0]"],
    ),
    "channels shuffled": (
        lambda: small(lambda g: g.node("Reshape", g.last, g.numbers(0, 2, 2, 8, 8)), op("Relu")),
        ["(Reshape)", "apart", "(Relu)", "2x2x8x8", "ChannelShuffle"],
    ),
    "maps of two sizes": (
        lambda: small(
            lambda g: g.node("Mul", g.last, g.node("MaxPool", g.last, kernel_shape=[2, 2]))
        ),
        ["(Mul)", "multiplies maps of", "by a value for each channel"],
    ),
    "maximum with one": (
        lambda: small(lambda g: g.node("Max", g.last, g.numbers(1.0))),
        ["(Max)", "and 0"],
    ),
    "squeeze of maps": (
        lambda: small(lambda g: g.node("Squeeze", g.last, g.numbers(2, 3))),
        ["(Squeeze)", "[2, 3]", "axes of one"],
    ),
    "pool without kernel": (lambda: small(op("MaxPool")), ["(MaxPool)", "`kernel_shape` = []"]),
    "clip to limits the other way round": (
        lambda: small(op("Clip", min=1.0, max=-1.0)),
        ["(Clip)", "1 ... -1", "from one number to a larger one"],
    ),
    "clip to made limits": (
        lambda: small(lambda g: g.node("Clip", g.last, g.last)),
        ["(Clip)", "`min`"],
    ),
    "clip without limits": (lambda: small(op("Clip")), ["(Clip)", "-inf ... inf"]),
    "limit of ReLU that others take as a row": (
        lambda: ending(
            lambda g: g.node("Flatten", g.node("Relu"), name="row"),
            lambda g: g.node("Clip", g.last, "", g.numbers(6.0)),
            lambda g: g.node("Add", g.last, g.node("Flatten", g.nodes[1].output[0])),
            lambda g: g.fc("fc", 256, 5),
        ),
        ["(Clip)", "-inf ... 6"],
    ),
    "a quantised network": (
        lambda: small(
            lambda g: g.node(
                "DequantizeLinear", g.node("QuantizeLinear", g.last, g.numbers(0.1)), "w0"
            )
        ),
        ["(QuantizeLinear)", "quantised", "single precision"],
    ),
    "another's quantised network": (
        lambda: small(op("QLinearAdd", domain="com.microsoft")),
        ["(com.microsoft.QLinearAdd)", "quantised"],
    ),
    "another hard sigmoid": (lambda: small(op("HardSigmoid")), ["(HardSigmoid)", "`alpha` = 0.2"]),
    "another swish": (lambda: small(op("Swish", alpha=2.0)), ["(Swish)", "`alpha` = 2"]),
    "lrn of even size": (lambda: small(op("LRN", size=4)), ["(LRN)", "`size` = 4"]),
    "dropout of all": (lambda: small(op("Dropout", ratio=1.0)), ["(Dropout)", "`rate` = 1.0"]),
    "dropout of a made ratio": (
        lambda: small(lambda g: g.node("Dropout", g.last, g.last)),
        ["(Dropout)", "`ratio`"],
    ),
    "batch-norm of all values": (
        lambda: small(
            lambda g: g.node("BatchNormalization", g.last, *(g.weight(256) for _ in range(4)))
        ),
        ["(BatchNormalization)", "256 channels", "4x8x8"],
    ),
    "sum of shapes": (
        lambda: small(lambda g: g.node("Add", g.last, g.pool(2, 2))),
        ["(Add)", "4x8x8 and 4x4x4"],
    ),
    "sum with a constant": (
        lambda: small(lambda g: g.node("Add", g.last, g.weight(4, 8, 8))),
        ["(Add)", "constant"],
    ),
    "sum of two constants": (
        lambda: small(lambda g: g.node("Add", g.weight(1), g.weight(1))),
        ["(Add)", "constant"],
    ),
    "bias for others too": (
        lambda: after_flatten(
            lambda g: g.node("MatMul", g.last, g.weight(256, 5)),
            lambda g: g.node("Sum", g.last, g.node("Add", g.last, g.weight(5))),
        ),
        ["(Add)", "of only the MatMul before"],
    ),
    "joined rows": (
        lambda: small(lambda g: g.node("Concat", g.last, g.node("Relu"), axis=2)),
        ["(Concat)", "`axis` = 2"],
    ),
    "sum of maps and values": (
        lambda: small(lambda g: g.node("Add", g.last, g.node("Flatten"))),
        ["(Add)", "flattened"],
    ),
    "pool of values": (
        lambda: after_flatten(op("MaxPool", kernel_shape=[2, 2])),
        ["(MaxPool)", "flattened"],
    ),
    "fc of maps": (lambda: small(lambda g: g.fc("odd", 4, 4)), ["'odd' (Gemm)", "Flatten"]),
    "fc of other values": (
        lambda: ending(op("Flatten"), lambda g: g.fc("odd", 255, 5)),
        ["'odd'", "255 values", "4x8x8"],
    ),
    "gemm of a transposed input": (
        lambda: after_flatten(lambda g: g.node("Gemm", g.last, g.weight(4, 4), transA=1)),
        ["(Gemm)", "`transA` = 0"],
    ),
    "flatten all": (lambda: small(op("Flatten", axis=0)), ["(Flatten)", "`axis` = 0"]),
    "reshape to maps": (
        lambda: small(op("Reshape", shape=[0, 4, 8, 8])),
        ["(Reshape)", "[0, 4, 8, 8]"],
    ),
    "reshape over samples": (lambda: small(op("Reshape", shape=[1, -1])), ["(Reshape)", "[1, -1]"]),
    "reshape to no number": (
        lambda: ending(lambda g: g.node("Reshape", g.last, g.numbers(0.0, float("nan")))),
        ["(Reshape)", "integers"],
    ),
    "reshape to text": (
        lambda: ending(
            lambda g: g.node("Reshape", g.last, g.node("Constant", value_strings=["0", "-1"]))
        ),
        ["(Reshape)", "`shape`"],
    ),
    "reshape to other values": (
        lambda: ending(op("GlobalAveragePool"), op("Reshape", shape=[-1, 8])),
        ["(Reshape)", "8 values", "4x1x1"],
    ),
    "mean of channels": (
        lambda: small(op("ReduceMean", axes=[1])),
        ["(ReduceMean)", "`axes` = [1]"],
    ),
    "mean of all": (lambda: small(op("ReduceMean")), ["(ReduceMean)", "`axes` = []"]),
    "softmax of columns": (lambda: small(op("Softmax", axis=3)), ["(Softmax)", "`axis` = 3"]),
    "softmax in between": (
        lambda: small(op("Softmax", axis=1)),
        ["(GlobalAveragePool)", "softmax"],
    ),
    "a hole": (lambda: small(lambda g: g.node("Relu", "nothing")), ["(Relu)", "'nothing'", "hole"]),
    "an unused result": (lambda: small(lambda g: g.node("Relu", "x")), ["(Relu)", "begins"]),
    "a side that leads nowhere": (
        lambda: small(
            lambda g: g.conv("side", 4, 4, 3, "conv:0"), lambda g: g.node("Relu", "conv:0")
        ),
        ["'side'", "is not used"],
    ),
    "a cycle": (cycle, ["(Relu)", "'relu:1'", "cycle"]),
    "out of order": (
        lambda: swapped(small(op("Relu"), op("Dropout")), 1, 2),
        ["(Dropout)", "out of order"],
    ),
    "made twice": (
        lambda: small(op("Relu"), lambda g: g.nodes.append(g.nodes[-1])),
        ["(Relu)", "'relu:1'"],
    ),
    "an input left out": (
        lambda: small(lambda g: g.node("Relu", "")),
        ["(Relu)", "lacks its input 1"],
    ),
    "several inputs": (lambda: with_inputs("y", "z"), ["3 inputs", "'x', 'y', 'z'"]),
    "weights that are inputs": (
        lambda: with_inputs("fc.weight"),
        ["2 inputs", "export_params=True"],
    ),
    "several outputs": (
        lambda: with_output(small(), "conv:0", "gemm:3"),
        ["2 outputs", "'conv:0', 'gemm:3'"],
    ),
    "an output that nothing makes": (lambda: with_output(small(), "y"), ["'y'", "hole"]),
    "sizes that are not fixed": (
        lambda: Graph(1, 3, "rows", "columns"),
        ["'x'", "1x3x?x?", "fixed"],
    ),
    "no images": (lambda: Graph("n", 784, 3, 2, 2), ["'x'", "?x784x3x2x2"]),
    "no layer": (lambda: Graph("n", 784), ["(Relu)", "begins with a layer", "conv of kernel 1"]),
    "empty images": (lambda: small(size=0), ["`input[1]` = 0"]),
}


@pytest.fixture
def refused(tmp_path: Path, one_line: Callable[..., str]) -> Refused:
    """Returns the one line with which a model is refused."""

    def line_of(model: Graph | bytes) -> str:
        with pytest.raises(InputError) as error:
            load(tmp_path, model)
        line = one_line(error)
        assert line.startswith(f"{tmp_path / 'mine.onnx'}: ")
        return line

    return line_of


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case: str, refused: Refused) -> None:
    model, message = BAD[case]
    graph = model()
    if not graph.nodes:
        graph.node("Relu")
    line = refused(graph)
    for part in message:
        assert part in line


def test_the_refusal_names_what_is_known(tmp_path: Path, refused: Refused) -> None:
    known = refused(small(op("Selu"))).rpartition("known are ")[2].partition(";")[0].split(", ")
    assert {
        "Conv",
        "Gemm",
        "MatMul",
        "MaxPool",
        "LRN",
        "BatchNormalization",
        "Add",
        "Concat",
        "Softmax",
    } <= set(known)
    assert known[1:] == sorted(known[1:])
    for operator in known:
        assert "unknown operator" not in refused_or_not(tmp_path, small(op(operator)))


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("Selu", "; use nn.ELU"),
        ("RNN", "; use nn.LSTM or nn.GRU"),
        ("GridSample", "; use nn.Upsample (nearest, bilinear), or nn.ConvTranspose2d, which"),
        ("TopK", "; do it behind the network, on its outputs"),
        ("Trilu", "; give masks to attention (is_causal=True"),
        ("Loop", "; fix all sizes before the export"),
        ("Tomorrow", "; write what it computes by modules of these"),
    ],
)
def test_the_refusal_ends_with_what_to_do(operator: str, said: str, refused: Refused) -> None:
    assert said in refused(small(op(operator)))


def test_what_to_do_is_of_what_is_unknown_and_known_to_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    named = " ".join(_REMEDIES.values()).split()
    assert len(named) == len({*named})
    assert not {*named} & _known().keys()
    assert {*named} <= {schema.name for schema in onnx.defs.get_all_schemas_with_history()}


@pytest.mark.parametrize("content", [b"", b"some text\n", b'name = "a"\n', bytes(100)])
def test_a_file_of_something_else(content: bytes, refused: Refused) -> None:
    assert "not an ONNX file" in refused(content)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    for name in ("none.onnx", "folder.onnx"):
        with pytest.raises(InputError, match="cannot be read"):
            load_network(str(tmp_path / name))
    with pytest.raises(InputError):
        load_network("a\0b.onnx")


def test_the_command_line_says_it_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(small(op("Selu")).model())
    for command in (
        ["network"],
        ["simulate", "--samples", "8", "--network"],
        ["schedule", "--network"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "emuchain", *command, path],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        assert "(Selu): unknown operator" in line


def test_without_the_package_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'emuchain[onnx]'" in refused(b"")


def test_other_networks_do_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert load_network("resnet8-cifar").classes == 10


def test_a_name_without_its_ending(tmp_path: Path) -> None:
    load(tmp_path, small())
    with pytest.raises(InputError, match="did you mean") as error:
        load_network(str(tmp_path / "mine"))
    assert f"`{tmp_path / 'mine.onnx'}`" in str(error.value)


def test_a_name_that_is_no_text(refused: Refused) -> None:
    assert "damaged" in refused(resnet8().model().replace(b"conv1", b"con\xff1"))
