"""Slices of attention against PyTorch's autograd with the same dropout, whose masks are written out here."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import numpy as np
import pytest

from emuchain.emulator.device.attention_slice import AttentionSlice
from emuchain.emulator.device.sfu import Training
from emuchain.emulator.mapping import Slice, cut_channels
from emuchain.emulator.network import Layer, load_network
from emuchain.emulator.schedule import MicroBatch, SampleSpan
from emuchain.kernels import Arena

HEADS, TOKENS, SIZE, SEED = 3, 19, 8, 5
NUMBERS = np.array([3, 2**40, 7])  # of the samples, since the start of training
STEP = 0x9E3779B97F4A7C15


def attention(**keys: Any) -> Layer:
    """The second layer of a network, after the one that makes queries, keys and values."""
    qkv = {"type": "conv", "channels": 3 * HEADS * SIZE, "kernel": 1}
    layers = [qkv, {"type": "attention", "heads": HEADS, **keys}, {"type": "softmax"}]
    return load_network({"name": "n", "input": [5, TOKENS, 1], "layers": layers}).layers[1]


def drawn(seed: int, layer: Layer, shape: tuple[int, int, int]) -> np.ndarray:
    channels, rows, columns = shape
    return np.random.default_rng(seed).standard_normal((len(NUMBERS), rows, columns, channels), np.float32)


def ran(layer: Layer, cuts: list[int], spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Outputs, and errors of the inputs, by slices that end at `cuts`, spans of samples after one another."""
    ends = [0, *cuts, cut_channels(layer)]
    slices = [AttentionSlice(Slice(layer, *part), SEED, Arena()) for part in itertools.pairwise(ends)]
    x, dy = drawn(1, layer, layer.input), drawn(2, layer, layer.output)
    batch = MicroBatch(0, 0, 0, len(x))

    async def through() -> tuple[list[Any], list[Any]]:
        outputs, errors = [], []
        for begin, end in spans:
            span, held, partial = SampleSpan(batch, begin, end), x[begin:end].copy(), None
            for own in slices:
                training = Training(0, NUMBERS[begin:end])
                partial, held = await own.forward(span, held, partial, 0, training), own.beyond(held)
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
    """What multiplies the shares (samples, heads, queries, keys), which count in this order in each sample."""
    step, stream = np.uint64(STEP), np.uint64(layer.index | 0x7FFFFFFF << 32)
    elements = np.arange(1, HEADS * TOKENS * TOKENS + 1, dtype=np.uint64).reshape(HEADS, TOKENS, TOKENS)
    with np.errstate(over="ignore"):
        key = mixed(mixed(mixed(np.uint64(SEED) + step) + stream + step) + NUMBERS.astype(np.uint64) + step)
        shares = mixed(key[:, None, None, None] + elements * step) / 2**64
    return np.where(shares < rate, 0, 1 / (1 - rate))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_pytorch(causal: bool, rate: float) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the peer of this test, is not installed")
    layer = attention(causal=causal, dropout=rate)
    y, dx = ran(layer, [], [(0, 3)])
    x = torch.tensor(drawn(1, layer, layer.input)[:, :, 0], dtype=torch.float64, requires_grad=True)
    q, k, v = x.view(len(x), TOKENS, HEADS, 3, SIZE).permute(3, 0, 2, 1, 4)
    scores = q @ k.transpose(2, 3) * SIZE**-0.5
    if causal:
        scores = scores + torch.full((TOKENS, TOKENS), -torch.inf, dtype=torch.float64).triu(1)
    made = (torch.softmax(scores, 3) * torch.tensor(kept(layer, rate))) @ v
    made = made.transpose(1, 2).flatten(2)
    made.backward(torch.tensor(drawn(2, layer, layer.output)[:, :, 0], dtype=torch.float64))
    for ours, theirs, bound in ((y, made.detach(), 2e-6), (dx, x.grad, 3e-6)):
        assert np.abs(ours[:, :, 0] - theirs.numpy()).max() <= bound * np.abs(theirs.numpy()).max()


@pytest.mark.parametrize("causal", [True, False])
def test_bits_depend_on_neither_cuts_nor_spans(causal: bool) -> None:
    layer = attention(causal=causal, dropout=0.4)
    y, dx = ran(layer, [], [(0, 3)])
    assert (y != ran(attention(causal=causal), [], [(0, 3)])[0]).any()
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
