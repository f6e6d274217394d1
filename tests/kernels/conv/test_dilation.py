"""Convolutions whose kernels have gaps: the bits of a kernel that has zeros there, as each product
with zero leaves a sum as it is; and PyTorch's numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from emuchain.kernels import aligned
from emuchain.kernels.conv import DotConvolution, convolution
from emuchain.kernels.conv.grouped import Depthwise
from emuchain.kernels.window import extent

Floats = NDArray[np.float32]
Three = tuple[Floats, Floats, Floats]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Windows, and the channels of groups."""
    pairs = {
        "kernel": (1, 3),
        "stride": (1, 4),
        "dilation": (1, 4),
    }
    window = {name: draw(st.tuples(*[st.integers(*ends)] * 2)) for name, ends in pairs.items()}
    reach = extent(window["kernel"], window["dilation"])
    pad = tuple(draw(st.integers(0, side - 1)) for side in reach)
    size = tuple(
        draw(st.integers(max(1, side - 2 * by), side + 4))
        for side, by in zip(reach, pad, strict=True)
    )
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    each = draw(st.tuples(*[st.sampled_from([1, 2, 5, 17])] * 2))
    return {**window, "pad": pad, "size": size, "groups": groups, "each": each}


def phases(of: Any, x: Floats, w: Floats, dy: Floats) -> Three:
    """Return FP, EB and PG."""
    n = len(x)
    packed, turned = of.pack(w), aligned(4 * of.turned_size).view(np.float32)
    of.turn(packed, turned)
    frame = np.empty(of.frame_shape(n), np.float32)
    errors = np.empty(of.error_frame_shape(n), np.float32)
    of.frame(x, frame)
    of.error_frame(dy, errors)
    y, dx = np.empty_like(dy), np.empty_like(x)
    of.forward(y, frame, packed, fresh=True)
    of.error(dx, errors, turned, fresh=True)
    of.gradient(packed, frame, dy, fresh=True)
    return y, dx, of.unpack(packed)


def stuffed(w: Floats, dilation: tuple[int, int]) -> Floats:
    """Return weights with zeros in the gaps of their kernel."""
    whole = np.zeros((*w.shape[:2], *extent(w.shape[2:], dilation)), np.float32)  # type: ignore[arg-type]
    whole[:, :, :: dilation[0], :: dilation[1]] = w
    return whole


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[Floats]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@settings(deadline=None, max_examples=60)
@given(cases(), st.integers(0, 2**31))
def test_zeros_in_the_gaps_give_the_same_bits(case: dict[str, Any], seed: int) -> None:
    (ic, oc), groups, dilation = case["each"], case["groups"], case["dilation"]
    window = case["stride"], case["pad"]
    outputs = [oc] * groups
    of = convolution(ic * groups, outputs, case["size"], case["kernel"], *window, dilation)
    reach = extent(case["kernel"], dilation)
    peer = convolution(ic * groups, outputs, case["size"], reach, *window)
    assert of.output == peer.output
    assert isinstance(of, Depthwise) == (groups > 1 and (ic, oc) == (1, 1))
    x, w, dy = drawn(
        seed,
        (2, *case["size"], ic * groups),
        (oc * groups, ic, *case["kernel"]),
        (2, *of.output, oc * groups),
    )
    ours, theirs = phases(of, x, w, dy), phases(peer, x, stuffed(w, dilation), dy)
    down, across = dilation
    for one, other in zip(ours, (*theirs[:2], theirs[2][:, :, ::down, ::across]), strict=True):
        assert np.array_equal(one, other)


@settings(deadline=None, max_examples=30)
@given(cases(), st.integers(0, 2**31))
def test_so_do_sums_of_blocks(case: dict[str, Any], seed: int) -> None:
    (ic, oc), dilation = case["each"], case["dilation"]
    window, sums = (case["stride"], case["pad"]), (5, (False, False, False))
    of = DotConvolution(ic, oc, case["size"], case["kernel"], *window, *sums, dilation)
    reach = extent(case["kernel"], dilation)
    peer = DotConvolution(ic, oc, case["size"], reach, *window, *sums)
    random = np.random.default_rng(seed)
    shapes = (2, *case["size"], ic), (oc, ic, *case["kernel"]), (2, *of.output, oc)
    x, w, dy = (random.integers(-9, 10, shape).astype(np.float32) for shape in shapes)
    made = []
    for own, weights in ((of, w), (peer, stuffed(w, dilation))):
        turned = np.empty(own.turned_size, np.float32)
        frame = np.empty(own.frame_shape(2), np.float32)
        errors = np.empty(own.error_frame_shape(2), np.float32)
        packed, gradient = own.pack(weights), np.empty(own.packed_size, np.float32)
        own.turn_weights(weights, turned)
        own.frame(x, frame)
        own.error_frame(dy, errors)
        y, dx = np.empty_like(dy), np.empty_like(x)
        own.forward(y, frame, packed, fresh=True)
        own.error(dx, errors, turned, fresh=True)
        own.gradient(gradient, frame, dy, fresh=True)
        made.append((y, dx, own.unpack(gradient)))
    down, across = dilation
    ours, (y, dx, dw) = made
    for one, other in zip(ours, (y, dx, dw[:, :, ::down, ::across]), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_it_is_that_of_pytorch(groups: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    of = convolution(6, [6 // groups] * groups, (9, 8), (3, 2), (2, 1), (2, 1), (3, 2))
    x, w, dy = drawn(1, (2, 9, 8, 6), (6, 6 // groups, 3, 2), (2, *of.output, 6))
    leaves = [torch.tensor(own, requires_grad=True) for own in (x.transpose(0, 3, 1, 2), w)]
    keys = {"stride": (2, 1), "padding": (2, 1), "dilation": (3, 2), "groups": groups}
    made = torch.nn.functional.conv2d(*leaves, **keys)
    made.backward(torch.tensor(dy.transpose(0, 3, 1, 2)))
    y, dx, dw = phases(of, x, w, dy)
    assert np.allclose(y, made.detach().numpy().transpose(0, 2, 3, 1), atol=1e-5)
    assert np.allclose(dx, leaves[0].grad.numpy().transpose(0, 2, 3, 1), atol=1e-5)
    assert np.allclose(dw, leaves[1].grad.numpy(), atol=1e-5)
