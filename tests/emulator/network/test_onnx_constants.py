"""Arrays of ONNX files: what is computed of them, which of them are merged copies, and what the
export left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.network import load_network, onnx_weights

from .onnx_models import Graph, load, onnx, op, small

W = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
"""Weights of 5 classes for 4 channels of 4x4 pixels."""

SCOPES, CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
RULE = "pkg.onnxscript.rewriter.rule_name"


def classifier(*takes: Callable[[Graph], str], operator: str = "MatMul", **keys: Any) -> Graph:
    """A convolution, Flatten, and a product with what functions compute."""
    graph = Graph("n", 3, 4, 4)
    graph.array(np.ones((4, 3, 1, 1), np.float32), "first")
    graph.node("Conv", "x", "first", name="conv")
    flat = graph.node("Flatten")
    graph.node(operator, flat, *(take(graph) for take in takes), name="fc", **keys)
    return graph


def weights_of(folder: Path, graph: Graph, producer: str = "") -> dict[str, dict[str, np.ndarray]]:
    """The arrays that training begins with."""
    path = folder / "mine.onnx"
    path.write_bytes(graph.model(producer))
    return onnx_weights(str(path))


def transposed(graph: Graph) -> str:
    return graph.node("Transpose", graph.array(W))


def cut_and_joined(graph: Graph) -> str:
    """The rows in another order, as PyTorch puts gates of an LSTM; the order is that of the graph's
    sizes.
    """
    w, one = (
        graph.array(W),
        graph.node("Shape", graph.array(np.zeros((1, 3), np.float32)), start=0, end=1),
    )
    two = graph.node("Mul", one, graph.numbers(2))
    parts = [
        graph.node("Slice", w, graph.numbers(0), two),
        graph.node("Slice", w, two, graph.numbers(5)),
    ]
    joined = graph.node("Concat", *reversed(parts), axis=0)
    apart = graph.node("Unsqueeze", joined, graph.numbers(0))
    return graph.node("Transpose", graph.node("Squeeze", apart, graph.numbers(0)))


def normalised(graph: Graph) -> str:
    """PyTorch's weight_norm: direction over its length, times a magnitude."""
    w, magnitude = graph.array(W), graph.array(np.arange(1, 6, dtype=np.float32).reshape(5, 1))
    squares = graph.node("ReduceSum", graph.node("Mul", w, w), graph.numbers(1), keepdims=1)
    return graph.node(
        "Transpose", graph.node("Mul", graph.node("Div", w, graph.node("Sqrt", squares)), magnitude)
    )


def counted(graph: Graph) -> str:
    """The rows from the last to the first, whose numbers are sums of ones."""
    ones = graph.array(np.ones(5, np.int64))
    counts = graph.node("CumSum", ones, graph.array(np.array(0)), reverse=1)
    places = graph.node("Unsqueeze", graph.node("Sub", counts, graph.numbers(1)), graph.numbers(1))
    columns = graph.node("Expand", places, graph.numbers(5, 64))
    return graph.node(
        "Transpose", graph.node("GatherElements", graph.array(W), columns, axis=0), perm=[1, 0]
    )


EXPRESSIONS: dict[str, tuple[Callable[[Graph], str], np.ndarray]] = {
    "transposed": (transposed, W),
    "reshaped": (lambda g: g.node("Reshape", g.array(W.T.ravel().copy()), g.numbers(64, -1)), W),
    "cut and joined": (cut_and_joined, np.concatenate([W[2:], W[:2]])),
    "in half precision": (
        lambda g: g.node(
            "Cast", g.node("Identity", g.array(W.T.astype(np.float16))), to=onnx.TensorProto.FLOAT
        ),
        W.astype(np.float16).astype(np.float32),
    ),
    "normalised": (
        normalised,
        W
        / np.sqrt((W * W).sum(1, keepdims=True))
        * np.arange(1, 6, dtype=np.float32).reshape(5, 1),
    ),
    "a product": (
        lambda g: g.node(
            "MatMul", g.array(np.eye(64, dtype=np.float32) * 2), g.node("Transpose", g.array(W))
        ),
        2 * W,
    ),
    "by Einstein's sum": (
        lambda g: g.node("Einsum", g.array(W), g.numbers(1.0, 2.0), equation="oi,k->io"),
        3 * W,
    ),
    "at places that are counted": (counted, W[::-1]),
}


@pytest.mark.parametrize("case", EXPRESSIONS)
def test_weights_that_are_computed(tmp_path: Path, case: str) -> None:
    made, expected = EXPRESSIONS[case]
    [_, fc] = weights_of(tmp_path, classifier(made)).values()
    np.testing.assert_allclose(fc["weight"].reshape(5, 64), expected, rtol=1e-6)
    note = load_network(str(tmp_path / "mine.onnx")).note
    assert ("1 array of weights" in note) == (
        case in ("normalised", "a product", "by Einstein's sum")
    )


