"""Slices of attention against PyTorch's autograd with the same dropout, whose masks are written out
here.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.device.slices.attention import AttentionSlice
from emuchain.emulator.mapping import Slice, cut_channels
from emuchain.emulator.network import Layer, Training, load_network
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena
from emuchain.kernels.attention import Attention, backward, forward

HEADS, TOKENS, SIZE, SEED = 6, 19, 8, 5
NUMBERS = np.array([3, 2**40, 7])  # of the samples, since the start of training
STEP = 0x9E3779B97F4A7C15


def attention(groups: int = HEADS, **keys: Any) -> Layer:
    """The second layer of a network, after the one that makes queries, keys and values."""
    qkv = {"type": "conv", "channels": (HEADS + 2 * groups) * SIZE, "kernel": 1}
    own = {
        "type": "attention",
        "heads": HEADS,
        **({"kv_heads": groups} if groups < HEADS else {}),
        **keys,
    }
    layers = [qkv, own, {"type": "softmax"}]
    return load_network({"name": "n", "input": [5, TOKENS, 1], "layers": layers}).layers[1]


def drawn(seed: int, layer: Layer, shape: tuple[int, int, int]) -> np.ndarray:
    channels, rows, columns = shape
    return np.random.default_rng(seed).standard_normal(
        (len(NUMBERS), rows, columns, channels), np.float32
    )


def ran(
    layer: Layer, cuts: list[int], spans: list[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Outputs, and errors of the inputs, by slices that end at `cuts`, spans of samples after one
    another.
    """
    ends = [0, *cuts, cut_channels(layer)]
    slices = [
        AttentionSlice(Slice(layer, *part), SEED, Arena()) for part in itertools.pairwise(ends)
    ]
    x, dy = drawn(1, layer, layer.input), drawn(2, layer, layer.output)
    batch = MicroBatch(0, 0, 0, len(x))

    async def through() -> tuple[list[Any], list[Any]]:
        outputs, errors = [], []
        for begin, end in spans:
            span, held, partial = SampleSpan(batch, begin, end), x[begin:end].copy(), None
            for own in slices:
                training = Training(0, NUMBERS[begin:end])
                partial, held = (
                    await own.forward(span, held, partial, 0, training),
                    own.beyond(held),
                )
            outputs.append(partial)
        for begin, end in spans:
            back: Any = None
            for own in reversed(slices):
                lost = dy[begin:end, ..., : own.part.out_channels.stop].copy()
                back = await own.error(SampleSpan(batch, begin, end), lost, back, 0)
            errors.append(back)
        return outputs, errors

    return tuple(map(np.concatenate, asyncio.run(through())))  # type: ignore[return-value]  # two


