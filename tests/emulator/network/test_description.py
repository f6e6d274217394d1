"""Descriptions of networks: what is wrong with bad ones is said in one line; all others become
networks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emuchain.emulator.common import InputError, read_toml, validate
from emuchain.emulator.network import load_network, zoo
from emuchain.emulator.network.description import Description
from emuchain.emulator.network.graph import resolve

from .descriptions import CONV, FC, SOFTMAX, described

SIZED = 'type = "conv", channels = 4'  # without a kernel

BAD = {
    "unknown key": (described(CONV, FC, SOFTMAX) + "foo = 1\n", ["`foo`", "unknown key"]),
    "unknown key of a layer": (
        described(CONV + ", kernal = 3", FC, SOFTMAX),
        ["`layers[0].kernal`", "unknown key", "did you mean `kernel`?"],
    ),
    "key of another kind of layer": (
        described(CONV, FC + ", channels = 4", SOFTMAX),
        ["`layers[1].channels`", "known keys: bias, features, from, name, type"],
    ),
    "missing key": (described(SIZED, FC, SOFTMAX), ["`layers[0].kernel`", "missing"]),
    "no layers": ('name = "n"\ninput = [3, 8, 8]\n', ["`layers`", "missing"]),
    "empty layers": (described(), ["`layers`"]),
    "softmax alone": (described(SOFTMAX), ["`layers`"]),
    "layers are no list": ('name = "n"\ninput = [3, 8, 8]\nlayers = 3\n', ["`layers` = 3"]),
    "a layer is no table": ('name = "n"\ninput = [3, 8, 8]\nlayers = [1]\n', ["`layers[0]`"]),
    "a layer without type": (described("channels = 3", FC, SOFTMAX), ["`layers[0]", "type"]),
    "string for number": (
        described('type = "fc", features = "4"', FC, SOFTMAX),
        ["`layers[0].features`"],
    ),
    "float for number": (
        described('type = "fc", features = 4.0', FC, SOFTMAX),
        ["`layers[0].features`"],
    ),
    "bool for number": (
        described('type = "fc", features = true', FC, SOFTMAX),
        ["`layers[0].features`"],
    ),
    "number for bool": (described(CONV + ", bias = 1", FC, SOFTMAX), ["`layers[0].bias`"]),
    "number for name": (described(CONV + ", name = 1", FC, SOFTMAX), ["`layers[0].name`"]),
    "three kernel sizes": (
        described(SIZED + ", kernel = [3, 3, 3]", FC, SOFTMAX),
        ["`layers[0].kernel"],
    ),
    "string kernel": (described(SIZED + ', kernel = "3"', FC, SOFTMAX), ["`layers[0].kernel"]),
    "zero kernel": (described(SIZED + ", kernel = 0", FC, SOFTMAX), ["`layers[0].kernel"]),
    "zero stride": (described(CONV + ", stride = [1, 0]", FC, SOFTMAX), ["`layers[0].stride"]),
    "zero channels": (
        described('type = "conv", channels = 0, kernel = 3', FC, SOFTMAX),
        ["`layers[0].channels` = 0"],
    ),
    "negative pad": (described(CONV + ", pad = -1", FC, SOFTMAX), ["`layers[0].pad"]),
    "zero features": (
        described('type = "fc", features = 0', SOFTMAX),
        ["`layers[0].features` = 0"],
    ),
    "zero input": (
        described(FC, SOFTMAX, head='name = "n"\ninput = [3, 0, 8]\n'),
        ["`input[1]` = 0"],
    ),
    "input of two": (described(FC, SOFTMAX, head='name = "n"\ninput = [3, 8]\n'), ["`input"]),
    "unknown type": (
        described('type = "conf", channels = 4', SOFTMAX),
        ["`layers[0]`", "'conf'", "conv"],
    ),
    "unknown start": (described(FC, SOFTMAX) + 'start = "zeros"\n', ["`start` = 'zeros'"]),
    "rate of one": (
        described(FC, 'type = "dropout", rate = 1.0', SOFTMAX),
        ["`layers[1].rate` = 1.0"],
    ),
    "rate is nan": (
        described(FC, 'type = "dropout", rate = nan', SOFTMAX),
        ["`layers[1].rate` = nan"],
    ),
    "no softmax": (described(CONV, FC), ["`layers`", "softmax"]),
    "layer after softmax": (described(FC, SOFTMAX, FC, SOFTMAX), ["layers[1]", "softmax"]),
    "pool first": (
        described('type = "max-pool", kernel = 2', FC, SOFTMAX),
        ["layers[0]", "max-pool", "begins"],
    ),
    "relu first": (described('type = "relu"', FC, SOFTMAX), ["layers[0]", "relu"]),
    "same name": (
        described(CONV + ', name = "a"', FC + ', name = "a"', SOFTMAX),
        ["layers[1]", "`name` = 'a'"],
    ),
    "same name as one given": (
        described(CONV + ', name = "fc1"', FC, SOFTMAX),
        ["layers[1]", "`name` = 'fc1'"],
    ),
    "slash in a name": (described(FC + ', name = "a/b"', SOFTMAX), ["layers[0]", "`name` = 'a/b'"]),
    "kernel too large": (
        described(SIZED + ", kernel = 9", FC, SOFTMAX),
        ["layers[0]", "`kernel` = 9"],
    ),
    "columns too few": (
        described(SIZED + ", kernel = [1, 11], pad = [0, 1]", FC, SOFTMAX),
        ["layers[0]", "`kernel` = 11"],
    ),
    "pool of too many places": (
        described(CONV, 'type = "max-pool", kernel = [5, 52]', FC, SOFTMAX),
        ["layers[1]", "at most 255", "5x52"],
    ),
    "pool too large": (
        described(CONV, 'type = "max-pool", kernel = 7', FC, SOFTMAX),
        ["layers[1]", "`kernel` = 7"],
    ),
    "pad of a kernel": (described(CONV + ", pad = 3", FC, SOFTMAX), ["layers[0]", "`pad` = 3"]),
    "pad of a pool": (
        described(FC, 'type = "max-pool", kernel = 2, pad = 2', SOFTMAX),
        ["layers[1]", "`pad` = 2"],
    ),
    "from nowhere": (
        described(CONV, FC + ', from = "x"', SOFTMAX),
        ["layers[1]", "`from` = 'x'", "images"],
    ),
    "a cycle": (
        described(CONV + ', name = "a", from = "b"', CONV + ', name = "b"', FC, SOFTMAX),
        ["layers[0]", "`from` = 'b'", "cycle"],
    ),
    "a hole": (
        described(CONV + ', name = "a"', FC + ', from = "images"', SOFTMAX),
        ["layers[0] (conv)", "is not used"],
    ),
    "a convolution of two": (
        described(CONV + ', name = "a"', CONV + ', from = ["a", "images"]', FC, SOFTMAX),
        ["layers[1]", "`from` names 2"],
    ),
    "sum of one": (
        described(CONV + ', name = "a"', 'type = "add", from = ["a"]', FC, SOFTMAX),
        ["`layers[1].from"],
    ),
    "sum of none": (
        described(CONV + ', name = "a"', 'type = "add"', FC, SOFTMAX),
        ["`layers[1].from`", "missing"],
    ),
    "sum of shapes": (
        described(CONV + ', name = "a"', 'type = "add", from = ["a", "images"]', FC, SOFTMAX),
        ["layers[1]", "4x6x6 and 3x8x8"],
    ),
    "concatenation of sizes": (
        described(CONV + ', name = "a"', 'type = "concat", from = ["a", "images"]', FC, SOFTMAX),
        ["layers[1]", "4x6x6 and 3x8x8"],
    ),
    "a misspelt type": (
        described(CONV, 'type = "batch_norm"', FC, SOFTMAX),
        ["`layers[1]`", "'batch_norm'; did you mean `batch-norm`? known types: relu"],
    ),
    "images as a name": (
        described(FC + ', name = "images"', SOFTMAX),
        ["layers[0]", "`name` = 'images'"],
    ),
    "a slash in an operation's name": (
        described(FC, 'type = "relu", name = "a/b"', SOFTMAX),
        ["layers[1]", "a/b"],
    ),
    "not TOML": ("name = \n", ["not a TOML file", "line 1"]),
    "a key twice": ('name = "a"\nname = "b"\n', ["not a TOML file"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_descriptions(tmp_path: Path, case: str, one_line: Callable[..., str]) -> None:
    text, message = BAD[case]
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        load_network(str(path))
    line = one_line(error)
    assert line.startswith(f"{path}: ")
    for part in message:
        assert part in line


def test_the_description_behind_the_bad_ones_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good.toml"
    path.write_text(described(CONV, FC, SOFTMAX))
    assert load_network(str(path)).classes == 10


def test_a_missing_file(tmp_path: Path, one_line: Callable[..., str]) -> None:
    with pytest.raises(InputError, match="cannot be read") as error:
        load_network(str(tmp_path / "none.toml"))
    assert "none.toml" in one_line(error)


def test_a_folder_for_a_file(tmp_path: Path, one_line: Callable[..., str]) -> None:
    (tmp_path / "dir.toml").mkdir()
    with pytest.raises(InputError, match="cannot be read") as error:
        load_network(str(tmp_path / "dir.toml"))
    one_line(error)


def test_a_file_that_is_not_text(tmp_path: Path, one_line: Callable[..., str]) -> None:
    path = tmp_path / "bytes.toml"
    path.write_bytes(b'name = "\xff\xfe"')
    with pytest.raises(InputError, match="not a TOML file") as error:
        load_network(str(path))
    one_line(error)


def test_a_misspelt_name(one_line: Callable[..., str]) -> None:
    with pytest.raises(InputError) as error:
        load_network("vgg16-cifer")
    line = one_line(error)
    assert "`network` = 'vgg16-cifer'" in line
    assert "did you mean `vgg16-cifar`?" in line


def test_a_name_like_no_other(one_line: Callable[..., str]) -> None:
    with pytest.raises(InputError) as error:
        load_network("~~~")
    line = one_line(error)
    assert "did you mean" not in line
    assert "`emuchain network` lists" in line and not any(name in line for name in zoo())


# Values as TOML has them, mostly of the right type.
NUMBERS = st.integers(-1, 12)
ODD = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=4), st.lists(NUMBERS, max_size=3)
)
SIZES = st.one_of(
    st.integers(1, 4), st.lists(st.integers(1, 4), min_size=2, max_size=2), NUMBERS, ODD
)
WORDS = st.sampled_from("conv fc relu max-pool average-pool lrn dropout softmax".split())
TYPES = st.one_of(WORDS, WORDS, WORDS, ODD)
KEYS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6).filter(
    lambda key: not key.startswith(("int", "union", "tuple", "constrained"))
)


@st.composite
def operation(draw: st.DrawFn) -> Any:
    """A table like an operation's, now and then with a wrong key or value."""
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
        table[draw(st.sampled_from(["stride", "pad", "bias", "name", "size", "alpha"]))] = draw(
            SIZES
        )
    if not draw(st.integers(0, 30)):
        table[draw(KEYS)] = draw(ODD)
    return table if draw(st.integers(0, 30)) else draw(ODD)