def test_a_transposed_weight_of_gemm(tmp_path: Path) -> None:
    [_, fc] = weights_of(tmp_path, classifier(transposed, operator="Gemm")).values()
    assert (fc["weight"].reshape(5, 64) == W).all()


HOSTILE: dict[str, Callable[[Graph], str]] = {
    "expand": lambda g: g.node("Expand", g.numbers(1.0), g.numbers(10**6, 10**6)),
    "zeros": lambda g: g.node("ConstantOfShape", g.numbers(10**6, 10**6)),
    "tile": lambda g: g.node("Tile", g.array(W), g.numbers(10**5, 10**5)),
    "range": lambda g: g.node("Range", *(g.array(np.array(n)) for n in (0, 10**12, 1))),
    "doubling": lambda g: [
        transposed(g),
        *(g.node("Concat", *[g.last] * 2, axis=0) for _ in range(40)),
    ][-1],
    "sums": lambda g: g.node(
        "Einsum", g.array(W), *[g.numbers(*[1.0] * 16)] * 6, equation="oi,a,b,c,d,e,f->io"
    ),
    "products": lambda g: g.node("MatMul", *[g.node("ConstantOfShape", g.numbers(2000, 2000))] * 2),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_would_fill_the_memory_is_not_computed(
    tmp_path: Path, case: str, one_line: Callable[..., str]
) -> None:
    graph = classifier(
        lambda g: g.node("Mul", transposed(g), g.node("ReduceSum", HOSTILE[case](g)))
    )
    (tmp_path / "mine.onnx").write_bytes(graph.model())
    for read in (load_network, onnx_weights):
        with pytest.raises(InputError) as error:
            read(str(tmp_path / "mine.onnx"))
        assert "computes constants beyond 64.0 MiB in all" in one_line(error)


def test_what_cannot_be_computed_is_refused(tmp_path: Path, one_line: Callable[..., str]) -> None:
    graph = classifier(
        lambda g: g.node("Transpose", g.node("Gather", g.array(W), g.numbers(9, 1), axis=0))
    )
    with pytest.raises(InputError) as error:
        weights_of(tmp_path, graph)
    assert "(Gather): cannot be computed" in one_line(error)


def two_norms(scale: np.ndarray) -> Graph:
    """Two convolutions with batch normalisation, whose arrays are merged."""
    graph = Graph("n", 3, 8, 8)
    zeros = graph.array(np.zeros(4, np.float32), "n1.bias")
    graph.array(scale, "n1.weight")
    for place, inputs in ((1, 3), (2, 4)):
        weight = graph.array(np.ones((4, inputs, 3, 3), np.float32))
        graph.node("Conv", graph.last, weight, name=f"c{place}", pads=[1] * 4)
        graph.node(
            "BatchNormalization",
            graph.last,
            "n1.weight",
            zeros,
            zeros,
            "n1.weight",
            name=f"n{place}",
        )
    graph.node("GlobalAveragePool")
    return graph


def at(module: str, kind: str, function: str = "aten.f") -> dict[str, str]:
    """What PyTorch's default exporter tells of a node in a module of that class."""
    return {SCOPES: f"['', '{module}', 'f']", CLASSES: f"['Net', '{kind}', '{function}']"}


LINEAR, CONV, GELU = (
    f"torch.nn.modules.{name}" for name in ("linear.Linear", "conv.Conv2d", "activation.GELU")
)


def test_zeros_and_ones_that_were_merged_are_copies(tmp_path: Path) -> None:
    network = load(tmp_path, two_norms(np.ones(4, np.float32)))
    assert [step.operation.type for layer in network.layers for step in layer.sfu][:2] == [
        "batch-norm",
        "batch-norm",
    ]
    assert (
        "6 uses of arrays that the export merged" in network.note
    )  # of 8 uses, each array's first is its own
    arrays = weights_of(tmp_path, two_norms(np.ones(4, np.float32)))
    assert [list(own["scale"]) for own in arrays.values()] == [[1.0] * 4] * 2


def test_one_parameter_of_two_layers_is_refused(
    tmp_path: Path, one_line: Callable[..., str]
) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, two_norms(np.arange(4, dtype=np.float32)))
    assert "shares its weights 'n1.weight' with" in one_line(error)


