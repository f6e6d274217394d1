"""Formats of a run by kind: what the key `precision` may be, and how it is spelt again."""

from __future__ import annotations

import math
from typing import Any

import pytest

from emuchain.emulator.common import InputError
from emuchain.emulator.config import settings_config
from emuchain.emulator.number import KINDS, Precision, joined, precision_of
from emuchain.kernels.number import BF16, FP32, BlockGrid, Rounding, number_format

MXFP8 = number_format("mxfp8")


def test_a_name_is_for_activations_weights_and_errors() -> None:
    precision = precision_of("mxfp8")
    assert [precision.format(kind) for kind in KINDS] == [MXFP8, MXFP8, MXFP8, FP32, FP32, FP32]
    assert precision.one == MXFP8 and precision.has_copies and not precision.is_single
    assert precision_of("fp32").is_single and not precision_of("fp32").has_copies


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("fp32", "fp32"),
        ("q2.14", "q2.14"),
        ({"format": "mxfp8", "master": "bf16"}, "mxfp8 master=bf16"),
        (
            {"format": "mxfp4", "accumulate": "dot:32", "hadamard": 16},
            "mxfp4 accumulate=dot:32 hadamard=16",
        ),
        (
            {"format": "bf16", "layer": {"a.b": "fp8", "c:d": {"rounding": {"errors": "away"}}}},
            "bf16 layer.a.b=fp8 layer.c:d.rounding.errors=away",
        ),
        (
            {"format": "fp16", "layer": "a=fp16,b.states=bf16"},
            "fp16 layer.a.accumulate=fp32 layer.b.states=bf16",
        ),
        (
            {"format": "mxfp8", "errors": "fp16", "layer": {"x.errors": {"format": "mxfp8"}}},
            "activations=mxfp8 weights=mxfp8 errors=fp16 layer.x.errors.format=mxfp8",
        ),
        ({"activations": "bf16", "errors": "fp8-e5m2"}, "activations=bf16 errors=fp8-e5m2"),
        (
            {"format": "mxfp4", "scale": "floor", "rounding": "zero"},
            "mxfp4 scale=floor rounding=zero",
        ),
        ({"weights": "mxint8", "scale": "floor"}, "weights=mxint8 scale=floor"),
        (
            {
                "format": "bf16",
                "rounding": {"weights": "stochastic", "errors": "away"},
                "loss_scale": 1024,
            },
            "bf16 rounding.weights=stochastic rounding.errors=away loss_scale=1024",
        ),
        ({"loss_scale": 2}, "fp32 loss_scale=2"),
        ({"loss_scale": "dynamic"}, "fp32 loss_scale=dynamic"),
        ({"loss_scale": "dynamic:every=9"}, "fp32 loss_scale=dynamic:every=9"),
        ({"loss_scale": "dynamic:every=9,first=4"}, "fp32 loss_scale=dynamic:every=9,first=4"),
    ],
)
def test_what_is_spelt_is_read_again(given: object, text: str) -> None:
    precision = precision_of(given)
    assert str(precision) == text
    assert precision_of(text) == precision
    assert settings_config({"precision": given}).model_dump()["precision"] == text


def test_keys_of_the_table() -> None:
    precision = precision_of(
        {"format": "mxfp8", "scale": "floor", "rounding": {"master": "zero"}, "loss_scale": 4.0}
    )
    assert isinstance(precision.weights.grid, BlockGrid) and precision.weights.grid.floor
    assert (
        precision.rounding_of("master") is Rounding.ZERO
        and precision.rounding_of("weights") is Rounding.EVEN
    )
    assert precision.loss_scale == 4
    assert precision_of(BF16) == Precision.all_in(BF16)


def test_flags_change_keys_of_a_file() -> None:
    assert joined("mxfp8", {"master": "bf16"}) == {"format": "mxfp8", "master": "bf16"}
    assert joined({"format": "mxfp8", "scale": "floor"}, {"scale": "up"}) == {
        "format": "mxfp8",
        "scale": "up",
    }
    assert joined("mxfp8", {"format": "bf16", "master": "bf16"}) == {
        "format": "bf16",
        "master": "bf16",
    }
    assert joined("mxfp8 scale=floor", {"master": "bf16"}) == {
        "format": "mxfp8",
        "scale": "floor",
        "master": "bf16",
    }
    assert joined(None, {"master": "bf16"}) == {"master": "bf16"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mxfp9", "did you mean `mxfp8`? known: fp32, bf16, fp16"),
        ("bf61", "did you mean `bf16`? known"),
        ("", "known: fp32, bf16, fp16"),
        ("bf16 fp16", "'bf16 fp16' has 'format' twice"),
        ("rounding=even rounding.master=zero", "has 'rounding' twice"),
        (8, "should be a format such as 'bf16', or a table"),
        ({"wieghts": "bf16"}, "did you mean `weights`"),
        ({"weights": "bf17"}, "weights = 'bf17': did you mean `bf16`? known: fp32"),
        ({"weights": 8}, "weights = 8: should be a format's name"),
        ({"loss_scale": 3}, "loss_scale = 3: should be a power of two"),
        ({"loss_scale": "dynamic:every=0"}, "should be a power of two, 1 to 16777216, or 'dynamic"),
        ({"loss_scale": "dynamic:every=2,first=3"}, "should be a power of two"),
        ({"loss_scale": "256.0"}, "should be a power of two"),
        ({"loss_scale": True}, "loss_scale = True: should be a power of two"),
        ({"loss_scale": math.inf}, "loss_scale = inf: should be a power of two"),
        ({"loss_scale": math.nan}, "loss_scale = nan: should be a power of two"),
        ({"scale": "down"}, "scale = 'down': should be 'up' or 'floor'"),
        (
            {"accumulate": "dot:8"},
            "accumulate = 'dot:8': an exact sum of 8 products of activations in fp32 and weights in",
        ),
        (
            {"accumulate": "fp8"},
            "accumulate = 'fp8': should be 'fp32', 'int32', 'bf16', 'fp16', 'dot:8'",
        ),
        ("mxfp4 hadamard=16", "hadamard = 16: transforms pixels that PG rounds in blocks"),
        ("mxfp4 accumulate=dot:32 hadamard=8", "hadamard = '8': should be '0', '4' or '16'"),
        ("bf16 layer.a=fp8 layer.a=fp16", "has 'format' twice"),
        ({"layer": {"a b": "fp8"}}, "layer 'a b': should be a layer's name"),
        ({"layer": 3}, "layer = 3: should be a table"),
        ({"accumulate": "kulisch"}, "accumulate = 'kulisch': sums of all products would travel"),
        (
            {"rounding": "odd"},
            "rounding of activations = 'odd': should be 'even', 'away', 'zero' or 'stochastic'",
        ),
        ({"rounding": {"all": "even"}}, "rounding = 'all': should be 'activations'"),
    ],
)
def test_what_is_no_precision(given: Any, said: str) -> None:
    with pytest.raises(InputError, match="`precision`") as error:
        settings_config({"precision": given})
    assert said in str(error.value)