@st.composite
def description(draw: st.DrawFn) -> dict[str, Any]:
    """A table like a network's, now and then with a wrong key or value."""
    layers = draw(st.lists(operation(), max_size=5))
    if draw(st.integers(0, 6)):
        layers = [
            {"type": "conv", "channels": 2, "kernel": draw(SIZES)},
            *layers,
            {"type": "fc", "features": 3},
        ]
    if draw(st.integers(0, 6)):
        layers.append({"type": "softmax"})
    table: dict[str, Any] = {"name": draw(st.text(max_size=3)), "layers": layers}
    table["input"] = draw(
        st.one_of(st.just([3, 8, 8]), st.lists(NUMBERS, min_size=2, max_size=4), ODD)
    )
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
    assert all(
        size > 0 for layer in network.layers for size in (*layer.input, *layer.output, *layer.feeds)
    )


@given(st.one_of(st.text(max_size=60), st.text('a=[]{}"\n.1#\\ ', max_size=60)))
def test_any_text_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        assert isinstance(read_toml(path), dict)
    except InputError as error:
        assert len(str(error).splitlines()) == 1


def test_a_key_with_a_line_break(one_line: Callable[..., str]) -> None:
    with pytest.raises(InputError) as error:
        validate(
            Description, {"name": "n", "input": [1, 1, 1], "layers": [], "a\nb": 1}, "some.toml"
        )
    one_line(error)


@pytest.mark.parametrize("key", ["interval", "unions", "tuple_size"])
def test_an_unknown_key_is_named_whatever_it_begins_with(
    key: str, one_line: Callable[..., str]
) -> None:
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