def mixed(z: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def kept(layer: Layer, rate: float) -> np.ndarray:
    """What multiplies the shares (samples, heads, queries, keys), which count in this order in each
    sample.
    """
    step, stream = np.uint64(STEP), np.uint64(layer.index | 0x7FFFFFFF << 32)
    elements = np.arange(1, HEADS * TOKENS * TOKENS + 1, dtype=np.uint64).reshape(
        HEADS, TOKENS, TOKENS
    )
    with np.errstate(over="ignore"):
        key = mixed(
            mixed(mixed(np.uint64(SEED) + step) + stream + step) + NUMBERS.astype(np.uint64) + step
        )
        shares = mixed(key[:, None, None, None] + elements * step) / 2**64
    return np.where(shares < rate, 0, 1 / (1 - rate))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("groups", [6, 3, 1])
def test_pytorch(causal: bool, rate: float, groups: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    layer, sharing = attention(groups, causal=causal, dropout=rate), HEADS // groups
    y, dx = ran(layer, [], [(0, 3)])
    x = torch.tensor(drawn(1, layer, layer.input)[:, :, 0], dtype=torch.float64, requires_grad=True)
    parts = x.view(len(x), TOKENS, groups, sharing + 2, SIZE).permute(0, 2, 3, 1, 4)
    q = parts[:, :, :sharing].flatten(1, 2)
    k, v = (parts[:, :, place].repeat_interleave(sharing, 1) for place in (sharing, sharing + 1))
    scores = q @ k.transpose(2, 3) * SIZE**-0.5
    if causal:
        scores = scores + torch.full((TOKENS, TOKENS), -torch.inf, dtype=torch.float64).triu(1)
    made = (torch.softmax(scores, 3) * torch.tensor(kept(layer, rate))) @ v
    made = made.transpose(1, 2).flatten(2)
    made.backward(torch.tensor(drawn(2, layer, layer.output)[:, :, 0], dtype=torch.float64))
    [module] = layer.operation.torch(torch.nn, layer.input)
    if rate == 0:
        assert torch.allclose(module(x), made, rtol=0, atol=1e-12)
    for ours, theirs, bound in ((y, made.detach(), 2e-6), (dx, x.grad, 3e-6)):
        assert np.abs(ours[:, :, 0] - theirs.numpy()).max() <= bound * np.abs(theirs.numpy()).max()


@pytest.mark.parametrize(("causal", "groups"), [(True, 6), (False, 6), (True, 3), (False, 3)])
def test_bits_depend_on_neither_cuts_nor_spans(causal: bool, groups: int) -> None:
    layer = attention(groups, causal=causal, dropout=0.4)
    y, dx = ran(layer, [], [(0, 3)])
    assert (y != ran(attention(groups, causal=causal), [], [(0, 3)])[0]).any()
    for cuts in ([1], [2], [1, 2]):
        for spans in ([(0, 3)], [(0, 1), (1, 3)]):
            again = ran(layer, cuts, spans)
            assert again[0].tobytes() == y.tobytes() and again[1].tobytes() == dx.tobytes()


def test_evaluation_drops_nothing() -> None:
    x = drawn(1, attention(), attention().input)
    batch = MicroBatch(0, 0, 0, len(x))
    made = []
    for layer in (attention(), attention(dropout=0.4)):
        own = AttentionSlice(Slice(layer, 0, HEADS), SEED, Arena())
        made.append(asyncio.run(own.infer(batch.whole, x.copy(), None, 0, None)).tobytes())
    assert made[0] == made[1] == ran(attention(), [], [(0, 3)])[0].tobytes()


@pytest.mark.parametrize("causal", [True, False])
def test_shared_keys_and_values_are_those_of_heads_that_have_the_same(causal: bool) -> None:
    """Outputs and errors of queries are those of single heads, bit for bit; errors of k and v are
    summed by heads.
    """
    groups, sharing = 2, 3
    layer = attention(groups, causal=causal)
    y, dx = (array[:, :, 0] for array in ran(layer, [], [(0, 3)]))
    x = drawn(1, layer, layer.input)[:, :, 0].reshape(3, TOKENS, groups, sharing + 2, SIZE)
    dy = np.ascontiguousarray(drawn(2, layer, layer.output)[:, :, 0])
    alone = np.stack(
        [np.stack([x[..., head, :], x[..., -2, :], x[..., -1, :]], 3) for head in range(sharing)], 3
    )
    alone = np.ascontiguousarray(alone.reshape(3, TOKENS, -1))
    kernel = Attention(HEADS, SIZE, causal)
    outputs, statistics = forward(alone, kernel)
    errors = backward(alone, statistics, dy, kernel).reshape(3, TOKENS, groups, sharing, 3, SIZE)
    shared = (errors[..., 0, 1:, :] + errors[..., 1, 1:, :]) + errors[..., 2, 1:, :]
    expected = np.concatenate([errors[..., 0, :], shared], axis=3)
    assert (
        outputs.tobytes() == y.tobytes()
        and expected.tobytes() == dx.reshape(expected.shape).tobytes()
    )