def pair(name: str, first: str, second: str, size: int = 8) -> bytes:
    """Two linear layers of modules `first` and `second` that take the array `name`, as PyTorch's
    exporter tells it.
    """
    graph = Graph("n", 2, 2, size // 4)
    graph.array(np.arange(size * size, dtype=np.float32).reshape(size, size), name)
    graph.node("Flatten")
    for module in (first, second):
        graph.node("Gemm", graph.last, name, transB=1, said=at(module, LINEAR))
    return graph.model("pytorch")


def test_the_exporter_merges_small_arrays_under_the_first_name(
    tmp_path: Path, one_line: Callable[..., str]
) -> None:
    """PyTorch 2.14: deepcopy(a) keeps a.weight up to 1024 numbers; b.weight = a.weight is called
    after the last.
    """
    assert "1 use of arrays" in load(tmp_path, pair("a.weight", "a", "b")).note
    for case in (
        pair("b.weight", "a", "b"),
        pair("a.weight", "a", "a"),
        pair("a.weight", "a", "b", 64),
    ):
        with pytest.raises(InputError) as error:
            load(tmp_path, case)
        assert "shares its weights" in one_line(error)


def test_weights_over_their_lengths_are_computed(tmp_path: Path) -> None:
    """As of spectral normalisation: a norm of constants is none of the network."""
    graph, weight = Graph("n", 2, 2, 2), np.arange(1, 65, dtype=np.float32).reshape(8, 8)
    graph.array(weight, "a.weight")
    length = graph.node("ReduceL2", "a.weight", axes=[1], keepdims=1)
    least = graph.node("Clip", length, graph.array(np.array(1e-12, np.float32)))
    own = graph.node("Div", "a.weight", least)
    graph.node("Flatten", "x")
    graph.node("Gemm", graph.last, own, transB=1)
    [arrays] = weights_of(tmp_path, graph).values()
    expected = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    np.testing.assert_allclose(arrays["weight"].reshape(8, 8), expected, rtol=1e-6)


def test_the_old_exporter_makes_copies_by_identity(tmp_path: Path) -> None:
    graph = Graph("n", 2, 2, 2)
    graph.array(np.arange(64, dtype=np.float32).reshape(8, 8), "a.weight")
    graph.node("Flatten")
    graph.node("Gemm", graph.last, "a.weight", transB=1)
    last = graph.last
    graph.node("Gemm", last, graph.node("Identity", "a.weight", name="Identity_0"), transB=1)
    first, second = weights_of(tmp_path, graph, "pytorch").values()
    assert (first["weight"].ravel() == second["weight"].ravel()).all()
    assert (
        "1 use of arrays that the export merged" in load_network(str(tmp_path / "mine.onnx")).note
    )


def local_response(graph: Graph, between: int = 0) -> None:
    """Add the operators of nn.LocalResponseNorm, with as many others before its second one."""
    graph.node("Mul", graph.last, graph.last, name="/norm/Mul")
    for _ in range(between):
        graph.node("Constant", value_int=1)
    graph.node("AveragePool", kernel_shape=[1, 1], name="/norm/AveragePool")
    graph.node("Pow", graph.last, graph.numbers(0.75), name="/norm/Pow")


NAMED: dict[str, tuple[Callable[[Graph], object], str]] = {
    "its class": (
        lambda g: g.node("Selu", said=at("act", GELU)),
        "(Selu), PyTorch's GELU 'act': unknown operator",
    ),
    "a function in another's class": (
        lambda g: g.node("Resize", said=at("up", "mine.Up", "aten.upsample_nearest2d.vec")),
        "(Resize), PyTorch's Upsample in Up 'up': its input 4 should be sizes",
    ),
    "padding of a convolution": (
        lambda g: g.node(
            "Pad", g.last, g.numbers(*[0, 1, 1, 1] * 2), mode="reflect", said=at("1", CONV)
        ),
        "PyTorch's Conv2d '1': `pads` = ",
    ),
    "its operator": (
        lambda g: g.node("ConvTranspose", name="/up/ConvTranspose"),
        "PyTorch's ConvTranspose2d 'up': its weights should be",
    ),
    "reflection": (
        lambda g: g.node(
            "Pad", g.last, g.numbers(*[0, 1, 1, 1] * 2), mode="reflect", name="/pad/Pad"
        ),
        "PyTorch's ReflectionPad2d 'pad': `pads` = ",
    ),
    "operators of one module": (
        lambda g: (g.node("Softplus", name="/act/Softplus"), g.node("Tanh", name="/act/Tanh")),
        "PyTorch's Mish 'act': unknown",
    ),
    "local response": (
        local_response,
        "PyTorch's LocalResponseNorm 'norm': ",
    ),
    "operators of one module, far apart": (
        lambda g: local_response(g, between=100),
        "PyTorch's LocalResponseNorm 'norm': ",
    ),
    "both ends of rows and columns before a convolution": (
        lambda g: (
            *(
                g.node("Slice", x, *ends(g), name=f"/1/Slice_{n}")
                for n, x in enumerate([g.last] * 4)
            ),
            *(g.node("Concat", "x", "x", axis=2, name=f"/1/Concat_{n}") for n in range(2)),
            g.node("Conv", "x", g.weight(3, 3, 1, 1), name="/1/Conv"),
        ),
        "(Slice), PyTorch's Conv2d '1': cuts",
    ),
    "normalisation of old versions": (
        lambda g: (
            g.node("ReduceMean", axes=[-3, -2, -1], name="/n/ReduceMean"),
            *(
                g.node(operator, g.last, g.last, name=f"/n/{operator}")
                for operator in ("Sub", "Pow", "Sqrt", "Div")
            ),
        ),
        "PyTorch's LayerNorm 'n': `axes`",
    ),
    "a pool of powers": (
        lambda g: [g.node(name, name=f"/p/{name}") for name in ("Pow", "AveragePool", "Sign")],
        "PyTorch's LPPool2d 'p': raises to another power than 2",
    ),
    "a module in Sequential": (
        lambda g: g.node("Resize", name="/net/net.2/up/up.0/Resize"),
        "PyTorch's Upsample 'net.2.up.0': its input 4",
    ),
    "a function beside a module that is farther in": (
        lambda g: (
            g.node("Abs", name="/block/Abs"),
            *(g.node(name, g.last, g.last, name=f"/block/{name}") for name in ("Resize", "Cast")),
            g.node("Relu", name="/block/net/net.0/Relu"),
        ),
        "PyTorch's abs in 'block': unknown",
    ),
    "a function in a module": (
        lambda g: g.node("Einsum", name="/net/net.2/Einsum"),
        "PyTorch's einsum in 'net.2': unknown",
    ),
    "an operator that no module has": (
        lambda g: g.node("Det", name="/net/net.2/Det"),
        "PyTorch's module 'net.2': unknown",
    ),
    "an array beside maps": (
        lambda g: g.node(
            "Concat",
            g.array(np.zeros((1, 4, 8, 8), np.float32)),
            g.last,
            axis=1,
            name="/vit/Concat",
        ),
        "PyTorch's cat in 'vit': joins an array of the file to what nodes make",
    ),
    "a constant map": (
        lambda g: g.node(
            "Mul", g.last, g.array(np.ones((1, 4, 8, 8), np.float32)), name="/net/net.2/Mul"
        ),
        "PyTorch's product in 'net.2': multiplies by an array of the file",
    ),
    "dropout in place": (
        lambda g: g.node("RandomUniformLike", said=at("d", "torch.nn.modules.dropout.Dropout")),
        "PyTorch's Dropout 'd': draws numbers at random, as dropout does with inplace=True",
    ),
}


def ends(graph: Graph) -> tuple[str, ...]:
    """Inputs of Slice: the last row."""
    return graph.numbers(-1), graph.numbers(2**40), graph.numbers(2)


@pytest.mark.parametrize("case", NAMED)
def test_what_is_refused_is_called_as_in_pytorch(
    tmp_path: Path, case: str, one_line: Callable[..., str]
) -> None:
    part, message = NAMED[case]
    with pytest.raises(InputError) as error:
        load(tmp_path, small(part).model("pytorch"))
    assert message in one_line(error)


def test_names_of_modules_stay_on_one_line(tmp_path: Path, one_line: Callable[..., str]) -> None:
    said = at("a\n\x1bb", "torch.nn.X\n\x1bY")
    with pytest.raises(InputError) as error:
        load(tmp_path, small(op("Selu", said=said)).model("pytorch"))
    assert "\x1b" not in one_line(error)


LOST = {
    "biases": (
        "Gemm",
        "RemoveOptionalBiasFromGemm",
        "left out zero biases of 1 fully connected layer, which",
    ),
    "a norm": (
        "Gemm",
        "FuseBatchNormIntoGemm",
        "folded batch normalisation into 1 fully connected layer, which",
    ),
    "perhaps a bias": (
        "Conv",
        "RemoveOptionalBiasFromConv",
        "biases of 1 convolution are not in the file",
    ),
    "a norm whose shift is zero": (
        "Conv",
        "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv, RemoveOptionalBiasFromConv",
        "folded batch normalisation into 1 convolution, which",
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_what_the_export_left_out_is_reported(tmp_path: Path, case: str) -> None:
    operator, rule, message = LOST[case]
    graph = Graph("n", 3, 1, 1)
    if operator == "Gemm":
        graph.node("Flatten")
    shape = (5, 3, 1, 1)[: 2 if operator == "Gemm" else 4]
    keys = {"transB": 1} if operator == "Gemm" else {}
    graph.node(operator, graph.last, graph.weight(*shape), said={RULE: rule}, **keys)
    assert message in load(tmp_path, graph.model("pytorch")).note
